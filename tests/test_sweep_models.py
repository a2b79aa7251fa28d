"""Models of the descents of a sweep, compared to them where the centre of their oscillation is last known."""

import json

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import ArrayLike

import flowsim
from flowsim import cli
from flowsim.dynamics import Outcome
from flowsim.results.runs import runs_of
from flowsim.results.schema import NOT_ASKED
from flowsim.scenarios import ScenarioError, read_scenario
from flowsim.solvers.choice import stepper_for

CURVATURES = np.array([3.0, 0.2])
START = np.array([1.0, 2.0])
NEVER = flowsim.Stopping(gradient_norm=None)


class Halved(flowsim.DescentModel):
    """A model that goes half as fast as the gradient flow, and knows of no oscillation."""

    learning_rate: ArrayLike = 0.1

    def checked(self, dtype):
        return self

    def vector_field(self, field):
        return lambda t, weights, args: jax.tree.map(lambda slope: slope / 2, field(t, weights, args))

    def stepper(self, field, point):
        return stepper_for(field, point, diffrax.Dopri5(), None, jnp.asarray(1e-9), jnp.asarray(1e-12))

    def observe(self, field, state):
        return field.objective(state.point), jnp.zeros(())


def start():
    return jnp.asarray(START)


def quadratic(weights):
    return jnp.sum(jnp.asarray(CURVATURES) * weights**2) / 2


def swept(rates, **options):
    problem = flowsim.Risk(quadratic, infimum=0.0)
    found = flowsim.sweep(start, problem, {"learning_rate": rates} if rates else {}, stopping=NEVER, **options)
    assert found.failures == ()
    return found.to_dataset()


STEPS = 60
RATES = [0.5, 0.7, 1e6]  # of which the first two alternate along the first direction, and the second grows there


@pytest.fixture(scope="module")
def beside():
    """Descents on a quadratic risk, and their models."""
    return swept(RATES, steps=STEPS, flow=False, rtol=1e-9, models=["gradient", f"{__name__}:Halved"])


def numbers(dataset, place):
    return {
        name: dataset[name].isel(run=place).item() for name in dataset if dataset[name].dims == ("repetition", "run")
    }


@pytest.mark.slow
def test_every_model_is_a_run_of_its_own_and_says_what_it_models(beside):
    names = [(run.method, run.learning_rate, run.models) for run in runs_of(beside)]
    assert names[:3] == [("GD", rate, "") for rate in RATES]
    assert names[3:] == [("Halved", rate, "gradient_descent") for rate in RATES]


@pytest.mark.slow
@pytest.mark.parametrize("place", [0, 1])
def test_descent_and_models_are_compared_at_the_last_centre(beside, place):
    descent, model = numbers(beside, place), numbers(beside, 3 + place)
    path = START * (1 - RATES[place] * CURVATURES) ** np.arange(STEPS + 1)[:, None]
    centre = (path[-3] + 2 * path[-2] + path[-1]) / 4
    at = RATES[place] * (STEPS - 1)
    assert descent["final_oscillation"] == pytest.approx(np.linalg.norm(path[-2] - centre), rel=1e-9)
    assert descent["final_centre_sharpness"] == model["final_centre_sharpness"] == pytest.approx(3.0)
    flow, halved = (START * np.exp(-CURVATURES * time) for time in (at, at / 2))
    assert descent["final_centre_distance"] == pytest.approx(np.linalg.norm(flow - centre), rel=1e-5)
    assert model["final_centre_distance"] == pytest.approx(np.linalg.norm(halved - centre), rel=1e-5)
    assert model["final_risk"] == pytest.approx(float(quadratic(halved)), rel=1e-5)
    assert (model["outcome"], model["end_time"]) == (Outcome.TIME_LIMIT, pytest.approx(at))
    assert model["gradients"] > 0


