"""The figures, claims and tables of a sweep, on numbers made up to hold or to break a claim."""

import base64
import json
from pathlib import Path

import numpy as np
import pytest
import xarray
import yaml
from made_runs import (
    DEPTH,
    LARGEST_EIGENVALUE,
    LOWER,
    RATES,
    REPETITIONS,
    SCALES,
    coordinates_of,
    made_comparison,
    made_sweep,
    scenario_of,
)
from matplotlib.lines import Line2D
from scipy import stats
from table_checks import check_fits

from flowsim import report
from flowsim.columns import FLOW, GRADIENT_DESCENT, RUN, runs_of
from flowsim.dynamics import Outcome
from flowsim.formatting import format_number
from flowsim.papers.marion_chizat_2024.measures import LEARNED, gaps, regress
from flowsim.report.frame import sweep_frame
from flowsim.report.page.render import group_of_sweep
from flowsim.report.sweeps import runs, sweep_summary, sweep_tables
from flowsim.report.sweeps.intervals import quartiles, share_interval
from flowsim.results import FIGURES, Results, StoreError
from flowsim.theory import mark_outside_sweep


@pytest.fixture(scope="module")
def sweep():
    return made_sweep()


@pytest.fixture(scope="module")
def by_depth(sweep):
    """The same numbers as if they went over the depth, four of them being as many as the paper has."""
    return sweep.rename(scale="depth").assign_coords(depth=[5, 10, 20])


@pytest.fixture(scope="module")
def with_test_set(sweep):
    """The generalization gap is S^½ for descent and S for the flow."""
    gap = sweep["final_sharpness"] ** xarray.where(sweep["dynamics"] == GRADIENT_DESCENT, 0.5, 1.0)
    return sweep.assign(final_test_risk=sweep["final_risk"] + gap)


def _labels(axes):
    return [line.get_label() for line in axes.lines if not line.get_label().startswith("_")]


def _levels(axes):
    """The heights of the horizontal lines that are not curves."""
    return [line.get_ydata()[0] for line in axes.lines if list(line.get_xdata()) == [0, 1]]


def _all_alike(sweep, **values):
    """Return the sweep with some of its variables replaced by one number each."""
    return sweep.assign({name: xarray.full_like(sweep[name], value) for name, value in values.items()})


def _descents(sweep, dynamics=GRADIENT_DESCENT, **values):
    """Return the sweep with other values for its descents: numbers, or arrays that broadcast."""
    others = sweep["dynamics"] != dynamics
    return sweep.assign({name: sweep[name].where(others, value) for name, value in values.items()})


def _flows(sweep, **values):
    return _descents(sweep, FLOW.dynamics, **values)


def _drawn(number, sweep, trajectories=None):
    figure = FIGURES[f"flowsim.papers.marion_chizat_2024:Figure{number}"]()
    return figure.draw(Results(Path("results"), trajectories, sweep, None))


def _claims(number, sweep, trajectories=None):
    figure = FIGURES[f"flowsim.papers.marion_chizat_2024:Figure{number}"]()
    return figure.claims(Results(Path("results"), trajectories, sweep, None))


def _check_legend(figure, name):
    """Assert that the legend has this name, and the dashed lines in their own colours."""
    (legend,) = figure.legends
    drawn = {line.get_color() for axes in figure.axes for line in axes.lines if line.get_gid() == "threshold"}
    assert name in [text.get_text() for text in legend.get_texts()]
    assert len(drawn) > 1
    assert drawn <= {line.get_color() for line in legend.findobj(Line2D) if line.get_linestyle() == "--"}


