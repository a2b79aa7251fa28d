"""Probes of minibatches and of the noise of gradients, against sums over all batches and closed forms."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import yaml
from jax.tree_util import Partial

import flowsim
from flowsim import SGD
from flowsim.probes import BatchSharpness, GradientNoise, MeanSquareSharpness, Moment, NoiseInteraction, SharpnessGap
from flowsim.scenarios import build, read_scenario

SAMPLES, BATCH = 9, 3
X = np.random.default_rng(0).standard_normal((SAMPLES, 3))
Y = np.tanh(X @ np.array([1.0, -2.0, 0.5])) + 0.3 * np.random.default_rng(1).standard_normal(SAMPLES)


WEIGHT = np.array([0.4, -0.7, 0.2])
NEURON = Partial(lambda weight, x: jnp.tanh(weight @ x), WEIGHT)


@eqx.filter_jit
def _measured(probes, moment):
    return [probe.measure(moment) for probe in probes]


def measured(*probes, problem=None, network=NEURON, rate=None):
    """Return what probes measure, each a number or those of its parts by their names, in one program."""
    problem = flowsim.EmpiricalRisk(X, Y) if problem is None else problem
    known = {"learning_rate": None if rate is None else jnp.asarray(rate)}
    zero = jnp.asarray(0.0)
    return jax.tree.map(float, _measured(probes, Moment(network, problem, None, zero, zero, **known)))


def of_batches(batches):
    """Return gradients and Hessians of the risk of a neuron on batches, by hand."""
    f = np.tanh(X @ WEIGHT)
    slope = 1 - f**2
    gradients = (2 * (f - Y) * slope)[:, None] * X
    hessians = (2 * (slope**2 - (f - Y) * 2 * f * slope))[:, None, None] * X[:, :, None] * X[:, None, :]
    return [
        np.stack([of_samples[list(batch)].mean(axis=0) for batch in batches]) for of_samples in (gradients, hessians)
    ]


@pytest.mark.parametrize("replacement", [False, True])
def test_batch_sharpness_noise_and_interaction_are_means_over_all_batches(replacement):
    everyone = range(SAMPLES)
    drawn = itertools.product(everyone, repeat=BATCH) if replacement else itertools.combinations(everyone, BATCH)
    gradients, hessians = of_batches(list(drawn))
    (mean,), (hessian,) = of_batches([everyone])
    sharpness, noise, interaction = measured(
        *(make(BATCH, replacement=replacement) for make in (BatchSharpness, GradientNoise, NoiseInteraction))
    )
    curvature, squares = np.einsum("bi,bij,bj->b", gradients, hessians, gradients), (gradients**2).sum(1)
    assert sharpness["mean"] == pytest.approx(np.mean(curvature / squares), rel=1e-10)
    assert sharpness["ratio"] == pytest.approx(np.mean(curvature) / np.mean(squares), rel=1e-10)
    assert sharpness["error"] == sharpness["ratio_error"] == 0
    covariance, top = np.cov(gradients.T, ddof=0, bias=True), np.linalg.eigh(hessian)[1][:, -1]
    assert noise["trace"] == pytest.approx(np.trace(covariance), rel=1e-10)
    assert noise["top"] == pytest.approx(top @ covariance @ top, rel=1e-6)
    expected = np.einsum("bi,ij,bj->b", gradients, hessian, gradients).mean() / (mean @ mean)
    assert interaction == {"value": pytest.approx(expected, rel=1e-10), "error": 0}


def radius_in_mean_square(eta, hessians, share):
    """Return the factor by which E_B[(I − ηH_B)C(I − ηH_B)] makes the largest covariance C longer."""
    mean = hessians.mean(0)
    size = len(mean)
    move, off = np.eye(size) - eta * mean, hessians - mean
    columns = [
        (move @ C @ move + eta**2 * share * np.einsum("nij,jk,nkl->il", off, C, off) / len(off)).ravel()
        for C in np.eye(size**2).reshape(-1, size, size)
    ]
    return np.abs(np.linalg.eigvals(np.array(columns))).max()


@pytest.mark.parametrize(("replacement", "outputs"), [(False, 1), pytest.param(True, 2, marks=pytest.mark.slow)])
def test_the_mean_square_sharpness_is_where_the_second_moment_begins_to_grow(replacement, outputs):
    """Of a linear network with one layer, whose Hessian is the Gauss–Newton matrix."""
    problem = flowsim.EmpiricalRisk(X, np.tile(Y[:, None], outputs))
    network = Partial(jnp.matmul, np.full((outputs, 3), 0.5))
    (curvature,) = measured(MeanSquareSharpness(BATCH, replacement=replacement), problem=problem, network=network)
    hessians = np.array([np.kron(np.eye(outputs), 2 * np.outer(x, x)) for x in X])
    share = 1 / BATCH if replacement else (SAMPLES - BATCH) / (BATCH * (SAMPLES - 1))
    assert radius_in_mean_square(2 / curvature, hessians, share) == pytest.approx(1, abs=1e-8)
    assert radius_in_mean_square(2.02 / curvature, hessians, share) > 1.001


@pytest.mark.slow
def test_sgd_on_data_that_can_be_fitted_shrinks_in_the_mean_square_just_below_it_and_grows_just_above():
    x = np.random.default_rng(5).uniform(0.5, 1.5, (12, 1))
    problem, network = flowsim.EmpiricalRisk(x, np.zeros((12, 1))), Partial(jnp.matmul, np.ones((1, 1)))
    (curvature,) = measured(MeanSquareSharpness(2, replacement=True), problem=problem, network=network)
    for ratio, shrinks in ((0.9, True), (1.1, False)):
        optimizer = SGD(2 * ratio / curvature, 2, replacement=True)
        run = flowsim.repeat(network, problem, optimizer=optimizer, seeds=range(2000), steps=12, record_steps=[0])
        assert (run.mean("risk")[-1] < run.mean("risk")[0]) == shrinks


@pytest.mark.slow
def test_a_regression_that_keeps_its_samples_is_drawn_and_probed_as_they_are():
    y = np.stack([Y, Y**2], axis=1)
    network = flowsim.DeepLinear.gaussian(widths=[3, 4, 2], scale=0.5, key=jax.random.key(1))
    probes = [MeanSquareSharpness(BATCH), BatchSharpness(BATCH)]
    options = {"steps": 20, "record_steps": [0, 20], "probes": probes, "stopping": flowsim.Stopping(gradient_norm=None)}
    reduced, plain = (
        flowsim.descend(network, problem, optimizer=flowsim.LabelNoiseSGD(0.05, 3, deviation=0.1), **options)
        for problem in (flowsim.LinearRegression(X, y, keep_samples=True), flowsim.EmpiricalRisk(X, y))
    )
    for one, other in zip(jax.tree.leaves(reduced.network), jax.tree.leaves(plain.network), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)
    np.testing.assert_allclose(reduced.risk, plain.risk, rtol=1e-10)
    assert np.isfinite(reduced.excess_risk).all()
    for one, other in zip(jax.tree.leaves(reduced.diagnostics), jax.tree.leaves(plain.diagnostics), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_a_scenario_of_a_linear_network_keeps_samples_where_they_are_asked_for(tmp_path):
    text = """
