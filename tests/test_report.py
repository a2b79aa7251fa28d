import dataclasses
import io
import json
import math

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure
from rich.console import Console

import flowsim
from flowsim import report
from flowsim.data import gaussian_teacher
from flowsim.dynamics import Outcome
from flowsim.report.page.render import group_of_runs
from flowsim.report.panels import TimeView, envelope_of
from flowsim.report.panels.view import Series, log_limits, time_view
from flowsim.report.render_paper import _apart, draw_curve
from flowsim.results import StoreError
from flowsim.results.runs import read_runs, runs_of

RATES = [0.4, 0.1, 3.0]
COLUMN = (3.3, 2.5)


@pytest.fixture(scope="module")
def problem():
    return flowsim.LinearRegression(*gaussian_teacher(np.random.default_rng(0), 20, 3))


@pytest.fixture(scope="module")
def comparison(problem):
    network = flowsim.DeepLinear.gaussian(widths=[3] * 4 + [1], scale=0.4, key=jax.random.key(1))
    return flowsim.compare(network, problem, RATES, steps=300, records=40)


@pytest.fixture(scope="module")
def alone(comparison):
    return dataclasses.replace(comparison, descents=())


@pytest.fixture(scope="module")
def nonlinear(comparison):
    """The same runs as a nonlinear network would show them: no regressor, no minimal risk, no theory."""
    return dataclasses.replace(
        comparison,
        flow=_without_optimum(comparison.flow),
        descents=tuple(dataclasses.replace(d, trajectory=_without_optimum(d.trajectory)) for d in comparison.descents),
        bounds=None,
        critical_learning_rate=None,
    )


@pytest.fixture(scope="module")
def motionless(comparison):
    """All runs end where they start, at a saddle: one record each."""
    saddle = _ended(comparison.flow, Outcome.STATIONARY)
    still = (
        dataclasses.replace(d, trajectory=saddle, distance=np.zeros(1), distance_to_flow=0.0, crossing_time=None)
        for d in comparison.descents
    )
    return dataclasses.replace(comparison, flow=saddle, descents=tuple(still))


@pytest.fixture(scope="module")
def lost(comparison):
    """The only descent leaves the range of floats with its first step."""
    descent = _at_rate(comparison, 3.0)
    run = descent.trajectory
    infinite = {name: getattr(run, name).at[1:].set(np.inf) for name in ("risk", "excess_risk", "squared_distance")}
    run = dataclasses.replace(run, **infinite, sharpness=run.sharpness.at[1:].set(np.nan))
    distance = np.where(np.arange(len(run.times)) > 0, np.inf, 0.0)
    descent = dataclasses.replace(descent, trajectory=run, distance=distance, distance_to_flow=np.inf)
    return dataclasses.replace(comparison, descents=(descent,))


@pytest.fixture(scope="module")
def foreign(comparison):
    """Two runs more, by dynamics of which no file of the package knows, one without a learning rate."""
    descent = dataclasses.replace(_at_rate(comparison, 0.1), dynamics="my_module:HeavyBall")
    free = dataclasses.replace(descent, dynamics="my_flow", learning_rate=None, crossing_time=None)
    return dataclasses.replace(comparison, descents=(*comparison.descents, descent, free))


@pytest.fixture(params=["comparison", "alone", "nonlinear", "motionless", "lost"])
def any_comparison(request):
    return request.getfixturevalue(request.param)


def _without_optimum(run):
    return dataclasses.replace(
        run, excess_risk=np.nan * run.excess_risk, squared_distance=np.nan * run.squared_distance
    )


def _ended(run, outcome):
    along = ("times", "time_remainders", "risk", "excess_risk", "squared_distance", "gradient_norm", "sharpness")
    return dataclasses.replace(
        run,
        **{name: getattr(run, name)[:1] for name in along},
        time=run.times[0],
        steps=jnp.array(0),
        code=jnp.array(int(outcome)),
        count=jnp.array(1),
    )


def _by_label(axes):
    return {line.get_label(): line for line in axes.lines}


