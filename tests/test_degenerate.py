"""Degenerate and half-stable limits, and flows from small starts, against closed forms."""

import dataclasses

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.integrate import solve_ivp

import flowsim
from flowsim import DeepLinear, EmpiricalRisk, LinearRegression, Outcome, Risk
from flowsim.solvers import HessianExtrapolation, LowRankExtrapolation, StabilitySwitching


class Valley(eqx.Module):
    """A risk of x, y and z whose terms are data: powers of x along the floor y = 1 + `bent`·x² of a `stiff` valley.

    `product` is that of x²z², and `saddle` curves downwards in z.
    """

    cubic: jax.Array
    quartic: jax.Array
    sextic: jax.Array
    twentieth: jax.Array
    product: jax.Array
    saddle: jax.Array
    stiff: jax.Array
    bent: jax.Array

    def __call__(self, weights):
        x, y, z = weights
        powers = self.cubic * x**3 + self.quartic * x**4 + self.sextic * x**6 + self.twentieth * x**20
        across = self.stiff * (y - 1 - self.bent * x**2) ** 2
        return powers + self.product * (x * z) ** 2 - self.saddle * z**2 + across


def valley(dtype, **terms):
    names = [field.name for field in dataclasses.fields(Valley)]
    return Risk(Valley(*(jnp.asarray(terms.get(name, 0), dtype) for name in names)))


# The start, the terms of the risk, the outcome, and the order of the limit (0, 1, 0).
LIMITS = {
    "a quartic": ([1, 1, 0], {"quartic": 1}, Outcome.CONVERGED, 4),
    "a quartic beside a stiff direction": ([1, 0, 0], {"quartic": 1, "stiff": 100}, Outcome.CONVERGED, 4),
    "a quartic from near by": ([0.126, -0.132, 0], {"quartic": 1, "stiff": 100}, Outcome.CONVERGED, 4),
    "a quartic in a bent valley": ([1, 1, 0], {"quartic": 1, "stiff": 30, "bent": 1}, Outcome.CONVERGED, 4),
    "a sextic": ([1, 0, 0], {"sextic": 1, "stiff": 1}, Outcome.CONVERGED, 6),
    "two weights of one product": ([1, 0, 1], {"product": 1, "stiff": 100}, Outcome.CONVERGED, 4),
    "a half-stable cubic": ([1, 0, 0], {"cubic": 1, "quartic": 1, "stiff": 100}, Outcome.STATIONARY, 3),
    "a half-stable cubic alone": ([1, 1, 0], {"cubic": 1, "quartic": 1}, Outcome.STATIONARY, 3),
    "a quartic above a saddle": ([1, 0, 0], {"quartic": 1, "saddle": 1, "stiff": 1}, Outcome.STATIONARY, 4),
}


# In float32 rounding tells two weights of one product apart, and hides 1e-6 beside a floor at one.
@pytest.mark.parametrize(
    ("case", "dtype"),
    [(case, jnp.float64) for case in LIMITS]
    + [(case, jnp.float32) for case in LIMITS if "product" not in case and "bent" not in case],
)
@pytest.mark.filterwarnings("ignore:the weights are float32")
def test_a_degenerate_limit_is_certified_with_its_order(case, dtype):
    start, terms, outcome, order = LIMITS[case]
    start = jnp.array(start, dtype)
    flow = flowsim.integrate(start, valley(dtype, **terms), ts=[], max_steps=3000)
    assert flow.outcome == outcome
    # It counts where the ratio of the Newton steps, (k−2)/(k−1), is steady to a tenth of 1/(k−1).
    assert_allclose(flow.order, order, atol=0.1 * (order - 1))
    limit = np.array([0, 1, 0])
    remaining = 1e-6 if dtype == jnp.float64 else 1e-3
    assert np.linalg.norm(flow.network - limit) <= 1.1 * remaining * np.linalg.norm(start - limit)


@pytest.mark.filterwarnings("ignore:the weights are float32")
def test_a_direction_along_which_the_risk_is_constant_hides_no_half_stable_limit():
    # In the highest precision its slope is rounding of the eigenvector, and so is its curvature.
    turn = np.linalg.qr(np.random.default_rng(3).standard_normal((3, 3)))[0].astype(np.float32)
    turned = valley(jnp.float32, cubic=1, quartic=1, stiff=100).function
    flow = flowsim.integrate(
        jnp.asarray(turn.T @ [1, 0, 0], jnp.float32),
        Risk(lambda w: turned(jnp.asarray(turn, w.dtype) @ w)),
        ts=[],
        max_steps=1000,
    )
    assert flow.outcome == Outcome.STATIONARY
    assert_allclose(flow.order, 3, atol=0.1)
    assert_allclose(turn[0] @ flow.network, 0, atol=1.1e-3)


