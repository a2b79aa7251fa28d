"""Any scalar function of any pytree, with a gradient that is given or without."""

import re
import warnings
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import flowsim

RNG = np.random.default_rng(0)
ROOT = RNG.standard_normal((6, 4))
MATRIX, TARGET = ROOT.T @ ROOT / 6 + np.eye(4), RNG.standard_normal(4)
EIGENVALUES, VECTORS = np.linalg.eigh(MATRIX)


class Layer(eqx.Module):
    weight: jax.Array
    bias: jax.Array
    activation: object = jnp.tanh
    count: jax.Array = eqx.field(default_factory=lambda: jnp.array(3))


FIRST, SECOND = np.array([1.0, -0.5, 2.0]), np.float64(0.3)
DICT = {"params": {"a": FIRST, "b": SECOND}, "n": 3, "f": flowsim.Fixed(FIRST)}


def of_dict(network):
    return network["params"]["a"], network["params"]["b"]


def quadratic(parts=of_dict):
    """Return ½(w − w*)ᵀA(w − w*) as a function of a pytree, which `parts` takes apart."""

    def risk(network):
        first, second = parts(network)
        away = jnp.append(first, second) - TARGET
        return away @ MATRIX @ away / 2

    return risk


def moved(factors):
    """Return w* + f(A)(w(0) − w*), for the values of f at the eigenvalues of A."""
    return TARGET + VECTORS @ (factors * (VECTORS.T @ (np.append(FIRST, SECOND) - TARGET)))


def weights_at(time):
    """Return the weights at a time of the flow of the quadratic."""
    return moved(np.exp(-EIGENVALUES * time))


# After seven steps of descent at a rate of 0.1.
DESCENDED = moved((1 - 0.1 * EIGENVALUES) ** 7)


@pytest.mark.slow
def test_a_flow_of_a_dict_is_the_exact_one():
    flow = flowsim.integrate(DICT, flowsim.Risk(quadratic(), infimum=0.0), ts=[0.7], t1=0.7, rtol=1e-9)
    assert jax.tree.structure(flow.network) == jax.tree.structure(DICT)
    np.testing.assert_allclose(np.append(*of_dict(flow.network)), weights_at(0.7), atol=1e-8)
    away = weights_at(0.7) - TARGET
    np.testing.assert_allclose(flow.excess_risk[-1], away @ MATRIX @ away / 2, rtol=1e-7)


def test_a_descent_of_a_dict_of_numpy_arrays_is_the_exact_one():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run = flowsim.descend(DICT, flowsim.Risk(quadratic()), learning_rate=0.1, steps=7, weights=True)
    assert jax.tree.structure(run.network) == jax.tree.structure(DICT)
    np.testing.assert_allclose(np.append(*of_dict(run.network)), DESCENDED, rtol=1e-12)
    np.testing.assert_array_equal(run.weights["params"]["a"][-1], run.network["params"]["a"])
    assert run.weights["params"]["a"].shape == (8, 3)
    assert run.path is run.weights  # the name of before


@pytest.mark.parametrize(
    "asked", [partial(flowsim.descend, learning_rate=0.1, steps=7), flowsim.curvature.top_eigenpair, flowsim.integrate]
)
def test_single_precision_is_named_where_x64_is_on(asked):
    drawn = {"a": FIRST.astype("float32"), "b": SECOND.astype("float32")}  # as Flax draws them
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # so that nothing is computed after it
        with pytest.raises(UserWarning, match=r"are float32 while x64 is .* write flowsim.networks.cast\("):
            asked(drawn, flowsim.Risk(lambda net: jnp.sum(net["a"]) * net["b"]))


def test_a_descent_stays_in_single_precision():
    run = flowsim.descend(np.ones(2, "float32"), flowsim.Risk(lambda w: jnp.sum(w**2)), learning_rate=0.25, steps=2)
    assert run.network.dtype == run.risk.dtype == np.float32
    np.testing.assert_array_equal(run.network, np.float32(0.25))


@pytest.mark.slow
def test_a_comparison_of_a_dict_is_printed_and_stored(tmp_path):
    both = flowsim.compare(DICT, flowsim.Risk(quadratic(), infimum=0.0), [0.1], steps=60)
    assert "converged" in str(both)
    assert both.descents[0].distance_to_flow < 1e-2
    both.save(tmp_path / "mine")
    stored = flowsim.open_results(tmp_path / "mine").trajectories
    np.testing.assert_allclose(stored["final_sharpness"], EIGENVALUES[-1], rtol=1e-8)