@pytest.mark.slow
def test_panels_a_and_b_show_start_flow_and_descents_by_medians_over_runs_that_did_not_diverge(sweep):
    figure = _drawn(1, sweep)
    _check_legend(figure, r"$2/\eta$")
    distance, sharpness = figure.axes
    assert _labels(distance) == ["initialization", "GF", r"$\eta = 0.02$", r"$\eta = 0.06$"]
    assert _labels(sharpness) == _labels(distance)
    assert distance.get_yscale() == sharpness.get_yscale() == "log"
    drawn = {line.get_label(): line.get_ydata() for line in sharpness.lines}
    ended = sweep["outcome"][..., 1:] != Outcome.DIVERGED
    sharpness_of_ended = sweep["final_sharpness"][..., 1:].where(ended).values
    for column, rate in enumerate(RATES):
        rows = [row[np.isfinite(row)] for row in sharpness_of_ended[:, :, column]]
        expected = [np.median(row) if len(row) else np.nan for row in rows]
        np.testing.assert_allclose(drawn[rf"$\eta = {rate}$"], expected)
    np.testing.assert_allclose(drawn["GF"], sweep["final_sharpness"][..., 0].median("repetition"))
    top = 8 * DEPTH * LARGEST_EIGENVALUE
    assert {2 / rate for rate in RATES} | {LOWER, top} == set(_levels(sharpness))
    residual = sweep.assign_attrs(scenario=scenario_of("residual"))
    assert top not in _levels(_drawn(4, residual).axes[1])
    large = _drawn(1, sweep.assign_coords(coordinates_of([0.02, 0.1]))).axes[1]
    assert _labels(large) == ["initialization", "GF", r"$\eta = 0.02$"]


@pytest.mark.slow
def test_courses_show_steps_of_descent_and_the_flow_at_equal_times_in_the_colours_of_all_panels(sweep):
    courses = made_comparison([0.1, 0.4]).to_dataset()
    times = courses["time"] * xarray.DataArray([1.0, 0.02 / 0.1, 0.06 / 0.4], dims=RUN)
    courses = courses.assign(time=times, sharpness=courses["sharpness"] * 0.4 / 0.06).assign_coords(
        coordinates_of(RATES)
    )
    panels = _drawn(1, sweep, courses).axes
    assert [axes.get_title(loc="left") for axes in panels] == ["(a)", "(b)", "(c1)", "(c2)", "(d1)", "(d2)"]
    looks = [line for axes in panels for line in axes.lines if line.get_label() == r"$\eta = 0.06$"]
    assert len(looks) == 4
    assert len({(line.get_color(), line.get_marker()) for line in looks}) == 1
    flow, descent = (line for line in panels[3].lines if line.get_label() in ("GF", r"$\eta = 0.02$"))
    steps = np.asarray(descent.get_xdata())
    np.testing.assert_allclose(steps, steps.round(), atol=1e-9)
    assert steps[-1] == pytest.approx(int(courses["steps"][1]))
    inner = np.interp(100.0, flow.get_xdata(), flow.get_ydata())
    expected = np.interp(100.0 * RATES[0], *(courses[name][0].dropna("record") for name in ("time", "sharpness")))
    assert inner == pytest.approx(expected)
    assert 2 / RATES[0] in _levels(panels[3])
    text = [claim.text for claim in _claims(1, sweep, courses)]
    assert "η = 0.02 never meets 2/η" in text
    assert "with η = 0.06 the sharpness rises to 2/η and stays there" in text


@pytest.mark.slow
def test_figure_2_has_a_curve_and_a_critical_line_for_each_depth(by_depth):
    figure = _drawn(2, by_depth)
    _check_legend(figure, "$1/(La)$")
    (axes,) = figure.axes
    assert _labels(axes) == ["$L = 5$", "$L = 10$", "$L = 20$", r"GF ($\eta \to 0$)"]
    lines = [line.get_xdata()[0] for line in axes.lines if list(line.get_ydata()) == [0, 1]]
    np.testing.assert_allclose(lines, 2 / by_depth["sharpness_lower_bound"])
    assert axes.get_xscale() == "log"


@pytest.mark.slow
def test_figure_3_shows_the_share_of_the_runs_that_diverge(sweep):
    (axes,) = _drawn(3, sweep).axes
    assert _labels(axes) == [r"$\eta = 0.02$", r"$\eta = 0.06$"]
    expected = (sweep["outcome"][..., 1:] == Outcome.DIVERGED).mean("repetition")
    for line, column in zip(axes.lines, expected.T, strict=True):
        np.testing.assert_allclose(line.get_ydata(), column)


@pytest.mark.slow
def test_figure_6_regresses_the_gap_on_the_sharpness(with_test_set):
    _, scatter = _drawn(6, with_test_set).axes
    flow, descent, _ = scatter.lines
    assert (len(flow.get_xdata()), flow.get_label()) == (len(SCALES) * REPETITIONS, "limit of GF")
    assert descent.get_label() == r"GD, $\eta = 0.02$"
    assert "slope 0.5" in scatter.get_title()