@pytest.mark.parametrize("order", [4, 6, 20])
def test_a_flow_comes_to_a_degenerate_minimum_at_the_time_that_the_algebra_gives(order):
    names = {4: "quartic", 6: "sextic", 20: "twentieth"}
    flow = flowsim.integrate(jnp.array([1.0, 0, 0]), valley(float, **{names[order]: 1}, stiff=1), ts=[], max_steps=3000)
    assert flow.outcome == Outcome.CONVERGED
    x = float(flow.network[0])
    # From x' = −k x^(k−1).
    assert_allclose(float(flow.time), (x ** (2 - order) - 1) / (order * (order - 2)), rtol=1e-4)


def test_the_order_of_a_minimum_is_said_below_the_table():
    flow = flowsim.integrate(jnp.array([1.0, 0, 0]), valley(float, quartic=1, stiff=1), ts=[], max_steps=3000)
    assert "The risk is flat to order 4 at the limit: the flow approaches it like t^(−1/2)" in str(flow)
    ordinary = flowsim.integrate(jnp.array([1.0, 0, 0]), valley(float, stiff=1), ts=[])
    assert ordinary.order == 2
    assert "flat to order" not in str(ordinary)


class Squares(eqx.Module):
    weights: jax.Array

    def __call__(self, x):
        return jnp.dot(self.weights**2, x)


def test_a_sparse_diagonal_network_comes_to_least_squares_on_noisy_data():
    rng = np.random.default_rng(4)
    X, noise = rng.standard_normal((20, 3)), rng.standard_normal(20)
    noise -= X @ np.linalg.lstsq(X, noise, rcond=None)[0]
    problem = EmpiricalRisk(X, X @ np.array([1, 0, 0.5]) + 0.3 * noise)
    flow = flowsim.integrate(Squares(jnp.array([0.7, 0.6, 0.5])), problem, ts=[], max_steps=1000)
    assert flow.outcome == Outcome.CONVERGED
    assert_allclose(flow.order, 4, rtol=0.02)
    assert_allclose(flow.network.weights, [1, 0, 0.5**0.5], atol=1e-6)


@pytest.mark.parametrize("problem", [LinearRegression, EmpiricalRisk])
def test_layers_come_to_an_optimum_of_lower_rank_long_after_their_product(problem):
    X = 10**0.5 * np.linalg.qr(np.random.default_rng(0).standard_normal((10, 2)))[0]
    layer = np.diag([0.8, 1.0])
    flow = flowsim.integrate(DeepLinear([layer] * 2), problem(X, X @ np.diag([1.0, 0.0])), ts=[], max_steps=1000)
    assert flow.outcome == Outcome.CONVERGED
    assert_allclose(flow.order, 4, rtol=1e-3)
    off, way = (
        np.linalg.norm([layer - np.diag([1.0, 0.0]) for layer in ends]) for ends in (flow.network.weights, [layer] * 2)
    )
    assert off <= 1.1e-6 * way


SCALES = [1e-6, 1e-10, 3e-15]
SOLVERS = {"default": None, "explicit": StabilitySwitching(), "Hessian": HessianExtrapolation()}


def in_the_middle_of_a_jump(scale):
    """Return a time, and both layers of a balanced product then: u' = 2u(1 − u) for u = w₁w₂."""
    t = np.log(1 / scale)
    return t, (1 / (1 + (scale**-2 - 1) * np.exp(-2 * t))) ** 0.5


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("solver", SOLVERS)
def test_a_small_start_beside_a_stiff_direction_jumps_at_the_right_time(solver, scale):
    problem = Risk(lambda w: (w[0] * w[1] - 1) ** 2 / 2 + 5 * (w[2] - 1) ** 2)
    t, weight = in_the_middle_of_a_jump(scale)
    start = jnp.array([scale, scale, 0])
    flow = flowsim.integrate(start, problem, t1=t, ts=[], solver=SOLVERS[solver])
    assert_allclose(flow.network, [weight, weight, 1], rtol=1e-5)
    assert flow.loosened == 1


@pytest.mark.parametrize("rtol", [1e-4, 1e-6])
@pytest.mark.parametrize("solver", ["default", "explicit"])
@pytest.mark.parametrize("third", ["arrives", "drifts", "decays"])
def test_errors_of_stabilized_steps_do_not_add_up_in_a_long_growth(third, solver, rtol):
    # Beside a curvature of 40 steps are of order four, with what else moves or without. They erred by 45 to 80·rtol.
    aim, rate = {"arrives": (1, 0.0), "drifts": (1, 0.1), "decays": (0, 0.0)}[third]

    def objective(w):
        return (w[0] * w[1] - 1) ** 2 / 2 + 20 * (w[2] - aim) ** 2 + rate / 2 * (w[3] - 1) ** 2

    t, weight = in_the_middle_of_a_jump(3e-15)
    start = jnp.array([3e-15, 3e-15, 0 if aim else 3e-15, 0])
    flow = flowsim.integrate(start, Risk(objective), t1=t, ts=[], solver=SOLVERS[solver], rtol=rtol)
    assert_allclose(flow.network[:2], [weight, weight], rtol=10 * rtol)