SLOPE = 3.0


def other_gradient(network):
    """Return A(w − w*) times three, so that it is seen which gradient was taken."""
    slopes = SLOPE * (MATRIX @ (jnp.append(*of_dict(network)) - TARGET))
    return {"params": {"a": slopes[:3], "b": slopes[3]}}


@pytest.mark.slow
def test_flow_descent_and_hessian_products_take_the_gradient_that_is_given():
    network = {"params": DICT["params"]}
    # Beside a derivative that JAX sees, another gradient is refused.
    risk = flowsim.Risk(lambda tree: quadratic()(jax.lax.stop_gradient(tree)), gradient=other_gradient)
    flow = flowsim.integrate(network, risk, ts=[0.2], t1=0.2, rtol=1e-9)
    np.testing.assert_allclose(np.append(*of_dict(flow.network)), weights_at(SLOPE * 0.2), atol=1e-8)
    assert float(flow.risk[-1]) == pytest.approx(float(quadratic()(flow.network)), rel=1e-12)
    descent = flowsim.descend(network, risk, learning_rate=0.1 / SLOPE, steps=7)
    np.testing.assert_allclose(np.append(*of_dict(descent.network)), DESCENDED, rtol=1e-12)
    assert flowsim.sharpness(network, risk) == pytest.approx(SLOPE * EIGENVALUES[-1], rel=1e-12)


def test_a_gradient_spares_the_risk_its_derivative():
    def rounded(weight):  # a function without a derivative
        return jnp.sum(jax.pure_callback(lambda w: np.asarray(w) ** 2, jax.ShapeDtypeStruct((2,), float), weight))

    flow = flowsim.descend(np.ones(2), flowsim.Risk(rounded, gradient=lambda w: 2 * w), learning_rate=0.25, steps=2)
    np.testing.assert_allclose(flow.network, [0.25, 0.25], rtol=1e-15)
    np.testing.assert_allclose(flow.risk, [2.0, 0.5, 0.125], rtol=1e-15)


@pytest.mark.slow
def test_the_gradient_of_a_module_may_leave_out_what_does_not_move():
    network, parts = Layer(FIRST, SECOND), lambda net: (net.weight, net.bias)
    plain = quadratic(parts)
    risk = flowsim.Risk(plain, gradient=eqx.filter_grad(plain))
    with_gradient = flowsim.descend(network, risk, learning_rate=0.1, steps=7).network
    np.testing.assert_allclose(np.append(*parts(with_gradient)), DESCENDED, rtol=1e-12)
    assert with_gradient.activation is jnp.tanh


def half_square(factor):
    """Return the risk ‖w‖²/2 beside a multiple of its gradient."""
    gradient = jax.tree_util.Partial(lambda times, w: (times * w).astype(w.dtype), np.array(factor))
    return flowsim.Risk(lambda w: jnp.sum(w**2) / 2, gradient=gradient)


@pytest.mark.parametrize(
    ("dtype", "start"),
    [
        ("float64", [1.0, -2.0, 0.5]),
        ("float64", [0.0, 0.0, 0.0]),
        pytest.param("float32", [1.0, -2.0, 0.5], marks=pytest.mark.slow),
    ],
)
def test_a_wrong_gradient_is_refused_at_the_start_of_a_run_with_both_numbers(dtype, start):
    weight = np.array(start, dtype)
    for run in (flowsim.integrate, partial(flowsim.descend, learning_rate=0.1, steps=2)):
        with pytest.raises(ValueError, match=r"the gradient is not that of the risk: near the start") as caught:
            run(weight, half_square(0.5))
        changed, claimed = re.findall(r"by (-?\d[\w.+-]*)", str(caught.value))
        assert float(changed) == pytest.approx(2 * float(claimed), rel=1e-4)
    half_square(1.0).check_start(weight)


def test_a_gradient_at_a_kink_and_one_that_jax_does_not_see_are_let_through():
    at_kink = np.zeros(3)
    flowsim.Risk(lambda w: jnp.sum(jnp.abs(w)), gradient=lambda w: jnp.where(w >= 0, 1.0, -1.0)).check_start(at_kink)
    flowsim.Risk(lambda w: jnp.sum(jnp.round(w)), gradient=jnp.ones_like).check_start(at_kink)