@pytest.mark.slow
def test_figure_7_has_the_median_of_the_flow_also_without_a_regressor_which_a_few_very_sharp_limits_do_not_make(
    sweep, without_regressor
):
    assert _labels(_drawn(7, without_regressor).axes[0])[1] == "GF"
    rare = sweep.copy(deep=True)
    rare["final_sharpness"][:, 0, 0] = 1e6
    (axes,) = _drawn(7, rare).axes
    curves = {line.get_label(): line.get_ydata() for line in axes.lines}
    np.testing.assert_allclose(curves["GF"], rare["final_sharpness"][..., 0].median("repetition"))


def test_the_regression_is_that_of_scipy_and_there_is_none_of_runs_that_diverged(with_test_set):
    rng = np.random.default_rng(0)
    sharpness = 10 ** rng.uniform(0, 3, 40)
    gap = 10 ** (0.3 * np.log10(sharpness) + 0.2 * rng.standard_normal(40))
    gap[0] = -1.0
    line = regress((sharpness, gap))
    r, p = stats.pearsonr(np.log10(sharpness[1:]), np.log10(gap[1:]), alternative="greater")
    assert (line.r_squared, line.p_value) == (pytest.approx(r**2), pytest.approx(p, rel=1e-6))
    assert line.slope == pytest.approx(np.polyfit(np.log10(sharpness[1:]), np.log10(gap[1:]), 1)[0])
    assert (line.count, line.left_out) == (39, 1)
    lost = _descents(with_test_set, outcome=int(Outcome.DIVERGED))
    assert regress(gaps(lost, runs.descents(lost)[0])) is None


@pytest.mark.slow
def test_the_sharpness_of_a_sweep_is_one_number_in_figure_page_table_summary_and_data_frame(sweep):
    figure = report.sweep_figures(sweep)["sharpness"]
    assert figure.get_supxlabel().startswith("medians")
    page = group_of_sweep(sweep).content()
    keys = {key["name"]: key["label"] for key in page["keys"]}
    (plot,) = (plot for plot in page["plots"] if plot["name"].startswith("sweep-sharpness"))
    columns = {keys[curve["key"]]: curve["columns"]["y"]["doubles"] for curve in plot["curves"] if curve["told"]}
    on_page = {name: np.frombuffer(base64.b64decode(values)) for name, values in columns.items()}
    drawn = {line.get_label(): line.get_ydata() for line in figure.axes[0].lines}
    frame = sweep_frame(sweep)
    frame = frame[frame["outcome"] != "DIVERGED"]
    table = sweep_tables(sweep, "tiny")[0]
    cells = [*zip(*([*column.cells] for column in table.columns), strict=True)]
    rows = sweep_summary(sweep)["rows"]
    for run in runs_of(sweep):
        expected = [row["sharpness"] for row in rows if row["method"] == run.name]
        of_run = [row for row in cells if run.name in row]
        assert [row[7] for row in of_run] == [format_number(np.nan if v is None else v, 4) for v in expected]
        known = np.array([value for value in expected if value is not None])
        assert len(known)
        np.testing.assert_array_equal(drawn[run.label][np.isfinite(drawn[run.label])], known)
        np.testing.assert_array_equal(on_page[run.name], known)
        rate = frame["learning_rate"].isna() if run.is_flow else frame["learning_rate"] == run.learning_rate
        np.testing.assert_allclose(frame[rate].groupby("scale")["final_sharpness"].median().dropna(), known, rtol=1e-15)


@pytest.mark.slow
def test_a_caption_within_the_figure_tells_what_the_curves_are(sweep):
    for figure in report.sweep_figures(sweep.isel(scale=[0])).values():
        caption = figure.texts[0]
        assert "quartiles" in caption.get_text() or "Wilson" in caption.get_text()
        within = caption.get_window_extent()
        assert within.x0 >= 0
        assert within.x1 <= figure.bbox.width


def test_a_figure_without_its_sweep_says_what_is_missing():
    with pytest.raises(StoreError, match=r"sweep\.nc: is missing"):
        _claims(1, None)


def test_curves_of_sweeps_are_medians_of_finite_values_with_their_quartiles():
    spread = quartiles(np.array([[4.0, 1.0, np.nan, 2.0, 3.0, np.inf, 5.0], [1.0, *[np.nan] * 6], [np.nan] * 7]))
    expected = [[2, 1, np.nan], [3, 1, np.nan], [4, 1, np.nan]]
    np.testing.assert_array_equal([spread.low, spread.estimate, spread.high], expected)


