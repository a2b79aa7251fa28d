"""The figures, claims and tables of a sweep, on numbers made up to hold or to break a claim."""

import base64
import io
import json
from pathlib import Path

import jax
import numpy as np
import pytest
import xarray
import yaml

import flowsim
from flowsim import report
from flowsim.data import gaussian_teacher
from flowsim.dynamics import Outcome
from flowsim.formatting import format_number
from flowsim.papers.marion_chizat_2024.measures import LEARNED, gaps, regress
from flowsim.report.frame import sweep_frame
from flowsim.report.page.render import group_of_sweep
from flowsim.report.sweeps import runs, sweep_summary, sweep_tables
from flowsim.report.sweeps.intervals import quartiles, share_interval
from flowsim.results import FIGURES, Results, StoreError
from flowsim.results.runs import FLOW, GRADIENT_DESCENT, Run, run_coordinates, runs_of
from flowsim.results.schema import RUN
from flowsim.theory import mark_outside_sweep

SCALES, RATES, REPETITIONS = [0.3, 0.6, 0.9], [0.02, 0.06], 3
DEPTH, FEATURES, SAMPLES = 4, 3, 20


LOWER, LARGEST_EIGENVALUE = 7.0, 1.5
# Over the scales; descent follows the flow below 2/η = 100 and 33, and stays there beyond.
INITIAL_SHARPNESS = [2.0, 60.0, 500.0]
SHARPNESS = {"GF": [10.0, 45.0, 200.0], 0.02: [10.1, 45.5, 97.0], 0.06: [9.9, 32.0, 31.0]}


@pytest.fixture(scope="module")
def sweep():
    """Three scales by three repetitions by two learning rates; two runs diverge, and others are still on their way."""
    shape = (len(SCALES), REPETITIONS, 1 + len(RATES))
    spread = np.array([0.97, 1.0, 1.02])[:, None]
    outcome = np.full(shape, int(Outcome.CONVERGED))
    outcome[1, 0, 2], outcome[2, :, 1], outcome[2, :2, 2] = Outcome.STEP_LIMIT, Outcome.STEP_LIMIT, Outcome.DIVERGED
    sharpness = np.stack(list(SHARPNESS.values()), axis=1)[:, None] * spread
    lost = outcome == Outcome.DIVERGED
    ends = {"sharpness": sharpness, "risk": 0.1 + 1e-9 * sharpness, "excess_risk": 1e-9 * sharpness}
    ends |= {"squared_distance": 1e-8 * sharpness, "gradient_norm": 1e-6 * sharpness}
    starts = {"risk": [1.2, 1.3, 2.0], "excess_risk": [1.1, 1.2, 1.9], "squared_distance": [1.0, 1.1, 1.5]}
    starts |= {"sharpness": INITIAL_SHARPNESS}
    found = {f"final_{name}": np.where(lost, np.nan, values) for name, values in ends.items()}
    found |= {f"initial_{name}": np.array(values)[:, None] * spread[:, 0] for name, values in starts.items()}
    found |= {"outcome": outcome, "steps": np.full(shape, 400)}
    dims = ("scale", "repetition", RUN)
    variables = {name: (dims[: values.ndim], values) for name, values in found.items()}
    known = {"largest_eigenvalue": LARGEST_EIGENVALUE, "sharpness_lower_bound": LOWER, "sharpness_upper_bound": 9.0}
    variables |= {name: ("scale", np.full(len(SCALES), value)) for name, value in known.items()}
    coordinates = {"scale": SCALES, "repetition": np.arange(REPETITIONS), **_runs(RATES)}
    return xarray.Dataset(variables, coordinates, {"scenario": json.dumps(_scenario("mlp"))})


def _scenario(kind):
    return {"network": {"kind": kind, "depth": DEPTH}, "data": {"samples": SAMPLES, "features": FEATURES}}


def _runs(rates):
    return run_coordinates([FLOW, *(Run(GRADIENT_DESCENT, rate) for rate in rates)])


