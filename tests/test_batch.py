from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import flowsim
from flowsim import GradientDescent, Outcome, Stopping
from flowsim.batch import descend_batch
from flowsim.batch.deep_linear import DeepLinearKernel
from flowsim.batch.kernel import AutomaticKernel, kernel_for, register, sum_over_samples
from flowsim.batch.perceptron import WITH_SLOPE, PerceptronKernel
from flowsim.data import gaussian_teacher
from flowsim.dynamics import objective_floor

slow = partial(pytest.param, marks=pytest.mark.slow)

DATA = gaussian_teacher(np.random.default_rng(0), 20, 3)
NEVER = Stopping(gradient_norm=None)


def linear(key, dtype=None):
    return flowsim.DeepLinear.gaussian(widths=[3, 3, 3, 3, 1], scale=0.6, key=key, dtype=dtype)


def residual(key, dtype=None):
    return flowsim.DeepLinear.residual(width=3, depth=3, scale=0.3, projection=jnp.ones(3), key=key, dtype=dtype)


def several(key, dtype=None):
    return flowsim.DeepLinear.gaussian(widths=[3, 4, 2], scale=0.6, key=key, dtype=dtype)


def gelu(key, dtype=None):
    return flowsim.Perceptron.gaussian(widths=[3, 3, 3, 1], scale=0.6, activation="gelu", key=key, dtype=dtype)


def biased(key, dtype=None):
    return flowsim.Perceptron.gaussian(widths=[3, 4, 1], scale=0.6, biases=True, key=key, dtype=dtype)


def tapering(key, dtype=None):
    return flowsim.Perceptron.gaussian(widths=[3, 4, 2, 1, 1, 1], scale=0.8, activation="tanh", key=key, dtype=dtype)


REGRESSION, RISK = flowsim.LinearRegression(*DATA), flowsim.EmpiricalRisk(*DATA)
OUTPUTS = flowsim.LinearRegression(DATA[0], np.stack([DATA[1], -2 * DATA[1]], 1))
EVERY = {
    "linear": (linear, REGRESSION, DeepLinearKernel),
    "residual": (residual, REGRESSION, DeepLinearKernel),
    "gelu": (gelu, RISK, PerceptronKernel),
    "tapering": (tapering, RISK, PerceptronKernel),
    "several outputs": (several, OUTPUTS, AutomaticKernel),
    "biases": (biased, RISK, AutomaticKernel),
    "linear on samples": (linear, RISK, AutomaticKernel),
}


def start(build, size, dtype=None):
    return jax.vmap(lambda key: build(key, dtype))(jax.random.split(jax.random.key(3), size))


def member(networks, index):
    return jax.tree.map(lambda leaf: leaf[index] if eqx.is_array(leaf) else leaf, networks)


def flat(networks, index=...):
    return np.asarray(ravel_pytree(eqx.filter(member(networks, index), eqx.is_array))[0])


def alone(networks, problem, index, rate, steps):
    return flowsim.descend(
        member(networks, index), problem, learning_rate=rate, steps=steps, stopping=NEVER, record_steps=[0]
    )


ONE_OF_EACH_FORM = ["linear", "gelu"]


@pytest.mark.parametrize("name", [name if name in ONE_OF_EACH_FORM else slow(name) for name in EVERY])
@pytest.mark.slow
def test_each_run_is_the_descent_from_its_network(name):
    build, problem, kernel = EVERY[name]
    networks, rates = start(build, 3), [0.01, 0.02, 0.04]
    assert isinstance(kernel_for(member(networks, 0), problem, GradientDescent(0.1)), kernel)
    ends = descend_batch(networks, problem, learning_rates=rates, steps=300)
    np.testing.assert_array_equal(ends.steps, 300)
    np.testing.assert_array_equal(ends.outcomes, Outcome.STEP_LIMIT)
    for index, rate in enumerate(rates):
        end = alone(networks, problem, index, rate, 300)
        np.testing.assert_allclose(flat(ends.networks, index), flat(end.network), rtol=1e-11, atol=1e-13)


class Shifted(flowsim.Perceptron):
    """A perceptron that is something else in the end."""

    def __call__(self, x):
        return super().__call__(x) + 1


def mean_absolute(prediction, target):
    return jnp.sum(jnp.abs(prediction - target))