data: {kind: gaussian, samples: 20, features: 3}
network: {kind: mlp, depth: 2, scale: 0.5}
descent: {learning_rates: [0.01], steps: 5}
"""
    for change, keeps in (
        ("", False),
        ("descent: {learning_rates: [0.01], steps: 5, optimizer: {kind: sgd, batch: 5}}", True),
        ("record: [{kind: gradient_noise, batch: 5}]", True),
        ("record: [sharpening]", False),
    ):
        sections = yaml.safe_load(text) | (yaml.safe_load(change) or {})
        (tmp_path / "linear.yaml").write_text(yaml.safe_dump(sections))
        problem, _, _ = build(read_scenario(tmp_path / "linear.yaml"), tmp_path)
        assert isinstance(problem, flowsim.LinearRegression)
        assert (problem.sample_count() == 20) == keeps


def many():
    """Return a network, and the risk of 200 samples, of which not all batches are listed."""
    X = np.random.default_rng(2).standard_normal((200, 3))
    y = np.sin(X.sum(1)) + 0.2 * np.random.default_rng(3).standard_normal(200)
    network = flowsim.Perceptron.gaussian(widths=[3, 4, 1], scale=0.5, activation="tanh", key=jax.random.key(1))
    return {"network": network, "problem": flowsim.EmpiricalRisk(X, y[:, None])}


@pytest.mark.slow
def test_intervals_hold_the_mean_as_often_as_they_say():
    """Records at weights that hardly move, each with draws of its own, and the mean of all of them in their midst."""
    probe = BatchSharpness(2, rtol=0.08, draws=4096)
    run = flowsim.descend(**many(), learning_rate=1e-9, steps=199, record_steps=range(200), probes=[probe])
    value, error = (np.asarray(run.diagnostics[probe.label.name][column]) for column in ("mean", "error"))
    (exact,) = measured(BatchSharpness(2, draws=20_000), **many())
    assert exact["error"] == 0
    assert (error > 0).all()
    assert len(set(value.tolist())) == 200
    assert 0.9 <= np.mean(np.abs(value - exact["mean"]) <= error) <= 0.99
    assert (error <= 0.08 * value).all()


@pytest.mark.slow
def test_more_is_drawn_for_a_smaller_tolerance_and_no_more_than_allowed():
    probes = [BatchSharpness(5, rtol=rtol, draws=4096) for rtol in (0.1, 0.02)]
    coarse, fine, few = measured(*probes, BatchSharpness(5, rtol=1e-4, draws=128), **many())
    assert fine["error"] <= 0.02 * fine["mean"] < coarse["error"] <= 0.1 * coarse["mean"]
    assert abs(fine["mean"] - coarse["mean"]) < 2 * coarse["error"]
    assert few["error"] > 0.02 * few["mean"]


class Edge(flowsim.Problem):
    """½yx² + ½κ(y − top)² and ±σx for half of the samples each: S = y at x = 0, where α = κ(top − y), β = 1."""

    pushes: jax.Array
    kappa: float
    top: float

    def __call__(self, weights):
        x, y = weights
        return jnp.mean(self.pushes) * x + y * x**2 / 2 + self.kappa * (y - self.top) ** 2 / 2

    def sample_count(self):
        return len(self.pushes)

    def subsample(self, chosen):
        return Edge(self.pushes[chosen], self.kappa, self.top)


def edge(sigma, kappa=0.02, alpha=0.2):
    """Return the problem with α at the edge of η = 0.1."""
    return Edge(sigma * jnp.array([1.0, -1.0] * 20), kappa, 20 + alpha / kappa)


def test_the_gap_is_taken_at_the_centre_of_the_oscillation_and_unknown_where_nothing_sharpens():
    probe = SharpnessGap(4, replacement=True)
    for x in (0.0, 0.5, -0.5):
        (gap,) = measured(probe, problem=edge(4.0), network=np.array([x, 19.5]), rate=0.1)
        assert gap["predicted"] == pytest.approx(0.1 * 4 / (4 * 0.02 * (30 - 19.5)), rel=1e-4)
        assert gap["measured"] == pytest.approx(0.5, abs=1e-4)
    (beyond,) = measured(probe, problem=edge(4.0), network=np.array([0.1, 31.0]), rate=0.1)
    assert np.isnan(beyond["predicted"])


@pytest.mark.slow
def test_a_gap_is_unknown_without_a_learning_rate():
    (gap,) = measured(SharpnessGap(4), problem=edge(4.0), network=np.array([0.1, 19.0]))
    assert np.isnan(list(gap.values())).all()


@pytest.mark.slow
def test_sgd_comes_to_the_gap_that_is_predicted_where_noise_decides():
    run = flowsim.repeat(
        jnp.array([0.6, 19.5]),
        edge(4.0),
        optimizer=SGD(0.1, 4, replacement=True),
        seeds=range(64),
        steps=15_000,
        record_steps=range(5000, 15_000, 97),
        probes=[SharpnessGap(4, replacement=True)],
    )
    mean = {name: values.mean() for name, values in run.probes["sharpness_gap"].items()}
    assert mean["measured"] == pytest.approx(mean["predicted"], rel=0.1)
    assert mean["predicted"] == pytest.approx(0.48, rel=0.03)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: BatchSharpness(0), "batch must be a number of samples"),
        (lambda: BatchSharpness(3, draws=10), "draws must be a whole number, 64 or more"),
        (lambda: NoiseInteraction(3, rtol=0), "rtol must be a number between 0 and 1"),
        (lambda: GradientNoise(10).check(NEURON, flowsim.EmpiricalRisk(X, Y)), "batch=10 is more than the 9 samples"),
        (lambda: MeanSquareSharpness(4).check(np.array([0.1, 19.0]), edge(1.0)), "no curved_outputs of each"),
        (
            lambda: MeanSquareSharpness(4).check(NEURON, flowsim.EmpiricalRisk(np.ones((2049, 3)), np.ones(2049))),
            "expected at most 2048",
        ),
    ],
)
def test_what_cannot_be_measured_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