def test_intervals_of_shares_are_wilsons():
    shares = share_interval(np.array([0, 3, 0]), np.array([20, 4, 0]))
    z = stats.norm.ppf(0.975)
    centre, n = (0.75 + z**2 / 8) / (1 + z**2 / 4), 4
    half = z * np.sqrt(0.75 * 0.25 / n + z**2 / (4 * n**2)) / (1 + z**2 / n)
    np.testing.assert_allclose([shares.low[1], shares.high[1]], [centre - half, centre + half])
    np.testing.assert_array_equal(shares.estimate, [0, 0.75, np.nan])


def _claim(claims, words):
    (one,) = (claim for claim in claims if words in claim.text)
    return one


def test_success_below_and_above_the_critical_rate_is_measured(sweep):
    for distance, lower, below, above in (
        (LEARNED / 2, 20.0, True, None),
        (2 * LEARNED, 20.0, False, None),
        (0.0, 2000.0, None, False),
    ):
        made = _descents(sweep, final_squared_distance=distance, outcome=int(Outcome.STEP_LIMIT))
        claims = _claims(1, _all_alike(made, sharpness_lower_bound=lower))
        assert _claim(claims, f"below 1/(La) = {2 / lower:g}, learning succeeds").holds is below
        assert _claim(claims, "learning fails at every scale").holds is above


@pytest.mark.parametrize("holds", [True, False])
def test_plateau_and_independence_of_the_learning_rate_are_measured(sweep, holds):
    made = _flows(_descents(sweep, final_squared_distance=0.0, outcome=1), final_sharpness=1000.0)
    share = 0.99 if holds else 0.5
    beyond = _descents(made, final_sharpness=share * 2 / made["learning_rate"])
    plateaus = [claim for claim in _claims(1, beyond) if "plateaus at 2/η" in claim.text]
    assert [claim.holds for claim in plateaus] == [holds, holds]
    assert plateaus[0].numbers["median"] == pytest.approx(share)
    assert plateaus[0].numbers["scales"] == len(SCALES)
    other = 20.5 if holds else 30.0
    made = _descents(made, final_sharpness=xarray.DataArray([np.nan, 20.0, other], dims=RUN))
    made = _flows(made, final_sharpness=20.0, outcome=1)
    claim = _claim(_claims(1, made), "does not depend on the learning rate")
    assert claim.holds is holds
    assert claim.numbers == {"η = 0.02": pytest.approx(20.0), "η = 0.06": pytest.approx(other)}


def test_descent_that_follows_the_flow_confirms_what_small_scales_show(sweep):
    claims = _claims(1, sweep)
    assert _claim(claims, "the gradient flow reaches a global minimum").holds is True
    assert _claim(claims, "no minimum that descent finds is sharper than 2/η").holds is True
    between = _claim(claims, "at the smallest scale it lies between the dotted lines")
    assert (between.holds, between.numbers) == (True, {"GF": 10.0, "η = 0.02": 10.1, "η = 0.06": 9.9})
    agrees = _claim(claims, "the flow's limit is as sharp")
    assert agrees.holds is True
    assert agrees.numbers["ratio"] == pytest.approx(1, abs=0.05)
    beyond = _claim(_claims(1, _descents(sweep, final_sharpness=60.0)), "no minimum that descent finds is sharper")
    assert beyond.holds is False
    assert beyond.numbers == {"η = 0.02": pytest.approx(0.6), "η = 0.06": pytest.approx(1.8)}
    outside = _claims(1, _descents(sweep, final_sharpness=LOWER / 1.02))
    assert _claim(outside, "at the smallest scale it lies between the dotted lines").holds is False


@pytest.mark.parametrize(("jump", "holds"), [(0.0346, True), (0.1, False)])
def test_the_jump_of_figure_2_is_found_between_two_learning_rates(by_depth, jump, holds):
    made = _descents(by_depth, outcome=1, final_squared_distance=1.0 * (by_depth["learning_rate"] > 0.05))
    first = _claims(2, _all_alike(made, sharpness_lower_bound=2 / jump))[0]
    assert first.numbers["jump"] == pytest.approx(np.sqrt(0.02 * 0.06))
    assert first.holds is holds


@pytest.mark.parametrize(("outcomes", "holds"), [([1, 6, 7], [True, True, True]), ([7, 1, 1], [False, False, True])])
def test_divergence_belongs_to_large_scales(sweep, outcomes, holds):
    made = _descents(sweep, outcome=xarray.DataArray(outcomes, dims="scale"))
    assert [claim.holds for claim in _claims(3, made)] == holds


