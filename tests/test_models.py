"""Models of descent beside descents: centres, distances, statements, tables, figures, and what is refused."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import yaml
from table_checks import check_fits

import flowsim
from flowsim import FlowLimits
from flowsim.comparison.centres import Centres
from flowsim.comparison.edge_statements import AMPLITUDE, CENTRE_DISTANCE, LIMIT_FALLS, SHARPNESS_HELD
from flowsim.comparison.models import check_models
from flowsim.dynamics import Outcome, StepTimes
from flowsim.probes import MeanExcessRisk, MeanRisk
from flowsim.report import document, figures, summary as trajectories_summary, tables
from flowsim.results import Results
from flowsim.scenarios import Scenario, ScenarioError, build, read_scenario, resolved, run
from flowsim.tables import model_rows
from flowsim.theory import Verdict


@pytest.fixture(scope="module")
def quartic():
    """R = Σ (λ_i w_i²/2 − w_i⁴): descent with η = 0.1 ends in a two-cycle of the first weight, at λ = 24."""
    sharpness = jnp.array([24.0, 1.0])
    problem = flowsim.Risk(lambda w: jnp.sum(sharpness * w["w"] ** 2 / 2 - 2 * w["w"] ** 4))
    return {"w": jnp.array([0.1, 0.2])}, problem


@pytest.fixture(scope="module")
def modelled(quartic):
    models = ["gradient", "edge"]
    return flowsim.compare(*quartic, [0.05, 0.1], steps=300, t1=20.0, models=models, limits=FlowLimits(4))


def test_the_centre_of_a_two_cycle_is_its_middle_and_the_amplitude_half_its_length():
    """r² = S/Q − 2/(ηQ) for R = S w²/2 − Q w⁴/4: here 24/8 − 20/8, after 300 steps of descent in plain NumPy."""
    path = [np.array([0.1, 0.2])]
    for _ in range(300):
        path.append(path[-1] - 0.1 * (np.array([24.0, 1.0]) * path[-1] - 8 * path[-1] ** 3))
    path, steps = np.array(path), np.append(np.arange(298), [299, 300])  # all but one
    risk = np.sum(np.array([24.0, 1.0]) * path**2 / 2 - 2 * path**4, axis=1)
    columns = {"risk": risk[steps], "excess_risk": risk[steps] - 1}
    descent = SimpleNamespace(times=0.1 * steps, weights={"w": path[steps]}, **columns)
    centres = Centres.of(descent, StepTimes(flowsim.GradientDescent(0.1)))
    np.testing.assert_array_equal(centres.records, np.arange(1, 297))  # where the neighbours are one step off
    np.testing.assert_allclose(centres.times, 0.1 * centres.records, rtol=1e-12)
    assert centres.amplitude[-1] == pytest.approx(np.sqrt(0.5), rel=1e-9)
    means = [(one[:-2] + 2 * one[1:-1] + one[2:])[:296] / 4 for one in (path, risk)]
    np.testing.assert_allclose(centres.weights["w"], means[0], atol=1e-15)
    np.testing.assert_allclose(centres.mean_risk, means[1], rtol=1e-13)
    np.testing.assert_allclose(centres.mean_excess_risk, means[1] - 1, rtol=1e-12)
    model = SimpleNamespace(times=0.1 * np.arange(1, 4), weights={"w": path[1:4]}, outcome=SimpleNamespace(stays=False))
    distances = centres.distances(model)
    np.testing.assert_allclose(distances[:3], np.linalg.norm(path[1:4] - means[0][:3], axis=1), rtol=1e-12)
    assert np.isnan(distances[3:]).all()


@pytest.mark.slow
def test_every_model_runs_once_for_each_learning_rate_and_is_measured_from_the_centre(modelled):
    assert [(run.dynamics, run.learning_rate) for run in modelled.models] == [("edge", 0.05), ("edge", 0.1)]
    rows = {(row["method"], row["learning_rate"]): row for row in model_rows(modelled.to_dataset())}
    assert set(rows) == {(method, rate) for method in ("GD", "GF", "edge") for rate in (0.05, 0.1)}
    edge, descent = rows["edge", 0.1], rows["GD", 0.1]
    assert edge["oscillation"] == pytest.approx(np.sqrt(0.5), rel=1e-4)
    assert descent["oscillation"] == pytest.approx(np.sqrt(0.5), rel=1e-4)
    assert edge["mean_risk"] == pytest.approx(descent["mean_risk"], rel=1e-3)
    assert np.isnan(edge["mean_excess_risk"])
    assert edge["sharpness"] == pytest.approx(24.0, rel=1e-3)
    assert descent["sharpness"] == pytest.approx(24.0, rel=1e-3)
    assert rows["GF", 0.05]["distance"] > 5 * rows["edge", 0.05]["distance"] > 0
    # Once the oscillation has grown the model is closer to descent than the gradient flow.
    times, distances = (modelled.to_dataset()[name].values for name in ("time", "centre_distance"))
    later = [t for t in times[4] if 2 <= t <= 10 and t in times[2]]
    flow, model = (np.array([distances[run][times[run] == t][0] for t in later]) for run in (2, 4))
    assert len(later) > 20
    assert (model < flow / 5).all()
    assert np.median(flow / model) > 20


@pytest.mark.slow
def test_tables_figures_and_summary_show_models_and_limits_and_no_figures_of_their_own_do(modelled):
    dataset = modelled.to_dataset()
    check_fits(tables(dataset, "a name"))
    assert "error reduction" in str(modelled)
    drawn = figures(dataset)
    assert {"models_eta_0.05", "models_eta_0.1"} <= set(drawn)
    (sharpness,) = drawn["models_sharpness_eta_0.1"].axes
    above, _, _ = drawn["models_eta_0.1"].axes
    for alone, beside in zip(sharpness.lines, above.lines, strict=True):
        np.testing.assert_array_equal(alone.get_xydata(), beside.get_xydata())
    recorded_beside = {"oscillation", "mean_risk", "mean_excess_risk", "centre_distance", "centre_sharpness"}
    recorded_beside |= {"limit_sharpness", "limit_sharpness_error"}
    assert recorded_beside <= set(dataset)
    assert not recorded_beside & set(drawn)
    (axes,) = drawn["sharpness"].axes
    assert sum((line.get_color(), line.get_markerfacecolor()) == ("black", "white") for line in axes.lines) == 2
    (low, high) = trajectories_summary(dataset)["descent"][:2]
    assert low["flow_limits"]["sharpness"] == pytest.approx([24.0] * len(low["flow_limits"]["time"]))
    assert low["flow_limits"]["time"][-1] == low["time"]
    assert high["flow_limits"]["error"][0] < 1e-6


@pytest.mark.slow
def test_statements_on_a_two_cycle_hold_are_printed_and_decide_whether_all_went_well(modelled, tmp_path):
    statements = {(about.run.name, one.name): one for about in modelled.statements for one in about.statements}
    for name in ("mean risk", AMPLITUDE, CENTRE_DISTANCE):
        assert statements["edge, η = 0.1", name].verdict is Verdict.HOLDS
        assert statements["edge, η = 0.05", name].verdict is Verdict.NOT_APPLICABLE  # below its edge
    assert statements["edge, η = 0.1", AMPLITUDE].sides[0] < 0.01
    assert statements["η = 0.1", LIMIT_FALLS].verdict is Verdict.HOLDS
    dataset = modelled.to_dataset()
    dataset["outcome"][0] = int(Outcome.CONVERGED)
    assert len(tables(dataset, "")) == 3
    assert "statements at the edge of stability" in str(modelled)
    written = document(Results(tmp_path, dataset, None, None), "mine")
    assert written.complete
    assert {one["verdict"] for one in written.summary["statements"]} == {"holds", "not applicable"}
    dataset["centre_distance"][-1] *= 1e6
    assert not document(Results(tmp_path, dataset, None, None), "mine").complete


def test_the_mean_excess_risk_keeps_its_digits_where_the_mean_risk_has_none():
    """With R = 1 + (π − w*)², two swings of ±v about π = w* have a mean excess of 2v², of which 1 leaves nothing."""
    problem = flowsim.LinearRegression(np.ones((4, 1)), np.array([3.0, 1.0, 3.0, 1.0]))
    network = flowsim.DeepLinear([np.array([[2.0]])])

    @jax.jit
    def means(swing):
        rows = jax.tree.map(lambda leaf: jnp.full((2, *leaf.shape), swing), network)
        moment = flowsim.Moment(network, problem, None, jnp.zeros(()), jnp.zeros(()), oscillation=rows)
        return MeanExcessRisk().measure(moment), MeanRisk().measure(moment)

    for swing in (1e-3, 1e-9):
        excess, risk = means(np.array(swing))
        assert float(excess) == pytest.approx(2 * swing**2, rel=1e-12)
        assert float(risk) == pytest.approx(1 + 2 * swing**2, rel=1e-15)


@pytest.mark.slow
def test_where_the_minimum_of_the_risk_is_known_the_table_has_the_excess_and_the_central_flow_holds_the_edge(modelled):
    """R = (ab − 1)² + 5: the flow ends at S = 2√(c² + 4) = 8.1, c = a² − b², just beyond the edge at η = 0.25."""
    problem = flowsim.Risk(lambda w: (w["a"] * w["b"] - 1.0) ** 2 + 5.0, infimum=5.0)
    start = {"a": jnp.array(1.9), "b": jnp.array(0.3)}
    compared = flowsim.compare(start, problem, [0.25], steps=40, t1=10.0, records=40, models=["central"])
    (header,) = (line for line in str(compared).splitlines() if "− R_min" in line)
    assert "√tr Σ" in header
    assert "− R_min" not in str(modelled)
    row = model_rows(compared.to_dataset())[0]
    assert row["mean_excess_risk"] == pytest.approx(row["mean_risk"] - 5, abs=1e-14)
    rounding = float(np.finfo(float).eps) ** (2 / 3)
    assert compared.models[0].held_within == pytest.approx(1e-9 + rounding, rel=1e-12)
    assert compared.to_dataset()["held_within"].values[-1] == compared.models[0].held_within
    assert "held_within" not in modelled.to_dataset()
    (held,) = (one for about in compared.statements for one in about.statements if one.name == SHARPNESS_HELD)
    assert held.verdict is Verdict.HOLDS


def test_models_say_within_what_they_hold_the_sharpness_at_the_edge():
    """1e-9 of 2/η in double precision, and in single precision 640 roundings; the edge flow does not hold it."""
    assert flowsim.CentralFlow(0.1).held_within(jnp.dtype("float64")) == 1e-9
    assert flowsim.CentralFlow(0.1).held_within(jnp.dtype("float32")) == pytest.approx(640 * 2.0**-23)
    assert flowsim.EdgeFlow(0.1).held_within(jnp.dtype("float64")) is None


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"models": "edge"}, ValueError, "models must be a list of names"),
        ({"models": ["edge", "edge"]}, ValueError, "edge twice"),
        ({"models": ["central_2", flowsim.CentralFlow(order=2)]}, ValueError, "central_2 twice"),
        ({"models": [flowsim.EdgeFlow(0.1)]}, ValueError, "EdgeFlow has the learning rate 0.1"),
        ({"models": [flowsim.CentreFlow(flowsim.HeavyBall(0.1))]}, ValueError, "CentreFlow has the learning rate 0.1"),
        ({"models": [flowsim.EdgeFlow(order=3)]}, ValueError, "order must be 1 or 2"),
        ({"models": [flowsim.GradientFlow()]}, ValueError, r"EdgeFlow\(rtol=1e-9\)\], got GradientFlow"),
        ({"models": ["gradient_descent"]}, ValueError, "gradient_descent"),
        ({"models": ["edge"], "optimizer": flowsim.HeavyBall}, ValueError, "EdgeFlow models gradient descent alone"),
        ({"limits": 16}, TypeError, "limits must be None"),
    ],
)
def test_models_and_limits_that_cannot_be_are_refused(quartic, options, error, message):
    with pytest.raises(error, match=message):
        flowsim.compare(*quartic, [0.05], steps=5, **options)


@pytest.mark.slow
def test_tolerances_and_step_limit_reach_models_whether_by_name_or_as_objects(quartic):
    def steps(model, **options):
        runs = flowsim.compare(*quartic, [0.04, 0.05], steps=20, models=[model], sharpness=False, **options).models
        assert [(run.dynamics, run.learning_rate) for run in runs] == [("edge", 0.04), ("edge", 0.05)]
        return [run.trajectory.steps for run in runs]

    assert steps(flowsim.EdgeFlow) == steps("edge") < steps("edge", rtol=1e-8, atol=1e-14)
    assert steps("edge", rtol=1e-8, atol=1e-14) == steps(flowsim.EdgeFlow(rtol=1e-8, atol=1e-14), rtol=1e-3)
    assert steps("edge", max_steps=7) == [7, 7]


def test_limits_with_options_that_no_flow_can_have_are_refused_before_anything_runs():
    bowl = flowsim.Risk(lambda w: jnp.sum(w**2))
    for limits, message in ((FlowLimits(rtol=1e-20), "rtol=1e-20 is finer"), (FlowLimits(max_steps=0), "max_steps")):
        with pytest.raises(ValueError, match=message):
            flowsim.compare(jnp.ones(2), bowl, [0.1], limits=limits, progress=pytest.fail)


def test_a_model_with_options_keeps_them_for_every_descent():
    descents = [flowsim.HeavyBall(0.02), flowsim.GradientDescent(0.1)]
    model = flowsim.CentreFlow(rtol=1e-7)
    assert [model.following(descent, rtol=1e-3).optimizer for descent in descents] == descents
    assert [float(model.following(descent, rtol=1e-3).rtol) for descent in descents] == [1e-7, 1e-7]
    names = check_models(
        ["gradient", flowsim.CentralFlow(most=2), flowsim.CentralFlow(order=2)], descents[1:], np.dtype(float)
    )
    assert list(names) == ["central", "central_2"]


SCENARIO = """
seed: 0
data: {kind: gaussian, samples: 20, features: 3}
network: {kind: mlp, depth: 3, scale: 0.5}
flow: {limits: 3, t1: 2.0}
descent: {learning_rates: [0.05]}
"""


@pytest.mark.slow
def test_a_scenario_has_its_limits(write):
    path = write(SCENARIO)
    scenario = read_scenario(path)
    dataset = run(scenario, *build(scenario, path.parent)).to_dataset()
    assert np.isfinite(dataset["limit_sharpness"].values[1]).sum() in (3, 4)


def test_models_in_a_scenario_may_have_options(write):
    text = SCENARIO.replace(
        "{limits: 3, t1: 2.0}", "{models: [edge, {kind: central, order: 2, rtol: 1.0e-8}], rtol: 1.0e-5}"
    )
    scenario = read_scenario(write(text))
    central = scenario.flow.of_descent["central_2"]
    assert (central.order, central.rtol, central.learning_rate) == (2, 1e-8, None)
    again = Scenario.model_validate(resolved(scenario))  # what is stored is read alike
    assert again.flow == scenario.flow
    assert again.flow.of_descent["central_2"] == central


TWO_KINDS = """
descent: {}
sweep:
  over: {network.scale: [0.8]}
  descent: [{learning_rates: [0.1], steps: 9}, {learning_rates: [0.1], steps: 9, optimizer: heavy_ball}]
