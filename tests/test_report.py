"""Figures, tables, summary and data set of a flow and descents, on runs of closed forms."""

import dataclasses
import io
import json
import math

import matplotlib
import numpy as np
import pytest
import xarray
from made_runs import BOUNDS, changed, made_comparison, made_run, with_runs
from table_checks import check_fits

import flowsim
from flowsim import report
from flowsim.columns import GRADIENT_DESCENT, Run, read_runs, runs_of
from flowsim.dynamics import Outcome
from flowsim.report.page.render import group_of_runs
from flowsim.report.panels import TimeView, envelope_of
from flowsim.report.panels.oscillation import middle_and_range
from flowsim.report.panels.panel import Curve, Guide, Key, Mesh, Panel, axis_over, ordinates
from flowsim.report.panels.view import Series, log_limits, time_view
from flowsim.report.render_paper import _apart, figure_of
from flowsim.report.style import Drawing

RATES = [0.4, 0.1, 3.0]
COLUMN = (3.3, 2.5)


@pytest.fixture(scope="module")
def comparison():
    """A flow, a descent that meets its edge of stability, one that follows the flow, and one that diverges."""
    return made_comparison(RATES)


@pytest.fixture(scope="module")
def data(comparison):
    return comparison.to_dataset()


@pytest.fixture(scope="module")
def figures(data):
    return report.figures(data)


@pytest.fixture(scope="module")
def alone(comparison):
    return dataclasses.replace(comparison, descents=())


@pytest.fixture(scope="module")
def nonlinear(comparison):
    """The same runs as a nonlinear network would show them: no regressor, no minimal risk, no theory."""
    unknown = with_runs(
        comparison,
        lambda run: changed(run, **dict.fromkeys(("excess_risk", "squared_distance"), np.full(len(run.times), np.nan))),
    )
    return dataclasses.replace(unknown, bounds=None)


@pytest.fixture(scope="module")
def motionless(comparison):
    """All runs end where they start, at a saddle: one record each."""
    saddle = made_run([0.0], [1.0], 3.0, outcome=Outcome.STATIONARY, steps=0)
    still = (
        dataclasses.replace(d, trajectory=saddle, distance=np.zeros(1), distance_to_flow=0.0, crossing_time=None)
        for d in comparison.descents
    )
    return dataclasses.replace(comparison, flow=saddle, descents=tuple(still))


@pytest.fixture(scope="module")
def lost(comparison):
    """The only descent leaves the range of floats with its first step."""
    descent = _at_rate(comparison, 3.0)
    after = np.where(np.asarray(descent.trajectory.times) > 0, np.inf, 1.0)
    run = changed(descent.trajectory, risk=after, excess_risk=after, squared_distance=after)
    descent = dataclasses.replace(descent, trajectory=run, distance=after - 1, distance_to_flow=np.inf)
    return dataclasses.replace(comparison, descents=(descent,))


@pytest.fixture(scope="module")
def foreign(comparison):
    """Two runs more, by dynamics of which no file of the package knows, one without a learning rate."""
    descent = dataclasses.replace(_at_rate(comparison, 0.1), run=Run("my_module:HeavyBall", 0.1))
    free = dataclasses.replace(descent, run=Run("my_flow"), crossing_time=None)
    return dataclasses.replace(comparison, descents=(*comparison.descents, descent, free)).to_dataset()


@pytest.fixture(scope="module")
def all_kinds(data, alone, nonlinear, motionless, lost):
    return [data, *(one.to_dataset() for one in (alone, nonlinear, motionless, lost))]


def _by_label(axes):
    return {line.get_label(): line for line in axes.lines}


def _printed(data, title="a title"):
    return report.printed(report.render(data, title), 100)


def _at_rate(comparison, learning_rate):
    return next(d for d in comparison.descents if d.learning_rate == learning_rate)