@pytest.fixture(scope="module")
def courses():
    problem = flowsim.LinearRegression(*gaussian_teacher(np.random.default_rng(0), SAMPLES, FEATURES))
    network = flowsim.DeepLinear.gaussian(widths=[FEATURES] * DEPTH + [1], scale=0.4, key=jax.random.key(1))
    return flowsim.compare(network, problem, RATES, steps=200, records=200).to_dataset()


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


def _text(table, width=120):
    from rich.console import Console

    stream = io.StringIO()
    Console(file=stream, width=width).print(table)
    return stream.getvalue()


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
    kind = FIGURES[f"flowsim.papers.marion_chizat_2024:Figure{number}"]
    return kind().draw(Results(Path("results"), trajectories, sweep, None))


def _claims(number, sweep, trajectories=None):
    kind = FIGURES[f"flowsim.papers.marion_chizat_2024:Figure{number}"]
    return kind().claims(Results(Path("results"), trajectories, sweep, None))


@pytest.mark.slow
def test_panels_a_and_b_show_start_flow_and_descents_by_medians_over_runs_that_did_not_diverge(sweep):
    distance, sharpness = _drawn(1, sweep).axes
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
    residual = sweep.assign_attrs(scenario=json.dumps(_scenario("residual")))
    assert top not in _levels(_drawn(4, residual).axes[1])
    large = _drawn(1, sweep.assign_coords(_runs([0.02, 0.1]))).axes[1]
    assert _labels(large) == ["initialization", "GF", r"$\eta = 0.02$"]


@pytest.mark.slow
def test_courses_show_steps_of_descent_and_the_flow_at_equal_times_in_the_colours_of_all_panels(sweep, courses):
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
    (axes,) = _drawn(2, by_depth).axes
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
    flow, descent = scatter.collections
    assert (len(flow.get_offsets()), flow.get_label()) == (len(SCALES) * REPETITIONS, "limit of GF")
    assert descent.get_label() == r"GD, $\eta = 0.02$"
    assert "slope 0.5" in scatter.get_title()


@pytest.mark.slow
def test_figure_7_has_the_median_of_the_flow_which_a_few_very_sharp_limits_do_not_make(sweep):
    rare = sweep.copy(deep=True)
    rare["final_sharpness"][:, 0, 0] = 1e6
    (axes,) = _drawn(7, rare).axes
    curves = {line.get_label(): line.get_ydata() for line in axes.lines}
    np.testing.assert_allclose(curves["GF"], rare["final_sharpness"][..., 0].median("repetition"))


@pytest.mark.slow
def test_legends_name_the_dashed_lines_in_their_own_colours(sweep, by_depth):
    from matplotlib.lines import Line2D

    for figure, name in ((_drawn(1, sweep), r"$2/\eta$"), (_drawn(2, by_depth), "$1/(La)$")):
        (legend,) = figure.legends
        drawn = {line.get_color() for axes in figure.axes for line in axes.lines if line.get_gid() == "threshold"}
        assert name in [text.get_text() for text in legend.get_texts()]
        assert len(drawn) > 1
        assert drawn <= {line.get_color() for line in legend.findobj(Line2D) if line.get_linestyle() == "--"}


def test_the_regression_is_that_of_scipy():
    from scipy import stats

    rng = np.random.default_rng(0)
    sharpness = 10 ** rng.uniform(0, 3, 40)
    gap = 10 ** (0.3 * np.log10(sharpness) + 0.2 * rng.standard_normal(40))
    gap[0] = -1.0
    found = regress((sharpness, gap))
    r, p = stats.pearsonr(np.log10(sharpness[1:]), np.log10(gap[1:]), alternative="greater")
    assert found.r_squared == pytest.approx(r**2)
    assert found.p_value == pytest.approx(p, rel=1e-6)
    assert found.slope == pytest.approx(np.polyfit(np.log10(sharpness[1:]), np.log10(gap[1:]), 1)[0])
    assert (found.count, found.left_out) == (39, 1)


def test_gaps_leave_out_runs_that_diverged(with_test_set):
    lost = _descents(with_test_set, outcome=int(Outcome.DIVERGED))
    assert len(gaps(lost, runs.descents(lost)[0])[0]) == 0
    assert regress(gaps(lost, runs.descents(lost)[0])) is None


