"""With what an oscillation begins, against a closed form, and what following it from there is worth."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import flowsim
from flowsim.edge.onset import onset
from flowsim.networks import split
from flowsim.scenarios import build, parse_overrides, read_scenario
from flowsim.solvers.field import gradient_field

FOREVER = flowsim.Stopping(gradient_norm=None)
ETA = 0.1


def steepening(rate):
    """R = ½(S₀ + w₂)w₁² − c w₂, a valley that ever steepens: w₂ grows by ηc in each step, up to w₁²."""
    return flowsim.Risk(lambda w: (0.5 / ETA + w[1]) * w[0] ** 2 / 2 - rate / ETA**2 * w[1])


def look(problem, weights, **options):
    field, weights = gradient_field(jnp.asarray(weights), problem)
    options = {"known": jnp.array(False)} | options
    return onset(field, weights, jnp.array([1.0, 0.0]), jnp.array(ETA), **options)


@pytest.mark.parametrize("rate", [0.03, 0.06, 0.12])
def test_what_is_left_of_a_start_is_the_product_of_the_factors_of_descent(rate):
    """w₁ is multiplied by 1 − ηS in each step, of which ηS = ½ + cηk."""
    begin = 1e-3
    found = look(steepening(rate), [begin, 0.0])
    exponents = 0.5 + rate * np.arange(found.steps)
    crossed = int(np.argmax(exponents > 2))
    assert int(found.steps) == crossed + 4
    left = begin * np.prod(np.abs(1 - exponents[:crossed]))
    # The differences weight the neighbours, where there is more.
    assert left < float(found.amplitude) < 1.5 * left


def test_where_rounding_alone_is_left_or_no_edge_is_met_nothing_is_found():
    assert float(look(steepening(1e-3), [1e-3, 0.0], most=2000).amplitude) < 1e-18
    never = look(steepening(0.0), [1e-3, 0.0], most=50)
    assert (float(never.amplitude), int(never.steps)) == (0, 50)
    assert int(look(steepening(0.06), [1e-3, 0.0], known=jnp.array(True)).steps) == 0
    diverges = look(flowsim.Risk(lambda w: -jnp.exp(w[0])), [1.0, 0.0])
    assert float(diverges.amplitude) == 0
    assert int(diverges.steps) < 50
    cut = look(steepening(0.06), [1e-3, 0.0], most=27)
    assert (float(cut.amplitude), int(cut.steps)) == (0, 27)


def centre_of(path):
    before, here, after = jax.vmap(lambda tree: ravel_pytree(tree)[0])(split(path)[0])
    return (before + 2 * here + after) / 4


@pytest.mark.slow
def test_an_oscillation_is_noticed_when_descents_is():
    """A tanh network that has just passed its edge: with a larger amplitude a model oscillates before descent does."""
    file = Path(__file__).parents[1] / "scenarios" / "edge_of_stability.yaml"
    changes = ["seed=1", "network.activation=tanh", "network.scale=1", "network.width=10", "network.depth=3"]
    changes += ["network.biases=true", "network.fan_in=true"]
    problem, network, _ = build(read_scenario(file, parse_overrides(changes)), file.parent)
    flow = flowsim.integrate(network, problem, t1=80.0, ts=[], stopping=FOREVER)
    for reach in (2.2, 2.6):
        eta = reach / float(flowsim.sharpness(flow.network, problem))
        steps = int(80.0 / eta)
        descent = flowsim.descend(
            network,
            problem,
            learning_rate=eta,
            steps=steps + 1,
            record_steps=[steps - 1, steps, steps + 1],
            weights=True,
            stopping=FOREVER,
        )
        centre, distances = centre_of(descent.weights), []
        for model in (None, flowsim.EdgeFlow(eta)):
            run = flowsim.integrate(network, problem, model=model, t1=steps * eta, ts=[], stopping=FOREVER)
            distances.append(float(jnp.linalg.norm(ravel_pytree(split(run.network)[0])[0] - centre)))
        # Measured: a 17th and a 29th, a 28th and a 13th; oscillating too early, the edge flow was 1.6 times as far.
        assert max(distances[1:]) < distances[0] / 10