@pytest.mark.parametrize("bound", [None, math.inf])
def test_axes_and_levels_of_any_runs_are_numbers_that_a_browser_can_draw(all_kinds, bound):
    for dataset in all_kinds:
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
    def test_figures_of_runs_without_motion_or_finite_numbers_are_drawn_without_a_warning(self, motionless, lost):
        # Warnings are errors in all tests, but for those of libraries about each other that pyproject.toml names.
        for draw, comparison in ((report.sharpness_figure, motionless), (report.distance_figure, lost)):
            draw(comparison.to_dataset()).draw_without_rendering()

    def test_figures_fit_a_column_and_leave_global_settings_alone(self, data, alone):
        before = dict(matplotlib.rcParams)
        figures = report.figures(data)
        assert dict(matplotlib.rcParams) == before
        assert {tuple(figure.get_size_inches()) for figure in figures.values()} == {COLUMN}
        assert list(figures) == ["squared_distance", "sharpness", "distance"]
        assert list(report.figures(alone.to_dataset())) == ["squared_distance", "sharpness"]
        assert {type(figure) for figure in figures.values()} == {Drawing}  # with TrueType fonts, when saved

    def test_the_figure_of_the_progress_is_called_after_the_quantity_that_it_shows(self, data, nonlinear):
        assert list(report.figures(nonlinear.to_dataset())) == ["risk", "sharpness", "distance"]
        without = data.assign(squared_distance=np.nan * data["squared_distance"])
        assert next(iter(report.figures(without))) == "excess_risk"

    @pytest.mark.slow
    def test_text_is_readable_nothing_is_cut_off_at_the_edge_and_all_is_written_without_a_warning(
        self, all_kinds, foreign
    ):
        for figure in report.figures(foreign).values():
            figure.savefig(io.BytesIO(), format="pdf")
        for figure in (figure for dataset in all_kinds for figure in report.figures(dataset).values()):
            figure.draw_without_rendering()
            sizes = {text.get_fontsize() for text in figure.findobj(matplotlib.text.Text) if text.get_text()}
            assert 6 <= min(sizes) <= max(sizes) <= 9
            box = figure.get_tightbbox()
            assert min(box.x0, box.y0) >= -0.01
            assert box.x1 <= COLUMN[0] + 0.01
            assert box.y1 <= COLUMN[1] + 0.01
            assert figure.legends[0].get_window_extent().y0 >= figure.axes[0].get_window_extent().y1

    def test_dashes_are_two_over_eta_in_the_colours_of_their_runs_and_dots_are_bounds(self, figures):
        axes = figures["sharpness"].axes[0]
        dashed = {line.get_ydata()[0]: line.get_color() for line in axes.lines if line.get_linestyle() == "--"}
        dotted = [line.get_ydata()[0] for line in axes.lines if line.get_linestyle() == ":"]
        visible = [2 / rate for rate in sorted(RATES) if 2 / rate <= axes.get_ylim()[1]]
        assert [*dashed] == pytest.approx(visible)
        assert dotted == pytest.approx(BOUNDS)
        assert dashed[2 / 0.4] == _by_label(axes)[r"$\eta = 0.4$"].get_color()
        assert r"$2/\eta,\ \eta = 0.4$" in [text.get_text() for text in axes.texts]

    def test_a_larger_learning_rate_is_lighter_in_grey_and_only_runs_that_settle_are_drawn_over_the_flow(self, figures):
        lines = figures["distance"].axes[0].lines[:3]
        luminance = [np.dot(line.get_color()[:3], [0.2126, 0.7152, 0.0722]) for line in lines]
        names = [line.get_label().removesuffix(", diverged") for line in lines]
        assert names == [rf"$\eta = {rate:g}$" for rate in sorted(RATES)]
        assert luminance == sorted(luminance)
        assert len({line.get_marker() for line in lines}) == 3
        drawn = _by_label(figures["sharpness"].axes[0])
        assert drawn[r"$\eta = 0.1$"].get_zorder() > drawn["GF"].get_zorder()
        assert drawn[r"$\eta = 3$, diverged"].get_zorder() < drawn["GF"].get_zorder()

    def test_a_diverged_run_is_named_and_does_not_stretch_the_axes(self, figures):
        for name, figure in figures.items():
            axes = figure.axes[0]
            assert r"$\eta = 3$, diverged" in _by_label(axes), name
            assert axes.get_ylim()[1] < 1e4, name
            assert axes.get_xlim()[1] <= 3 * 20, name

    def test_the_crossing_of_two_over_eta_lies_on_its_curve_and_of_a_run_above_it_at_its_first_point(
        self, comparison, figures
    ):
        descent = _at_rate(comparison, 0.4)
        stars = np.array(_by_label(figures["distance"].axes[0])[r"$S$ reaches $2/\eta$"].get_xydata())
        times, known = np.asarray(descent.trajectory.times), descent.distance > 0
        height = np.exp(np.interp(descent.crossing_time, times[known], np.log(descent.distance[known])))
        assert np.abs(stars - [descent.crossing_time, height]).sum(axis=1).min() < 1e-12
        above = dataclasses.replace(_at_rate(comparison, 0.1), crossing_time=0.0)
        axes = report.distance_figure(dataclasses.replace(comparison, descents=(above,)).to_dataset()).axes[0]
        star = _by_label(axes)[r"$S$ reaches $2/\eta$"].get_xydata()
        np.testing.assert_allclose(star, [[above.trajectory.times[1], above.distance[1]]])

    def test_a_quantity_that_is_unknown_gives_way_to_the_next(self, data, figures, nonlinear):
        def label(dataset):
            return report.squared_distance_figure(dataset).axes[0].get_ylabel()

        assert figures["squared_distance"].axes[0].get_ylabel().startswith("squared distance")
        assert label(data.assign(squared_distance=np.nan * data["squared_distance"])).startswith("excess risk")
        assert label(nonlinear.to_dataset()).startswith("risk")

    def test_other_dynamics_have_a_line_and_a_label_and_leave_gradient_descent_its_looks(self, foreign, figures):
        for name, figure in report.figures(foreign).items():
            before, lines = (_by_label(one.axes[0]) for one in (figures[name], figure))
            assert {r"HeavyBall, $\eta = 0.1$", "my flow"} <= set(lines), name
            ball, descent = lines[r"HeavyBall, $\eta = 0.1$"], lines[r"$\eta = 0.1$"]
            assert (ball.get_linestyle(), descent.get_linestyle()) == ("--", "-")
            assert ball.get_color() != descent.get_color()
            for label in (r"$\eta = 0.1$", r"$\eta = 0.4$"):
                assert before[label].get_color() == lines[label].get_color()