def _printed(comparison, width=100, title="a title"):
    out = io.StringIO()
    Console(file=out, width=width).print(report.fitted(report.render(comparison.to_dataset(), title), width))
    return out.getvalue()


def _at_rate(comparison, learning_rate):
    return next(d for d in comparison.descents if d.learning_rate == learning_rate)


@pytest.mark.slow
def test_the_scenario_holds_a_run_that_converges_one_that_crosses_and_one_that_diverges(comparison):
    outcomes = {d.learning_rate: d.trajectory.outcome for d in comparison.descents}
    assert comparison.flow.converged
    assert outcomes[3.0] == Outcome.DIVERGED
    assert outcomes[0.1] == Outcome.CONVERGED
    assert _at_rate(comparison, 0.4).crossing_time > 0


class TestPage:
    @pytest.mark.parametrize("bound", [None, math.inf])
    @pytest.mark.slow
    def test_axes_and_levels_of_any_runs_are_numbers_that_a_browser_can_draw(self, any_comparison, bound):
        dataset = any_comparison.to_dataset()
        if bound is not None:
            dataset = dataset.assign(risk=1e300 * dataset["risk"]).assign_attrs(
                sharpness_lower_bound=1.0, sharpness_upper_bound=bound
            )
        group = group_of_runs(dataset).content()
        json.dumps(group, allow_nan=False)
        assert group["plots"][0]["name"] == "sharpness"
        assert 0 < group["time"]["first"] <= group["time"]["end"] < math.inf
        for plot in group["plots"]:
            for low, high in filter(None, (plot["linear"], plot["log"])):
                assert 0 < high - low < math.inf
            assert plot["log"] is None or plot["log"][0] > 0