"""


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("flow: {models: [edgy]}", "edgy"),
        ("flow: {models: [edge, edge]}", "edge, edge"),
        ("flow: {models: [edge, {kind: edge, rtol: 1.0e-9}]}", "edge, edge"),
        ("flow: {models: [{kind: edge, rtl: 1.0e-9}]}", r"models\[0\].rtl: .* write rtol"),
        ("flow: {models: [{kind: edge, order: 3}]}", "order must be 1 or 2"),
        ("flow: {models: [{kind: edge, rtol: 1.0e-30}]}", "finer than float64 can meet"),
        ("flow: {models: [edge]}\ndescent: {learning_rates: []}", "edge without learning rates"),
        ("flow: {models: [edge]}\ndescent: {learning_rates: [0.1], optimizer: heavy_ball}", "EdgeFlow models gradient"),
        ("flow: {models: [edge]}" + TWO_KINDS, "edge beside descents of kind heavy_ball"),
        ("flow: {models: [centre]}" + TWO_KINDS, "models of two kinds of descent"),
        ("flow: {limits: 3}\ndescent: {learning_rates: []}", "limits.*without learning rates"),
        ("flow: {limits: 3}\nsweep: {repetitions: 2}", "limits.*in a sweep"),
        ("flow: {limits: 0}", "limits"),
    ],
)
def test_scenarios_refuse_models_and_limits_without_descents_to_follow(write, change, message):
    with pytest.raises(ScenarioError, match=message):
        read_scenario(write(yaml.safe_dump(yaml.safe_load(SCENARIO) | yaml.safe_load(change))))