class TestView:
    def test_the_time_axis_ends_at_one_and_a_half_times_the_limit_of_the_flow_and_without_a_limit_behind_all_runs(
        self, comparison, data
    ):
        view = time_view(read_runs(data))
        assert (view.end, view.linear_until) == (30, None)
        stopped = changed(comparison.flow, code=int(Outcome.TIME_LIMIT))
        view = time_view(read_runs(dataclasses.replace(comparison, flow=stopped).to_dataset()))
        assert view.end == pytest.approx(1.02 * 300)

    def test_a_fast_phase_too_narrow_for_a_linear_axis_makes_it_logarithmic(self, comparison):
        times = np.array(comparison.flow.times)
        times[-1] *= 1e4
        slow = changed(comparison.flow, time=times[-1], times=times)
        data = dataclasses.replace(comparison, flow=slow, descents=()).to_dataset()
        assert time_view(read_runs(data)).linear_until == 1  # the risk has fallen by half at t = 1
        assert report.squared_distance_figure(data).axes[0].get_xscale() == "symlog"

    def test_limits_follow_the_runs_that_did_not_diverge(self):
        times, view = np.arange(4.0), TimeView(3.0, None)
        good = Series(times, np.array([1.0, 1e-3, 1e-6, np.nan]), True)
        bad = Series(times, np.array([1.0, 5.0, 1e248, np.inf]), False)
        margin = 5e6**0.05  # a twentieth of the decades in view
        assert log_limits([good, bad], view) == pytest.approx((1e-6 / margin, 5 * margin))
        assert log_limits([Series(times, np.zeros(4), True)], view) is None

    def test_labels_move_apart_only_where_they_must(self):
        heights = np.array([0.10, 0.11, 0.12, 0.9])
        moved = _apart(heights, 0.1)
        assert np.diff(moved).min() >= 0.1 - 1e-12
        assert moved == pytest.approx([0.01, 0.11, 0.21, 0.9])
        assert len(_apart(np.array([]), 0.1)) == 0