class TestFigures:
    @pytest.mark.parametrize("suffix", [pytest.param("png", marks=pytest.mark.slow), "pdf"])
    def test_every_figure_is_drawn_without_a_warning(self, any_comparison, suffix):
        # Warnings are errors in all tests, but for those of libraries about each other that pyproject.toml names.
        for figure in report.figures(any_comparison.to_dataset()).values():
            figure.savefig(io.BytesIO(), format=suffix)

    def test_names_are_those_of_the_result_files(self, comparison, alone):
        assert list(report.figures(comparison.to_dataset())) == ["squared_distance", "sharpness", "distance"]
        assert list(report.figures(alone.to_dataset())) == ["squared_distance", "sharpness"]

    def test_figures_fit_a_column_and_leave_global_settings_alone(self, any_comparison):
        before = dict(matplotlib.rcParams)
        sizes = [tuple(figure.get_size_inches()) for figure in report.figures(any_comparison.to_dataset()).values()]
        assert set(sizes) == {COLUMN}
        assert dict(matplotlib.rcParams) == before

    @pytest.mark.slow
    def test_text_is_between_six_and_nine_points_when_drawn_outside_the_style(self, comparison):
        for figure in report.figures(comparison.to_dataset()).values():
            figure.draw_without_rendering()
            sizes = {text.get_fontsize() for text in figure.findobj(matplotlib.text.Text) if text.get_text()}
            assert min(sizes) >= 6
            assert max(sizes) <= 9

    @pytest.mark.slow
    def test_nothing_of_a_figure_is_cut_off_at_its_edge(self, any_comparison):
        for figure in report.figures(any_comparison.to_dataset()).values():
            figure.draw_without_rendering()
            box = figure.get_tightbbox()
            assert box.x0 >= -0.01
            assert box.y0 >= -0.01
            assert box.x1 <= COLUMN[0] + 0.01
            assert box.y1 <= COLUMN[1] + 0.01

    @pytest.mark.slow
    def test_the_legend_lies_outside_of_the_data(self, comparison):
        for figure in report.figures(comparison.to_dataset()).values():
            figure.draw_without_rendering()
            assert figure.legends[0].get_window_extent().y0 >= figure.axes[0].get_window_extent().y1

    @pytest.mark.slow
    def test_dashes_are_kept_for_two_over_eta_and_dots_for_bounds(self, comparison):
        axes = report.figures(comparison.to_dataset())["sharpness"].axes[0]
        dashed = [line.get_ydata()[0] for line in axes.lines if line.get_linestyle() == "--"]
        dotted = [line.get_ydata()[0] for line in axes.lines if line.get_linestyle() == ":"]
        visible = [2 / rate for rate in sorted(RATES) if 2 / rate <= axes.get_ylim()[1]]
        assert dashed == pytest.approx(visible)
        assert dotted == pytest.approx(comparison.bounds)

    def test_every_line_of_two_over_eta_has_the_colour_of_its_run_and_a_label(self, comparison):
        axes = report.figures(comparison.to_dataset())["sharpness"].axes[0]
        colours = {line.get_ydata()[0]: line.get_color() for line in axes.lines if line.get_linestyle() == "--"}
        assert colours[2 / 0.4] == _by_label(axes)[r"$\eta = 0.4$"].get_color()
        assert r"$2/\eta,\ \eta = 0.4$" in [text.get_text() for text in axes.texts]

    def test_a_larger_learning_rate_is_lighter_in_grey(self, comparison):
        axes = report.distance_figure(comparison.to_dataset()).axes[0]
        luminance = [np.dot(line.get_color()[:3], [0.2126, 0.7152, 0.0722]) for line in axes.lines[:3]]
        names = [line.get_label().removesuffix(", diverged") for line in axes.lines[:3]]
        assert names == [rf"$\eta = {rate:g}$" for rate in sorted(RATES)]
        assert luminance == sorted(luminance)

    def test_learning_rates_have_different_markers(self, comparison):
        axes = report.distance_figure(comparison.to_dataset()).axes[0]
        assert len({line.get_marker() for line in axes.lines[:3]}) == 3

    def test_only_runs_that_settle_are_drawn_over_the_flow(self, comparison):
        lines = _by_label(report.figures(comparison.to_dataset())["sharpness"].axes[0])
        flow = lines["GF"].get_zorder()
        assert lines[r"$\eta = 0.1$"].get_zorder() > flow
        assert lines[r"$\eta = 3$, diverged"].get_zorder() < flow

    def test_a_diverged_run_is_named_and_does_not_stretch_the_axes(self, comparison):
        for name, figure in report.figures(comparison.to_dataset()).items():
            axes = figure.axes[0]
            assert r"$\eta = 3$, diverged" in _by_label(axes), name
            assert axes.get_ylim()[1] < 1e4, name
            assert axes.get_xlim()[1] <= 3 * comparison.flow.time, name

    @pytest.mark.slow
    def test_the_crossing_of_two_over_eta_lies_on_its_curve(self, comparison):
        descent = _at_rate(comparison, 0.4)
        axes = report.distance_figure(comparison.to_dataset()).axes[0]
        stars = np.array(_by_label(axes)[r"$S$ reaches $2/\eta$"].get_xydata())
        times, known = np.asarray(descent.trajectory.times), descent.distance > 0
        height = np.exp(np.interp(descent.crossing_time, times[known], np.log(descent.distance[known])))
        assert np.abs(stars - [descent.crossing_time, height]).sum(axis=1).min() < 1e-12

    def test_a_run_that_starts_above_two_over_eta_is_marked_at_its_first_point(self, comparison):
        above = dataclasses.replace(_at_rate(comparison, 0.1), crossing_time=0.0)
        axes = report.distance_figure(dataclasses.replace(comparison, descents=(above,)).to_dataset()).axes[0]
        star = _by_label(axes)[r"$S$ reaches $2/\eta$"].get_xydata()
        np.testing.assert_allclose(star, [[above.trajectory.times[1], above.distance[1]]])

    def test_a_quantity_that_is_unknown_gives_way_to_the_next(self, comparison, nonlinear):
        def label(of):
            return report.squared_distance_figure(of.to_dataset()).axes[0].get_ylabel()

        no_regressor = dataclasses.replace(
            comparison,
            flow=dataclasses.replace(comparison.flow, squared_distance=np.nan * comparison.flow.squared_distance),
        )
        assert label(comparison).startswith("squared distance")
        assert label(no_regressor).startswith("excess risk")
        assert label(nonlinear).startswith("risk")