@pytest.mark.slow
def test_a_subclass_and_another_loss_are_left_to_automatic_differentiation():
    one = gelu(jax.random.key(0))
    shifted = Shifted(one.weights, activation=one.activation)
    assert isinstance(kernel_for(one, RISK, GradientDescent(0.1)), PerceptronKernel)
    assert isinstance(kernel_for(shifted, RISK, GradientDescent(0.1)), AutomaticKernel)
    assert isinstance(
        kernel_for(one, flowsim.EmpiricalRisk(*DATA, mean_absolute), GradientDescent(0.1)), AutomaticKernel
    )
    ends = descend_batch(member(shifted, None), RISK, learning_rates=[0.02], steps=50)
    np.testing.assert_allclose(flat(ends.networks, 0), flat(alone(member(shifted, None), RISK, 0, 0.02, 50).network))


def test_a_kernel_registered_for_a_pair_of_ones_own_is_found():
    class Risk(flowsim.EmpiricalRisk):
        pass

    @register(network=Shifted, problem=Risk, dynamics=GradientDescent)
    class Mine(AutomaticKernel):
        @classmethod
        def of(cls, network, problem, dynamics):
            found = AutomaticKernel.of(network, problem, dynamics)
            return cls(found.problem, found.dynamics, found.static, 8) if network.depth == 3 else None

    fitting, other = (Shifted([np.ones((3, 3))] * layers + [np.ones((1, 3))]) for layers in (2, 3))
    assert isinstance(kernel_for(fitting, Risk(*DATA), GradientDescent(0.1)), Mine)
    assert not isinstance(kernel_for(other, Risk(*DATA), GradientDescent(0.1)), Mine)
    assert not isinstance(kernel_for(fitting, RISK, GradientDescent(0.1)), Mine)


@pytest.mark.parametrize(("build", "rate"), [(linear, 8.0), slow(gelu, 3.0), slow(biased, 2.0)])
@pytest.mark.slow
def test_diverging_runs_end_at_the_same_step_as_alone(build, rate):
    problem = REGRESSION if build is linear else RISK
    networks, rates = start(build, 3), [rate, 0.02, rate / 4]
    ends = descend_batch(networks, problem, learning_rates=rates, steps=40)
    for index, rate in enumerate(rates):
        end = alone(networks, problem, index, rate, 40)
        assert (ends.outcomes[index], ends.steps[index]) == (int(end.outcome), int(end.steps))
    assert Outcome.DIVERGED in ends.outcomes


@pytest.mark.parametrize(("build", "problem"), [(linear, REGRESSION), slow(gelu, RISK), slow(biased, RISK)])
@pytest.mark.slow
def test_runs_stop_at_the_risk_at_which_each_stops_alone(build, problem):
    networks, rates = start(build, 3), [0.01, 0.02, 0.04]
    risk = float(np.mean([problem(alone(networks, problem, 1, rate, 150).network) for rate in rates]))
    stopping = flowsim.Stopping(gradient_norm=None, risk=risk)
    floor = objective_floor(stopping, problem, member(networks, 0))
    ends = descend_batch(networks, problem, learning_rates=rates, steps=200, floors=floor)
    assert Outcome.RISK_REACHED in ends.outcomes
    for index, rate in enumerate(rates):
        end = flowsim.descend(member(networks, index), problem, learning_rate=rate, steps=200, stopping=stopping)
        assert (ends.outcomes[index], ends.steps[index]) == (int(end.outcome), int(end.steps))


@pytest.mark.slow
def test_runs_at_a_fixed_point_leave_with_the_state_of_the_last_step():
    networks, rates = start(residual, 4), [0.02, 0.03, 0.04, 0.05]
    ends = descend_batch(networks, REGRESSION, learning_rates=rates, steps=20_000)
    assert Outcome.FIXED_POINT in ends.outcomes
    for index, rate in enumerate(rates):
        end = alone(networks, REGRESSION, index, rate, 20_000)
        np.testing.assert_allclose(flat(ends.networks, index), flat(end.network), rtol=0, atol=1e-12)
        if end.outcome == ends.outcomes[index] == Outcome.FIXED_POINT:
            assert abs(int(end.steps) - int(ends.steps[index])) < 500