class TestTable:
    def test_nothing_is_cut_off_in_eighty_columns_nor_are_the_longest_numbers(self, comparison, all_kinds):
        descent = _at_rate(comparison, 3.0)
        excess = np.array(descent.trajectory.excess_risk)
        excess[-1] = 2.687679e248
        run = changed(descent.trajectory, steps=160000, time=16000.0, excess_risk=excess)
        wide = dataclasses.replace(
            descent, run=Run(GRADIENT_DESCENT, 0.00125), trajectory=run, distance_to_flow=1.734e14
        )
        longest = dataclasses.replace(comparison, descents=(wide,)).to_dataset()
        *_, printed = check_fits([report.render(dataset, "a title") for dataset in (*all_kinds, longest)])
        for number in ("0.00125", "160000", "16000", "2.7e+248", "1600", "1.73e+14"):
            assert number in printed

    def test_rows_are_the_flow_and_then_every_descent_with_the_sharpness_over_its_lower_bound(self, data, nonlinear):
        flow, *descents = report.rows(data)
        assert (flow["method"], flow["learning_rate"], flow["outcome"]) == ("GF", None, "CONVERGED")
        assert flow["two_over_eta"] is None
        assert flow["distance_to_flow"] is None
        assert [row["learning_rate"] for row in descents] == RATES
        assert [row["two_over_eta"] for row in descents] == [2 / rate for rate in RATES]
        assert flow["ratio"] == flow["sharpness"] / BOUNDS[0]
        assert all(row["ratio"] is None for row in report.rows(nonlinear.to_dataset()))

    def test_a_diverged_run_says_at_which_step_and_has_no_sharpness(self, data, lost):
        lines = [*_printed(data).splitlines(), *_printed(lost.to_dataset()).splitlines()]
        finite, infinite = (line.split() for line in lines if "diverged" in line)
        assert finite[2] == "100"
        assert finite[5:7] == ["–", "–"]
        assert infinite[4] == "∞"

    def test_the_caption_gives_the_theory_and_says_why_the_flow_did_not_converge(self, data, nonlinear, motionless):
        printed = _printed(data, title="runs/[bold]x.yaml")
        assert "4 ≤ S_min ≤ 8; critical learning rate at most 0.5" in printed
        assert "runs/[bold]x.yaml" in printed
        assert "did not converge" not in printed
        assert "Theorem" not in _printed(nonlinear.to_dataset())
        words = " ".join(_printed(motionless.to_dataset()).split())
        assert "The flow did not converge: " + Outcome.STATIONARY.meaning in words

    def test_other_dynamics_have_a_row_and_an_entry_in_the_summary(self, foreign):
        assert {"HeavyBall", "my flow"} <= {row["method"] for row in report.rows(foreign)}
        entry = report.summary(foreign)["descent"][-2]
        assert (entry["dynamics"], entry["learning_rate"]) == ("my_module:HeavyBall", 0.1)
        assert "dynamics" not in report.summary(foreign)["descent"][0]

    def test_what_probes_measured_at_the_end_is_a_table_of_its_own(self, comparison):
        labels = {name: flowsim.Label(name, f"what {name} says", name) for name in ("final_size", "parts")}

        def probed(run):
            count = len(run.times)
            parts = {"one": np.full(count, 4.0), "many": np.tile([1.5, *[5.0] * 5], (count, 1))}
            measures = {"final_size": np.arange(count) + 0.5, "parts": parts}
            return dataclasses.replace(run, diagnostics=measures, labels=labels)

        measured = with_runs(comparison, probed)
        first, second = str(measured).split("\n\n")
        assert first == str(comparison)
        assert second.startswith("probes at the end")
        lines = [line.strip() for line in second.splitlines()]
        assert lines[-2:] == ["parts_many: what parts says", "parts_one: what parts says"]
        row = next(line for line in lines if line.startswith("GF"))
        assert row.split() == ["GF", "40.5", "1.5", "…", "5", "(6)", "4"]
        summary = report.summary(measured.to_dataset())
        assert summary["flow"]["probes"]["final_size"] == 40.5
        assert summary["descent"][0]["probes"]["parts_many"] == [1.5, *[5.0] * 5]
        assert "probes" not in report.summary(comparison.to_dataset())["flow"]

    def test_an_infimum_that_the_risk_passes_is_said_to_be_too_high(self, comparison):
        too_high = with_runs(comparison, lambda run: changed(run, excess_risk=np.asarray(run.excess_risk) - 0.01))
        (warning,) = (one for one in flowsim.tables.warnings_of_runs(too_high.to_dataset()) if "infimum" in one)
        assert "the risk of GF, η = 0.4, η = 0.1 is up to 0.01 below it" in warning
        assert warning in " ".join(str(too_high).split())
        assert "infimum" not in str(comparison)

    def test_a_risk_that_ends_at_twice_its_first_is_said_to(self, comparison):
        def risen(times):
            run = changed(comparison.flow, risk=np.linspace(1, times, 41), code=int(Outcome.TIME_LIMIT))
            return list(flowsim.tables.warnings_of_runs(dataclasses.replace(comparison, flow=run).to_dataset()))

        assert "The risk of GF ends 2.5 times as high as it began: more steps tell where it goes" in risen(2.5)
        assert not any("as high" in line for line in risen(1.9))

    def test_runs_that_end_alike_share_a_warning(self, comparison):
        def warnings(count):
            run = changed(comparison.descents[0].trajectory, code=int(Outcome.STEP_LIMIT))
            rates = 0.1 * np.arange(1, count + 1)
            descents = [
                dataclasses.replace(comparison.descents[0], trajectory=run, run=Run(GRADIENT_DESCENT, eta))
                for eta in rates
            ]
            alike = dataclasses.replace(comparison, descents=tuple(descents))
            return [line for line in flowsim.tables.warnings_of_runs(alike.to_dataset()) if "step limit" in line]

        assert [line.partition(":")[0] for line in warnings(3)] == ["η = 0.1", "η = 0.2", "η = 0.3"]
        (line,) = warnings(20)
        assert line.startswith("η = 0.1: step limit at t = ")
        assert line.endswith("; likewise 19 more runs, up to η = 2")