class TestView:
    def test_the_time_axis_ends_a_little_after_the_flow_has_converged(self, comparison):
        limit = float(comparison.flow.time)
        assert limit < time_view(read_runs(comparison.to_dataset())).end <= 3 * limit

    def test_all_is_shown_if_the_flow_did_not_converge(self, comparison):
        stopped = dataclasses.replace(comparison.flow, code=jnp.array(int(Outcome.TIME_LIMIT)))
        longest = max(float(d.trajectory.time) for d in comparison.descents)
        assert time_view(read_runs(dataclasses.replace(comparison, flow=stopped).to_dataset())).end >= longest

    def test_a_fast_phase_too_narrow_for_a_linear_axis_makes_it_logarithmic(self, comparison):
        flow = comparison.flow
        slow_end = dataclasses.replace(flow, time=1e4 * flow.time, times=flow.times.at[-1].multiply(1e4))
        assert time_view(read_runs(comparison.to_dataset())).linear_until is None
        slow = dataclasses.replace(comparison, flow=slow_end, descents=())
        fast_phase = time_view(read_runs(slow.to_dataset())).linear_until
        assert fast_phase is not None
        assert fast_phase < flow.time
        assert report.squared_distance_figure(slow.to_dataset()).axes[0].get_xscale() == "symlog"

    def test_limits_follow_the_runs_that_did_not_diverge(self):
        times, view = np.arange(4.0), TimeView(3.0, None)
        good = Series(times, np.array([1.0, 1e-3, 1e-6, np.nan]), True)
        bad = Series(times, np.array([1.0, 5.0, 1e248, np.inf]), False)
        bottom, top = log_limits([good, bad], view)
        assert 1e-7 < bottom < 1e-6
        assert 5 < top < 50
        assert log_limits([Series(times, np.zeros(4), True)], view) is None

    def test_labels_stand_apart_and_move_only_where_they_must(self):
        heights = np.array([0.10, 0.11, 0.12, 0.9])
        moved = _apart(heights, 0.1)
        assert np.diff(moved).min() >= 0.1 - 1e-12
        assert moved[3] == 0.9
        assert moved[:3] == pytest.approx([0.01, 0.11, 0.21])
        assert len(_apart(np.array([]), 0.1)) == 0


class TestTable:
    def test_rows_are_the_flow_and_then_every_descent(self, comparison):
        flow, *descents = report.rows(comparison.to_dataset())
        assert (flow["method"], flow["learning_rate"], flow["outcome"]) == ("GF", None, "CONVERGED")
        assert flow["two_over_eta"] is None
        assert flow["distance_to_flow"] is None
        assert [row["learning_rate"] for row in descents] == RATES
        assert [row["two_over_eta"] for row in descents] == [2 / rate for rate in RATES]

    def test_ratio_is_the_final_sharpness_over_the_lower_bound(self, comparison, nonlinear):
        row = report.rows(comparison.to_dataset())[0]
        assert row["sharpness"] == comparison.flow.final_sharpness
        assert row["ratio"] == row["sharpness"] / comparison.bounds[0]
        assert row["ratio"] >= 1
        assert all(row["ratio"] is None for row in report.rows(nonlinear.to_dataset()))

    @pytest.mark.parametrize("width", [80, 100])
    def test_nothing_is_cut_off_in_a_pipe_or_a_terminal(self, any_comparison, width):
        printed = _printed(any_comparison, width)
        assert "…" not in printed
        assert max(map(len, printed.splitlines())) <= width

    def test_the_longest_numbers_still_fit_eighty_columns(self, comparison):
        descent = _at_rate(comparison, 3.0)
        run = dataclasses.replace(
            descent.trajectory,
            steps=jnp.array(160000),
            time=jnp.array(16000.0),
            excess_risk=descent.trajectory.excess_risk.at[-1].set(2.687679e248),
        )
        wide = dataclasses.replace(descent, learning_rate=0.00125, trajectory=run, distance_to_flow=1.734e14)
        printed = _printed(dataclasses.replace(comparison, descents=(wide,)), 80)
        assert "…" not in printed
        for number in ("0.00125", "160000", "16000", "2.7e+248", "1600", "1.73e+14"):
            assert number in printed

    def test_a_diverged_run_says_at_which_step_and_has_no_sharpness(self, comparison):
        descent = _at_rate(comparison, 3.0)
        line = next(line for line in _printed(comparison).splitlines() if "diverged" in line)
        assert line.split()[2] == str(int(descent.trajectory.steps))
        assert line.split()[5:7] == ["–", "–"]

    def test_infinite_numbers_are_printed_as_such(self, lost):
        line = next(line for line in _printed(lost).splitlines() if "diverged" in line)
        assert line.split()[4] == "∞"

    def test_the_caption_gives_the_theory(self, comparison, nonlinear):
        lower, upper = comparison.bounds
        assert f"{lower:.4g} ≤ S_min ≤ {upper:.4g}" in _printed(comparison)
        assert f"critical learning rate at most {comparison.critical_learning_rate:.4g}" in _printed(comparison)
        assert "Theorem" not in _printed(nonlinear)

    def test_the_caption_says_why_the_flow_did_not_converge(self, comparison, motionless):
        words = " ".join(_printed(motionless).split())
        assert "The flow did not converge: " + Outcome.STATIONARY.meaning in words
        assert "did not converge" not in _printed(comparison)

    def test_a_title_in_brackets_is_printed_as_it_is(self, comparison):
        assert "runs/[bold]x.yaml" in _printed(comparison, title="runs/[bold]x.yaml")