@pytest.mark.slow
def test_the_onset_is_when_steps_that_alternate_are_a_thousandth_of_the_weights():
    # A smooth descent has an amplitude too, of second order in η, which is none of an oscillation.
    rates, steps = [0.1, 0.7], 60
    dataset = swept(rates, steps=steps, flow=False, models=[f"{__name__}:Halved"])
    smooth, growing, *models = (numbers(dataset, place)["final_oscillation_onset"] for place in range(4))
    assert np.isnan([smooth, *models]).all()
    factor = 1 - rates[1] * CURVATURES[0]
    amplitude = abs(factor) ** np.arange(1, steps) * abs(2 - factor - 1 / factor) / 4
    first = 1 + np.argmax(amplitude >= 1e-3 * np.linalg.norm(START))
    assert growing == pytest.approx(rates[1] * first, abs=rates[1])


@pytest.mark.slow
def test_a_descent_that_diverged_has_no_models(beside):
    lost, of_lost = numbers(beside, 2), numbers(beside, 5)
    assert (lost["outcome"], of_lost["outcome"]) == (Outcome.DIVERGED, NOT_ASKED)
    assert np.isnan([of_lost["final_centre_distance"], lost["final_centre_distance"], of_lost["final_risk"]]).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"models": ["edgy"], "rates": [0.5]}, "edgy"),
        ({"models": ["edge"], "rates": []}, "models without descents that they would follow"),
        (
            {"models": ["edge"], "rates": [0.5], "optimizer": flowsim.HeavyBall},
            "EdgeFlow models gradient descent alone",
        ),
    ],
)
def test_models_that_cannot_be_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        swept(**options)


SCENARIO = """
seed: 0
data: {kind: gaussian, samples: 20, features: 3}
network: {kind: mlp, depth: 3, scale: 1.0}
flow: {models: [gradient, edge], t1: 6.0}
sweep:
  over: {network.scale: [0.8, 1.0]}
  descent: [{learning_rates: [0.2], steps: 30}]
"""


OF_MOMENTUM = "{learning_rates: [0.2], steps: 9, optimizer: heavy_ball}"


@pytest.mark.parametrize(
    ("model", "descents", "found"),
    [
        ("edge", OF_MOMENTUM, "edge beside descents of kind heavy_ball"),
        ("edge", "", "edge without learning rates in descent or sweep.descent"),
        (
            "centre",
            f"{{learning_rates: [0.2], steps: 30}}, {OF_MOMENTUM}",
            "models of two kinds of descent with the learning rate 0.2",
        ),
    ],
)
def test_scenarios_refuse_models_without_descents_to_follow(write, model, descents, found):
    scenario = SCENARIO.replace("edge", model).replace("{learning_rates: [0.2], steps: 30}", descents)
    with pytest.raises(ScenarioError, match=found):
        read_scenario(write(scenario))


@pytest.mark.slow
def test_a_sweep_has_the_numbers_of_a_comparison_and_shows_them(write, tmp_path, capsys):
    assert cli.main([str(write(SCENARIO)), "--out", str(tmp_path / "out")]) == 0
    assert "edge, η = 0.2" in capsys.readouterr().out
    folder = tmp_path / "out" / "scenario"
    rows = json.loads((folder / "summary.json").read_text())["rows"]
    assert [row["method"] for row in rows] == ["GF", "η = 0.2", "edge, η = 0.2"] * 2
    dataset = flowsim.open_results(folder).to_dataset()
    alone = SCENARIO[: SCENARIO.index("sweep:")].replace("scale: 1.0", "scale: 0.8")
    alone += "descent: {learning_rates: [0.2], steps: 30}"
    problem, network, _ = flowsim.scenarios.build(read_scenario(write(alone)), tmp_path)
    compared = flowsim.compare(network, problem, [0.2], steps=30, t1=6.0, models=["edge"])
    (model,) = compared.models
    found = dataset.isel(scale=0, repetition=0, run=2)
    assert found["end_time"].item() == pytest.approx(0.2 * 29)
    at = np.flatnonzero(np.isclose(model.trajectory.times, 0.2 * 29))[0]
    for name in ("centre_distance", "oscillation", "mean_risk"):
        assert found[f"final_{name}"].item() == pytest.approx(float(model.trajectory.diagnostics[name][at]), rel=1e-3)