class TestSummary:
    def test_it_is_strict_json_whatever_the_runs_did(self, all_kinds):
        for summary in map(report.summary, all_kinds):
            assert json.loads(json.dumps(summary, allow_nan=False)) == summary

    def test_it_holds_the_ends_of_all_runs_and_none_for_what_does_not_apply_or_is_not_finite(
        self, comparison, data, nonlinear
    ):
        summary, descent = report.summary(data), _at_rate(comparison, 0.1)
        entry = next(run for run in summary["descent"] if run["learning_rate"] == 0.1)
        assert summary["flow"]["outcome"] == "CONVERGED"
        assert summary["flow"]["risk"] == float(comparison.flow.risk[-1])
        assert summary["flow"]["sharpness"] == comparison.flow.final_sharpness
        assert entry["distance_to_flow"] == descent.distance_to_flow
        assert entry["squared_distance"] == float(descent.trajectory.squared_distance[-1])
        assert entry["two_over_eta"] == 20
        assert summary["bounds"] == {"lower": BOUNDS[0], "upper": BOUNDS[1]}
        diverged = next(run for run in summary["descent"] if run["outcome"] == "DIVERGED")
        assert diverged["sharpness"] is None
        summary = report.summary(nonlinear.to_dataset())
        assert summary["bounds"] is None
        assert summary["critical_learning_rate"] is None
        assert summary["flow"]["excess_risk"] is None

    def test_a_sharpness_that_is_not_certified_is_unknown_and_not_an_error(self, alone, monkeypatch):
        def refuse(*_):
            raise RuntimeError("the sharpness is not certified")

        monkeypatch.setattr("flowsim.dynamics.trajectory.sharpness", refuse)
        flow = dataclasses.replace(alone.flow, sharpness=None)
        uncertain = dataclasses.replace(alone, flow=flow).to_dataset()
        assert report.summary(uncertain)["flow"]["sharpness"] is None
        assert math.isnan(report.rows(uncertain)[0]["sharpness"])