@pytest.mark.parametrize(("sign", "holds"), [(1, True), (-1, False)])
def test_figure_6_claims_a_positive_slope(with_test_set, sign, holds):
    gap = with_test_set["final_sharpness"] ** (0.5 * sign)
    made = _descents(with_test_set, final_test_risk=with_test_set["final_risk"] + gap)
    claim = _claims(6, made)[0]
    assert claim.holds is holds
    assert claim.numbers["slope"] == pytest.approx(0.5 * sign)


@pytest.fixture(scope="module")
def without_regressor(sweep):
    unknown = {name: np.nan for name in sweep.data_vars if name.endswith(("squared_distance", "excess_risk"))}
    return _all_alike(sweep, **unknown)


def test_a_network_without_a_regressor_is_judged_by_its_sharpness_alone(without_regressor):
    assert runs.progress_measure(without_regressor) == "risk"
    claims = _claims(7, without_regressor)
    assert _claim(claims, "the gradient flow reaches a limit").holds is True
    assert _claim(claims, "the sharpness after training is below 2/η").holds is True
    stopped = _flows(without_regressor, outcome=int(Outcome.RISK_REACHED))
    claim = _claim(_claims(7, stopped), "the gradient flow reaches a limit, or the risk asked for")
    assert claim.holds is True
    assert claim.numbers["as_asked"] == claim.numbers["flows"] == len(SCALES) * REPETITIONS


SHOWN, REFUTED, ABSENT = (
    report.Claim("some do", "1", "3", True),
    report.Claim("most do", "2", "1", False),
    report.Claim("none does", "0", "0", True, of_absence=True),
)


def test_a_first_look_decides_only_what_it_saw():
    claims = [claim.at_first_look() for claim in (SHOWN, REFUTED, ABSENT)]
    assert [str(claim.verdict) for claim in claims] == ["holds", "not decided", "not decided"]
    beside = [claim.at_first_look() for claim in mark_outside_sweep((SHOWN, REFUTED, ABSENT))]
    assert [claim.holds for claim in beside] == [True, False, True]
    unknown = report.Claim("some do", "1", "no runs", None)
    assert unknown.at_first_look() == unknown
    printed = " ".join(report.printed(report.claims_table(claims, "figure 1"), 120).split())
    assert "1 holds, 2 not decided" in printed
    assert printed.count("run without --quick") == 1
    decided, undecided, _ = report.claims_summary(claims)
    assert "undecided" not in decided
    assert undecided["holds"] is None
    assert undecided["undecided"].endswith("run without --quick")


def test_claims_are_printed_and_summarized_with_none_for_what_was_not_measured():
    unknown = report.Claim("four do", "b" * 40, "no runs", None, {"x": np.nan})
    assert "1 holds, 1 fails, 1 not measured" in report.printed(
        report.claims_table((SHOWN, REFUTED, unknown), "figure 1"), 120
    )
    summary = json.loads(json.dumps(report.claims_summary([REFUTED, unknown]), allow_nan=False))
    assert summary[0] == {"claim": "most do", "expected": "2", "measured": "1", "holds": False, "numbers": {}}
    assert (summary[1]["holds"], summary[1]["numbers"]) == (None, {"x": None})


@pytest.mark.parametrize(
    ("mark", "counts"),
    [({"first_look": True}, "1 holds, 2 not decided"), ({}, "1 holds, 2 fails")],
)
@pytest.mark.slow
def test_what_is_stored_says_whether_it_was_a_first_look(sweep, tmp_path, mark, counts):
    scenario = {"figure": "flowsim.papers.marion_chizat_2024:Figure3", "sweep": {"repetitions": 3} | mark}
    (tmp_path / "scenario.yaml").write_text(yaml.safe_dump({"scenario": scenario}))
    # As in no paper: all descents diverge at the smallest scale, and none at the others.
    ends = xarray.where(sweep["scale"] == SCALES[0], int(Outcome.DIVERGED), int(Outcome.CONVERGED))
    document = report.document(Results(tmp_path, None, _descents(sweep, outcome=ends), None), "figure 3")
    assert counts in " ".join(report.printed(table, 120) for table in document.tables)
    refuted = None if mark.get("first_look") else False
    assert [claim["holds"] for claim in document.summary["claims"]] == [refuted, refuted, True]


