"""Models of descent beside descents: centres, distances, tables, figures, scenarios, and what is refused."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import yaml
from table_checks import check_fits

import flowsim
from flowsim import cli
from flowsim.comparison.edge_statements import SHARPNESS_HELD
from flowsim.comparison.models import Centres
from flowsim.probes import MeanExcessRisk, MeanRisk
from flowsim.report import figures, tables
from flowsim.report.models import model_rows
from flowsim.scenarios import ScenarioError, read_scenario
from flowsim.theory import Verdict


@pytest.fixture(scope="module")
def quartic():
    """R = Σ (λ_i w_i²/2 − w_i⁴): descent with η = 0.1 ends in a two-cycle of the first weight, at λ = 24."""
    sharpness = jnp.array([24.0, 1.0])
    problem = flowsim.Risk(lambda w: jnp.sum(sharpness * w["w"] ** 2 / 2 - 2 * w["w"] ** 4))
    return {"w": jnp.array([0.1, 0.2])}, problem


@pytest.fixture(scope="module")
def modelled(quartic):
    return flowsim.compare(*quartic, [0.05, 0.1], steps=300, t1=20.0, models=["gradient", "edge"])


@pytest.mark.slow
def test_the_centre_of_a_two_cycle_is_its_middle_and_the_amplitude_half_its_length(quartic):
    """r² = S/Q − 2/(ηQ) for R = S w²/2 − Q w⁴/4: here 24/8 − 20/8."""
    descent = flowsim.descend(*quartic, learning_rate=0.1, steps=300, record_steps=np.arange(301), weights=True)
    centres = Centres.of(descent, 0.1)
    np.testing.assert_array_equal(centres.records, np.arange(1, len(descent.times) - 1))
    assert centres.amplitude[-1] == pytest.approx(np.sqrt(0.5), rel=1e-12)
    np.testing.assert_allclose(np.asarray(centres.weights["w"])[-1], [0, 0], atol=1e-6)
    risk = np.asarray(descent.risk)
    np.testing.assert_allclose(centres.mean_risk, (risk[:-2] + 2 * risk[1:-1] + risk[2:]) / 4, rtol=1e-15)


@pytest.mark.slow
def test_centres_are_known_only_where_three_records_follow_each_other(quartic):
    descent = flowsim.descend(
        *quartic, learning_rate=0.05, steps=12, record_steps=[0, 1, 2, 5, 6, 9, 10, 11, 12], weights=True
    )
    np.testing.assert_array_equal(Centres.of(descent, 0.05).records, [1, 6, 7])


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


@pytest.mark.slow
def test_once_the_oscillation_has_grown_the_model_is_closer_to_descent_than_the_gradient_flow(modelled):
    dataset = modelled.to_dataset()
    for descent, edge in ((1, 3), (2, 4)):
        times, distances = (dataset[name].values for name in ("time", "centre_distance"))
        later = [t for t in times[edge] if 2 <= t <= 10 and t in times[descent]]
        flow, model = (np.array([distances[run][times[run] == t][0] for t in later]) for run in (descent, edge))
        assert len(later) > 20
        assert (model < flow / 5).all()
        assert np.median(flow / model) > 20


@pytest.mark.slow
def test_tables_and_figures_show_the_models_and_no_others_do(modelled):
    dataset = modelled.to_dataset()
    check_fits(tables(dataset, "a name"))
    assert len(tables(dataset, "")) == 3  # of runs, models and statements
    assert "error reduction" in str(modelled)
    drawn = figures(dataset)
    assert {"models_eta_0.05", "models_eta_0.1"} <= set(drawn)
    (sharpness,) = drawn["models_sharpness_eta_0.1"].axes
    above, _, _ = drawn["models_eta_0.1"].axes
    for alone, beside in zip(sharpness.lines, above.lines, strict=True):
        np.testing.assert_array_equal(alone.get_xydata(), beside.get_xydata())
    recorded_beside = {"oscillation", "mean_risk", "mean_excess_risk", "centre_distance", "centre_sharpness"}
    assert recorded_beside <= set(dataset)
    assert not recorded_beside & set(figures(dataset))


@pytest.fixture(scope="module")
def valley():
    """R = (ab − 1)² + 5: the flow ends at S = 2√(c² + 4) = 8.1, c = a² − b², just beyond the edge at η = 0.25."""
    problem = flowsim.Risk(lambda w: (w["a"] * w["b"] - 1.0) ** 2 + 5.0, infimum=5.0)
    return {"a": jnp.array(1.9), "b": jnp.array(0.3)}, problem


def test_the_mean_excess_risk_keeps_its_digits_where_the_mean_risk_has_none():
    """With R = 1 + (π − w*)², swings of ±v about π = w* have a mean excess of v², of which the 1 leaves nothing."""
    X, noise = jnp.ones((4, 1)), jnp.array([1.0, -1.0, 1.0, -1.0])
    problem = flowsim.LinearRegression(X, 2 + noise)
    network = flowsim.DeepLinear([jnp.array([[2.0]])])
    for swing in (1e-3, 1e-9):
        rows = jax.tree.map(lambda leaf, swing=swing: jnp.full((1, *leaf.shape), swing), network)
        zero = jnp.zeros(())
        moment = flowsim.Moment(network, problem, None, zero, zero, oscillation=rows)
        assert float(MeanExcessRisk().measure(moment)) == pytest.approx(swing**2, rel=1e-12)
        assert float(MeanRisk().measure(moment)) == pytest.approx(1 + swing**2, rel=1e-15)
    assert np.isnan(MeanExcessRisk().measure(flowsim.Moment(network, problem, None, zero, zero)))


@pytest.mark.slow
def test_the_table_has_the_excess_where_the_minimum_of_the_risk_is_known(modelled, valley):
    known = flowsim.compare(*valley, [0.2], steps=60, t1=12.0, models=["edge"])
    (header,) = (line for line in str(known).splitlines() if "− R_min" in line)
    assert "√tr Σ" in header
    assert "− R_min" not in str(modelled)
    row = model_rows(known.to_dataset())[0]
    assert row["mean_excess_risk"] == pytest.approx(row["mean_risk"] - 5, abs=1e-14)


@pytest.mark.slow
def test_models_say_within_what_they_hold_the_sharpness_at_the_edge(modelled):
    """1e-9 of 2/η in double precision, and in single precision 640 roundings; the edge flow does not hold it."""
    assert flowsim.CentralFlow(0.1).held_within(jnp.dtype("float64")) == 1e-9
    assert flowsim.CentralFlow(0.1).held_within(jnp.dtype("float32")) == pytest.approx(640 * 2.0**-23)
    assert flowsim.EdgeFlow(0.1).held_within(jnp.dtype("float64")) is None
    assert "held_within" not in modelled.to_dataset()


@pytest.mark.slow
def test_the_central_flow_is_found_to_hold_the_sharpness_within_what_it_says(valley):
    run = flowsim.compare(*valley, [0.25], steps=40, t1=10.0, models=["central"])
    rounding = float(np.finfo(float).eps) ** (2 / 3)
    assert run.models[0].held_within == pytest.approx(1e-9 + rounding, rel=1e-12)
    assert run.to_dataset()["held_within"].values[-1] == run.models[0].held_within
    (held,) = (one for about in run.statements for one in about.statements if one.name == SHARPNESS_HELD)
    assert held.verdict is Verdict.HOLDS


@pytest.mark.slow
def test_without_models_nothing_of_them_is_recorded(quartic):
    plain = flowsim.compare(*quartic, [0.05], steps=20, t1=1.0)
    assert plain.models == ()
    assert not {"centre_distance", "oscillation", "mean_risk"} & set(plain.to_dataset())
    assert model_rows(plain.to_dataset()) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"models": "edge"}, "models must be a list of names"),
        ({"models": ["edge", "edge"]}, "models must name each one once"),
        ({"models": ["edgy"]}, "edgy"),
        ({"models": ["gradient_descent"]}, "gradient_descent"),
        ({"models": ["edge"], "optimizer": flowsim.HeavyBall}, "EdgeFlow models gradient descent alone"),
    ],
)
@pytest.mark.slow
def test_models_that_cannot_be_are_refused(quartic, options, message):
    with pytest.raises(ValueError, match=message):
        flowsim.compare(*quartic, [0.05], steps=5, **options)


SCENARIO = """
seed: 0
data: {kind: gaussian, samples: 20, features: 3}
network: {kind: mlp, depth: 3, scale: 0.5}
flow: {models: [gradient, edge], t1: 2.0}
descent: {learning_rates: [0.05]}
"""


@pytest.mark.slow
def test_a_scenario_with_models_writes_their_table_and_figure(tmp_path, capsys):
    file = tmp_path / "models.yaml"
    file.write_text(SCENARIO)
    cli.main([str(file), "--out", str(tmp_path / "out")])
    assert "models of descent" in capsys.readouterr().out
    folder = tmp_path / "out" / "models"
    assert (folder / "figures" / "models.png").stat().st_size > 10_000
    rows = json.loads((folder / "summary.json").read_text())["models"]
    assert [row["method"] for row in rows] == ["GD", "GF", "edge"]
    assert 0 < rows[2]["distance"] < rows[1]["distance"]


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ("flow: {models: [edgy]}", "edgy"),
        ("flow: {models: [edge, edge]}", "edge, edge"),
        ("flow: {models: [edge]}\ndescent: {learning_rates: []}", "edge without learning rates"),
        (
            "descent: {learning_rates: [0.1], optimizer: heavy_ball}",
            "edge beside descents of kind heavy_ball .ValueError: EdgeFlow models gradient descent alone",
        ),
    ],
)
def test_scenarios_refuse_models_without_descents_to_follow(tmp_path, change, found):
    file = tmp_path / "models.yaml"
    file.write_text(yaml.safe_dump(yaml.safe_load(SCENARIO) | yaml.safe_load(change)))
    with pytest.raises(ScenarioError, match=found):
        read_scenario(file)
