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
from flowsim.sweeps.block import plan

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


class Doubled(Halved):
    """One that goes twice as fast."""

    def vector_field(self, field):
        return lambda t, weights, args: jax.tree.map(lambda slope: 2 * slope, field(t, weights, args))


def start():
    return jnp.asarray(START)


def quadratic(weights):
    return jnp.sum(jnp.asarray(CURVATURES) * weights**2) / 2


def swept(rates, **options):
    problem = flowsim.Risk(quadratic, infimum=0.0)
    found = flowsim.sweep(start, problem, {"learning_rate": rates} if rates else {}, **{"stopping": NEVER} | options)
    assert found.failures == ()
    return found.to_dataset()


STEPS = 60
# The first two alternate along the first direction; the first and the third grow there.
RATES = [0.7, 0.5, 1e6]
IN_ORDER = [0.5, 0.7, 1e6]
MODELS = {"Halved": 0.5, "Doubled": 2.0}


@pytest.fixture(scope="module")
def beside():
    """Descents on a quadratic risk, and two models of each."""
    return swept(
        RATES, steps=STEPS, flow=False, rtol=1e-9, models=["gradient", *(f"{__name__}:{one}" for one in MODELS)]
    )


def numbers(dataset, place):
    return {
        name: dataset[name].isel(run=place).item() for name in dataset if dataset[name].dims == ("repetition", "run")
    }


@pytest.mark.slow
@pytest.mark.parametrize("place", [0, 1])
def test_descent_and_models_are_compared_at_the_last_centre(beside, place):
    names = [(run.method, run.learning_rate, run.models) for run in runs_of(beside)]
    assert names[:3] == [("GD", rate, "") for rate in IN_ORDER]
    assert names[3:] == [(name, rate, "gradient_descent") for name in MODELS for rate in IN_ORDER]
    rate, descent = IN_ORDER[place], numbers(beside, place)
    path = START * (1 - rate * CURVATURES) ** np.arange(STEPS + 1)[:, None]
    centre = (path[-3] + 2 * path[-2] + path[-1]) / 4
    at = rate * (STEPS - 1)
    assert descent["final_oscillation"] == pytest.approx(np.linalg.norm(path[-2] - centre), rel=1e-9)
    assert descent["final_centre_sharpness"] == pytest.approx(3.0)
    flow = START * np.exp(-CURVATURES * at)
    assert descent["final_centre_distance"] == pytest.approx(np.linalg.norm(flow - centre), rel=1e-5)
    for number, (name, speed) in enumerate(MODELS.items()):
        model, end = numbers(beside, 3 * (1 + number) + place), START * np.exp(-CURVATURES * at * speed)
        assert model["final_centre_distance"] == pytest.approx(np.linalg.norm(end - centre), rel=1e-5), name
        assert model["final_risk"] == pytest.approx(float(quadratic(end)), rel=1e-5)
        assert model["final_centre_sharpness"] == pytest.approx(3.0)
        assert (model["outcome"], model["end_time"]) == (Outcome.TIME_LIMIT, pytest.approx(at))
        assert model["gradients"] > 0


@pytest.mark.slow
def test_a_descent_of_one_step_has_no_centre():
    dataset = swept([0.5], steps=1, flow=False, models=[f"{__name__}:Halved"])
    descent, model = numbers(dataset, 0), numbers(dataset, 1)
    assert np.isnan([descent["final_centre_distance"], model["final_risk"]]).all()
    assert model["outcome"] == NOT_ASKED


@pytest.mark.slow
def test_no_criterion_of_the_flow_ends_what_is_compared():
    """The risk comes to its criterion long before the descent has made its steps."""
    options = {"steps": 40, "flow": False, "models": [f"{__name__}:Halved"]}
    model = numbers(swept([0.5], stopping=flowsim.Stopping(excess_risk=0.1), **options), 1)
    assert model["end_time"] == pytest.approx(0.5 * 39)
    assert np.isfinite(model["final_centre_distance"])


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
        ({"models": ["edge"], "rates": []}, "models without descents that they would follow"),
        ({"models": ["edge"], "rates": [0.5], "optimizer": flowsim.HeavyBall}, "EdgeFlow models gradient desc"),
    ],
)
def test_models_that_cannot_be_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        swept(**options)


SCENARIO = """
seed: 0
data: {kind: gaussian, samples: 20, features: 3}
network: {kind: mlp, depth: 3, scale: 1.0}
flow: {models: [gradient, edge], t1: 3.0}
record: [oscillation]
sweep:
  over: {network.scale: [0.8]}
  descent: [{learning_rates: [0.1], steps: 30}]
"""


def test_a_model_whose_module_has_changed_is_another(write, tmp_path):
    module = f"from {__name__} import Halved\n\n\nclass Own(Halved):\n    pass\n"

    def addresses(text):
        (tmp_path / "own_model.py").write_text(text)
        scenario = read_scenario(write(SCENARIO.replace("edge", "own_model:Own")))
        return [block.address({}) for block in plan(scenario, tmp_path)]

    assert addresses(module) == addresses(module) != addresses(module + "# edited\n")


OF_MOMENTUM = "{learning_rates: [0.1], steps: 9, optimizer: heavy_ball}"


@pytest.mark.parametrize(
    ("model", "descents", "found"),
    [
        ("edge", OF_MOMENTUM, "edge beside descents of kind heavy_ball"),
        ("edge", "", "edge without learning rates"),
        ("centre", f"{{learning_rates: [0.1], steps: 30}}, {OF_MOMENTUM}", "models of two kinds of descent"),
    ],
)
def test_scenarios_refuse_models_without_descents_to_follow(write, model, descents, found):
    scenario = SCENARIO.replace("edge", model).replace("{learning_rates: [0.1], steps: 30}", descents)
    with pytest.raises(ScenarioError, match=found):
        read_scenario(write(scenario))


@pytest.mark.slow
def test_a_sweep_has_the_numbers_of_a_comparison_and_shows_them(write, tmp_path, capsys):
    assert cli.main([str(write(SCENARIO)), "--out", str(tmp_path / "out"), "--jobs", "1"]) == 0
    assert "edge, η = 0.1" in capsys.readouterr().out
    folder = tmp_path / "out" / "scenario"
    rows = json.loads((folder / "summary.json").read_text())["sweep"]["rows"]
    assert [row["method"] for row in rows] == ["GF", "η = 0.1", "edge, η = 0.1"]
    dataset = flowsim.open_results(folder).to_dataset()
    (block, *_) = plan(read_scenario(write(SCENARIO)), tmp_path)
    made, first = block.recipe.materials(), block.starts[0]
    options = {"steps": 30, "t1": 3.0, "models": ["edge"], "stopping": NEVER, "sharpness": False}
    (model,) = flowsim.compare(made.network(first), made.problem, [0.1], **options).models
    found = dataset.isel(scale=0, repetition=0, run=2)
    assert found["end_time"].item() == pytest.approx(0.1 * 29)
    at = np.flatnonzero(np.isclose(model.trajectory.times, 0.1 * 29))[0]
    for name in ("centre_distance", "oscillation", "mean_risk"):
        assert found[f"final_{name}"].item() == pytest.approx(float(model.trajectory.diagnostics[name][at]), rel=1e-3)