@pytest.fixture(scope="module")
def bisected(sweep):
    """A sweep over two dimensions, with critical learning rates twice as large as predicted."""
    several = xarray.concat([sweep, sweep], "condition", data_vars="all").assign_coords(condition=[1.0, 10.0])
    several = several.transpose("scale", "condition", "repetition", RUN)
    critical = 4 / several["sharpness_lower_bound"] * xarray.ones_like(several["initial_risk"])
    return several.assign(critical_learning_rate_lower=critical / 1.01, critical_learning_rate_upper=critical * 1.01)


@pytest.mark.slow
def test_each_value_of_another_dimension_has_its_panel(bisected):
    panels = report.sweep_figures(bisected)["critical"].axes
    assert [axes.get_title() for axes in panels] == ["condition = 1", "condition = 10"]
    measured, median, predicted = panels[0].lines
    np.testing.assert_allclose(median.get_ydata(), 2 * np.asarray(predicted.get_ydata()))
    assert len(measured.get_ydata()) == len(SCALES) * REPETITIONS


@pytest.mark.slow
def test_the_table_of_a_sweep_fits_a_screen_and_its_summary_has_all(bisected):
    (printed,) = check_fits([report.sweep_table(bisected, "two dimensions")])
    assert "Critical learning rate over 1/(La‖w*‖^(2−2/L)): median 2, from 2 to 2" in printed
    summary = json.loads(json.dumps(report.sweep_summary(bisected), allow_nan=False))
    assert len(summary["rows"]) == len(SCALES) * 2 * (1 + len(RATES))
    assert [row["method"] for row in summary["rows"][:3]] == ["GF", "η = 0.02", "η = 0.06"]
    assert summary["critical"][0]["ratio"] == pytest.approx(2)


def test_rows_of_a_sweep_are_medians_and_shares(sweep):
    row = report.sweep_summary(sweep)["rows"][1]
    part = sweep.isel(scale=0, run=1)
    assert row["scale"] == SCALES[0]
    assert row["runs"] == REPETITIONS
    assert row["sharpness"] == pytest.approx(float(part["final_sharpness"].median()))
    assert row["over_threshold"] == pytest.approx(row["sharpness"] * RATES[0] / 2)
    assert row["converged"] == float((part["outcome"] == Outcome.CONVERGED).mean())
    codes = sweep["outcome"].copy()
    codes[0, :, 1] = [Outcome.CONVERGED, Outcome.FIXED_POINT, runs.NOT_ASKED]
    row = report.sweep_summary(sweep.assign(outcome=codes))["rows"][1]
    assert (row["runs"], row["converged"], row["settled"]) == (2, 0.5, 1.0)


@pytest.mark.slow
def test_figures_of_any_sweep_space_names_evenly_and_have_curves_and_rows_of_other_dynamics(sweep):
    named = sweep.rename(scale="kind").assign_coords(kind=["a", "b", "c"])
    (axes,) = report.sweep_figures(named)["sharpness"].axes
    assert [label.get_text() for label in axes.get_xticklabels()] == ["a", "b", "c"]
    assert len(np.unique(np.diff(axes.get_xticks()))) == 1
    foreign = sweep.assign_coords(dynamics=(RUN, ["gradient_flow", "gradient_descent", "my_module:HeavyBall"]))
    figures = report.sweep_figures(foreign)
    assert set(figures) == {"sharpness", "squared_distance", "divergence"}
    (axes,) = figures["sharpness"].axes
    assert axes.get_xlabel() == "scale of the initialization"
    assert _labels(axes)[1:] == ["GF", r"$\eta = 0.02$", r"HeavyBall, $\eta = 0.06$"]
    rows = report.sweep_summary(foreign)["rows"]
    assert [row["method"] for row in rows[:3]] == ["GF", "η = 0.02", "HeavyBall, η = 0.06"]


def test_a_sweep_counts_flows_that_missed_their_limit_but_not_those_that_failed(sweep):
    missed = sweep["outcome"].copy()
    missed[0, 0, 0], missed[1, 0, 0], missed[2, 0, 0] = Outcome.STEP_LIMIT, runs.NOT_ASKED, Outcome.FIXED_POINT
    assert runs.unconverged(sweep) == 0
    assert runs.unconverged(sweep.assign(outcome=missed)) == 2
    missed[0, 0, 0] = Outcome.TIME_LIMIT  # as asked
    assert runs.unconverged(sweep.assign(outcome=missed)) == 1