class TestSummary:
    def test_it_is_strict_json_whatever_the_runs_did(self, any_comparison):
        summary = report.summary(any_comparison.to_dataset())
        assert json.loads(json.dumps(summary, allow_nan=False)) == summary

    def test_it_holds_the_ends_of_all_runs(self, comparison):
        summary, descent = report.summary(comparison.to_dataset()), _at_rate(comparison, 0.1)
        entry = next(run for run in summary["descent"] if run["learning_rate"] == 0.1)
        assert summary["flow"]["outcome"] == "CONVERGED"
        assert summary["flow"]["risk"] == float(comparison.flow.risk[-1])
        assert summary["flow"]["sharpness"] == comparison.flow.final_sharpness
        assert entry["distance_to_flow"] == descent.distance_to_flow
        assert entry["squared_distance"] == float(descent.trajectory.squared_distance[-1])
        assert entry["two_over_eta"] == 20
        assert summary["bounds"] == {"lower": comparison.bounds[0], "upper": comparison.bounds[1]}

    def test_what_does_not_apply_or_is_not_finite_is_none(self, comparison, nonlinear):
        diverged = next(r for r in report.summary(comparison.to_dataset())["descent"] if r["outcome"] == "DIVERGED")
        assert diverged["sharpness"] is None
        summary = report.summary(nonlinear.to_dataset())
        assert summary["bounds"] is None
        assert summary["critical_learning_rate"] is None
        assert summary["flow"]["excess_risk"] is None

    def test_a_sharpness_that_is_not_certified_is_unknown_and_not_an_error(self, comparison, monkeypatch):
        def refuse(*_):
            raise RuntimeError("the sharpness is not certified")

        flow = dataclasses.replace(comparison.flow, sharpness=None)
        monkeypatch.setattr("flowsim.dynamics.trajectory.sharpness", refuse)
        uncertain = dataclasses.replace(comparison, flow=flow, descents=())
        assert report.summary(uncertain.to_dataset())["flow"]["sharpness"] is None
        assert math.isnan(report.rows(uncertain.to_dataset())[0]["sharpness"])