@pytest.mark.parametrize(
    ("name", "dtype"), [("linear", jnp.float64), slow("gelu", jnp.float64), slow("several outputs", jnp.float32)]
)
@pytest.mark.slow
def test_a_run_is_the_same_to_the_last_bit_in_every_batch(name, dtype):
    build, problem, _ = EVERY[name]
    networks, rates = start(build, 200, dtype), np.geomspace(0.01, 3, 200)
    whole = descend_batch(networks, problem, learning_rates=rates, steps=700)
    order = np.random.default_rng(0).permutation(200)
    for chosen in (np.array([3]), np.array([199]), order[:7], order[:50], order):
        part = descend_batch(member(networks, chosen), problem, learning_rates=rates[chosen], steps=700)
        np.testing.assert_array_equal(part.outcomes, whole.outcomes[chosen])
        np.testing.assert_array_equal(part.steps, whole.steps[chosen])
        for mine, theirs in zip(jax.tree.leaves(part.networks), jax.tree.leaves(whole.networks), strict=True):
            assert mine.dtype == dtype
            np.testing.assert_array_equal(mine, theirs[chosen])


@pytest.mark.slow
def test_runs_with_different_numbers_of_steps_are_sorted_back():
    steps = np.random.default_rng(1).integers(1, 900, size=90)
    networks, rates = start(linear, 90), np.full(90, 1e-3)
    ends = descend_batch(networks, REGRESSION, learning_rates=rates, steps=steps)
    np.testing.assert_array_equal(ends.steps, steps)
    for index in (0, 31, 89):
        same = descend_batch(
            member(networks, np.array([index])), REGRESSION, learning_rates=[1e-3], steps=int(steps[index])
        )
        np.testing.assert_array_equal(flat(same.networks, 0), flat(ends.networks, index))


@pytest.mark.slow
def test_a_cycle_of_rounding_is_cut_short_without_changing_its_end(monkeypatch):
    """Runs that come back to where they were, to the bit, end as if they had gone on."""
    networks, rates = start(linear, 64, jnp.float32), np.geomspace(0.01, 0.12, 64)
    steps = 6007
    cut = descend_batch(networks, REGRESSION, learning_rates=rates, steps=steps)
    monkeypatch.setattr(flowsim.batch.descent, "_end_cycles", _end_nothing)
    full = descend_batch(networks, REGRESSION, learning_rates=rates, steps=steps)
    for mine, theirs in zip(jax.tree.leaves(cut.networks), jax.tree.leaves(full.networks), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def _end_nothing(kernel, batch, block):
    batch.returned[:] = False


@pytest.mark.parametrize("activation", WITH_SLOPE)
def test_written_out_activations_agree_with_automatic_differentiation(activation):
    z = jnp.linspace(-12, 12, 4001)
    value, slope = WITH_SLOPE[activation](z)
    # JAX's own GELU adds 1 and a number close to −1, and multiplies what is left by z: up to 12 ε.
    np.testing.assert_allclose(value, activation(z), rtol=1e-15, atol=5e-15)
    np.testing.assert_allclose(slope, jax.vmap(jax.grad(activation))(z), rtol=1e-15, atol=5e-14)


@pytest.mark.parametrize("samples", [1, 50, 51, 137])
def test_sum_over_samples_is_the_sum_of_outer_products(samples):
    rng = np.random.default_rng(0)
    left, right = rng.standard_normal((4, samples, 8)), rng.standard_normal((3, samples, 8))
    found = sum_over_samples(jnp.asarray(left), jnp.asarray(right))
    np.testing.assert_allclose(found, np.einsum("onl,inl->oil", left, right), rtol=0, atol=1e-13)


def test_arguments_that_cannot_be_right_are_refused_with_what_was_found_and_what_is_expected():
    networks, good = start(linear, 4), {"learning_rates": [0.1] * 4, "steps": 10}
    for change, message in [
        ({"learning_rates": 0.1}, r"learning_rates has shape \(\): expected \(4,\), one for each run"),
        ({"learning_rates": [0.1, 0.1, -0.1, 0.1]}, "learning_rate must be a positive finite number of float64"),
        ({"learning_rates": [0.1, 0.1, np.inf, 0.1]}, "learning_rate must be a positive finite number of float64"),
        ({"steps": [10] * 3}, r"steps has shape \(3,\): expected \(4,\), one for each run"),
        ({"steps": 2.5}, "steps must be whole numbers from one"),
        ({"steps": [10, 0, 10, 10]}, "steps must be whole numbers from one"),
    ]:
        with pytest.raises(ValueError, match=message):
            descend_batch(networks, REGRESSION, **(good | change))
    with pytest.raises(ValueError, match=r"same leading batch axis, got .*: build them by jax.vmap"):
        descend_batch(linear(jax.random.key(0)), REGRESSION, **good)
    with pytest.raises(ValueError, match="make the first and last widths fit"):
        descend_batch(networks, OUTPUTS, **good)