@pytest.mark.slow
def test_the_sharpness_of_a_sweep_is_one_number_in_figure_page_table_summary_and_data_frame(sweep):
    figure = report.sweep_figures(sweep)["sharpness"]
    assert figure.get_supxlabel().startswith("medians")
    page = group_of_sweep(sweep).content()
    keys = {key["name"]: key["label"] for key in page["keys"]}
    (plot,) = (plot for plot in page["plots"] if plot["name"].startswith("sweep-sharpness"))
    told = {keys[curve["key"]]: curve["columns"]["y"]["doubles"] for curve in plot["curves"] if curve["told"]}
    on_page = {name: np.frombuffer(base64.b64decode(values)) for name, values in told.items()}
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
    found = quartiles(np.array([[4.0, 1.0, np.nan, 2.0, 3.0, np.inf, 5.0], [1.0, *[np.nan] * 6], [np.nan] * 7]))
    np.testing.assert_array_equal(found.estimate, [3, 1, np.nan])
    np.testing.assert_array_equal(found.low, [2, 1, np.nan])
    np.testing.assert_array_equal(found.high, [4, 1, np.nan])


def test_intervals_of_shares_are_wilsons():
    from scipy import stats

    found = share_interval(np.array([0, 3, 0]), np.array([20, 4, 0]))
    z = stats.norm.ppf(0.975)
    centre, n = (0.75 + z**2 / 8) / (1 + z**2 / 4), 4
    half = z * np.sqrt(0.75 * 0.25 / n + z**2 / (4 * n**2)) / (1 + z**2 / n)
    np.testing.assert_allclose([found.low[1], found.high[1]], [centre - half, centre + half])
    np.testing.assert_array_equal(found.estimate, [0, 0.75, np.nan])


def _claim(found, words):
    (one,) = (claim for claim in found if words in claim.text)
    return one


def test_success_below_and_above_the_critical_rate_is_measured(sweep):
    for distance, lower, below, above in (
        (LEARNED / 2, 20.0, True, None),
        (2 * LEARNED, 20.0, False, None),
        (0.0, 2000.0, None, False),
    ):
        made = _descents(sweep, final_squared_distance=distance, outcome=int(Outcome.STEP_LIMIT))
        found = _claims(1, _all_alike(made, sharpness_lower_bound=lower))
        assert _claim(found, f"below 1/(La) = {2 / lower:g}, learning succeeds").holds is below
        assert _claim(found, "learning fails at every scale").holds is above


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
    found = _claim(_claims(1, made), "does not depend on the learning rate")
    assert found.holds is holds
    assert found.numbers == {"η = 0.02": pytest.approx(20.0), "η = 0.06": pytest.approx(other)}


def test_descent_that_follows_the_flow_confirms_what_small_scales_show(sweep):
    found = _claims(1, sweep)
    assert _claim(found, "the gradient flow reaches a global minimum").holds is True
    assert _claim(found, "no minimum that descent finds is sharper than 2/η").holds is True
    between = _claim(found, "at the smallest scale it lies between the dotted lines")
    assert between.holds is True
    assert between.numbers == {"GF": 10.0, "η = 0.02": 10.1, "η = 0.06": 9.9}
    agrees = _claim(found, "the flow's limit is as sharp")
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
    found = _claims(6, made)[0]
    assert found.holds is holds
    assert found.numbers["slope"] == pytest.approx(0.5 * sign)


@pytest.fixture(scope="module")
def without_regressor(sweep):
    unknown = {name: np.nan for name in sweep.data_vars if name.endswith(("squared_distance", "excess_risk"))}
    return _all_alike(sweep, **unknown)


def test_a_network_without_a_regressor_is_judged_by_its_sharpness_alone(without_regressor):
    made = without_regressor
    assert runs.progress_measure(made) == "risk"
    found = _claims(7, made)
    assert _claim(found, "the gradient flow reaches a limit").holds is True
    assert _claim(found, "the sharpness after training is below 2/η").holds is True
    stopped = made["outcome"].where(made["dynamics"] != FLOW.dynamics, int(Outcome.RISK_REACHED))
    claim = _claim(_claims(7, made.assign(outcome=stopped)), "the gradient flow reaches a limit, or the risk asked for")
    assert claim.holds is True
    assert claim.numbers["as_asked"] == claim.numbers["flows"] == len(SCALES) * REPETITIONS