class TestDataset:
    def test_runs_have_their_dynamics_and_learning_rate_as_coordinates(self, comparison):
        data = comparison.to_dataset()
        assert data["dynamics"].values.tolist() == ["gradient_flow"] + ["gradient_descent"] * 3
        np.testing.assert_array_equal(data["learning_rate"], [np.nan, *RATES])
        labels = [run.name for run in runs_of(data)]
        assert labels == ["GF", "η = 0.4", "η = 0.1", "η = 3"]
        assert [(run.index, run.count) for run in runs_of(data)[1:]] == [(1, 3), (0, 3), (2, 3)]

    def test_runs_are_padded_with_nan_to_the_longest(self, comparison):
        data = comparison.to_dataset()
        runs = [comparison.flow, *(d.trajectory for d in comparison.descents)]
        lengths = [len(run.times) for run in runs]
        assert data.sizes == {"run": 4, "record": max(lengths)}
        assert data["records"].values.tolist() == lengths
        for place, run in enumerate(runs):
            line = data["risk"].isel(run=place).values
            np.testing.assert_array_equal(line[: lengths[place]], run.risk)
            assert np.isnan(line[lengths[place] :]).all()

    def test_every_array_has_a_long_name_and_units(self, comparison):
        data = comparison.to_dataset()
        along = {"time", "risk", "excess_risk", "squared_distance", "gradient_norm", "sharpness", "distance"}
        assert {name for name in data if "record" in data[name].dims} == along
        assert all(data[name].attrs["long_name"] and data[name].attrs["units"] == "1" for name in data.variables)

    def test_outcomes_say_what_their_codes_mean(self, comparison):
        attrs = comparison.to_dataset()["outcome"].attrs
        meanings = dict(zip(attrs["flag_values"].tolist(), attrs["flag_meanings"].split(), strict=True))
        assert meanings == {-1: "NOT_ASKED"} | {int(outcome): outcome.name for outcome in Outcome}

    def test_it_survives_a_netcdf_file(self, any_comparison, tmp_path):
        xarray = pytest.importorskip("xarray")
        data = any_comparison.to_dataset({"title": "a run"})
        data.to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
        with xarray.open_dataset(tmp_path / "a.nc", engine="h5netcdf") as stored:
            xarray.testing.assert_identical(stored.load(), data)

    def test_theory_is_among_the_attributes(self, comparison, nonlinear):
        data = comparison.to_dataset({"seed": 3, "scenario": {"seed": 3}})
        assert data.attrs["seed"] == 3
        assert json.loads(data.attrs["scenario"]) == {"seed": 3}
        assert data.attrs["sharpness_lower_bound"] == comparison.bounds[0]
        assert nonlinear.to_dataset().attrs == {}

    def test_further_diagnostics_are_stored_with_their_own_dimensions(self, comparison):
        counted = len(comparison.flow.times)
        extra = {"eigenvalues": np.arange(2.0 * counted).reshape(counted, 2), "parts": {"a": np.ones(counted)}}
        data = dataclasses.replace(
            comparison, flow=dataclasses.replace(comparison.flow, diagnostics=extra)
        ).to_dataset()
        assert data["eigenvalues"].dims == ("run", "record", "eigenvalues_0")
        np.testing.assert_array_equal(data["eigenvalues"].isel(run=0)[:counted], extra["eigenvalues"])
        assert np.isnan(data["eigenvalues"].isel(run=1)).all()
        assert data["parts_a"].isel(run=0)[:counted].values.tolist() == [1.0] * counted


class TestOtherDynamics:
    @pytest.mark.slow
    def test_they_have_a_line_and_a_label_in_every_figure(self, foreign):
        for name, figure in report.figures(foreign.to_dataset()).items():
            lines = _by_label(figure.axes[0])
            assert {r"HeavyBall, $\eta = 0.1$", "my flow"} <= set(lines), name
            ball, descent = lines[r"HeavyBall, $\eta = 0.1$"], lines[r"$\eta = 0.1$"]
            assert ball.get_linestyle() == "--"
            assert descent.get_linestyle() == "-"
            assert ball.get_color() != descent.get_color()
            figure.savefig(io.BytesIO(), format="png")

    def test_they_do_not_change_the_looks_of_gradient_descent(self, comparison, foreign):
        before, after = (_by_label(report.sharpness_figure(c.to_dataset()).axes[0]) for c in (comparison, foreign))
        for label in (r"$\eta = 0.1$", r"$\eta = 0.4$"):
            assert before[label].get_color() == after[label].get_color()

    def test_they_have_a_row_in_the_table_and_an_entry_in_the_summary(self, foreign):
        printed = _printed(foreign)
        assert "HeavyBall" in printed
        assert "my flow" in printed
        entry = report.summary(foreign.to_dataset())["descent"][-2]
        assert (entry["dynamics"], entry["learning_rate"]) == ("my_module:HeavyBall", 0.1)
        assert "dynamics" not in report.summary(foreign.to_dataset())["descent"][0]