@pytest.mark.parametrize("dtype", [jnp.float64, jnp.float32])
@pytest.mark.parametrize("model", [flowsim.CentralFlow(0.05), flowsim.EdgeFlow(0.05, order=1)], ids=["central", "edge"])
@pytest.mark.filterwarnings("ignore:the weights are float32")
def test_a_model_of_descent_jumps_from_a_small_start_when_the_gradient_flow_does(model, dtype):
    # Below the edge at 2/η = 40 they are one. Rounding of the stiff eigenvector is large beside these weights.
    problem = Risk(lambda w: (w[0] * w[1] - 1) ** 2 / 2 + 5 * (w[2] - 1) ** 2)
    t, weight = in_the_middle_of_a_jump(3e-15)
    flow = flowsim.integrate(jnp.array([3e-15, 3e-15, 0], dtype), problem, model=model, t1=t, ts=[])
    assert_allclose(flow.network, [weight, weight, 1], rtol=1e-3)


def test_an_error_estimate_that_passes_zero_in_the_middle_of_a_jump_is_not_believed():
    # The last step is cut where the weights turn from growth to saturation.
    scale = 1e-10
    problem = Risk(lambda w: (w[0] * w[1] - 1) ** 2 / 2 + 300 * (w[2] - 1) ** 2)
    t, weight = in_the_middle_of_a_jump(scale)
    flow = flowsim.integrate(jnp.array([scale, scale, 0]), problem, t1=t, ts=[])
    assert_allclose(flow.network, [weight, weight, 1], rtol=1e-5)


def test_a_weight_that_decays_for_long_grows_again_at_the_right_time():
    # p moves slowly from 0 to 1, and z decays while p < ½. An error of p counts in log z for some 70 units of time.
    problem = Risk(lambda w: 0.005 * (1 - w[0]) ** 2 + w[1] ** 2 * (0.5 - w[0]) / 2 + w[1] ** 4 / 4)

    def slopes(_, state):
        p, logarithm = state
        square = np.exp(2 * logarithm)
        return [0.01 * (1 - p) + square / 2, p - 0.5 - square]

    begin = [0, np.log(1e-3)]
    reference = solve_ivp(slopes, (0, 165), begin, method="LSODA", rtol=1e-12, atol=1e-14).y[:, -1]
    flow = flowsim.integrate(jnp.array([0, 1e-3]), problem, t1=165.0, ts=[])
    assert_allclose(flow.network, [reference[0], np.exp(reference[1])], rtol=1e-4)


@pytest.mark.parametrize(("dtype", "scale"), [(jnp.float64, 1e-25), (jnp.float32, 3e-15)])
@pytest.mark.filterwarnings("ignore:the weights are float32")
def test_small_weights_that_grow_below_the_rounding_of_a_neighbour_are_not_at_rest(dtype, scale):
    problem = Risk(lambda w: (w[0] * w[1] - 1) ** 2 / 2 + 5 * (w[2] - 1) ** 2)
    start = jnp.array([scale, scale, 1], dtype)
    flow = flowsim.integrate(start, problem, ts=[], max_steps=1000)
    assert flow.outcome == Outcome.CONVERGED
    assert_allclose(flow.network, 1, rtol=1e-3 if dtype == jnp.float32 else 1e-6)


@pytest.mark.parametrize(
    ("problem", "solver"),
    [(LinearRegression, None), (LinearRegression, LowRankExtrapolation()), (EmpiricalRisk, diffrax.Tsit5())],
    ids=["default", "low rank", "Tsit5"],
)
def test_a_deep_linear_network_of_small_weights_jumps_at_the_right_time(problem, solver):
    t, weight = in_the_middle_of_a_jump(1e-12)
    network = DeepLinear([jnp.full((1, 1), 1e-12)] * 2)
    X = np.array([[1.0], [-1]]) / 2**0.5
    flow = flowsim.integrate(network, problem(X, X), t1=t, ts=[], solver=solver)
    assert_allclose([np.ravel(layer) for layer in flow.network.weights], weight, rtol=1e-5)


def test_a_weight_that_symmetry_holds_at_zero_does_not_shorten_steps():
    # Biases of an odd network on odd data have a gradient of rounding alone.
    X = np.random.default_rng(0).standard_normal((10, 3))
    X = np.concatenate([X, -X])
    network = eqx.nn.MLP(3, "scalar", 8, 2, jnp.tanh, key=jax.random.key(0))
    network = jax.tree.map(lambda leaf: 0 * leaf if eqx.is_inexact_array(leaf) and leaf.ndim < 2 else leaf, network)
    flow = flowsim.integrate(network, EmpiricalRisk(X, np.tanh(X.sum(1)) + X[:, 0] ** 3), t1=5.0, ts=[], max_steps=400)
    assert flow.outcome == Outcome.TIME_LIMIT
    assert flow.loosened == 1