class TestDataset:
    def test_runs_have_their_dynamics_and_learning_rate_as_coordinates(self, data):
        assert data["dynamics"].values.tolist() == ["gradient_flow"] + ["gradient_descent"] * 3
        np.testing.assert_array_equal(data["learning_rate"], [np.nan, *RATES])
        assert [run.name for run in runs_of(data)] == ["GF", "η = 0.4", "η = 0.1", "η = 3"]
        assert [(run.index, run.count) for run in runs_of(data)[1:]] == [(1, 3), (0, 3), (2, 3)]

    def test_every_array_has_a_long_name_and_units_and_outcomes_their_meanings(self, data):
        along = {"time", "risk", "excess_risk", "squared_distance", "gradient_norm", "sharpness", "distance"}
        assert {name for name in data if "record" in data[name].dims} == along
        assert all(data[name].attrs["long_name"] and data[name].attrs["units"] == "1" for name in data.variables)
        attrs = data["outcome"].attrs
        meanings = dict(zip(attrs["flag_values"].tolist(), attrs["flag_meanings"].split(), strict=True))
        assert meanings == {-2: "FAILED", -1: "NOT_ASKED"} | {int(outcome): outcome.name for outcome in Outcome}

    def test_theory_is_among_the_attributes_and_all_survives_a_netcdf_file(self, lost, nonlinear, tmp_path):
        data = lost.to_dataset({"seed": 3, "scenario": {"seed": 3}})
        assert data.attrs["seed"] == 3
        assert json.loads(data.attrs["scenario"]) == {"seed": 3}
        assert data.attrs["sharpness_lower_bound"] == BOUNDS[0]
        assert nonlinear.to_dataset().attrs == {}
        data.to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
        with xarray.open_dataset(tmp_path / "a.nc", engine="h5netcdf") as stored:
            xarray.testing.assert_identical(stored.load(), data)


def test_a_probe_has_a_figure_with_a_line_for_each_of_its_numbers(data):
    times = data["time"].values
    several = np.stack([times + 1, times - 1], axis=2)

    def drawn(shift, logarithmic=1):
        attributes = {"symbol": "$a$", "long_name": "two lines", "logarithmic": logarithmic}
        shown = data.assign({"two lines": (("run", "record", "two_0"), several + shift, attributes)})
        return report.figures(shown)["two_lines"].axes[0]

    axes = drawn(0)
    assert len(axes.lines) == 2 * data.sizes["run"]
    assert axes.get_yscale() == "linear"  # as some numbers are negative
    np.testing.assert_array_equal(axes.lines[1].get_ydata()[0], -1.0)
    assert axes.figure.legends[0].get_texts()[0].get_text() == "GF"
    assert axes.lines[0].get_alpha() > axes.lines[1].get_alpha()
    assert drawn(2).get_yscale() == "log"
    assert drawn(2, logarithmic=0).get_yscale() == "linear"