class TestComparison:
    def test_printed_it_is_its_table(self, comparison):
        assert "GF by" in str(comparison)
        assert "0.1" in str(comparison)
        assert "verdict" in comparison._repr_html_()

    @pytest.mark.slow
    def test_it_is_saved_and_read_back(self, comparison, tmp_path):
        xarray = pytest.importorskip("xarray")
        written = comparison.save(tmp_path / "mine")
        assert {path.name for path in written} >= {"trajectories.nc", "summary.json", "sharpness.png"}
        found = flowsim.open_results(tmp_path / "mine")
        xarray.testing.assert_identical(found.trajectories, comparison.to_dataset())
        assert found.summary == report.summary(comparison.to_dataset()) | {"theory": None}
        assert found.scenario == {}
        assert (found.sweep, found.theory) == (None, None)

    @pytest.mark.slow
    def test_other_results_are_not_overwritten_unasked(self, comparison, alone, tmp_path):
        comparison.save(tmp_path / "mine")
        comparison.save(tmp_path / "mine")  # the same once more
        before = (tmp_path / "mine" / "summary.json").read_bytes()
        with pytest.raises(StoreError, match="holds other results; write overwrite=True"):
            alone.save(tmp_path / "mine")
        assert (tmp_path / "mine" / "summary.json").read_bytes() == before
        alone.save(tmp_path / "mine", overwrite=True)
        assert flowsim.open_results(tmp_path / "mine").summary["descent"] == []


class TestProbes:
    @pytest.mark.slow
    def test_what_they_measured_at_the_end_is_a_table_of_its_own(self, comparison):
        labels = {name: flowsim.Label(name, f"what {name} says", name) for name in ("final_size", "parts")}

        def probed(run, number):
            count = len(run.times)
            parts = {"one": jnp.full(count, 4.0), "many": jnp.full((count, 6), 5.0).at[:, 0].set(1.5)}
            return dataclasses.replace(
                run, diagnostics={"final_size": jnp.arange(count) + number, "parts": parts}, labels=labels
            )

        flow = probed(comparison.flow, 0.5)
        others = [dataclasses.replace(d, trajectory=probed(d.trajectory, 0.25)) for d in comparison.descents]
        measured = dataclasses.replace(comparison, flow=flow, descents=tuple(others))
        first, second = str(measured).split("\n\n")
        assert first == str(comparison)
        assert second.startswith("probes at the end")
        lines = [line.strip() for line in second.splitlines()]
        assert lines[-2:] == ["parts_many: what parts says", "parts_one: what parts says"]
        row = next(line for line in lines if line.startswith("GF"))
        assert row.split() == ["GF", f"{len(flow.times) - 0.5:.3g}", "1.5", "…", "5", "(6)", "4"]
        found = report.summary(measured.to_dataset())
        assert found["flow"]["probes"]["final_size"] == len(flow.times) - 0.5
        assert found["descent"][0]["probes"]["parts_many"] == [1.5, *[5.0] * 5]
        assert "probes" not in report.summary(comparison.to_dataset())["flow"]


def test_a_probe_has_a_figure_with_a_line_for_each_of_its_numbers(comparison):
    stored = comparison.to_dataset()
    times = stored["time"].values
    several = np.stack([times + 1, times - 1], axis=2)
    attributes = {"symbol": "$a$", "long_name": "two lines", "logarithmic": 1}
    shown = stored.assign({"two lines": (("run", "record", "two_0"), several, attributes)})
    axes = report.figures(shown)["two_lines"].axes[0]
    runs = read_runs(shown).runs
    assert len(axes.lines) == 2 * len(runs)
    assert axes.get_yscale() == "linear"  # as some numbers are negative
    np.testing.assert_array_equal(axes.lines[1].get_ydata()[0], -1.0)
    assert axes.figure.legends[0].get_texts()[0].get_text() == "GF"
    assert axes.lines[0].get_alpha() > axes.lines[1].get_alpha()
    shown["two lines"] = (("run", "record", "two_0"), several + 2, attributes)
    assert report.figures(shown)["two_lines"].axes[0].get_yscale() == "log"
    shown["two lines"].attrs["logarithmic"] = 0
    assert report.figures(shown)["two_lines"].axes[0].get_yscale() == "linear"


