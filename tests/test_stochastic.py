"""Stochastic descents: the samples they draw, their moments in closed form, their repetitions, and when they end."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import flowsim
from flowsim import SGD, LabelNoiseSGD, NoisyDescent, Outcome
from flowsim.batch import descend_batch
from flowsim.problems import Minibatches, WeightedRisk

SAMPLES = 20
X = np.random.default_rng(0).standard_normal((SAMPLES, 3))
X[:, 0] = np.arange(SAMPLES) / 10  # by which samples are known again
TRUE = np.array([1.0, -2.0, 0.5])
Y = X @ TRUE + 0.5 * np.random.default_rng(1).standard_normal(SAMPLES)
OPTIMUM = np.linalg.lstsq(X, Y, rcond=None)[0]
HESSIAN = 2 * X.T @ X / SAMPLES
# One weight and x = 1: the gradient 2(w − y_i) has the same noise everywhere.
LEVELS = Y[:10]
CURVATURE, VARIANCE = 2.0, 4 * np.var(LEVELS)
NEVER = flowsim.Stopping(gradient_norm=None)


class Linear(eqx.Module):
    weight: jax.Array

    def __call__(self, x):
        return jnp.sum(self.weight * x)


def linear(*weights):
    return Linear(jnp.array(weights or (0.0, 0.0, 0.0)))


@pytest.fixture(scope="module")
def risk():
    return flowsim.EmpiricalRisk(X, Y)


@pytest.fixture(scope="module")
def constant():
    return flowsim.EmpiricalRisk(np.ones((10, 1)), LEVELS)


# -- the draws


def drawn(sampler, problem, count):
    """Return the problems of the first steps, each array with a leading axis of steps."""

    def one(draw, _):
        return sampler.next(draw), sampler.taken(problem, draw)

    return jax.jit(lambda: jax.lax.scan(one, sampler.first(problem), length=count)[1])()


def chosen(sampler, problem, count):
    """Return the numbers of the samples of the first batches, (count, batch)."""
    return np.round(np.asarray(drawn(sampler, problem, count).X[..., 0]) * 10).astype(int)


def test_an_epoch_without_replacement_takes_every_sample_at_most_once_in_a_new_order(risk):
    batches = chosen(Minibatches(6, 3), risk, 6)
    first, second = set(batches[:3].ravel()), set(batches[3:].ravel())
    assert len(first) == len(second) == 18  # the others sit the epoch out
    assert not np.array_equal(batches[:3], batches[3:])


def test_with_replacement_batches_are_independent_draws_of_all_samples(risk):
    batches = chosen(Minibatches(5, 0, replacement=True), risk, 400)
    counts = np.bincount(batches.ravel(), minlength=SAMPLES)
    assert len(counts) == SAMPLES
    # Each count is binomial with mean 100 and standard deviation 9.7: five of them.
    assert np.abs(counts - 100).max() < 49
    assert len({tuple(batch) for batch in batches.tolist()}) > 390


def test_the_variance_factor_is_that_of_all_subsets():
    values = np.array([0.3, -1.2, 0.8, 2.0, 0.1])
    problem = flowsim.EmpiricalRisk(values[:, None], values)
    without = [np.mean(subset) for subset in itertools.combinations(values, 3)]
    together = [np.mean(subset) for subset in itertools.product(values, repeat=3)]
    for means, replacement in ((without, False), (together, True)):
        factor = Minibatches(3, 0, replacement).variance_factor(problem)
        assert factor == pytest.approx(np.var(means) / np.var(values), rel=1e-12)
    assert Minibatches(5, 0).variance_factor(problem) == 0


def test_gaussian_weights_have_the_covariance_of_minibatches_on_a_path_that_substeps_refine(risk):
    coarse, fine = (NoisyDescent(0.1, 5, substeps=m) for m in (1, 2))
    weights = np.asarray(drawn(fine.minibatches(), risk, 1200).weights).reshape(600, 2, SAMPLES)
    np.testing.assert_allclose(weights.mean(1), drawn(coarse.minibatches(), risk, 600).weights, rtol=0, atol=1e-14)
    np.testing.assert_allclose(weights.sum(2), 1, rtol=1e-13)
    off = (weights - 1 / SAMPLES).transpose(1, 0, 2).reshape(2, -1)
    variance = 2 * (15 / 19 / 5) / SAMPLES * (1 - 1 / SAMPLES)
    # Five standard deviations of the mean of 12000 squares or products.
    np.testing.assert_allclose(np.cov(off) / variance, np.eye(2), rtol=0, atol=5 * (2 / 12000) ** 0.5)
    # Two steps along one gradient are one step of the coarser descent.
    gradient = np.array([0.4, -1.0])
    twice = fine.step(fine.step(np.ones(2), gradient, None)[0], gradient, None)[0]
    np.testing.assert_allclose(twice, coarse.step(np.ones(2), gradient, None)[0], rtol=1e-15)


def test_label_noise_is_fresh_in_every_step_and_of_the_deviation(risk):
    sampler = LabelNoiseSGD(0.1, SAMPLES, deviation=0.7).minibatches()
    noise = (np.asarray(drawn(sampler, risk, 300).y) - Y) / 0.7
    assert noise.var() == pytest.approx(1, abs=5 * (2 / noise.size) ** 0.5)
    assert np.mean(noise[1:] * noise[:-1]) == pytest.approx(0, abs=5 / noise.size**0.5)
    assert noise.mean() == pytest.approx(0, abs=5 / noise.size**0.5)


def test_a_weighted_risk_is_the_weighted_sum_of_the_risks_of_samples(risk):
    weights = np.linspace(-1, 1, SAMPLES)
    weighted = WeightedRisk(risk, jnp.asarray(weights))(linear(*TRUE))
    assert float(weighted) == pytest.approx(weights @ (X @ TRUE - Y) ** 2, rel=1e-13)
    with pytest.raises(ValueError, match=r"the weights have shape \(3,\): expected \(20,\)"):
        WeightedRisk(risk, jnp.ones(3))


# -- single runs and their repetitions

RECORDS = {"steps": 20, "record_steps": [0, 3, 7, 20], "weights": True}
# A risk that none of them reaches: another one compiles nothing.
SINGLE = RECORDS | {"stopping": flowsim.Stopping(risk=1e-9)}


@pytest.fixture(scope="module")
def run(risk):
    return flowsim.descend(linear(), risk, optimizer=SGD(0.05, 5, seed=3), **SINGLE)


def test_a_step_is_one_of_gradient_descent_on_its_minibatch(run, risk):
    w, along = np.zeros(3), [np.zeros(3)]
    for batch in chosen(Minibatches(5, 3), risk, 20):
        w = w - 0.05 * 2 * X[batch].T @ (X[batch] @ w - Y[batch]) / 5
        along.append(w)
    np.testing.assert_allclose(run.weights.weight, np.array(along)[[0, 3, 7, 20]], rtol=1e-12)
    assert run.dynamics == "sgd"
    np.testing.assert_allclose(run.times, 0.05 * np.array([0, 3, 7, 20]), rtol=1e-15)


def test_records_hold_the_full_risk_and_gradient_and_work_is_counted_in_epochs(run):
    errors = np.asarray(run.weights.weight) @ X.T - Y
    np.testing.assert_allclose(run.risk, np.mean(errors**2, axis=1), rtol=1e-13)
    np.testing.assert_allclose(run.gradient_norm, np.linalg.norm(2 * errors @ X / SAMPLES, axis=1), rtol=1e-12)
    # 21 gradients of a quarter of the samples, and a full one at the start and at the end of each of five epochs.
    assert int(run.gradients) == 6 + 6


def test_another_seed_is_another_run_and_compiles_nothing(run, risk, compiled):
    before = compiled()
    other, again = (flowsim.descend(linear(), risk, optimizer=SGD(0.05, 5, seed=seed), **SINGLE) for seed in (2, 3))
    assert compiled() == before
    np.testing.assert_array_equal(run.network.weight, again.network.weight)
    assert not np.array_equal(run.network.weight, other.network.weight)


def test_a_minimum_at_which_samples_disagree_is_not_stayed_at(run, risk):
    """The gradient of the risk is zero there, and that of a minibatch is not."""
    there = flowsim.descend(linear(*OPTIMUM), risk, optimizer=SGD(0.05, 5), **SINGLE)
    assert there.final_gradient_norm > 1e-3
    assert there.outcome is Outcome.STEP_LIMIT


def test_repetitions_are_the_runs_with_their_seeds(risk):
    optimizer = SGD(0.05, 5)
    many = flowsim.repeat(linear(), risk, optimizer=optimizer, seeds=[3, 11], **RECORDS)
    assert many.steps.tolist() == [0, 3, 7, 20]
    for row, seed in enumerate([3, 11]):
        one = flowsim.descend(linear(), risk, optimizer=optimizer.with_seed(seed), **SINGLE)
        np.testing.assert_allclose(many.weights.weight[row], one.weights.weight, rtol=1e-12)
        np.testing.assert_allclose(many.probes["risk"][row], one.risk, rtol=1e-12)
        np.testing.assert_allclose(many.probes["gradient_norm"][row], one.gradient_norm, rtol=1e-12)
        np.testing.assert_allclose(many.times, one.times, rtol=1e-15)
        np.testing.assert_allclose(many.network.weight[row], one.network.weight, rtol=1e-12)
    np.testing.assert_allclose(many.mean("risk"), many.probes["risk"].mean(0))
    np.testing.assert_allclose(many.standard_error("risk"), np.ptp(many.probes["risk"], axis=0) / 2)


def test_repetitions_that_diverge_say_so(risk):
    options = RECORDS | {"steps": 200, "record_steps": [0, 5, 199]}
    run = flowsim.repeat(linear(), risk, optimizer=SGD(3.0, 5), seeds=range(2), **options)
    assert (run.outcomes == Outcome.DIVERGED).all()
    assert np.isfinite(run.mean("risk")[:2]).all()
    assert np.isnan(run.mean("risk")[2:]).all()
    assert repr(run) == "Repetitions(2 seeds, 4 records, 200 steps, 2 diverged)"


# -- moments in closed form


def ends(optimizer, steps, problem, start, seeds=2000):
    """Return the weights of many repetitions after so many steps, (seeds, weights)."""
    options = {"seeds": range(seeds), "steps": steps, "record_steps": [0]}
    run = flowsim.repeat(linear(*start), problem, optimizer=optimizer, **options)
    assert (run.outcomes == Outcome.STEP_LIMIT).all()
    return np.asarray(run.network.weight)


def stationary(move, noise, of_weights):
    """Return the covariance C of the state z ← (A + A_i)z + b_i in the limit, from its second moments.

    `move` is A, `noise` the covariance of the b_i, and `of_weights` maps C to what the random A_i add to it.
    """
    size = len(move)
    columns = []
    for entry in np.eye(size * size):
        given = entry.reshape(size, size)
        columns.append((given - move @ given @ move.T - of_weights(given)).ravel())
    return np.linalg.solve(np.array(columns).T, noise.ravel()).reshape(size, size)


def covariance_of_sgd(eta, batch, beta=0.0):
    """Return the covariance of SGD with replacement and momentum about the minimum, its noise as it depends on W."""
    single, residual = 2 * X[:, :, None] * X[:, None, :], 2 * X * (X @ OPTIMUM - Y)[:, None]
    off = single - HESSIAN
    push = np.block([[-eta * np.eye(3)], [np.eye(3)]])  # of a gradient on (weights, velocity)
    move = np.block([[np.eye(3), -eta * beta * np.eye(3)], [np.zeros((3, 3)), beta * np.eye(3)]])
    move = move + push @ np.hstack([HESSIAN, np.zeros((3, 3))])

    def of_weights(C):
        return push @ np.einsum("nij,jk,nlk->il", off, C[:3, :3], off) @ push.T / SAMPLES / batch

    return stationary(move, push @ residual.T @ residual @ push.T / SAMPLES / batch, of_weights)[:3, :3]


def assert_covariance(weights, expected, deviations=5):
    """Assert that a sample covariance is the expected one up to so many of its standard deviations, if Gaussian."""
    found, count = np.cov(weights.T), len(weights)
    spread = np.sqrt((np.outer(np.diag(expected), np.diag(expected)) + expected**2) / count)
    assert np.abs((found - expected) / spread).max() < deviations, (found, expected)


def test_the_covariance_about_a_minimum_is_that_of_the_second_moments(risk):
    assert_covariance(ends(SGD(0.1, 5, replacement=True), 80, risk, OPTIMUM), covariance_of_sgd(0.1, 5))


@pytest.mark.slow
def test_the_covariance_with_momentum_is_that_of_the_second_moments(risk):
    found = ends(SGD(0.05, 5, replacement=True, momentum=0.5), 120, risk, OPTIMUM)
    assert_covariance(found, covariance_of_sgd(0.05, 5, 0.5))


@pytest.mark.slow
def test_the_variance_is_that_of_an_ornstein_uhlenbeck_process(constant):
    """ησ²/(Bλ(2 − ηλ/m)), and ησ²/(2Bλ) of the stochastic differential equation as m → ∞."""
    eta, batch, mean = 0.3, 8, LEVELS.mean()
    found = ends(NoisyDescent(eta, batch, replacement=True, substeps=2), 40, constant, [mean], seeds=4000)
    expected = eta * VARIANCE / (batch * CURVATURE * (2 - eta * CURVATURE / 2))
    assert np.var(found) == pytest.approx(expected, rel=5 * (2 / 4000) ** 0.5)
    assert found.mean() == pytest.approx(mean, abs=5 * (expected / 4000) ** 0.5)


@pytest.mark.slow
def test_label_noise_has_in_every_mode_the_variance_of_the_closed_form(risk):
    eta, deviation = 0.1, 0.7
    values, vectors = np.linalg.eigh(HESSIAN)
    found = (ends(LabelNoiseSGD(eta, SAMPLES, deviation=deviation), 60, risk, OPTIMUM) - OPTIMUM) @ vectors
    assert_covariance(found, np.diag(2 * eta * deviation**2 / (SAMPLES * (2 - eta * values))))


# -- when a run ends


def test_a_risk_to_stop_at_is_looked_for_once_an_epoch(risk):
    reached = {"steps": 5000, "record_steps": [0, 3, 7, 5000], "stopping": flowsim.Stopping(risk=0.8)}
    run = flowsim.descend(linear(), risk, optimizer=SGD(0.02, 5), **SINGLE | reached)
    assert run.outcome is Outcome.RISK_REACHED
    assert run.final_risk <= 0.8
    assert int(run.steps) % 4 == 3  # the last batch of an epoch is seen


@pytest.mark.slow
def test_it_converges_where_samples_agree_on_the_minimum_and_not_where_one_minibatch_has_no_gradient():
    """Samples that are zero move nothing, and others do."""
    run = flowsim.descend(linear(), flowsim.EmpiricalRisk(X, X @ TRUE), optimizer=SGD(0.05, 5), steps=5000)
    assert run.outcome is Outcome.CONVERGED
    np.testing.assert_allclose(run.network.weight, TRUE, rtol=1e-7)
    labels = np.repeat([0.0, 1.0], [19, 1])
    problem = flowsim.EmpiricalRisk(np.outer(labels, np.ones(3)), labels)
    run = flowsim.descend(linear(), problem, optimizer=SGD(0.1, 1), steps=100, stopping=NEVER)
    assert run.outcome is Outcome.STEP_LIMIT
    assert run.final_risk < 1 / 20


@pytest.mark.slow
def test_divergence_ends_a_run_within_an_epoch_and_in_the_last_steps(risk):
    for rate, steps in ((5.0, 10_000), (1e30, 2)):
        run = flowsim.descend(linear(), risk, optimizer=SGD(rate, 5), steps=steps)
        assert run.outcome is Outcome.DIVERGED
        assert int(run.steps) < 200


EVALUATED = []


class Counted(Linear):
    """A network that writes down each sample at which it is evaluated."""

    def __call__(self, x):
        jax.debug.callback(lambda _: EVALUATED.append(1), x)
        return super().__call__(x)


@pytest.mark.slow
def test_a_step_costs_one_minibatch_and_all_samples_are_seen_once_an_epoch(risk):
    network, options = Counted(jnp.zeros(3)), {"steps": 100, "record_steps": [0], "stopping": NEVER}
    run = flowsim.descend(network, risk, optimizer=SGD(0.01, 2), **options)
    jax.effects_barrier()
    # A minibatch for each step and the start. All samples: ten epochs, the last step and the start are judged, and two
    # records have a gradient, a risk and an excess risk each.
    assert 101 * 2 + 12 * SAMPLES <= len(EVALUATED) <= 101 * 2 + (12 + 2 * 4) * SAMPLES
    assert int(run.gradients) == 11 + 11


@pytest.mark.slow
def test_batches_take_what_an_optimizer_makes_of_each_rate(risk):
    """A function of the rate that puts it into a closure, or into other options, too."""
    import optax

    rates = np.array([0.01, 0.03])
    networks = Linear(jnp.asarray(np.random.default_rng(2).standard_normal((2, 3))))
    for optimizer in (optax.adam, lambda eta: SGD(eta, 6, seed=4, momentum=1 - 10 * eta)):
        found = descend_batch(networks, risk, learning_rates=rates, steps=25, optimizer=optimizer)
        for lane, eta in enumerate(rates):
            start = Linear(networks.weight[lane])
            alone = flowsim.descend(start, risk, optimizer=optimizer(float(eta)), steps=25, stopping=NEVER)
            np.testing.assert_allclose(found.networks.weight[lane], alone.network.weight, rtol=1e-12)


# -- what is refused


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: SGD(0.1, 0), ValueError, "batch must be a number of samples, one or more, got 0"),
        (lambda: SGD(0.1, 5, seed=-1), ValueError, "seed must be a whole number from 0 to 4294967295, got -1"),
        (lambda: SGD(0.1, 5, replacement=1), ValueError, "replacement must be True or False, got 1"),
        (lambda: SGD(0.1, 5, momentum=1.0), ValueError, "momentum must be a number from 0 to below 1"),
        (lambda: LabelNoiseSGD(0.1, 5, deviation=-1.0), ValueError, "deviation must be a finite number, zero or more"),
        (lambda: NoisyDescent(0.1, 5, substeps=3), ValueError, "substeps must be 1, 2, 4 or another power of two"),
        (lambda: NoisyDescent(0.1, 5, substeps=2, momentum=0.5), ValueError, "substeps=2 with momentum"),
        (lambda: repeated(optimizer=flowsim.GradientDescent(0.1)), ValueError, "GradientDescent has no seed"),
        (lambda: repeated(optimizer="sgd"), TypeError, "a flowsim.Descent with a seed, got 'sgd'"),
        (lambda: repeated(seeds=[-1]), ValueError, "seeds must be a list of whole numbers"),
        (lambda: repeated(steps=0), ValueError, "steps must be a whole number"),
        (lambda: repeated(record_steps=[3, 1]), ValueError, "record_steps must be a list of increasing whole numbers"),
    ],
)
def test_what_cannot_be_drawn_or_repeated_is_refused(make, error, message):
    with pytest.raises(error, match=message):
        make()


def repeated(**options):
    options = {"optimizer": SGD(0.1, 5), "seeds": range(2), "steps": 3} | options
    return flowsim.repeat(linear(), flowsim.EmpiricalRisk(X, Y), **options)


def test_samples_that_cannot_be_drawn_are_refused(risk):
    class Half(flowsim.Problem):
        def __call__(self, network):
            return jnp.sum(network.weight**2)

        def sample_count(self):
            return 10

    none, classes = flowsim.Risk(lambda w: 0.0), flowsim.EmpiricalRisk(X, np.sign(Y), flowsim.losses.Logistic())
    for optimizer, problem, message in (
        (SGD(0.1, 21), risk, "more than the 20 samples: write 20"),
        (SGD(0.1, 5), none, "Risk holds none: expected a flowsim.EmpiricalRisk"),
        (SGD(0.1, 5), Half(), "Half has samples and no subsample"),
        (NoisyDescent(0.1, 5), Half(), "Half has samples and no subsample"),
        (LabelNoiseSGD(0.1, 5), classes, "label noise is added to targets that are numbers"),
    ):
        with pytest.raises(ValueError, match=message):
            flowsim.descend(linear(), problem, optimizer=optimizer, steps=3)
