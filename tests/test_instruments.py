"""Instruments along a run: each against the dense Hessian, or a closed form."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from jax.tree_util import Partial

import flowsim
from flowsim.columns import read_runs
from flowsim.curvature import Spectrum, dense_hessian, layer_sharpness, spectrum
from flowsim.curvature.hessian import objective_of
from flowsim.networks import ResidualPerceptron, numbered_layers, split
from flowsim.probes import (
    Balancedness,
    CriticalSharpness,
    DirectionalSharpness,
    DistanceTravelled,
    EffectiveRank,
    LayerNorms,
    LayerSharpness,
    Moment,
    Path,
    SingularValues,
    SpectralDensity,
    TangentKernel,
)
from flowsim.sweeps.measures import measure_probes

RATE, STEPS = 0.05, 5
ALONG_A_RUN = (DistanceTravelled(), Balancedness(), Path(), SingularValues(), EffectiveRank(), LayerNorms())
ALONG_A_RUN += (DirectionalSharpness(),)


@pytest.fixture(scope="module")
def risk():
    rng = np.random.default_rng(0)
    return flowsim.EmpiricalRisk(rng.standard_normal((20, 3)), rng.standard_normal(20))


@pytest.fixture(scope="module")
def linear():
    """Two layers of one shape, which are stacked, and a third."""
    rng = np.random.default_rng(3)
    return flowsim.DeepLinear([0.6 * rng.standard_normal(shape) for shape in ((3, 3), (3, 3), (1, 3))])


@pytest.fixture(scope="module")
def hessian(linear, risk):
    return np.asarray(eqx.filter_jit(lambda *given: dense_hessian(*objective_of(*given)))(linear, risk))


@pytest.fixture(scope="module")
def run(linear, risk):
    """A few steps of descent with all instruments that take no eigenvalues."""
    return flowsim.descend(linear, risk, learning_rate=RATE, steps=STEPS, weights=True, probes=ALONG_A_RUN)


class Quadratic(flowsim.Problem):
    """½ wᵀHw + ⟨slope, w⟩ + offset: one program for all of them that are of one size."""

    matrix: np.ndarray
    slope: np.ndarray
    offset: float | np.ndarray = 0.0

    def __call__(self, weights):
        return weights @ self.matrix @ weights / 2 + self.slope @ weights + self.offset


def quadratic(matrix, *, slope=None, offset=0.0):
    matrix = np.asarray(matrix, float)
    return Quadratic(matrix, np.zeros(len(matrix)) if slope is None else slope, np.asarray(offset))


def measured(probes, network, problem):
    """Return the columns of probes, as at the end of a run of a sweep: in one program."""
    return jax.tree.map(np.asarray, measure_probes(tuple(probes), network, problem, np.ones(())))


def flat(network):
    return np.asarray(ravel_pytree(split(network)[0])[0])


SIZE = 30


def estimate(matrix):
    """Return an estimate of the spectrum of ½ wᵀHw, by the same program whatever H is."""
    return spectrum(np.ones(SIZE), quadratic(matrix), exact=False, vectors=60)


@eqx.filter_jit
def _numbers_of(spectrum):
    names = ("trace", "trace_error", "negative", "negative_error")
    return {name: getattr(spectrum, name) for name in names}, spectrum.largest(2)


def numbers_of(spectrum):
    """Return the trace, the number of negative eigenvalues, their errors, and the two largest, in one program."""
    return jax.tree.map(np.asarray, _numbers_of(spectrum))


class TestSpectrum:
    def test_all_eigenvalues_are_those_of_the_dense_hessian(self, linear, risk, hessian):
        found, expected = spectrum(linear, risk), np.linalg.eigvalsh(hessian)
        assert found.exact
        np.testing.assert_allclose(found.nodes[0], expected, atol=1e-12 * np.abs(expected).max())
        numbers, largest = numbers_of(found)
        np.testing.assert_allclose(numbers["trace"], expected.sum(), rtol=1e-10)
        assert numbers["negative"] == pytest.approx((expected < -1e-6 * np.abs(expected).max()).sum())
        assert numbers["negative"] > 0
        assert numbers["trace_error"] == numbers["negative_error"] == 0
        np.testing.assert_allclose(largest, expected[:-3:-1], rtol=1e-10)

    def test_estimates_are_right_within_their_errors(self):
        rng = np.random.default_rng(0)
        columns = np.linalg.qr(rng.standard_normal((SIZE, SIZE)))[0]
        values = np.sort(np.append(rng.uniform(-4, -1, 6), rng.uniform(1, 9, SIZE - 6)))
        found = estimate(columns * values @ columns.T)
        assert not found.exact
        assert found.nodes.shape == (60, SIZE)
        nodes, weights = np.asarray(found.nodes), np.asarray(found.weights)
        np.testing.assert_allclose(weights.sum(axis=1), 1, rtol=1e-12)
        assert np.all(np.abs(nodes[..., None] - values).min(axis=-1) <= np.asarray(found.residuals) + 1e-12)
        numbers, largest = numbers_of(found)
        assert 0 < abs(numbers["trace"] - values.sum()) <= 3 * numbers["trace_error"]
        traces = SIZE * np.sum(weights * nodes, axis=1)
        assert numbers["trace_error"] == pytest.approx(traces.std(ddof=1) / 60**0.5, rel=1e-9)
        assert abs(numbers["negative"] - 6) <= numbers["negative_error"]
        np.testing.assert_allclose(largest, values[:-3:-1], rtol=1e-9)
        squares = SIZE * np.sum(weights * nodes**2, axis=1)
        assert abs(squares.mean() - np.sum(values**2)) < 3 * squares.std(ddof=1) / 60**0.5

    def test_a_density_is_that_of_the_eigenvalues_and_integrates_to_one(self):
        eigenvalues, points = np.array([-1.0, 0.5, 2.0]), np.linspace(-5, 6, 4001)
        nodes = np.stack([eigenvalues, eigenvalues + 1])
        shares, zeros = jnp.asarray(np.full((2, 3), 1 / 3)), jnp.asarray(np.zeros((2, 3)))
        exact = Spectrum(jnp.asarray(nodes[:1]), shares[:1], zeros[:1], size=3, exact=True)
        found = Spectrum(jnp.asarray(nodes), shares, zeros, size=3, exact=False)
        (density, error), (mean, spread) = jax.jit(lambda: [one.density(points, width=0.5) for one in (exact, found)])()
        bells = np.exp(-(((points[:, None, None] - nodes) / 0.5) ** 2) / 2) / 0.5 / np.sqrt(2 * np.pi)
        rows = bells.mean(axis=2)
        np.testing.assert_allclose(density, rows[:, 0], atol=1e-10)
        assert np.trapezoid(density, points) == pytest.approx(1, abs=1e-6)
        assert np.all(np.asarray(error) == 0)
        np.testing.assert_allclose(mean, rows.mean(axis=1), atol=1e-10)
        np.testing.assert_allclose(spread, rows.std(axis=1, ddof=1) / 2**0.5, atol=1e-10)

    def test_an_eigenvalue_that_is_not_certain_is_not_said(self):
        nodes, residuals = [[-1.0, 2.0, 9.0], [-1.0, 4.0, 8.0]], [[0.0, 0.0, 1e-3], [0.0, 1.0, 1.0]]
        two = Spectrum(*map(jnp.asarray, (nodes, np.full((2, 3), 1 / 3), residuals)), size=10, exact=False)
        np.testing.assert_array_equal(jax.jit(lambda: two.largest(7))(), [9.0, np.nan, -1.0])

    def test_estimates_hold_where_lanczos_breaks_down_and_where_nothing_is_known(self, linear, risk):
        direction = np.zeros(SIZE)
        direction[[0, 2]] = 3.0, 4.0
        of_rank_one = estimate(np.outer(direction, direction))
        assert np.isfinite(of_rank_one.nodes).all()
        assert float(np.max(of_rank_one.nodes)) == pytest.approx(25)
        numbers, _ = numbers_of(of_rank_one)
        assert abs(numbers["trace"] - 25) <= 3 * numbers["trace_error"]
        numbers, _ = numbers_of(estimate(np.diag(np.where(np.arange(SIZE) < 3, -1.0, 2.0))))
        assert numbers["negative"] == pytest.approx(3, abs=float(numbers["negative_error"]))
        assert 0 < numbers["negative_error"] < SIZE / 3
        no_numbers = jax.tree.map(lambda leaf: np.full(leaf.shape, np.nan), linear)
        numbers, _ = numbers_of(jax.jit(lambda network: spectrum(network, risk))(no_numbers))  # as along a run
        assert np.isnan([numbers["trace"], numbers["negative"], numbers["negative_error"]]).all()

    @pytest.mark.slow
    def test_its_moments_are_those_of_each_random_vector(self, risk):
        # An m-point quadrature is exact up to the power 2m − 1: the third of two nodes, not the fourth.
        network = flowsim.Perceptron.gaussian(widths=[3, 6, 1], scale=0.7, biases=True, key=jax.random.key(3))
        few, many = (spectrum(network, risk, exact=False, vectors=30, products=m) for m in (2, 12))
        for power, same in ((1, True), (2, True), (3, True), (4, False)):
            one, other = (np.sum(np.asarray(s.weights) * np.asarray(s.nodes) ** power, axis=1) for s in (few, many))
            assert np.allclose(one, other, rtol=1e-9) == same

    @pytest.mark.slow
    def test_a_run_that_diverged_leaves_the_spectrum_of_others_in_view(self):
        from flowsim.report.panels import Spectra, TrajectoryPanels, spectrum_panel

        risk = flowsim.Risk(lambda w: (w[0] * w[1] - 1) ** 2, infimum=0.0)
        asked = {"steps": 60, "records": 20, "probes": [SpectralDensity()]}
        both = flowsim.compare(np.array([3.8, 0.1]), risk, [0.03, 0.3], **asked)
        panels = TrajectoryPanels.of(both.to_dataset())
        assert both.descents[1].trajectory.outcome is flowsim.Outcome.DIVERGED
        assert Spectra.of([run for _, run in panels.keyed_runs]).edges[-1] < 100
        # Of the flow, and of the descent that stays: every bin is counted, none is lifted.
        for curve in spectrum_panel(panels).curves[:2]:
            np.testing.assert_allclose(curve.frames.sum(axis=1), 1)


class TestLayers:
    def test_their_sharpness_is_that_of_blocks_of_the_dense_hessian(self, linear, risk, hessian):
        blocks = [hessian[rows, rows] for rows in (slice(9), slice(9, 18), slice(18, 21))]
        expected = [np.linalg.eigvalsh(block)[-1] for block in blocks]
        np.testing.assert_allclose(layer_sharpness(linear, risk), expected, rtol=1e-9)

    @pytest.mark.slow
    def test_they_are_numbered_from_the_first_to_the_last_and_called_by_their_place_in_other_networks(self):
        key = jax.random.key(3)
        network = ResidualPerceptron.gaussian(features=3, width=4, depth=2, hidden=3, scale=0.5, key=key)
        assert numbered_layers(network).names == ("1", "2", "3", "4")
        convolutional = flowsim.Convolutional.gaussian((1, 4, 4), [2], 1, dense=[3], key=key)
        assert numbered_layers(convolutional).names == ("convolutions[0]", "head.1", "head.2")

    @pytest.mark.parametrize("is_dense", [True, False])
    def test_a_layer_without_positive_curvature_has_its_negative_one(self, is_dense):
        def risk(w):
            across = 5 * w["up"][0] * w["down"][1]  # in the block of no layer
            return jnp.sum(w["up"] ** 2) - np.array([1.0, 2.0, 3.0]) @ w["down"] ** 2 + across

        weights = {"down": np.ones(3), "up": np.ones(2)}
        found = layer_sharpness(weights, flowsim.Risk(risk), dense=is_dense)
        np.testing.assert_allclose(found, [-2.0, 2.0], rtol=1e-10)


class TestMatrices:
    def test_singular_values_effective_ranks_and_norms_are_those_of_numpy(self, linear, run):
        found, matrices = run.diagnostics, [np.asarray(w) for w in linear.weights]
        expected = [np.linalg.svd(matrix, compute_uv=False) for matrix in matrices]
        for row, values in zip(found["singular_values"]["matrices"][0], expected, strict=True):
            np.testing.assert_allclose(row[: len(values)], values)
            assert np.isnan(row[len(values) :]).all()
        product = matrices[2] @ matrices[1] @ matrices[0]
        np.testing.assert_allclose(found["singular_values"]["product"][0], np.linalg.svd(product, compute_uv=False))
        shares = [values / values.sum() for values in expected]
        ranks = [np.exp(-np.sum(p * np.log(p))) for p in shares]
        np.testing.assert_allclose(found["effective_rank"][0], ranks, rtol=1e-9)
        np.testing.assert_allclose(found["layer_norms"][0], [np.linalg.norm(matrix) for matrix in matrices])

    def test_kernels_are_matrices_biases_are_none_and_both_count_in_the_norm_of_a_layer(self):
        rng = np.random.default_rng(0)
        network = {
            "first": {"bias": rng.standard_normal((3, 1, 1)), "kernel": rng.standard_normal((3, 2, 3, 3))},
            "last": {"bias": rng.standard_normal(2), "matrix": np.eye(2, 3)},
            "one": {"matrix": np.ones((3, 3))},
        }
        problem = flowsim.Risk(lambda n: jnp.sum(n["first"]["kernel"]))
        found = measured([SingularValues(), EffectiveRank(), LayerNorms()], network, problem)
        kernel = np.linalg.svd(network["first"]["kernel"].reshape(3, -1), compute_uv=False)
        np.testing.assert_allclose(found["singular_values_matrices"], [kernel, [1, 1, np.nan], [3, 0, 0]], atol=1e-9)
        assert "singular_values_product" not in found
        np.testing.assert_allclose(found["effective_rank"][1:], [2, 1], rtol=1e-6)
        norms = [np.sqrt(sum(np.sum(w**2) for w in layer.values())) for layer in network.values()]
        np.testing.assert_allclose(found["layer_norms"], norms)

    def test_balancedness_drifts_by_the_squares_of_the_steps(self, linear, risk, run):
        # W − ηG changes W_{k+1}ᵀW_{k+1} − W_kW_kᵀ by η²(G_{k+1}ᵀG_{k+1} − G_kG_kᵀ): what is linear in η cancels.
        moved = [np.asarray(w)[:2] for stack in run.weights.stacks for w in np.moveaxis(stack, 1, 0)]
        gradient = [(now - then) / -RATE for now, then in ((w[1], w[0]) for w in moved)]
        changes = [RATE**2 * (a.T @ a - b @ b.T) for b, a in itertools.pairwise(gradient)]
        found = run.diagnostics["balancedness"]
        assert float(found["drift"][0]) == 0
        assert float(found["drift"][1]) == pytest.approx(np.sqrt(sum(np.sum(c**2) for c in changes)), rel=1e-9)
        gaps = [a.T @ a - b @ b.T for b, a in itertools.pairwise(map(np.asarray, linear.weights))]
        assert float(found["gap"][0]) == pytest.approx(np.sqrt(sum(np.sum(g**2) for g in gaps)))

    def test_a_flow_conserves_balancedness(self, mlp, mlp_flow, problem):
        found = measured([Balancedness().begin(mlp)], mlp_flow.network, problem)
        assert 0 < found["balancedness_drift"] < 1e-6 < 0.1 < found["balancedness_gap"]

    def test_a_single_layer_has_no_imbalance(self, risk):
        alone = flowsim.DeepLinear([np.ones((1, 3))])
        columns = measured([Balancedness().begin(alone)], alone, risk)
        assert float(columns["balancedness_gap"]) == float(columns["balancedness_drift"]) == 0


class TestPath:
    def test_the_distance_and_the_path_are_those_from_the_start(self, linear, risk, run):
        start = flat(linear)
        for number in (0, 2, -1):
            here = flat(jax.tree.map(lambda leaf, at=number: leaf[at], run.weights))
            distance = run.diagnostics["distance_travelled"][number]
            assert float(distance) == pytest.approx(np.linalg.norm(here - start))
            np.testing.assert_allclose(run.diagnostics["path"]["weights"][number], here - start, atol=1e-15)
        unknown = measured([DistanceTravelled(), Path(), Balancedness()], linear, risk)
        assert np.isnan(unknown["distance_travelled"])
        assert np.isnan(unknown["path_weights"]).all()
        assert np.isnan(unknown["balancedness_drift"])

    def test_random_directions_keep_the_lengths_and_angles_of_many_weights(self, linear):
        start, problem = np.zeros(4000), flowsim.Risk(lambda w: jnp.sum(w**2))
        points = np.random.default_rng(0).standard_normal((3, 4000))
        rows = [measured([Path(count=2048).begin(start)], point, problem)["path_weights"] for point in points]
        lengths = np.linalg.norm(points, axis=1)
        errors = (np.array(rows) @ np.transpose(rows) - points @ points.T) / np.outer(lengths, lengths)
        assert np.abs(errors).max() < 4 * (2 / 2048) ** 0.5
        few, many = (Path(count=count).begin(linear).label.of("path_weights").symbol for count in (256, 3))
        assert (few, many) == ("", "of 3 random projections")

    def test_components_are_those_of_a_decomposition_of_the_covariance(self):
        from flowsim.report.panels.plane import _components

        points = np.random.default_rng(0).standard_normal((40, 6)) * np.arange(1, 7)
        axes, shares = _components(points, 2)
        values, columns = np.linalg.eigh(np.cov(points.T))
        np.testing.assert_allclose(np.abs(axes @ columns[:, :-3:-1]), np.eye(2), atol=1e-10)
        np.testing.assert_allclose(shares, values[:-3:-1] / values.sum())

    @pytest.mark.slow
    def test_a_quadratic_is_drawn_along_its_sharpest_direction(self):
        run = flowsim.descend(
            np.ones(3), quadratic(np.diag([1.0, 10.0, 2.0])), learning_rate=0.19, steps=20, probes=[Path(sharpest=True)]
        )
        figures = run.figures()
        assert {"plane", "sharpest_plane"} <= figures.keys()
        drawn = next(line for line in figures["sharpest_plane"].axes[0].get_lines() if len(line.get_ydata()) >= 20)
        # From 1 to 0 along the second axis, drawn upwards: W − 1 there is (1 − 10 η)^k − 1 after k steps of descent.
        np.testing.assert_allclose(drawn.get_ydata()[:5], 1 - (1 - 1.9) ** np.arange(5), atol=1e-9)

    @pytest.mark.slow
    def test_a_fork_goes_on_from_the_start_of_its_run(self, linear, risk):
        forks = [flowsim.Fork(5, learning_rate=0.02)]
        asked = {"steps": 10, "probes": [Path(), DistanceTravelled()], "forks": forks}
        runs = read_runs(flowsim.compare(linear, risk, [0.05], **asked).to_dataset()).runs
        fork = next(run for run in runs if run.run.fork)
        parent = next(run for run in runs if run.run.is_descent and not run.run.fork)
        at_fork = np.searchsorted(parent.along("time"), fork.along("time")[0])
        np.testing.assert_allclose(fork.along("path_weights")[0], parent.along("path_weights")[at_fork])
        assert fork.along("distance_travelled")[0] > 0


def test_the_tangent_kernel_is_that_of_the_jacobian(risk):
    network = Partial(lambda weight, x: jnp.tanh(weight @ x), np.array([0.5, -1.0, 0.7]))
    weights, rest = split(network)
    start, unravel = ravel_pytree(weights)

    @jax.jit
    def derivatives(w):
        moved = eqx.combine(unravel(w), rest)
        outputs = jax.jacrev(lambda w: jax.vmap(eqx.combine(unravel(w), rest))(risk.X))(w)
        return outputs, ravel_pytree(split(jax.grad(risk)(moved))[0])[0]

    jacobian, gradient = map(np.asarray, derivatives(start))
    kernel = 2 * jacobian @ jacobian.T / 20  # the second derivative of the mean squared error is 2/n
    values, columns = np.linalg.eigh(kernel)
    found = measured([TangentKernel()], network, risk)
    assert float(found["tangent_kernel_largest"]) == pytest.approx(values[-1], rel=1e-9)
    top = jacobian.T @ columns[:, -1]
    cosine = top @ gradient / np.linalg.norm(top) / np.linalg.norm(gradient)
    assert float(found["tangent_kernel_alignment"]) == pytest.approx(cosine**2, rel=1e-6)


@eqx.filter_jit
def _along_the_step(moment):
    critical = [CriticalSharpness(precision).measure(moment) for precision in (1e-4, 1 / 8)]
    return DirectionalSharpness().measure(moment), *critical


class TestAlongTheStep:
    curvatures = np.array([1.0, 3.0, 10.0])

    def along(self, weights, problem=None, **known):
        """Return the directional sharpness, and the critical one to two precisions."""
        problem = quadratic(np.diag(self.curvatures)) if problem is None else problem
        moment = Moment(np.asarray(weights), problem, None, jnp.asarray(0.0), jnp.asarray(1.0), **known)
        return tuple(map(float, _along_the_step(moment)))

    def test_on_a_quadratic_risk_both_are_a_mean_of_the_eigenvalues(self, run, hessian):
        gradient = self.curvatures * np.array([1.0, -2.0, 0.5])
        expected = gradient @ (self.curvatures * gradient) / (gradient @ gradient)
        directional, fine, coarse = self.along([1.0, -2.0, 0.5])
        assert directional == pytest.approx(expected)
        assert fine == pytest.approx(expected, rel=1e-4)
        assert coarse == pytest.approx(expected, rel=1 / 8)
        assert expected < 10
        step = flat(jax.tree.map(lambda leaf: leaf[1] - leaf[0], run.weights))
        curvature = step @ hessian @ step / (step @ step)
        assert float(run.diagnostics["directional_sharpness"][0]) == pytest.approx(curvature, rel=1e-9)

    def test_along_the_top_eigenvector_both_are_the_sharpness_at_any_length_and_a_preconditioner_counts(self):
        cases = [([0.0, 0.0, length], {}, 10) for length in (1e-6, 1.0, 1e6)]
        for weights, known, expected in [*cases, ([1.0, -2.0, 0.5], {"preconditioner": self.curvatures}, 1)]:
            directional, fine, _ = self.along(weights, **known)
            assert directional == pytest.approx(expected)
            assert fine == pytest.approx(expected, rel=1e-4)

    def test_nothing_is_said_where_nothing_is_known(self):
        assert np.isnan(self.along(np.zeros(3))).all()
        falling = self.along(np.ones(3), quadratic(np.zeros((3, 3)), slope=-np.ones(3)))
        assert np.isnan(falling[1:]).all()
        drowned = self.along(np.full(3, 1e-8), quadratic(np.diag(self.curvatures), offset=1.0))
        assert np.isnan(drowned[1:]).all()
        assert drowned[0] > 1


@pytest.mark.slow
def test_a_run_records_draws_and_shows_them(linear, risk):
    probes = [SpectralDensity(exact=False, vectors=3, products=5), LayerSharpness(), Balancedness()]
    run = flowsim.descend(linear, risk, learning_rate=0.05, steps=30, probes=probes)
    printed, runs = str(run), run.to_dataset()
    assert ("trace" in printed, "nodes" in printed) == (True, False)
    drawn = run.figures()
    assert {"spectrum", "spectrum_trace", "layer_sharpness", "balancedness_drift"} <= set(drawn)
    assert not {"spectrum_nodes", "spectrum_weights"} & set(drawn)
    assert runs["spectrum_nodes"].dims[2:] == ("spectrum_nodes_0", "spectrum_nodes_1")
    assert len(drawn["spectrum"].axes) == 3  # above and below, and the colours
    axes = drawn["layer_sharpness"].axes[0]
    assert "0.05" in axes.get_title()
    assert [label.get_text() for label in axes.get_yticklabels()] == ["1", "2", "3"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SpectralDensity(vectors=0), "vectors is 0"),
        (lambda: SpectralDensity(products=1), "products is 1"),
        (lambda: SpectralDensity(seed=1.5), "seed is 1.5"),
        (lambda: spectrum(np.ones(2), quadratic(np.eye(2)), products=1), "products is 1"),
        (lambda: CriticalSharpness(2), "precision is 2"),
        (lambda: Path(count=1), "count is 1"),
        (lambda: Balancedness().check(flowsim.Perceptron([np.ones((1, 3))]), None), "expected a DeepLinear"),
    ],
)
def test_what_cannot_be_measured_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_bins_hold_every_node_once_and_zero_in_their_middle():
    from flowsim.report.panels.spectrum import _edges, _shares

    nodes = np.array([[[-2.0, -1e-9, 0.0, 3.0]], [[-1.0, 0.0, 1e-9, 5.0]]])
    edges = _edges(-2.0, 5.0, 5e-3, 20)
    shares = _shares(nodes, np.zeros(nodes.shape), np.full(nodes.shape, 0.25), edges)
    np.testing.assert_allclose(shares.sum(axis=-1), 1)
    zero = np.searchsorted(edges, 0.0) - 1
    assert edges[zero] == pytest.approx(-edges[zero + 1])
    np.testing.assert_allclose(shares[:, 0, zero], 0.5)
    assert edges[0] <= -2
    assert edges[-1] >= 5
    spread = _shares(np.array([[[0.0, 4.0]]]), np.array([[[1.0, 3.0]]]), np.full((1, 1, 2), 0.5), np.arange(-2.0, 8.0))
    np.testing.assert_allclose(spread[0, 0], [0, 0.25, 0.25, 0, 0.1, 0.1, 0.1, 0.1, 0.1])


@pytest.mark.slow
def test_probes_in_a_sweep_know_where_runs_began(risk):
    def network(key, scale):
        return flowsim.DeepLinear.gaussian(widths=[3, 3, 1], scale=scale, key=key)

    options = {"repetitions": 2, "steps": 20, "probes": [DistanceTravelled()]}
    dataset = flowsim.sweep(network, risk, {"scale": [0.6], "learning_rate": [0.05]}, **options).dataset
    assert np.all(dataset["initial_distance_travelled"] == 0)
    assert np.all(dataset["final_distance_travelled"] > 0)