W = {"w": np.ones(3)}


def descended(network=W, function=lambda net: jnp.sum(net["w"] ** 2), **options):
    return flowsim.descend(network, flowsim.Risk(function, **options), learning_rate=0.1, steps=2)


# fmt: off
MISUSES = {
    "no arrays": (lambda: descended({"n": 3}), "dict holds no weights: expected floating-point arrays"),
    "complex weights": (lambda: descended({"w": np.ones(3) * 1j}), "complex128 at ['w']: expected real weights"),
    "two types": (lambda: descended({"w": np.ones(3), "v": np.ones(3, "float32")}), "weights have several types"),
    "a vector": (lambda: descended(function=lambda net: net["w"]), "the risk returns shape (3,) of float64: expec"),
    "a pair": (lambda: descended(function=lambda net: (1.0, 2.0)), "the risk returns tuple: expected a real scalar"),
    "another key": (lambda: descended(function=lambda net: net["v"]), "the risk fails on the network, a dict (KeyErr"),
    "of NumPy": (lambda: descended(function=lambda net: np.sum(np.sin(net["w"]))), "write jnp in place of np"),
    "no function": (lambda: descended(function=3), "the risk is a int: expected a function of the network that re"),
    "a class": (lambda: descended(function=Layer), "the risk is the class Layer itself: write Layer(...)"),
    "a problem": (lambda: descended(function=flowsim.Risk(lambda net: 0.0)), "the risk is a Risk: expected a function"),
    "a gradient of another structure": (lambda: descended(gradient=lambda net: net["w"]),
        "the gradient returns array (3,) where the network has the weights ['w'] (3,): expected the same structure"),
    "an infimum in quotes": (lambda: descended(infimum="0"), "infimum must be a number, or NaN where it is not known"),
    "several infima": (lambda: descended(infimum=[0.0, 1.0]), "infimum must be a number"),
}
# fmt: on


@pytest.mark.parametrize("name", MISUSES)
def test_a_misuse_is_told_what_it_is_and_what_to_write(name):
    misuse, message = MISUSES[name]
    with pytest.raises((ValueError, TypeError)) as caught:
        misuse()
    assert message in str(caught.value)


def of_a_pair(w):
    return jnp.sum(jnp.sqrt(w[0])) + jnp.sum(jnp.sqrt(w[1]))


# fmt: off
NOT_FINITE = {
    "a norm at zero": (jnp.zeros(3), lambda w: (jnp.linalg.norm(w) - 1) ** 2,
        "the gradient is NaN at the initial weights, in 3 of 3 entries of the weights: ", "+ 1e-12) for jnp.linalg"),
    "a root at zero": ([jnp.ones(2), jnp.array([1.0, 0.0, 2.0])], of_a_pair,
        "the gradient is infinite at the initial weights, in 1 of 3 entries of [1]: ", "a norm, a square root, "),
    "roots in two arrays": ([jnp.zeros(1), jnp.zeros((2, 2))], of_a_pair,
        "the gradient is infinite at the initial weights, in 1 of 1 entries of [0] and in 1 more array: ", "elsewhere"),
    "the logarithm of zero": (jnp.zeros(2), lambda w: -jnp.sum(jnp.log(w)), "the risk is infinite at ", "a logarithm"),
    "data that are NaN": (jnp.ones(2), lambda w: jnp.sum(np.array([np.nan, 1.0]) * w), "the risk is NaN at ", "data?"),
    "an overflow": (np.full(2, 1e30, "float32"), lambda w: jnp.sum(w**2), "the risk is infinite at ",
        "if numbers overflow float32, write smaller weights or data, or float64"),
}
# fmt: on


@pytest.mark.filterwarnings("ignore:the weights are float32")
@pytest.mark.parametrize(("weights", "function", "what", "remedy"), NOT_FINITE.values(), ids=NOT_FINITE)
def test_a_start_without_a_finite_gradient_is_refused_with_its_place(weights, function, what, remedy):
    with pytest.raises(ValueError, match=f"^{re.escape(what)}.*{re.escape(remedy)}"):
        flowsim.descend(weights, flowsim.Risk(function), learning_rate=0.1, steps=7)


