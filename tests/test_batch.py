"""Many descents in one program: each is the one that runs alone, whichever kernel computes its steps."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import flowsim
from flowsim import GradientDescent, Outcome, RegularizedRisk, Stopping
from flowsim.batch import descend_batch
from flowsim.batch.deep_linear import DeepLinearKernel
from flowsim.batch.kernel import AutomaticKernel, kernel_for, register, sum_over_samples
from flowsim.batch.perceptron import WITH_SLOPE, PerceptronKernel
from flowsim.batch.regularized import RegularizedKernel
from flowsim.data import gaussian_teacher

NEVER = Stopping(gradient_norm=None)
DATA = gaussian_teacher(np.random.default_rng(0), 20, 3)


REGRESSION, RISK = flowsim.LinearRegression(*DATA), flowsim.EmpiricalRisk(*DATA)
OUTPUTS = flowsim.LinearRegression(DATA[0], np.stack([DATA[1], -2 * DATA[1]], 1))


def drawn(kind, *widths, scale=0.6, **options):
    return partial(kind.gaussian, widths=list(widths), scale=scale, **options)


RESIDUAL = partial(flowsim.DeepLinear.residual, width=3, depth=3, scale=0.3, projection=np.ones(3))
EVERY = {
    "linear": (drawn(flowsim.DeepLinear, 3, 3, 3, 3, 1), REGRESSION, DeepLinearKernel),
    "residual": (RESIDUAL, REGRESSION, DeepLinearKernel),
    "gelu": (drawn(flowsim.Perceptron, 3, 3, 3, 1, activation="gelu"), RISK, PerceptronKernel),
    "tapering": (drawn(flowsim.Perceptron, 3, 4, 2, 1, 1, 1, scale=0.8, activation="tanh"), RISK, PerceptronKernel),
    "several outputs": (drawn(flowsim.DeepLinear, 3, 4, 2), OUTPUTS, AutomaticKernel),
    "biases": (drawn(flowsim.Perceptron, 3, 4, 1, biases=True), RISK, AutomaticKernel),
}


def start(name, size, **options):
    """Return networks with a leading axis, one from each of as many keys."""
    build, *_ = EVERY[name]
    return jax.jit(jax.vmap(lambda key: build(key=key, **options)))(jax.random.split(jax.random.key(3), size))


def member(networks, index):
    return jax.tree.map(lambda leaf: leaf[index] if eqx.is_array(leaf) else leaf, networks)


def flat(networks, index=...):
    return np.asarray(ravel_pytree(eqx.filter(member(networks, index), eqx.is_array))[0])


def alone(networks, problem, index, rate, steps):
    return flowsim.descend(
        member(networks, index), problem, learning_rate=rate, steps=steps, stopping=NEVER, record_steps=[0]
    )


@pytest.mark.parametrize("name", ["linear", "gelu"])
def test_each_run_is_its_gradient_descent_and_ends_where_that_diverges_or_reaches_its_risk(name):
    _, plain, kernel = EVERY[name]
    problem = RegularizedRisk(plain, 0.05)
    networks, rates = start(name, 4), np.array([0.02, 0.05, 1e20, 0.05])
    used = kernel_for(member(networks, 0), problem, GradientDescent(0.1))
    assert isinstance(used, RegularizedKernel)
    assert isinstance(used.plain, kernel)

    @jax.jit
    def path(network, rate):
        def step(network, _):
            objective, gradient = jax.value_and_grad(problem.objective)(network)
            return jax.tree.map(lambda w, g: w - rate * g, network, gradient), (network, objective)

        return jax.lax.scan(step, network, length=41)[1]

    weights, objectives = jax.vmap(path)(networks, rates)
    objectives = np.asarray(objectives)
    floors = np.array([-np.inf, -np.inf, -np.inf, objectives[3, 25] * (1 + 1e-9)])
    runs = descend_batch(networks, problem, learning_rates=rates, steps=[40, 13, 40, 40], floors=floors)
    ends = [Outcome.STEP_LIMIT, Outcome.STEP_LIMIT, Outcome.DIVERGED, Outcome.RISK_REACHED]
    np.testing.assert_array_equal(runs.outcomes, ends)
    assert runs.steps.tolist()[:2] == [40, 13]
    assert runs.steps[3] == 25 == np.flatnonzero(objectives[3] <= floors[3])[0]
    assert runs.steps[2] < 40
    for index in (0, 1, 3):
        expected = flat(member(weights, index), int(runs.steps[index]))
        np.testing.assert_allclose(flat(runs.networks, index), expected, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("name", ["residual", "tapering", "several outputs", "biases"])
@pytest.mark.slow
def test_each_run_is_the_descent_from_its_network(name):
    _, problem, kernel = EVERY[name]
    networks, rates = start(name, 3), [0.01, 0.02, 1e10]
    assert isinstance(kernel_for(member(networks, 0), problem, GradientDescent(0.1)), kernel)
    ends = descend_batch(networks, problem, learning_rates=rates, steps=300)
    assert Outcome.DIVERGED in ends.outcomes
    for index, rate in enumerate(rates):
        end = alone(networks, problem, index, rate, 300)
        assert (ends.outcomes[index], ends.steps[index]) == (int(end.outcome), int(end.steps))
        if end.outcome is not Outcome.DIVERGED:
            np.testing.assert_allclose(flat(ends.networks, index), flat(end.network), rtol=1e-11, atol=1e-13)


class Shifted(flowsim.Perceptron):
    """A perceptron that is something else in the end."""

    def __call__(self, x):
        return super().__call__(x) + 1


def test_a_subclass_and_another_loss_are_left_to_automatic_differentiation():
    layers = [np.ones((3, 3)), np.ones((1, 3))]
    one, shifted = (kind(layers, activation=jax.nn.gelu) for kind in (flowsim.Perceptron, Shifted))
    other = flowsim.EmpiricalRisk(*DATA, lambda prediction, target: jnp.sum(jnp.abs(prediction - target)))
    assert isinstance(kernel_for(one, RISK, GradientDescent(0.1)), PerceptronKernel)
    assert isinstance(kernel_for(shifted, RISK, GradientDescent(0.1)), AutomaticKernel)
    assert isinstance(kernel_for(one, other, GradientDescent(0.1)), AutomaticKernel)


def test_a_registered_kernel_is_found_for_its_types_alone():
    class Risk(flowsim.EmpiricalRisk):
        pass

    @register(network=Shifted, problem=Risk, dynamics=GradientDescent)
    class Mine(AutomaticKernel):
        @classmethod
        def of(cls, network, problem, dynamics):
            kernel = AutomaticKernel.of(network, problem, dynamics)
            return cls(kernel.problem, kernel.dynamics, kernel.static, 8) if network.depth == 3 else None

    fitting, other = (Shifted([np.ones((3, 3))] * layers + [np.ones((1, 3))]) for layers in (2, 3))
    assert isinstance(kernel_for(fitting, Risk(*DATA), GradientDescent(0.1)), Mine)
    assert not isinstance(kernel_for(other, Risk(*DATA), GradientDescent(0.1)), Mine)
    assert not isinstance(kernel_for(fitting, RISK, GradientDescent(0.1)), Mine)


def test_a_batch_takes_descents_that_hold_their_own_learning_rates():
    networks, rates = start("linear", 2), [0.02, 0.05]
    by_rate = descend_batch(networks, REGRESSION, learning_rates=rates, steps=10)
    descents = [[GradientDescent(rate) for rate in rates], [flowsim.HeavyBall(0.02), GradientDescent(0.05)]]
    for first, held in zip((0, 1), descents, strict=True):
        ends = descend_batch(networks, REGRESSION, learning_rates=held, steps=10)
        for index in range(first, 2):
            np.testing.assert_array_equal(flat(ends.networks, index), flat(by_rate.networks, index))


@pytest.mark.slow
def test_runs_at_a_fixed_point_leave_with_the_state_of_the_last_step():
    networks, rates = start("residual", 3), [0.02, 0.04, 0.05]
    ends = descend_batch(networks, REGRESSION, learning_rates=rates, steps=20_000)
    assert Outcome.FIXED_POINT in ends.outcomes
    for index, rate in enumerate(rates):
        end = alone(networks, REGRESSION, index, rate, 20_000)
        np.testing.assert_allclose(flat(ends.networks, index), flat(end.network), rtol=0, atol=1e-12)
        if end.outcome == ends.outcomes[index] == Outcome.FIXED_POINT:
            assert abs(int(end.steps) - int(ends.steps[index])) < 500


@pytest.mark.slow
def test_a_run_is_the_same_to_the_last_bit_in_every_batch_whatever_the_steps_of_the_others(monkeypatch):
    # XLA's default: at level 1, which slow tests set, the last bits depend on the place in the batch.
    monkeypatch.setitem(flowsim.batch.descent._OPTIONS, "xla_backend_optimization_level", 3)
    flowsim.batch.descent._advance.cache_clear()
    networks, rates = start("gelu", 100), np.geomspace(0.01, 3, 100)
    steps = np.random.default_rng(1).integers(1, 700, size=100)
    together = descend_batch(networks, RISK, learning_rates=rates, steps=steps)
    order = np.random.default_rng(0).permutation(100)
    for chosen in (np.array([3]), np.array([99]), order[:7], order):
        part = descend_batch(member(networks, chosen), RISK, learning_rates=rates[chosen], steps=steps[chosen])
        np.testing.assert_array_equal(part.outcomes, together.outcomes[chosen])
        np.testing.assert_array_equal(part.steps, together.steps[chosen])
        for mine, theirs in zip(jax.tree.leaves(part.networks), jax.tree.leaves(together.networks), strict=True):
            np.testing.assert_array_equal(mine, theirs[chosen])


@pytest.mark.slow
def test_a_cycle_of_rounding_is_cut_short_without_changing_its_end(monkeypatch):
    """Runs that come back to where they were, to the bit, end as if they had gone on."""
    networks, rates = start("linear", 64, dtype=jnp.float32), np.geomspace(0.01, 0.12, 64)
    steps = 6007
    cut = descend_batch(networks, REGRESSION, learning_rates=rates, steps=steps)

    def end_nothing(kernel, batch, block):
        batch.returned[:] = False

    monkeypatch.setattr(flowsim.batch.descent, "_end_cycles", end_nothing)
    full = descend_batch(networks, REGRESSION, learning_rates=rates, steps=steps)
    for mine, theirs in zip(jax.tree.leaves(cut.networks), jax.tree.leaves(full.networks), strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("activation", WITH_SLOPE)
def test_written_out_activations_agree_with_automatic_differentiation(activation):
    z = np.linspace(-12, 12, 4001)
    compared = jax.jit(lambda z: (*WITH_SLOPE[activation](z), activation(z), jax.vmap(jax.grad(activation))(z)))
    value, slope, *expected = compared(z)
    # JAX's own GELU adds 1 and a number close to −1, and multiplies what is left by z: up to 12 ε.
    np.testing.assert_allclose(value, expected[0], rtol=1e-15, atol=5e-15)
    np.testing.assert_allclose(slope, expected[1], rtol=1e-15, atol=5e-14)


def test_sum_over_samples_is_the_sum_of_outer_products():
    rng = np.random.default_rng(0)
    left, right = rng.standard_normal((4, 17, 2)), rng.standard_normal((3, 17, 2))
    every = jax.jit(lambda: [sum_over_samples(left[:, :n], right[:, :n], terms=5) for n in (1, 5, 6, 17)])()
    for sums, n in zip(every, (1, 5, 6, 17), strict=True):
        expected = np.einsum("onl,inl->oil", left[:, :n], right[:, :n])
        np.testing.assert_allclose(sums, expected, rtol=0, atol=1e-13)


def test_arguments_that_cannot_be_right_are_refused_with_what_was_found_and_what_is_expected():
    networks = start("linear", 4)
    one = member(networks, 0)
    good = {"learning_rates": [0.1] * 4, "steps": 10}
    for change, message in [
        ({"learning_rates": 0.1}, r"learning_rates has shape \(\): expected \(4,\), one for each run"),
        ({"learning_rates": [0.1, 0.1, -0.1, 0.1]}, "learning_rate must be a positive finite number of float64"),
        ({"steps": [10, 0, 10, 10]}, "steps must be whole numbers from one"),
    ]:
        with pytest.raises(ValueError, match=message):
            descend_batch(networks, REGRESSION, **(good | change))
    with pytest.raises(ValueError, match=r"same leading batch axis, got .*: build them by jax.vmap"):
        descend_batch(one, REGRESSION, **good)
    with pytest.raises(ValueError, match="make the first and last widths fit"):
        descend_batch(networks, OUTPUTS, **good)
