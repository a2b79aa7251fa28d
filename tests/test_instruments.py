"""Instruments along a run: each against the dense Hessian, or a closed form."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import flowsim
from flowsim.cli import main
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
from flowsim.report.figures import figures, pictures
from flowsim.report.maps import layer_figure, spectrum_figure
from flowsim.report.panels import Spectra, TrajectoryPanels, spectrum_panel
from flowsim.report.panels.plane import _components
from flowsim.report.panels.spectrum import _edges, _shares
from flowsim.results import open_results
from flowsim.results.runs import read_runs
from flowsim.sweeps.measures import measure_probes

KEY = jax.random.key(3)
X, Y = np.random.default_rng(0).standard_normal((20, 3)), np.random.default_rng(1).standard_normal(20)
LINEAR = flowsim.DeepLinear.gaussian(widths=[3, 4, 4, 1], scale=0.6, key=KEY)
REGRESSION = flowsim.LinearRegression(X, Y)
SAMPLES = flowsim.EmpiricalRisk(X, Y, loss=flowsim.losses.SquaredError())
PERCEPTRON = flowsim.Perceptron.gaussian(widths=[3, 6, 6, 1], scale=0.7, biases=True, key=KEY)
RESIDUAL = ResidualPerceptron.gaussian(features=3, width=4, depth=2, hidden=3, scale=0.5, key=KEY)
ORDINARY = eqx.nn.MLP(3, "scalar", 5, 2, activation=jnp.tanh, key=KEY)
CONVOLUTIONAL = flowsim.Convolutional.gaussian((1, 4, 4), [2], 1, dense=[3], key=KEY)
IMAGES = flowsim.EmpiricalRisk(np.random.default_rng(2).standard_normal((6, 1, 4, 4)), Y[:6])
NETWORKS = {
    "linear": (LINEAR, REGRESSION, ("1", "2", "3")),
    "perceptron": (PERCEPTRON, SAMPLES, ("1", "2", "3")),
    "residual": (RESIDUAL, SAMPLES, ("1", "2", "3", "4")),
    "ordinary": (ORDINARY, SAMPLES, ("layers[0]", "layers[1]", "layers[2]")),
    "convolutional": (CONVOLUTIONAL, IMAGES, ("convolutions[0]", "head.1", "head.2")),
}


def hessian(network, problem):
    return np.asarray(dense_hessian(*objective_of(network, problem)))


def moment(network, problem, **known):
    weights, rest = split(network)
    gradient = jax.grad(lambda moved: problem.objective(eqx.combine(moved, rest)))(weights)
    norm = jnp.linalg.norm(ravel_pytree(gradient)[0])
    return Moment(network, problem, None, jnp.zeros(()), norm, **known)


def measured(probe, network, problem):
    """Return the columns of a probe, as at the end of a run of a sweep: in one program."""
    return measure_probes((probe,), network, problem, jnp.ones(()))


def gradient_of(network, problem):
    weights, rest = split(network)
    return np.asarray(ravel_pytree(jax.grad(lambda moved: problem(eqx.combine(moved, rest)))(weights))[0])


def layer_of_each_weight(network):
    weights, numbers = split(network)[0], numbered_layers(network).numbers
    wide = jax.tree.map(
        lambda w, n: jnp.broadcast_to(n.reshape(n.shape + (1,) * (w.ndim - n.ndim)), w.shape), weights, numbers
    )
    return np.asarray(ravel_pytree(wide)[0])


class TestSpectrum:
    @pytest.mark.slow
    def test_a_run_that_diverged_leaves_the_spectrum_of_others_in_view(self):
        risk = flowsim.Risk(lambda w: (w[0] * w[1] - 1) ** 2, infimum=0.0)
        both = flowsim.compare(
            jnp.array([3.8, 0.1]), risk, [0.03, 0.3], steps=60, records=20, probes=[SpectralDensity()]
        )
        panels = TrajectoryPanels.of(both.to_dataset())
        panel = spectrum_panel(panels)
        assert both.descents[1].trajectory.outcome is flowsim.Outcome.DIVERGED
        found = Spectra.of([run for _, run in panels.keyed_runs])
        assert found.edges[-1] < 100
        for curve in panel.curves[
            :2
        ]:  # of the flow, and of the descent that stays: every bin is counted, none is lifted
            np.testing.assert_allclose(curve.frames.sum(axis=1), 1)

    @pytest.mark.parametrize("name", ["linear", pytest.param("perceptron", marks=pytest.mark.slow)])
    def test_all_eigenvalues_are_those_of_the_dense_hessian(self, name):
        network, problem, _ = NETWORKS[name]
        found, expected = spectrum(network, problem), np.linalg.eigvalsh(hessian(network, problem))
        assert found.exact
        np.testing.assert_allclose(found.nodes[0], expected, atol=1e-12 * np.abs(expected).max())
        np.testing.assert_allclose(found.trace, expected.sum(), rtol=1e-10)
        assert float(found.negative) == pytest.approx((expected < -1e-6 * np.abs(expected).max()).sum())
        assert float(found.trace_error) == float(found.negative_error) == 0

    @pytest.mark.parametrize("name", ["perceptron", "residual"])
    @pytest.mark.slow
    def test_an_estimate_is_right_within_its_errors(self, name):
        network, problem, _ = NETWORKS[name]
        exact, found = spectrum(network, problem), spectrum(network, problem, exact=False, vectors=40, products=30)
        assert not found.exact
        assert found.nodes.shape == (40, 30)
        np.testing.assert_allclose(found.weights.sum(axis=1), 1, rtol=1e-12)
        assert abs(found.trace - exact.trace) <= 3 * found.trace_error
        assert abs(found.negative - exact.negative) <= found.negative_error
        np.testing.assert_allclose(found.nodes.max(), exact.nodes.max(), rtol=1e-9)
        nearest = np.abs(np.asarray(found.nodes)[..., None] - np.asarray(exact.nodes[0])).min(axis=-1)
        assert np.all(nearest <= np.asarray(found.residuals))
        largest = found.largest(2)
        np.testing.assert_allclose(exact.largest(2), exact.nodes[0, :-3:-1])
        np.testing.assert_allclose(largest[0], exact.nodes.max(), rtol=1e-6)
        assert np.isnan(largest[1]) or np.abs(exact.nodes[0] - largest[1]).min() <= 1e-3 * exact.nodes.max()

    def test_an_eigenvalue_that_is_not_certain_is_not_said(self):
        nodes, weights = jnp.array([[-1.0, 2.0, 9.0], [-1.0, 4.0, 8.0]]), jnp.full((2, 3), 1 / 3)
        residuals = jnp.array([[0.0, 0.0, 1e-3], [0.0, 1.0, 1.0]])
        found = Spectrum(nodes, weights, residuals, size=10, exact=False)
        np.testing.assert_array_equal(found.largest(7), [9.0, np.nan, -1.0])

    @pytest.mark.slow
    def test_its_moments_are_those_of_each_random_vector(self):
        # An m-point quadrature is exact up to the power 2m − 1: the third of two nodes, not the fourth.
        network, problem, _ = NETWORKS["perceptron"]
        matrix = hessian(network, problem)
        few, many = (spectrum(network, problem, exact=False, vectors=30, products=m) for m in (2, 40))
        for power, same in ((1, True), (2, True), (3, True), (4, False)):
            one, other = (np.sum(np.asarray(s.weights) * np.asarray(s.nodes) ** power, axis=1) for s in (few, many))
            assert np.allclose(one, other, rtol=1e-9) == same
        moments = len(matrix) * np.sum(np.asarray(many.weights) * np.asarray(many.nodes) ** 2, axis=1)
        assert abs(moments.mean() - np.sum(matrix**2)) < 3 * moments.std(ddof=1) / 30**0.5

    def test_a_density_is_that_of_the_eigenvalues_and_integrates_to_one(self):
        exact = spectrum(LINEAR, REGRESSION)
        reach = float(jnp.max(jnp.abs(exact.nodes))) * 1.5
        points = np.linspace(-reach, reach, 4001)
        density, error = exact.density(points, width=0.1)
        bells = np.exp(-(((points[:, None] - np.asarray(exact.nodes[0])) / 0.1) ** 2) / 2) / 0.1 / np.sqrt(2 * np.pi)
        np.testing.assert_allclose(density, bells.mean(axis=1), atol=1e-10)
        assert np.trapezoid(density, points) == pytest.approx(1, abs=1e-6)
        assert np.all(np.asarray(error) == 0)
        estimate, error = spectrum(LINEAR, REGRESSION, exact=False, vectors=60).density(points, width=1.0)
        smooth, _ = exact.density(points, width=1.0)
        assert np.mean(np.abs(np.asarray(estimate - smooth)) <= 3 * np.asarray(error) + 1e-9) > 0.97

    def test_a_hessian_of_rank_one_is_found_where_lanczos_breaks_down(self):
        direction = np.array([3.0, 0.0, 4.0])
        problem = flowsim.Risk(lambda w: jnp.square(jnp.dot(direction, w)) / 2)
        found = spectrum(jnp.ones(3), problem, exact=False, vectors=200)
        assert bool(jnp.all(jnp.isfinite(found.nodes)))
        assert float(found.nodes.max()) == pytest.approx(25)
        assert abs(found.trace - 25) <= 3 * found.trace_error

    def test_of_weights_that_are_no_numbers_nothing_is_known(self):
        gone = jax.tree.map(lambda leaf: jnp.full_like(leaf, jnp.nan), LINEAR)
        for exact in (True, False):
            found = spectrum(gone, REGRESSION, exact=exact)
            assert np.isnan([found.trace, found.negative, found.negative_error]).all()

    def test_a_gap_at_zero_tells_the_number_of_negative_eigenvalues(self):
        curvatures = jnp.where(jnp.arange(400) < 40, -1.0, 2.0)
        found = spectrum(jnp.ones(400), flowsim.Risk(lambda w: jnp.dot(curvatures, w**2) / 2), exact=False, vectors=30)
        assert found.negative == pytest.approx(40, abs=float(found.negative_error))

    @pytest.mark.slow
    def test_single_precision_finds_the_same(self):
        network, problem, _ = NETWORKS["perceptron"]
        single = flowsim.networks.cast(network, jnp.float32)
        ours, theirs = (spectrum(one, problem, exact=False, vectors=4) for one in (single, network))
        assert ours.nodes.dtype == ours.trace_error.dtype == jnp.float32
        assert float(ours.trace) == pytest.approx(float(theirs.trace), rel=1e-4)

    @pytest.mark.parametrize(
        ("options", "said"),
        [({"vectors": 0}, "vectors is 0"), ({"products": 1}, "products is 1"), ({"seed": 1.5}, "seed is 1.5")],
    )
    def test_options_that_cannot_be_right_are_refused(self, options, said):
        with pytest.raises(ValueError, match=f"{said}: expected a whole number from"):
            spectrum(LINEAR, REGRESSION, **options)
        with pytest.raises(ValueError, match=said):
            SpectralDensity(**options)


class TestLayers:
    @pytest.mark.parametrize(
        ("name", "dense"),
        [
            ("linear", True),
            ("linear", False),
            *(
                pytest.param(name, False, marks=pytest.mark.slow)
                for name in NETWORKS
                if name not in ("linear", "ordinary")
            ),
        ],
    )
    def test_their_sharpness_is_that_of_blocks_of_the_dense_hessian(self, name, dense):
        network, problem, names = NETWORKS[name]
        matrix, layer = hessian(network, problem), layer_of_each_weight(network)
        assert numbered_layers(network).names == names
        blocks = [matrix[np.ix_(layer == k, layer == k)] for k in range(len(names))]
        expected = [np.linalg.eigvalsh(block)[-1] for block in blocks]
        np.testing.assert_allclose(layer_sharpness(network, problem, dense=dense), expected, rtol=1e-9)

    @pytest.mark.parametrize("dense", [True, False])
    def test_a_layer_without_positive_curvature_has_its_negative_one(self, dense):
        def risk(w):
            return jnp.sum(w["up"] ** 2) - jnp.dot(jnp.array([1.0, 2.0, 3.0]), w["down"] ** 2)

        weights = {"down": jnp.ones(3), "up": jnp.ones(2)}
        found = layer_sharpness(weights, flowsim.Risk(risk), dense=dense)
        np.testing.assert_allclose(found, [-2.0, 2.0], rtol=1e-10)

    def test_their_norms_are_those_of_their_weights(self):
        layer, flat = layer_of_each_weight(PERCEPTRON), np.asarray(ravel_pytree(split(PERCEPTRON)[0])[0])
        expected = [np.linalg.norm(flat[layer == k]) for k in range(3)]
        np.testing.assert_allclose(measured(LayerNorms(), PERCEPTRON, SAMPLES)["layer_norms"], expected)


class TestMatrices:
    def test_singular_values_are_those_of_numpy(self):
        found = measured(SingularValues(), LINEAR, REGRESSION)
        matrices = [np.asarray(w) for w in LINEAR.weights]
        for row, matrix in zip(found["singular_values_matrices"], matrices, strict=True):
            expected = np.linalg.svd(matrix, compute_uv=False)
            np.testing.assert_allclose(row[: len(expected)], expected)
            assert np.isnan(row[len(expected) :]).all()
        product = matrices[2] @ matrices[1] @ matrices[0]
        np.testing.assert_allclose(found["singular_values_product"], np.linalg.svd(product, compute_uv=False))

    def test_a_residual_network_has_those_of_all_its_matrices(self):
        found = measured(SingularValues(), RESIDUAL, SAMPLES)
        assert found.keys() == {"singular_values_matrices"}
        assert found["singular_values_matrices"].shape == (6, 3)

    def test_kernels_are_matrices_and_biases_are_none(self):
        network = eqx.nn.Conv2d(2, 3, 3, key=KEY)  # its bias is (3, 1, 1)
        found = measured(SingularValues(), network, flowsim.Risk(lambda n: jnp.sum(n.weight)))
        expected = np.linalg.svd(np.asarray(network.weight).reshape(3, -1), compute_uv=False)
        np.testing.assert_allclose(found["singular_values_matrices"], expected[None])
        inner = measured(SingularValues(), CONVOLUTIONAL, IMAGES)["singular_values_matrices"]
        assert inner.shape[0] == 3  # the kernels, and two layers of the head

    def test_effective_rank_counts_equal_singular_values(self):
        network = flowsim.DeepLinear([2.0 * np.eye(4), np.ones((4, 4)), np.diag([1.0, 1.0, 0.0, 0.0])])
        found = measured(EffectiveRank(), network, flowsim.Risk(lambda n: jnp.sum(n.weights[0])))
        np.testing.assert_allclose(found["effective_rank"], [4, 1, 2], rtol=1e-6)

    def test_balancedness_drifts_by_the_squares_of_the_steps(self):
        # W − ηG changes W_{k+1}ᵀW_{k+1} − W_kW_kᵀ by η²(G_{k+1}ᵀG_{k+1} − G_kG_kᵀ): what is linear in η cancels.
        rate = 0.05
        gradient = jax.grad(lambda network: REGRESSION.objective(network))(LINEAR).weights
        moved = flowsim.descend(LINEAR, REGRESSION, learning_rate=rate, steps=1, probes=[Balancedness()])
        changes = [rate**2 * (a.T @ a - b @ b.T) for b, a in itertools.pairwise(gradient)]
        drift = moved.diagnostics["balancedness"]["drift"]
        assert float(drift[0]) == 0
        assert float(drift[1]) == pytest.approx(np.sqrt(sum(np.sum(np.square(c)) for c in changes)), rel=1e-9)
        gaps = [a.T @ a - b @ b.T for b, a in zip(LINEAR.weights, LINEAR.weights[1:], strict=False)]
        gap = float(moved.diagnostics["balancedness"]["gap"][0])
        assert gap == pytest.approx(np.sqrt(sum(np.sum(np.square(g)) for g in gaps)))

    def test_a_flow_conserves_balancedness_and_a_single_layer_has_none(self):
        flow = flowsim.integrate(LINEAR, REGRESSION, rtol=1e-8, probes=[Balancedness()])
        assert 0 < float(flow.diagnostics["balancedness"]["drift"][-1]) < 1e-6
        alone = flowsim.DeepLinear([np.ones((1, 3))])
        found = measured(Balancedness().begin(alone), alone, REGRESSION)
        assert float(found["balancedness_gap"]) == float(found["balancedness_drift"]) == 0
        assert np.isnan(measured(Balancedness(), LINEAR, REGRESSION)["balancedness_drift"])
        with pytest.raises(ValueError, match="expected a DeepLinear"):
            Balancedness().check(PERCEPTRON, SAMPLES)


def test_the_distance_travelled_is_that_to_the_start():
    run = flowsim.integrate(LINEAR, REGRESSION, weights=True, probes=[DistanceTravelled()])
    start = np.asarray(ravel_pytree(LINEAR)[0])
    for number in (0, 5, -1):
        here = ravel_pytree(jax.tree.map(lambda leaf, at=number: leaf[at], split(run.weights)[0]))[0]
        assert float(run.diagnostics["distance_travelled"][number]) == pytest.approx(np.linalg.norm(here - start))
    assert np.isnan(measured(DistanceTravelled(), LINEAR, REGRESSION)["distance_travelled"])


@pytest.mark.parametrize(
    "name", ["linear", *(pytest.param(name, marks=pytest.mark.slow) for name in ("perceptron", "ordinary"))]
)
def test_the_tangent_kernel_is_that_of_the_jacobian(name):
    network, _, _ = NETWORKS[name]
    weights, rest = split(network)
    flat, unravel = ravel_pytree(weights)
    jacobian = np.asarray(jax.jacrev(lambda w: jax.vmap(eqx.combine(unravel(w), rest))(jnp.asarray(X)))(flat))
    kernel = 2 * jacobian @ jacobian.T / len(X)  # the second derivative of the mean squared error is 2/n
    values, columns = np.linalg.eigh(kernel)
    found = measured(TangentKernel(), network, SAMPLES)
    assert float(found["tangent_kernel_largest"]) == pytest.approx(values[-1], rel=1e-9)
    top, gradient = jacobian.T @ columns[:, -1], gradient_of(network, SAMPLES)
    cosine = top @ gradient / np.linalg.norm(top) / np.linalg.norm(gradient)
    assert float(found["tangent_kernel_alignment"]) == pytest.approx(cosine**2, rel=1e-6)


class TestAlongTheStep:
    curvatures = np.array([1.0, 3.0, 10.0])

    def quadratic(self, offset=0.0):
        return flowsim.Risk(lambda w: jnp.dot(self.curvatures, w**2) / 2 + offset)

    def test_on_a_quadratic_risk_both_are_a_mean_of_the_eigenvalues(self):
        here = moment(jnp.array([1.0, -2.0, 0.5]), self.quadratic())
        gradient = self.curvatures * np.array([1.0, -2.0, 0.5])
        expected = gradient @ (self.curvatures * gradient) / (gradient @ gradient)
        assert float(DirectionalSharpness().measure(here)) == pytest.approx(expected)
        for precision in (1 / 8, 1e-3):
            found = float(CriticalSharpness(precision).measure(here))
            assert found == pytest.approx(expected, rel=precision)
        assert expected < 10

    def test_along_the_top_eigenvector_both_are_the_sharpness_whatever_the_first_try(self):
        for rate in (None, 1e-9, 0.2, 1e6):
            here = moment(jnp.array([0.0, 0.0, 1.0]), self.quadratic(), learning_rate=rate and jnp.asarray(rate))
            assert float(CriticalSharpness(1e-4).measure(here)) == pytest.approx(10, rel=1e-4)

    def test_a_preconditioner_counts(self):
        known = {"preconditioner": jnp.asarray(self.curvatures)}
        here = moment(jnp.array([1.0, -2.0, 0.5]), self.quadratic(), **known)
        assert float(DirectionalSharpness().measure(here)) == pytest.approx(1)
        assert float(CriticalSharpness(1e-4).measure(here)) == pytest.approx(1, rel=1e-4)

    def test_nothing_is_said_where_nothing_is_known(self):
        resting = moment(jnp.zeros(3), self.quadratic())
        assert np.isnan(CriticalSharpness().measure(resting))
        assert np.isnan(DirectionalSharpness().measure(resting))
        falling = moment(jnp.ones(2), flowsim.Risk(lambda w: -jnp.sum(w)))
        assert np.isnan(CriticalSharpness().measure(falling))
        drowned = moment(1e-8 * jnp.ones(3), self.quadratic(offset=1.0))
        assert np.isnan(CriticalSharpness().measure(drowned))
        assert float(DirectionalSharpness().measure(drowned)) > 1
        with pytest.raises(ValueError, match="precision is 2"):
            CriticalSharpness(2)


SCENARIO = """
# Instruments
data: {kind: gaussian, samples: 20, features: 3}
network: {kind: mlp, depth: 3, width: 4, scale: 0.6}
descent: {learning_rates: [0.1], steps: 30}
record:
- {kind: spectrum, exact: false, vectors: 3, products: 5}
- layer_sharpness
- singular_values
- effective_rank
- layer_norms
- balancedness
- distance_travelled
- tangent_kernel
- critical_sharpness
- directional_sharpness
"""


@pytest.mark.slow
def test_a_scenario_records_draws_and_shows_them(tmp_path, capsys):
    (tmp_path / "s.yaml").write_text(SCENARIO, encoding="utf-8")
    main([str(tmp_path / "s.yaml"), "--out", str(tmp_path / "out")])
    printed, said = capsys.readouterr()
    assert said == ""
    assert "trace" in printed
    assert "nodes" not in printed
    folder = tmp_path / "out" / "s"
    drawn = {path.stem for path in (folder / "figures").glob("*.png")}
    assert {"spectrum", "spectrum_trace", "layer_sharpness", "effective_rank", "balancedness_drift"} <= drawn
    assert not {"spectrum_nodes", "spectrum_weights"} & drawn
    runs = open_results(folder).trajectories
    assert runs["spectrum_nodes"].dims[2:] == ("spectrum_nodes_0", "spectrum_nodes_1")
    assert runs["layer_sharpness"].attrs["drawn"] == "layers"
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "spectrum: <a" in page
    assert "layer_sharpness: <a" in page
    assert len(spectrum_figure(runs).axes) == 5  # two runs, above and below, and the colours
    assert layer_figure(runs, "layer_sharpness").axes[0].get_title() == "GF"


def test_what_cannot_be_recorded_of_a_network_is_refused(tmp_path, capsys):
    (tmp_path / "s.yaml").write_text(SCENARIO, encoding="utf-8")
    own = ["--set", "network.activation=gelu", "--set", "record=[balancedness]"]
    assert main([str(tmp_path / "s.yaml"), "--out", str(tmp_path / "out"), *own]) == 2
    assert "record: balancedness: the network is a Perceptron: expected a DeepLinear" in capsys.readouterr().err
    assert not (tmp_path / "out" / "s" / "trajectories.nc").exists()


@pytest.mark.slow
def test_a_map_has_the_names_of_the_layers():
    network = eqx.nn.MLP(3, "scalar", 4, 1, jnp.tanh, key=jax.random.key(0))
    samples = flowsim.EmpiricalRisk(X, Y, flowsim.losses.SquaredError())
    found = flowsim.compare(network, samples, [0.05], steps=3, probes=[LayerNorms()]).to_dataset()
    labels = layer_figure(found, "layer_norms").axes[0].get_yticklabels()
    assert [label.get_text() for label in labels] == ["layers[0]", "layers[1]"]


def test_bins_hold_every_node_once_and_zero_in_their_middle():
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
def test_probes_in_a_sweep_know_where_runs_began():
    def network(key, scale):
        return flowsim.DeepLinear.gaussian(widths=[3, 3, 1], scale=scale, key=key)

    asked = {"repetitions": 2, "steps": 20, "probes": [DistanceTravelled(), LayerSharpness()]}
    found = flowsim.sweep(network, REGRESSION, {"scale": [0.6], "learning_rate": [0.05]}, **asked).dataset
    assert np.all(found["initial_distance_travelled"] == 0)
    assert np.all(found["final_distance_travelled"] > 0)
    assert found["final_layer_sharpness"].shape[-1] == 2


@pytest.mark.slow
def test_the_critical_sharpness_is_s_at_the_edge_and_not_below_it(tmp_path):
    edge = "scenarios/edge_of_stability.yaml"
    asked = ["--set", "flow={}", "--set", "descent.steps=2000", "--set", "record=[critical_sharpness]"]
    main([edge, "--out", str(tmp_path), *asked])
    runs = read_runs(open_results(tmp_path / "edge_of_stability").trajectories).runs
    ratios = [run.along("critical_sharpness") / run.along("sharpness") for run in runs]
    flow, below, edge = (ratio[-1] for ratio in ratios)
    assert max(flow, below) < 0.07
    assert edge == pytest.approx(1, abs=0.03)
    assert 2.5 < np.nanmax(ratios[0]) < 3.5


class TestPath:
    def test_few_weights_are_recorded_as_they_are(self):
        run = flowsim.descend(LINEAR, REGRESSION, learning_rate=0.05, steps=5, weights=True, probes=[Path()])
        found = run.diagnostics["path"]["weights"]
        start = np.asarray(ravel_pytree(LINEAR)[0])
        last = np.asarray(ravel_pytree(jax.tree.map(lambda leaf: leaf[-1], split(run.weights)[0]))[0])
        np.testing.assert_allclose(found[-1], last - start)
        assert np.all(np.asarray(found[0]) == 0)

    def test_of_many_random_directions_keep_lengths_and_angles(self):
        start, problem = jnp.zeros(4000), flowsim.Risk(lambda w: jnp.sum(w**2))
        points = np.random.default_rng(0).standard_normal((3, 4000))
        found = [measured(Path(count=2048).begin(start), jnp.asarray(p), problem)["path_weights"] for p in points]
        for one, theirs in zip(points, found, strict=True):
            for other, beside in zip(points, found, strict=True):
                size = np.linalg.norm(one) * np.linalg.norm(other)
                assert abs(theirs @ beside - one @ other) / size < 4 * (2 / 2048) ** 0.5

    def test_the_label_of_projected_weights_says_so(self):
        few, many = (Path(count=count).begin(LINEAR).label.of("path_weights").symbol for count in (256, 3))
        assert (few, many) == ("", "of 3 random projections")

    def test_components_are_those_of_a_decomposition_of_the_covariance(self):
        points = np.random.default_rng(0).standard_normal((40, 6)) * np.arange(1, 7)
        axes, shares = _components(points, 2)
        values, columns = np.linalg.eigh(np.cov(points.T))
        np.testing.assert_allclose(np.abs(axes @ columns[:, :-3:-1]), np.eye(2), atol=1e-10)
        np.testing.assert_allclose(shares, values[:-3:-1] / values.sum())

    @pytest.mark.slow
    def test_a_quadratic_is_drawn_along_its_sharpest_direction(self):
        def risk(w):
            return jnp.dot(jnp.array([1.0, 10.0, 2.0]), w**2) / 2

        both = flowsim.compare(jnp.ones(3), flowsim.Risk(risk), [0.19], steps=20, probes=[Path(sharpest=True)])
        figures = both.figures()
        assert {"plane", "sharpest_plane"} <= figures.keys()
        flow, _, descent, *_ = figures["sharpest_plane"].axes[0].get_lines()
        assert flow.get_ydata()[0] == pytest.approx(0)
        assert flow.get_ydata()[-1] == pytest.approx(1, abs=1e-6)  # from 1 to 0 along the second axis, drawn upwards
        # W − 1 there is (1 − 10 η)^k − 1 after k steps of descent.
        np.testing.assert_allclose(descent.get_ydata()[:5], 1 - (1 - 1.9) ** np.arange(5), atol=1e-9)

    @pytest.mark.slow
    def test_a_fork_goes_on_from_the_start_of_its_run(self):
        forks = [flowsim.Fork(5, learning_rate=0.02)]
        asked = {"steps": 10, "probes": [Path(), DistanceTravelled()], "forks": forks}
        both = flowsim.compare(LINEAR, REGRESSION, [0.05], **asked)
        runs = read_runs(both.to_dataset()).runs
        fork = next(run for run in runs if run.run.fork)
        parent = next(run for run in runs if run.run.is_descent and not run.run.fork)
        at_fork = np.searchsorted(parent.along("time"), fork.along("time")[0])
        np.testing.assert_allclose(fork.along("path_weights")[0], parent.along("path_weights")[at_fork])
        assert fork.along("distance_travelled")[0] > 0

    @pytest.mark.slow
    def test_where_nothing_is_finite_there_is_no_figure(self):
        found = flowsim.compare(LINEAR, REGRESSION, [0.05], steps=3).to_dataset()
        known = ("path_weights", "nothing"), ("path_sharpest", "nothing"), ("spectrum_nodes", "nothing")
        for name, drawn in (*known, ("layer_sharpness", "layers")):
            gone = np.full((*found["time"].shape, 5), np.nan)
            attributes = {"long_name": name, "symbol": name, "logarithmic": 1, "drawn": drawn}
            found[name] = ("run", "record", f"{name}_0"), gone, attributes
        assert not {"plane", "sharpest_plane", "spectrum", "layer_sharpness"} & figures(found).keys()
        assert "layer_sharpness" in pictures(found)  # the page leaves out what is not drawn

    def test_options_that_cannot_be_right_are_refused(self):
        with pytest.raises(ValueError, match="count is 1: expected"):
            Path(count=1)