def test_outside_of_jit_runs_and_curvatures_refuse_a_gradient_that_is_nan(tmp_path):
    weights, kept = jnp.zeros(3), tmp_path / "run.ckpt"
    risk = flowsim.Risk(lambda w: (jnp.linalg.norm(w) - 1) ** 2)
    curvature = flowsim.curvature
    runs = [
        partial(flowsim.integrate, checkpoint=kept),
        partial(flowsim.descend, learning_rate=0.1, steps=7, progress=lambda _: None),
        flowsim.sharpness,
        partial(curvature.top_eigenpairs, count=2),
        curvature.spectral_bounds,
        curvature.spectrum,
        curvature.layer_sharpness,
    ]
    for run in runs:
        with pytest.raises(ValueError, match=r"^the gradient is NaN at .* weights, in 3 of 3 .*norm.*Start elsewhere"):
            run(weights, risk)
    assert not kept.exists()
    code = jax.jit(lambda w: flowsim.descend(w, risk, learning_rate=0.1, steps=7).code)(weights)
    assert code == flowsim.Outcome.DIVERGED


def test_a_descent_that_overflows_in_its_first_step_has_diverged():
    run = flowsim.descend(jnp.ones(3), flowsim.Risk(lambda w: jnp.sum(w**4)), learning_rate=1e200, steps=7)
    assert (run.outcome, run.steps) == (flowsim.Outcome.DIVERGED, 1)


def test_whole_numbers_of_samples_stay_whole_for_a_network_that_takes_them_for_places():
    tokens, weights = np.random.default_rng(0).integers(0, 5, (12, 3)), np.array([0.3, -1.2, 0.7])
    problem = flowsim.EmpiricalRisk(tokens, np.ones(12))
    assert problem.X.dtype.kind == "i"
    bag = jax.tree_util.Partial(lambda table, places: jnp.sum(table[places]), np.arange(5.0))
    plain = jax.tree_util.Partial(jnp.dot, weights)
    risks = eqx.filter_jit(lambda *networks: [problem(network) for network in networks])(bag, plain)
    expected = [np.mean((predictions - 1) ** 2) for predictions in (tokens.sum(axis=1), tokens @ weights)]
    np.testing.assert_allclose(risks, expected, rtol=1e-13)


def test_samples_in_single_precision_are_looked_at_in_their_own():
    X, y = RNG.standard_normal((6, 2)).astype(np.float32), np.ones(6, np.float32)
    assert flowsim.EmpiricalRisk(X, y).X.dtype == jnp.float64  # pytest makes errors of warnings
    X[2, 1] = np.inf
    with pytest.raises(ValueError, match=r"X\[2, 1\] is inf"):
        flowsim.EmpiricalRisk(X, y)


def test_what_has_no_derivative_says_so_in_words():
    problem = flowsim.Risk(lambda w: (w[0] * w[1] - 1) ** 2)
    for model in (None, flowsim.CentralFlow(0.3)):

        def end(scale, model=model):
            return flowsim.integrate(scale * np.array([1.0, 1.2]), problem, model=model, t1=1.0).risk[-1]

        with pytest.raises(RuntimeError, match="a flow whose steps adapt has no derivative"):
            jax.grad(end)(1.0)


@pytest.mark.parametrize("ask", [flowsim.integrate, flowsim.sharpness])
def test_double_precision_that_was_switched_off_is_said(ask):
    weights, problem = jnp.ones(2), flowsim.Risk(lambda w: jnp.sum(w**2))
    jax.config.update("jax_enable_x64", False)
    try:
        with pytest.raises(ValueError, match=r"weights are float64, and x64 is switched off: .* to float32"):
            ask(weights, problem)
    finally:
        jax.config.update("jax_enable_x64", True)


@pytest.mark.slow
def test_a_diagnostic_whose_shape_changes_is_told_so():
    calls = iter((2, *[1] * 20))
    shifty, problem = {"shifty": lambda _: jnp.ones(next(calls))}, flowsim.Risk(lambda w: jnp.sum(w**2))
    with pytest.raises(TypeError, match=r"recorded at .*'shifty'.* expected a probe or diagnostic to return the same"):
        flowsim.integrate(jnp.ones(2), problem, t1=1.0, diagnostics=shifty)
