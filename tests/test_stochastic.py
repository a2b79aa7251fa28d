"""Descents with noise against closed forms of their moments, and their repetitions against single runs."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import flowsim
from flowsim import SGD, LabelNoiseSGD, NoisyDescent, Outcome
from flowsim.dynamics.optimizers.noisy_descent import GaussianWeights
from flowsim.problems import WeightedRisk

SAMPLES = 40
X = np.random.default_rng(0).standard_normal((SAMPLES, 3))
Y = X @ np.array([1.0, -2.0, 0.5]) + 0.5 * np.random.default_rng(1).standard_normal(SAMPLES)
RISK = flowsim.EmpiricalRisk(X, Y)
OPTIMUM = np.linalg.lstsq(X, Y, rcond=None)[0]
HESSIAN = 2 * X.T @ X / SAMPLES
# One weight and x = 1: the gradient 2(w − y_i) has the same noise everywhere.
CONSTANT = flowsim.EmpiricalRisk(np.ones((SAMPLES, 1)), Y)
CURVATURE, VARIANCE = 2.0, 4 * np.var(Y)


class Linear(eqx.Module):
    weight: jax.Array

    def __call__(self, x):
        return jnp.sum(self.weight * x)


def ends(optimizer, steps, *, problem=RISK, start=OPTIMUM, seeds=2000):
    """Return the weights of many repetitions after so many steps, (seeds, weights)."""
    run = flowsim.repeat(
        Linear(jnp.asarray(start)), problem, optimizer=optimizer, seeds=range(seeds), steps=steps, record_steps=[0]
    )
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
    found, count = np.atleast_2d(np.cov(weights.T)), len(weights)
    expected = np.atleast_2d(expected)
    spread = np.sqrt((np.outer(np.diag(expected), np.diag(expected)) + expected**2) / count)
    assert np.abs((found - expected) / spread).max() < deviations, (found, expected)


@pytest.mark.parametrize("make", [SGD, pytest.param(NoisyDescent, marks=pytest.mark.slow)])
def test_the_covariance_about_a_minimum_is_that_of_the_second_moments(make):
    """To see that the noise counts as it depends on W, it is 8 % off what it would be if it did not."""
    assert_covariance(ends(make(0.1, 5, replacement=True), 300), covariance_of_sgd(0.1, 5))


@pytest.mark.slow
@pytest.mark.parametrize("make", [SGD, NoisyDescent])
def test_so_it_is_with_momentum(make):
    found = ends(make(0.02, 5, replacement=True, momentum=0.8), 1500)
    assert_covariance(found, covariance_of_sgd(0.02, 5, 0.8))


@pytest.mark.parametrize("substeps", [1, pytest.param(4, marks=pytest.mark.slow)])
def test_the_variance_is_that_of_an_ornstein_uhlenbeck_process(substeps):
    """ησ²/(Bλ(2 − ηλ/m)), and ησ²/(2Bλ) of the stochastic differential equation as m → ∞."""
    eta, batch = 0.3, 8
    optimizer = NoisyDescent(eta, batch, replacement=True, substeps=substeps)
    found = ends(optimizer, 60 * substeps, problem=CONSTANT, start=[Y.mean()], seeds=4000)
    expected = eta * VARIANCE / (batch * CURVATURE * (2 - eta * CURVATURE / substeps))
    assert np.var(found) == pytest.approx(expected, rel=5 * (2 / 4000) ** 0.5)
    assert found.mean() == pytest.approx(Y.mean(), abs=5 * (expected / 4000) ** 0.5)


@pytest.mark.parametrize("make", [SGD, NoisyDescent])
def test_one_step_without_replacement_has_the_variance_of_a_finite_population(make):
    found = ends(make(0.3, 30), 1, problem=CONSTANT, start=[0.0], seeds=4000)
    expected = 0.3**2 * VARIANCE * (SAMPLES - 30) / (30 * (SAMPLES - 1))
    assert np.var(found) == pytest.approx(expected, rel=5 * (2 / 4000) ** 0.5)
    assert found.mean() == pytest.approx(0.6 * Y.mean(), abs=5 * (expected / 4000) ** 0.5)


@pytest.mark.slow
def test_label_noise_has_in_every_mode_the_variance_of_the_closed_form():
    eta, deviation = 0.1, 0.7
    values, vectors = np.linalg.eigh(HESSIAN)
    found = (ends(LabelNoiseSGD(eta, SAMPLES, deviation=deviation), 300) - OPTIMUM) @ vectors
    assert_covariance(found, np.diag(2 * eta * deviation**2 / (SAMPLES * (2 - eta * values))))


@pytest.mark.slow
def test_label_noise_moves_the_weights_down_the_trace_of_the_hessian():
    """f = w₁w₂ x fits y = x on the curve w₁w₂ = 1, on which tr H = 2(w₁² + w₂²) is least at w₁ = w₂."""

    class Product(eqx.Module):
        weight: jax.Array

        def __call__(self, x):
            return self.weight[0] * self.weight[1] * x[0]

    problem = flowsim.EmpiricalRisk(np.ones((4, 1)), np.ones(4))
    eta, deviation, steps = 0.05, 0.3, 2000
    run = flowsim.repeat(
        Product(jnp.array([2.0, 0.5])),
        problem,
        optimizer=LabelNoiseSGD(eta, 4, deviation=deviation),
        seeds=range(64),
        steps=steps,
        record_steps=[0],
    )
    found = np.asarray(run.network.weight)
    # A step takes c = w₁² − w₂² to c(1 − η²r²) with r = 2(f − 1 − ε), the mean of whose square is 8σ²/(B(2 − ηλ)) with
    # λ = tr H = 2√(c² + 4): for small ηλ that is the drift −½ησ²/B ∇tr H.
    c = 3.75
    for _ in range(steps):
        c -= 8 * c * eta**2 * deviation**2 / 4 / (2 - 2 * eta * (c**2 + 4) ** 0.5)
    found = np.asarray(run.network.weight)
    assert np.mean(found[:, 0] ** 2 - found[:, 1] ** 2) == pytest.approx(c, rel=0.01)


@pytest.mark.parametrize(
    "optimizer",
    [
        SGD(0.05, 6),
        pytest.param(SGD(0.05, 6, replacement=True, momentum=0.5), marks=pytest.mark.slow),
        pytest.param(LabelNoiseSGD(0.05, 6, deviation=0.4), marks=pytest.mark.slow),
        pytest.param(NoisyDescent(0.05, 6, substeps=2), marks=pytest.mark.slow),
    ],
    ids=["sgd", "momentum", "label noise", "noisy"],
)
def test_repetitions_are_the_runs_with_their_seeds(optimizer):
    network = Linear(jnp.zeros(3))
    options = {"steps": 20, "record_steps": [0, 3, 7, 20], "weights": True}
    many = flowsim.repeat(network, RISK, optimizer=optimizer, seeds=[3, 11], **options)
    assert many.steps.tolist() == [0, 3, 7, 20]
    for row, seed in enumerate([3, 11]):
        seeded = eqx.tree_at(lambda descent: descent.seed, optimizer, np.uint32(seed))
        one = flowsim.descend(network, RISK, optimizer=seeded, stopping=flowsim.Stopping(gradient_norm=None), **options)
        np.testing.assert_allclose(many.weights.weight[row], one.weights.weight, rtol=1e-12)
        np.testing.assert_allclose(many.probes["risk"][row], one.risk, rtol=1e-12)
        np.testing.assert_allclose(many.probes["gradient_norm"][row], one.gradient_norm, rtol=1e-12)
        np.testing.assert_allclose(many.times, one.times, rtol=1e-15)
        np.testing.assert_allclose(many.network.weight[row], one.network.weight, rtol=1e-12)
    np.testing.assert_allclose(many.mean("risk"), many.probes["risk"].mean(0))
    np.testing.assert_allclose(many.standard_error("risk"), np.ptp(many.probes["risk"], axis=0) / 2)


def test_repetitions_that_diverge_say_so():
    run = flowsim.repeat(Linear(jnp.zeros(3)), RISK, optimizer=SGD(3.0, 5), seeds=range(3), steps=400)
    assert (run.outcomes == Outcome.DIVERGED).all()
    assert np.isfinite(run.mean("risk")[0])
    assert np.isnan(run.mean("risk")[-1])
    assert repr(run) == f"Repetitions(3 seeds, {len(run.times)} records, 400 steps, 3 diverged)"
    assert np.nanmax(run.probes["risk"]) < 1e17 * run.probes["risk"][0, 0]


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"optimizer": flowsim.GradientDescent(0.1)}, ValueError, "GradientDescent has no seed"),
        ({"optimizer": "sgd"}, TypeError, "a flowsim.Descent with a seed, got 'sgd'"),
        ({"seeds": []}, ValueError, "seeds must be a list of whole numbers"),
        ({"seeds": [0.5]}, ValueError, "seeds must be a list of whole numbers"),
        ({"seeds": [-1]}, ValueError, "seeds must be a list of whole numbers"),
        ({"steps": 0}, ValueError, "steps must be a whole number"),
        ({"optimizer": SGD(0.1, 50)}, ValueError, "batch=50 is more than the 40 samples"),
        ({"record_steps": [3, 1]}, ValueError, "record_steps must be a list of increasing whole numbers"),
    ],
)
def test_what_cannot_be_repeated_is_refused(change, error, message):
    options = {"optimizer": SGD(0.1, 5), "seeds": range(2), "steps": 3} | change
    with pytest.raises(error, match=message):
        flowsim.repeat(Linear(jnp.zeros(3)), RISK, **options)


def test_momentum_on_all_samples_is_the_heavy_ball():
    options = {"steps": 60, "record_steps": [0, 30, 60]}
    ball = flowsim.descend(Linear(jnp.zeros(3)), RISK, optimizer=flowsim.HeavyBall(0.02, 0.7), **options)
    full = flowsim.descend(Linear(jnp.zeros(3)), RISK, optimizer=SGD(0.02, SAMPLES, momentum=0.7), **options)
    np.testing.assert_allclose(full.network.weight, ball.network.weight, rtol=1e-12)
    np.testing.assert_allclose(full.times, ball.times, rtol=1e-15)


def drawn(substeps, count, seed=5):
    sampler = GaussianWeights(4, seed, True, substeps)
    draw, found = sampler.first(RISK), []
    for _ in range(count):
        found.append(np.asarray(sampler._noise(draw)))
        draw = sampler.next(draw)
    return np.array(found)


def test_more_substeps_refine_one_path_of_the_noise():
    coarse = drawn(1, 2)
    for substeps in (2, 8):
        fine = drawn(substeps, 2 * substeps).reshape(2, substeps, SAMPLES)
        np.testing.assert_allclose(fine.sum(1) / substeps**0.5, coarse, rtol=0, atol=1e-14)
    twice = drawn(8, 16).reshape(2, 4, 2, SAMPLES).sum(2) / 2**0.5
    np.testing.assert_allclose(twice, drawn(4, 8).reshape(2, 4, SAMPLES), rtol=0, atol=1e-14)


@pytest.mark.slow
def test_the_increments_of_the_path_are_independent_and_normal():
    found = np.array([drawn(4, 4, seed) for seed in range(300)]).transpose(1, 0, 2).reshape(4, -1)
    np.testing.assert_allclose(np.cov(found), np.eye(4), rtol=0, atol=5 / found.shape[1] ** 0.5 * 1.5)


@pytest.mark.slow
def test_substeps_approach_the_stochastic_equation_on_its_path():
    """With constant noise the method of Euler and Maruyama is of first order on every path."""

    def end(substeps):
        optimizer = NoisyDescent(0.2, 4, replacement=True, substeps=substeps)
        return ends(optimizer, 10 * substeps, problem=CONSTANT, start=[0.0], seeds=200)

    fine = end(64)
    errors = [np.sqrt(np.mean((end(substeps) - fine) ** 2)) for substeps in (4, 8, 16)]
    orders = np.log2(np.array(errors[:-1]) / errors[1:])
    assert (orders > 0.85).all(), errors


@pytest.mark.slow
@pytest.mark.parametrize("make", [SGD, LabelNoiseSGD, NoisyDescent])
def test_single_precision_follows_double(make):
    single = flowsim.EmpiricalRisk(X.astype(np.float32), Y.astype(np.float32))
    options = {"steps": 40, "record_steps": [40], "optimizer": make(0.05, 6)}
    double = flowsim.descend(Linear(jnp.zeros(3)), RISK, **options)
    found = flowsim.descend(Linear(jnp.zeros(3, jnp.float32)), single, **options)
    assert found.network.weight.dtype == np.float32
    np.testing.assert_allclose(found.network.weight, double.network.weight, rtol=2e-5)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SGD(0.1, 5, momentum=1.0), "momentum must be a number from 0 to below 1"),
        (lambda: SGD(0.1, 5, momentum="x"), "momentum must be a number from 0 to below 1, got 'x'"),
        (lambda: LabelNoiseSGD(0.1, 5, deviation=None), "deviation must be a finite number, zero or more, got None"),
        (lambda: LabelNoiseSGD(0.1, 5, deviation=-1.0), "deviation must be a finite number, zero or more"),
        (lambda: NoisyDescent(0.1, 5, substeps=3), "substeps must be 1, 2, 4 or another power of two, got 3"),
        (lambda: NoisyDescent(0.1, 5, substeps=2, momentum=0.5), "substeps=2 with momentum"),
    ],
)
def test_options_that_cannot_be_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_label_noise_on_classes_is_refused():
    classes = flowsim.EmpiricalRisk(X, np.sign(Y), flowsim.losses.Logistic())
    with pytest.raises(ValueError, match="label noise is added to targets that are numbers"):
        flowsim.descend(Linear(jnp.zeros(3)), classes, optimizer=LabelNoiseSGD(0.1, 5), steps=3)


def test_samples_that_cannot_be_taken_alone_are_refused():
    class Half(flowsim.Problem):
        def __call__(self, network):
            return jnp.sum(network.weight**2)

        def sample_count(self):
            return 10

    for optimizer in (SGD(0.1, 5), NoisyDescent(0.1, 5)):
        with pytest.raises(ValueError, match="Half has samples and no subsample"):
            flowsim.descend(Linear(jnp.ones(3)), Half(), optimizer=optimizer, steps=3)
    with pytest.raises(ValueError, match=r"the weights have shape \(3,\): expected \(40,\), one for each sample"):
        WeightedRisk(RISK, jnp.ones(3))
