"""Stochastic gradient descent: which samples it draws, what it costs, and when it has converged."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import flowsim
from flowsim import SGD, Outcome
from flowsim.batch import descend_batch
from flowsim.dynamics.checkpoint import Checkpoint
from flowsim.problems import Minibatches

SAMPLES = 20
X = np.random.default_rng(0).standard_normal((SAMPLES, 3))
NOISY = X @ np.array([1.0, -2.0, 0.5]) + 0.3 * np.random.default_rng(1).standard_normal(SAMPLES)
RISK = flowsim.EmpiricalRisk(X, NOISY)
FITTED = flowsim.EmpiricalRisk(X, X @ np.array([1.0, -2.0, 0.5]))
NEVER = flowsim.Stopping(gradient_norm=None)


class Linear(eqx.Module):
    weight: jax.Array

    def __call__(self, x):
        return jnp.sum(self.weight * x)


NETWORK = Linear(jnp.zeros(3))


def flat(network):
    return np.asarray(ravel_pytree(network)[0])


def batches(sampler, problem, count):
    """Return the numbers of the samples of the first batches."""
    draw, found = sampler.first(problem), []
    for _ in range(count):
        found.append(np.asarray(sampler._chosen(draw)))
        draw = sampler.next(draw)
    return np.array(found)


@pytest.mark.slow
@pytest.mark.parametrize(("size", "left_out"), [(5, 0), (6, 2), (20, 0), (1, 0)])
def test_an_epoch_without_replacement_takes_every_sample_once(size, left_out):
    per_epoch = SAMPLES // size
    found = batches(Minibatches(size, 3), RISK, 2 * per_epoch)
    first, second = found[:per_epoch].ravel(), found[per_epoch:].ravel()
    for epoch in (first, second):
        assert len(set(epoch.tolist())) == SAMPLES - left_out
    assert not np.array_equal(first, second)


@pytest.mark.slow
def test_the_mean_step_over_an_epoch_is_the_gradient_at_fixed_weights():
    sampler, network = Minibatches(4, 0), Linear(jnp.array([0.3, 0.1, -0.2]))
    draw, found = sampler.first(RISK), []
    for _ in range(SAMPLES // 4):
        found.append(flat(jax.grad(sampler.taken(RISK, draw).objective)(network)))
        draw = sampler.next(draw)
    np.testing.assert_allclose(np.mean(found, 0), flat(jax.grad(RISK.objective)(network)), rtol=1e-14)


def test_with_replacement_batches_are_independent_draws_of_all_samples():
    found = batches(Minibatches(5, 0, replacement=True), RISK, 400).ravel()
    counts = np.bincount(found, minlength=SAMPLES)
    assert len(counts) == SAMPLES
    # Each count is binomial with mean 100 and standard deviation 9.7: five of them.
    assert np.abs(counts - 100).max() < 49
    assert len({tuple(batch) for batch in found.reshape(-1, 5).tolist()}) > 390


@pytest.mark.parametrize("replacement", [False, True])
@pytest.mark.slow
def test_a_seed_decides_on_all_draws_in_any_transformation(replacement):
    def drawn(seed):
        sampler = Minibatches(5, seed, replacement)
        first = sampler.first(RISK)
        return jnp.stack([sampler._chosen(first), sampler._chosen(sampler.next(first))])

    alone = [np.asarray(drawn(seed)) for seed in (0, 1)]
    np.testing.assert_array_equal(jax.jit(drawn)(0), alone[0])
    np.testing.assert_array_equal(jax.vmap(drawn)(jnp.array([0, 1])), alone)
    assert not np.array_equal(alone[0], alone[1])


@pytest.mark.slow
def test_a_step_is_one_of_gradient_descent_on_its_minibatch():
    eta, sampler = 0.05, Minibatches(5, 7)
    w = np.zeros(3)
    for chosen in batches(sampler, RISK, 30):
        w = w - eta * 2 * X[chosen].T @ (X[chosen] @ w - NOISY[chosen]) / 5
    run = flowsim.descend(NETWORK, RISK, optimizer=SGD(eta, 5, seed=7), steps=30, record_steps=[0])
    np.testing.assert_allclose(run.network.weight, w, rtol=1e-12)
    assert run.dynamics == "sgd"
    assert float(run.time) == pytest.approx(eta * 30, rel=1e-15)


@pytest.mark.slow
def test_a_batch_of_all_samples_is_gradient_descent():
    full = flowsim.descend(NETWORK, RISK, learning_rate=0.05, steps=2000)
    one = flowsim.descend(NETWORK, RISK, optimizer=SGD(0.05, SAMPLES), steps=2000)
    assert full.outcome is one.outcome is Outcome.CONVERGED
    assert int(full.steps) == int(one.steps)
    np.testing.assert_allclose(one.network.weight, full.network.weight, rtol=1e-12)
    np.testing.assert_allclose(one.risk, full.risk, rtol=1e-12)


@pytest.mark.slow
def test_records_hold_the_full_risk_and_gradient_wherever_they_are_made():
    run = flowsim.descend(NETWORK, RISK, optimizer=SGD(0.05, 5), steps=30, record_steps=[0, 1, 6, 30], weights=True)
    for number in range(4):
        network = Linear(run.weights.weight[number])
        np.testing.assert_allclose(run.risk[number], RISK(network), rtol=1e-13)
        np.testing.assert_allclose(run.gradient_norm[number], np.linalg.norm(flat(jax.grad(RISK)(network))), rtol=1e-12)


def test_the_same_seed_is_the_same_run_and_another_one_compiles_nothing(compiled):
    first = flowsim.descend(NETWORK, RISK, optimizer=SGD(0.05, 5, seed=1), steps=40)
    before = compiled()
    again = flowsim.descend(NETWORK, RISK, optimizer=SGD(0.05, 5, seed=1), steps=40)
    other = flowsim.descend(NETWORK, RISK, optimizer=SGD(0.05, 5, seed=2), steps=40)
    assert compiled() == before
    np.testing.assert_array_equal(first.network.weight, again.network.weight)
    assert not np.array_equal(first.network.weight, other.network.weight)


@pytest.mark.slow
def test_seeds_can_be_mapped_over():
    def end(seed):
        return flowsim.descend(NETWORK, RISK, optimizer=SGD(0.05, 5, seed=seed), steps=30, stopping=NEVER).network

    mapped = jax.vmap(end)(jnp.array([0, 5]))
    for lane, seed in enumerate((0, 5)):
        np.testing.assert_allclose(mapped.weight[lane], end(seed).weight, rtol=1e-12)


@pytest.mark.parametrize("replacement", [False, True])
@pytest.mark.slow
def test_a_run_that_was_interrupted_goes_on_to_the_same_end_bit_for_bit(replacement, tmp_path, monkeypatch):
    options = {"optimizer": SGD(0.05, 5, seed=3, replacement=replacement), "steps": 200, "stopping": NEVER}
    whole = flowsim.descend(NETWORK, RISK, **options)
    save = Checkpoint.save_if_due

    def save_and_interrupt(checkpoint, state, *, ended):
        save(checkpoint, state, ended=True)
        assert 0 < int(state.steps) < 200
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("flowsim.dynamics.driver.CallLength.first", lambda *_, **__: 33)
        patch.setattr(Checkpoint, "save_if_due", save_and_interrupt)
        with pytest.raises(KeyboardInterrupt):
            flowsim.descend(NETWORK, RISK, checkpoint=tmp_path / "run", **options)
    resumed = flowsim.descend(NETWORK, RISK, checkpoint=tmp_path / "run", **options)
    np.testing.assert_array_equal(resumed.network.weight, whole.network.weight)
    np.testing.assert_array_equal(resumed.risk, whole.risk)


# -- what converged means


@pytest.mark.slow
def test_it_converges_where_all_samples_agree_on_the_minimum():
    run = flowsim.descend(NETWORK, FITTED, optimizer=SGD(0.05, 5), steps=5000)
    assert run.outcome is Outcome.CONVERGED
    assert int(run.steps) % 4 == 3  # the last batch of an epoch is seen
    np.testing.assert_allclose(run.network.weight, [1.0, -2.0, 0.5], rtol=1e-7)


@pytest.mark.slow
def test_a_minimum_at_which_samples_disagree_is_not_stayed_at():
    """The gradient of the risk is zero there, and that of a minibatch is not."""
    least = np.linalg.lstsq(X, NOISY, rcond=None)[0]
    start = Linear(jnp.asarray(least))
    assert flowsim.descend(start, RISK, learning_rate=0.05, steps=50).outcome is Outcome.CONVERGED
    run = flowsim.descend(start, RISK, optimizer=SGD(0.05, 5), steps=50)
    assert run.outcome is Outcome.STEP_LIMIT
    assert np.linalg.norm(np.asarray(run.network.weight) - least) > 1e-3


@pytest.mark.slow
def test_it_is_no_fixed_point_that_one_minibatch_has_no_gradient():
    """Samples that are zero move nothing, and others do."""
    inputs = np.concatenate([np.zeros((10, 3)), np.ones((1, 3))])
    problem = flowsim.EmpiricalRisk(inputs, np.concatenate([np.zeros(10), np.ones(1)]))
    run = flowsim.descend(NETWORK, problem, optimizer=SGD(0.1, 1), steps=60, stopping=NEVER)
    assert run.outcome is Outcome.STEP_LIMIT
    assert run.final_risk < float(problem(NETWORK))


@pytest.mark.slow
def test_divergence_ends_a_run_within_an_epoch():
    run = flowsim.descend(NETWORK, RISK, optimizer=SGD(5.0, 5), steps=10_000)
    assert run.outcome is Outcome.DIVERGED
    assert int(run.steps) < 200


@pytest.mark.slow
def test_divergence_in_the_last_steps_is_seen():
    run = flowsim.descend(NETWORK, RISK, optimizer=SGD(1e30, 5), steps=2)
    assert run.outcome is Outcome.DIVERGED


def test_a_risk_to_stop_at_is_looked_for_once_an_epoch():
    run = flowsim.descend(NETWORK, RISK, optimizer=SGD(0.02, 5), steps=5000, stopping=flowsim.Stopping(risk=0.5))
    assert run.outcome is Outcome.RISK_REACHED
    assert run.final_risk <= 0.5
    assert int(run.steps) % 4 == 3


# -- what it costs


class Counted(flowsim.Problem):
    """Least squares that writes down over how many samples it is evaluated."""

    inputs: jax.Array
    targets: jax.Array
    seen: list = eqx.field(static=True)

    def __call__(self, network):
        jax.debug.callback(lambda: self.seen.append(self.inputs.shape[0]))
        return jnp.mean((self.inputs @ network.weight - self.targets) ** 2)

    def sample_count(self):
        return self.inputs.shape[0]

    def subsample(self, chosen):
        return Counted(self.inputs[chosen], self.targets[chosen], self.seen)


class Tally(list):
    __hash__ = object.__hash__


@pytest.mark.slow
def test_a_step_costs_one_minibatch_and_all_samples_are_seen_once_an_epoch():
    problem = Counted(jnp.asarray(X), jnp.asarray(NOISY), Tally())
    run = flowsim.descend(NETWORK, problem, optimizer=SGD(0.01, 2), steps=100, record_steps=[0], stopping=NEVER)
    jax.effects_barrier()
    small, full = problem.seen.count(2), problem.seen.count(SAMPLES)
    assert small == 101  # one for each step, and that of the start
    # Ten epochs, the last step and the start are judged; two records have a gradient, a risk and an excess risk each.
    assert full <= 12 + 2 * 4
    assert int(run.gradients) == 11 + 11


# -- many at once


@pytest.mark.slow
def test_batches_of_a_sweep_do_what_descend_does():
    rates = np.array([0.01, 0.03])
    networks = Linear(jnp.asarray(np.random.default_rng(2).standard_normal((2, 3))))
    ends = descend_batch(networks, RISK, learning_rates=rates, steps=37, optimizer=lambda eta: SGD(eta, 6, seed=4))
    for lane, eta in enumerate(rates):
        start = Linear(networks.weight[lane])
        alone = flowsim.descend(start, RISK, optimizer=SGD(float(eta), 6, seed=4), steps=37, stopping=NEVER)
        np.testing.assert_allclose(ends.networks.weight[lane], alone.network.weight, rtol=1e-12)


@pytest.mark.slow
def test_batches_take_what_an_optimizer_makes_of_each_rate():
    """A function of the rate that puts it into a closure, or into other options, too."""
    import optax

    rates = np.array([0.01, 0.03, 0.01])
    networks = Linear(jnp.asarray(np.random.default_rng(2).standard_normal((3, 3))))
    for optimizer in (
        optax.adam,
        lambda eta: flowsim.HeavyBall(eta, 1 - 10 * eta),
        lambda eta: flowsim.Optax(optax.adam(eta), time_per_step=eta),
    ):
        ends = descend_batch(networks, RISK, learning_rates=rates, steps=25, optimizer=optimizer)
        for lane, eta in enumerate(rates):
            start = Linear(networks.weight[lane])
            alone = flowsim.descend(start, RISK, optimizer=optimizer(float(eta)), steps=25, stopping=NEVER)
            np.testing.assert_allclose(ends.networks.weight[lane], alone.network.weight, rtol=1e-12)


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (
            lambda: flowsim.descend(
                flowsim.DeepLinear([np.ones((1, 3))]),
                flowsim.LinearRegression(X, NOISY),
                optimizer=SGD(0.1, 5),
                steps=5,
            ),
            r"LinearRegression holds none: expected a flowsim.EmpiricalRisk",
        ),
        (
            lambda: flowsim.descend(jnp.ones(2), flowsim.Risk(jnp.sum), optimizer=SGD(0.1, 5), steps=5),
            r"Risk holds none",
        ),
        (lambda: flowsim.descend(NETWORK, RISK, optimizer=SGD(0.1, 21), steps=5), "more than the 20 samples: write 20"),
        (lambda: SGD(0.1, 0), "batch must be a number of samples, one or more, got 0"),
        (lambda: SGD(0.1, 2.5), "batch must be a number of samples, one or more, got 2.5"),
        (lambda: SGD(0.1, 5, seed=-1), "seed must be a whole number from 0 to 4294967295, got -1"),
        (lambda: SGD(0.1, 5, seed=0.5), "seed must be a whole number"),
        (lambda: SGD(0.1, 5, replacement=1), "replacement must be True or False, got 1"),
    ],
)
def test_what_cannot_be_drawn_is_refused(run, message):
    with pytest.raises(ValueError, match=message):
        run()