def test_panels_of_a_figure_have_their_mesh_their_bands_and_their_guides_and_each_row_a_scale_of_colours():
    x = np.arange(3.0)
    mesh = Mesh(x, np.array([0.0, 2.0]), np.array([[1.0, 2.0]]), "colours", (1.0, 2.0))
    band = Curve(Key("run", "run", "a run", {"color": "C0"}), x, x, x - 1, x + 1, line=False)
    axis = axis_over("values", "values", x)
    panel = Panel("name", "", "", axis, axis, (band,), (Guide(1.0, upright=True),), mesh=mesh, letter="a")
    figure = figure_of([panel, None, panel, panel], columns=2, sharex="col")
    above, below, alone, *colours = figure.axes
    assert [axes.get_ylabel() for axes in colours] == ["colours"] * 2
    assert [axes.get_xlabel() for axes in (above, below, alone)] == ["", "values", "values"]
    assert above.get_title(loc="left") == "(a)"
    assert [list(line.get_xdata()) for line in above.lines] == [[1.0, 1.0]]
    np.testing.assert_array_equal(above.collections[0].get_array().ravel(), [1.0, 2.0])
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["a run"]


def test_a_panel_may_have_a_logit_axis_entries_of_the_legend_without_points_and_a_legend_of_nothing():
    shares = np.array([0.001, 0.5, 0.999])
    x = axis_over("share", "share", shares, logit=True, at=tuple(shares), ticks=("low", "half", "high"))
    curves = [Curve(Key("run", "run", "a run", {"color": "C0"}), shares, 1 + shares)]
    guide = Guide(3.0, dotted=True)
    y = axis_over("value", "value", ordinates(curves, [guide, Guide(9.0, upright=True)]), start=0.0)
    assert y.linear == (0.0, pytest.approx(3 + 0.05 * 1.999))
    named = Panel("name", "", "", x, y, [*curves, Curve(Key("line", "line", "a line", {"color": "C1"}))], [guide])
    empty = Panel("name", "", "", x, y, [], legend={"loc": "upper left"})
    figure = figure_of([named, empty])
    above, below = figure.axes
    assert above.get_xscale() == "logit"
    assert [label.get_text() for label in above.get_xticklabels()] == ["low", "half", "high"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["a run", "a line"]
    assert below.get_legend() is None


def _oscillation():
    """An oscillation of period two around 20, each step recorded at first, pairs of steps late."""
    steps = np.concatenate([np.arange(60), [100, 101, 200, 201, 400, 401]]).astype(float)
    return steps, 20 + 8 * np.exp(-steps / 300) * (-1) ** steps


def test_records_of_an_oscillation_are_drawn_as_its_range_and_no_line_joins_bursts_far_apart():
    steps, values = _oscillation()
    times, middle, *ends = middle_and_range(steps, values)
    np.testing.assert_allclose(middle, 20, atol=0.2)
    amplitude = 8 * np.exp(-times / 300)
    # Within two steps the amplitude falls by less than 1 %, and a band has one step of a burst on either side.
    for end in ends:
        np.testing.assert_allclose(np.abs(end - 20), amplitude, rtol=0.01)


def test_a_range_is_that_of_an_oscillation_whenever_it_begins_and_of_no_record_alone_and_no_decay():
    steps, values = _oscillation()
    assert envelope_of(steps, np.exp(-steps)) is None
    envelope = envelope_of(np.append(steps, 900.0), np.append(values, 28.0))
    assert np.isnan(envelope.low[-1])
    assert np.isfinite(envelope.low[:-1]).all()
    steps = np.concatenate([np.arange(190), *([k, k + 1] for k in range(200, 500, 25))]).astype(float)
    envelope = envelope_of(steps, np.where(steps < 190, steps, 190 + 20 * (-1) ** steps))
    np.testing.assert_array_equal([envelope.low[200:], envelope.high[200:]], [[170] * 14, [210] * 14])


def test_an_axis_over_numbers_in_single_precision_holds_them():
    axis = axis_over("$t$", "t", np.array([0.001, 3.0, np.nan], np.float32), logarithmic=True)
    low, high = axis.log
    assert low < 0.001 < 3 < high