@pytest.mark.slow
def test_figures_of_a_network_without_a_regressor_show_its_risk(without_regressor):
    assert _labels(_drawn(7, without_regressor).axes[0])[1] == "GF"
    assert "risk" in report.sweep_figures(without_regressor)


SHOWN, REFUTED, ABSENT = (
    report.Claim("some do", "1", "3", True),
    report.Claim("most do", "2", "1", False),
    report.Claim("none does", "0", "0", True, of_absence=True),
)


def test_a_first_look_decides_only_what_it_saw():
    verdicts = [str(claim.at_first_look().verdict) for claim in (SHOWN, REFUTED, ABSENT)]
    assert verdicts == ["holds", "not decided", "not decided"]
    beside = [claim.at_first_look() for claim in mark_outside_sweep((SHOWN, REFUTED, ABSENT))]
    assert [claim.holds for claim in beside] == [True, False, True]
    unknown = report.Claim("some do", "1", "no runs", None)
    assert unknown.at_first_look() == unknown


def test_claims_are_printed_and_summarized_and_undecided_ones_with_the_reason():
    unknown = report.Claim("four do", "b" * 40, "no runs", None, {"x": np.nan})
    printed = _text(report.claims_table((SHOWN, REFUTED, unknown), "figure 1"))
    assert "1 holds, 1 fails, 1 not measured" in printed
    summary = json.loads(json.dumps(report.claims_summary([REFUTED, unknown]), allow_nan=False))
    assert summary[0] == {"claim": "most do", "expected": "2", "measured": "1", "holds": False, "numbers": {}}
    assert (summary[1]["holds"], summary[1]["numbers"]) == (None, {"x": None})
    found = [claim.at_first_look() for claim in (SHOWN, REFUTED, ABSENT)]
    printed = " ".join(_text(report.claims_table(found, "figure 1")).split())
    assert "1 holds, 2 not decided" in printed
    assert printed.count("a tenth of the steps, three repetitions at most: run without --quick") == 1
    whole, undecided, _ = report.claims_summary(found)
    assert "undecided" not in whole
    assert undecided["holds"] is None
    assert undecided["undecided"].endswith("run without --quick")


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
    found = report.document(Results(tmp_path, None, _descents(sweep, outcome=ends), None), "figure 3")
    assert counts in " ".join(_text(table) for table in found.tables)
    refuted = None if mark.get("first_look") else False
    assert [claim["holds"] for claim in found.summary["claims"]] == [refuted, refuted, True]


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
    found, median, predicted = panels[0].lines
    np.testing.assert_allclose(median.get_ydata(), 2 * np.asarray(predicted.get_ydata()))
    assert len(found.get_ydata()) == len(SCALES) * REPETITIONS


@pytest.mark.slow
def test_the_table_of_a_sweep_fits_a_screen_and_its_summary_has_all(bisected):
    printed = _text(report.sweep_table(bisected, "two dimensions"), width=80)
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
def test_dimensions_that_are_no_numbers_are_spaced_evenly(sweep):
    named = sweep.rename(scale="kind").assign_coords(kind=["a", "b", "c"])
    (axes,) = report.sweep_figures(named)["sharpness"].axes
    assert [label.get_text() for label in axes.get_xticklabels()] == ["a", "b", "c"]
    assert len(np.unique(np.diff(axes.get_xticks()))) == 1


@pytest.mark.slow
def test_other_dynamics_have_their_curve_and_rows_in_any_sweep(sweep):
    names = ["gradient_flow", "gradient_descent", "my_module:HeavyBall"]
    foreign = sweep.assign_coords(dynamics=(RUN, names))
    made = report.sweep_figures(foreign)
    assert set(made) == {"sharpness", "squared_distance", "divergence"}
    (axes,) = made["sharpness"].axes
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
