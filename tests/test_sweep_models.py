"""Models of the descents of a sweep, compared to them where the centre of their oscillation is last known."""

import pickle

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import ArrayLike

import flowsim
from flowsim.columns import NOT_ASKED, runs_of
from flowsim.dynamics import Outcome
from flowsim.scenarios import ScenarioError, read_scenario
from flowsim.solvers.choice import stepper_for
from flowsim.sweeps.scenario_recipe import scenario_blocks

CURVATURES = np.array([3.0, 0.2])
START = np.array([1.0, 2.0])
NEVER = flowsim.Stopping(gradient_norm=None)


class Halved(flowsim.DescentModel):
    """A model that goes half as fast as the gradient flow, and knows of no oscillation."""

    learning_rate: ArrayLike = 0.1
    speed: float = 0.5

    def checked(self, dtype):
        return self

    def vector_field(self, field):
        return lambda t, weights, args: jax.tree.map(lambda slope: self.speed * slope, field(t, weights, args))

    def stepper(self, field, point):
        return stepper_for(field, point, diffrax.Dopri5(), None, jnp.asarray(1e-9), jnp.asarray(1e-12))

    def observe(self, field, state):
        return field.objective(state.point), jnp.zeros(())


class Doubled(Halved):
    """One that goes twice as fast."""

    speed: float = 2.0


def start():
    return jnp.asarray(START)


def quadratic(weights):
    return jnp.sum(jnp.asarray(CURVATURES) * weights**2) / 2


def swept(rates, problem=quadratic, **options):
    problem, options = flowsim.Risk(problem, infimum=0.0), {"flow": False, "stopping": NEVER} | options
    result = flowsim.sweep(start, problem, {"learning_rate": rates} if rates else {}, **options)
    assert result.failures == ()
    return result


STEPS = 60
# 0.5 and 0.7 alternate along the first direction; 0.7 and the last grow there.
RATES = [0.7, 0.5, 1e6, 0.1]
IN_ORDER = sorted(RATES)
MODELS = {"Halved": 0.5, "Doubled": 2.0}
HALVED, DOUBLED = (f"{__name__}:{name}" for name in MODELS)


@pytest.fixture(scope="module")
def beside():
    """Descents on a quadratic risk, and two models of each."""
    result = swept(RATES, steps=STEPS, rtol=1e-9, models=["gradient", HALVED, DOUBLED])
    assert "Doubled, η = 0.7" in str(result)
    return result.to_dataset()


def numbers(dataset, place):
    return {
        name: dataset[name].isel(run=place).item() for name in dataset if dataset[name].dims == ("repetition", "run")
    }


@pytest.mark.slow
@pytest.mark.parametrize("place", [1, 2])
def test_descent_and_models_are_compared_at_the_last_centre(beside, place):
    names = [(run.method, run.learning_rate, run.models) for run in runs_of(beside)]
    assert names[:4] == [("GD", rate, "") for rate in IN_ORDER]
    assert names[4:] == [(name, rate, "gradient_descent") for name in MODELS for rate in IN_ORDER]
    rate, descent = IN_ORDER[place], numbers(beside, place)
    path = START * (1 - rate * CURVATURES) ** np.arange(STEPS + 1)[:, None]
    centre = (path[-3] + 2 * path[-2] + path[-1]) / 4
    at = rate * (STEPS - 1)
    assert descent["final_oscillation"] == pytest.approx(np.linalg.norm(path[-2] - centre), rel=1e-9)
    assert descent["final_centre_sharpness"] == pytest.approx(3.0)
    flow = START * np.exp(-CURVATURES * at)
    assert descent["final_centre_distance"] == pytest.approx(np.linalg.norm(flow - centre), rel=1e-5)
    for number, (name, speed) in enumerate(MODELS.items()):
        model, end = numbers(beside, 4 * (1 + number) + place), START * np.exp(-CURVATURES * at * speed)
        assert model["final_centre_distance"] == pytest.approx(np.linalg.norm(end - centre), rel=1e-5), name
        assert model["final_risk"] == pytest.approx(float(quadratic(end)), rel=1e-5)
        assert model["final_centre_sharpness"] == pytest.approx(3.0)
        assert (model["outcome"], model["end_time"]) == (Outcome.TIME_LIMIT, pytest.approx(at))
        assert model["gradients"] > 0


@pytest.mark.slow
def test_a_model_keeps_its_options_in_a_sweep():
    result = swept([0.5], steps=STEPS, models=[Halved(learning_rate=None, speed=0.25)])
    end = START * np.exp(-CURVATURES * 0.25 * 0.5 * (STEPS - 1))
    assert numbers(result.to_dataset(), 1)["final_risk"] == pytest.approx(float(quadratic(end)), rel=1e-5)


@pytest.mark.slow
def test_a_descent_of_one_step_has_no_centre():
    dataset = swept([0.5], steps=1, models=[HALVED]).to_dataset()
    descent, model = numbers(dataset, 0), numbers(dataset, 1)
    assert np.isnan([descent["final_centre_distance"], model["final_risk"]]).all()
    assert model["outcome"] == NOT_ASKED