def _oscillation():
    """An oscillation of period two around 20, each step recorded at first, pairs of steps late."""
    steps = np.concatenate([np.arange(60), [100, 101, 200, 201, 400, 401]]).astype(float)
    return steps, 20 + 8 * np.exp(-steps / 300) * (-1) ** steps


def test_records_of_an_oscillation_are_drawn_as_its_range_and_no_line_joins_bursts_far_apart():
    steps, values = _oscillation()
    axes = Figure().subplots()
    draw_curve(axes, steps, values, {"color": "C0", "zorder": 2.0})
    ((line,), (band,)) = axes.lines, axes.collections
    np.testing.assert_allclose(line.get_ydata(), 20, atol=0.2)
    corners = band.get_paths()[0].vertices
    amplitude = 8 * np.exp(-corners[:, 0] / 300)
    # Within two steps the amplitude falls by less than 1 %, and a band has one step of a burst on either side.
    np.testing.assert_allclose(np.abs(corners[:, 1] - 20), amplitude, rtol=0.01)


def test_a_record_alone_in_an_oscillation_says_nothing_about_its_range():
    steps, values = _oscillation()
    found = envelope_of(np.append(steps, 900.0), np.append(values, 28.0))
    assert np.isnan(found.low[-1])
    assert np.isfinite(found.low[:-1]).all()


def test_an_oscillation_that_begins_after_the_last_record_of_every_step_is_drawn_as_its_range():
    steps = np.concatenate([np.arange(190), *([k, k + 1] for k in range(200, 500, 25))]).astype(float)
    values = np.where(steps < 190, steps, 190 + 20 * (-1) ** steps)
    found = envelope_of(steps, values)
    np.testing.assert_array_equal([found.low[200:], found.high[200:]], [[170] * 14, [210] * 14])


def test_values_that_do_not_oscillate_are_a_line():
    steps, _ = _oscillation()
    assert envelope_of(steps, np.exp(-steps)) is None


def test_nothing_white_lies_on_the_curves_below_the_edges_of_stability(comparison):
    (axes,) = report.figures(comparison.to_dataset())["sharpness"].axes
    assert not [line for line in axes.lines if line.get_color() == "white"]
    dashed = [line for line in axes.lines if line.get_linestyle() == "--"]
    assert dashed
    assert max(line.get_zorder() for line in dashed) < min(
        line.get_zorder() for line in axes.lines if line.get_label() == "GF" or "eta" in line.get_label()
    )


@pytest.mark.parametrize(("infimum", "passed"), [(0.5, True), (0.0, False)])
@pytest.mark.slow
def test_an_infimum_that_the_risk_passes_is_said_to_be_too_high(infimum, passed):
    problem = flowsim.Risk(lambda w: jnp.sum((w - 1) ** 2), infimum=infimum)
    both = flowsim.compare(jnp.zeros(2), problem, [0.1], steps=30, records=10)
    said = "The infimum that was given is too high: the risk of GF, η = 0.1 is up to 0.5 below it"
    assert (said in " ".join(str(both).split())) == passed
    assert (said in list(report.table.warnings_of_runs(both.to_dataset()))) == passed


@pytest.mark.slow
def test_a_risk_that_ends_above_its_first_is_said_to():
    problem = flowsim.Risk(lambda w: jnp.sum((w - 1) ** 2))
    both = flowsim.compare(jnp.zeros(2), problem, [0.1, 2.0], steps=4, records=10)  # 1 − 2η = −3
    said = "The risk of η = 2 ends 6560 times as high as it began: more steps tell where it goes"
    assert said in " ".join(str(both).split())
    assert [line for line in report.table.warnings_of_runs(both.to_dataset()) if "as high" in line] == [said]