@pytest.mark.slow
def test_no_criterion_of_the_flow_ends_what_is_compared():
    """The risk comes to its criterion long before the descent has made its steps."""
    result = swept([0.5], steps=STEPS, models=[HALVED], stopping=flowsim.Stopping(excess_risk=0.1))
    model = numbers(result.to_dataset(), 1)
    assert model["end_time"] == pytest.approx(0.5 * (STEPS - 1))
    assert np.isfinite(model["final_centre_distance"])


@pytest.mark.slow
def test_the_onset_is_when_steps_that_alternate_are_a_thousandth_of_the_weights(beside):
    # A smooth descent has an amplitude too, of second order in η, which is none of an oscillation.
    smooth, _, growing, _, *models = (numbers(beside, place)["final_oscillation_onset"] for place in range(12))
    assert np.isnan([smooth, *models]).all()
    factor = 1 - 0.7 * CURVATURES[0]
    amplitude = abs(factor) ** np.arange(1, STEPS) * abs(2 - factor - 1 / factor) / 4
    first = 1 + np.argmax(amplitude >= 1e-3 * np.linalg.norm(START))
    assert growing == pytest.approx(0.7 * first, abs=0.7)


@pytest.mark.slow
def test_a_descent_that_diverged_has_no_models(beside):
    lost, of_lost = numbers(beside, 3), numbers(beside, 7)
    assert (lost["outcome"], of_lost["outcome"]) == (Outcome.DIVERGED, NOT_ASKED)
    assert np.isnan([of_lost["final_centre_distance"], lost["final_centre_distance"], of_lost["final_risk"]]).all()


@pytest.mark.slow
def test_the_two_cycle_of_descent_in_a_quartic_is_that_of_its_edge_flow():
    """Of R = 12w₁² − 2w₁⁴ + ½w₂² with η = 0.1 it is ±√½ along the first direction, where R is 5.5."""

    def quartic(weights):
        first, second = weights
        return 12 * first**2 - 2 * first**4 + second**2 / 2

    dataset = swept([0.1], quartic, steps=300, models=["edge"]).to_dataset()
    for run in (numbers(dataset, 0), numbers(dataset, 1)):
        assert run["final_oscillation"] == pytest.approx(np.sqrt(0.5), rel=1e-4)
        assert run["final_mean_risk"] == pytest.approx(5.5, rel=1e-3)
    assert numbers(dataset, 1)["end_time"] == pytest.approx(0.1 * 299)


def test_models_without_descents_are_refused():
    with pytest.raises(ValueError, match="models without descents that they would follow"):
        swept([], models=["edge"], flow=True)


SCENARIO = """
seed: 0
data: {kind: gaussian, samples: 20, features: 3}
network: {kind: mlp, depth: 3, scale: 1.0}
flow: {models: ["own_model:Own"]}
sweep: {over: {network.scale: [0.8]}, descent: [{learning_rates: [0.1], steps: 30}]}
"""


def test_options_of_a_model_reach_the_blocks_of_a_sweep_and_change_their_address(write, tmp_path):
    def block(entry):
        scenario = read_scenario(write(SCENARIO.replace('"own_model:Own"', entry)))
        return next(iter(scenario_blocks(scenario, tmp_path)))

    named, held = block("edge"), block("{kind: edge, rtol: 1.0e-8}")
    sent = pickle.loads(pickle.dumps(held.recipe))  # as to another process
    (model,) = sent.plan().models
    assert (model.dynamics.kind(), model.dynamics.rtol, model.learning_rate) == ("edge", 1e-8, 0.1)
    assert model.follows.dynamics == flowsim.GradientDescent(0.1)
    assert named.recipe.plan().models[0].dynamics.rtol is None
    assert named.address({}) != held.address({})


def test_the_tolerance_of_a_model_is_checked_in_every_precision_of_a_sweep(write):
    text = SCENARIO.replace('"own_model:Own"', "{kind: edge, rtol: 1.0e-12}")
    read_scenario(write(text))
    with pytest.raises(ScenarioError, match="rtol=1e-12 is finer than float32 can meet"):
        read_scenario(write(text.replace("{network.scale: [0.8]}", "{precision: [float64, float32]}")))
    with pytest.raises(ScenarioError, match=r"flow.rtol: found 1e-17; .* write rtol: 7e-15$"):
        read_scenario(write(SCENARIO.replace('["own_model:Own"]', "[edge], rtol: 1.0e-17")))


def test_a_model_whose_module_has_changed_is_another(write, tmp_path):
    module = f"from {__name__} import Halved\n\n\nclass Own(Halved):\n    pass\n"

    def addresses(text):
        (tmp_path / "own_model.py").write_text(text)
        scenario = read_scenario(write(SCENARIO))
        return [block.address({}) for block in scenario_blocks(scenario, tmp_path)]

    assert addresses(module) == addresses(module) != addresses(module + "# edited\n")
