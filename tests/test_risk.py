"""Any scalar function of any pytree, with a gradient of one's own or without."""

import re
import warnings
from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import flowsim

RNG = np.random.default_rng(0)
ROOT = RNG.standard_normal((6, 4))
MATRIX, TARGET = jnp.asarray(ROOT.T @ ROOT / 6 + np.eye(4)), jnp.asarray(RNG.standard_normal(4))
EIGENVALUES, VECTORS = np.linalg.eigh(np.asarray(MATRIX))
slow = partial(pytest.param, marks=pytest.mark.slow)


class Pair(NamedTuple):
    first: object
    second: object


class Layer(eqx.Module):
    weight: jax.Array
    bias: jax.Array
    activation: object = jnp.tanh
    count: jax.Array = eqx.field(default_factory=lambda: jnp.array(3))


FIRST, SECOND = jnp.array([1.0, -0.5, 2.0]), jnp.array(0.3)
# Each with what brings its weights together into one vector.
PYTREES = {
    "a dict": ({"params": {"a": FIRST, "b": SECOND}}, lambda net: (net["params"]["a"], net["params"]["b"])),
    "a tuple": ((FIRST, (SECOND,)), lambda net: (net[0], net[1][0])),
    "a list": ([SECOND, FIRST], lambda net: (net[1], net[0])),
    "a named tuple": (Pair(FIRST, {"b": SECOND}), lambda net: (net.first, net.second["b"])),
    "an Equinox module": (Layer(FIRST, SECOND), lambda net: (net.weight, net.bias)),
    "an array": (jnp.append(FIRST, SECOND), lambda net: (net[:3], net[3])),
    "a dict with more": (
        {"a": FIRST, "b": SECOND, "n": 3, "f": flowsim.Fixed(FIRST)},
        lambda net: (net["a"], net["b"]),
    ),
}


def quadratic(parts):
    """Return ½(w − w*)ᵀA(w − w*) as a function of a pytree, which `parts` takes apart."""

    def risk(network):
        first, second = parts(network)
        away = jnp.append(first, second) - TARGET
        return away @ MATRIX @ away / 2

    return risk


def weights_at(time):
    """Return the weights at a time of the flow of the quadratic: w* + exp(−At)(w(0) − w*)."""
    start = np.append(FIRST, SECOND) - np.asarray(TARGET)
    return np.asarray(TARGET) + VECTORS @ (np.exp(-EIGENVALUES * time) * (VECTORS.T @ start))


@pytest.mark.slow
def test_a_flow_of_a_dict_is_the_exact_one():
    network, parts = PYTREES["a dict with more"]
    flow = flowsim.integrate(network, flowsim.Risk(quadratic(parts), infimum=0.0), ts=[0.7], t1=0.7, rtol=1e-9)
    assert jax.tree.structure(flow.network) == jax.tree.structure(network)
    np.testing.assert_allclose(np.append(*parts(flow.network)), weights_at(0.7), atol=1e-8)
    away = weights_at(0.7) - np.asarray(TARGET)
    np.testing.assert_allclose(flow.excess_risk[-1], away @ np.asarray(MATRIX) @ away / 2, rtol=1e-7)


def descended_to(steps, rate):
    """Return the weights after steps of descent on the quadratic: w* + (1 − ηA)^k (w(0) − w*)."""
    start = np.append(FIRST, SECOND) - np.asarray(TARGET)
    return np.asarray(TARGET) + VECTORS @ ((1 - rate * EIGENVALUES) ** steps * (VECTORS.T @ start))


@pytest.mark.parametrize("kind", PYTREES)
def test_a_descent_of_any_pytree_is_the_exact_one(kind):
    network, parts = PYTREES[kind]
    descent = flowsim.descend(network, flowsim.Risk(quadratic(parts)), learning_rate=0.1, steps=7)
    assert jax.tree.structure(descent.network) == jax.tree.structure(network)
    np.testing.assert_allclose(np.append(*parts(descent.network)), descended_to(7, 0.1), rtol=1e-12)


@pytest.mark.parametrize(
    "asked",
    [
        lambda net, risk: flowsim.descend(net, risk, learning_rate=0.1, steps=7).network,
        lambda net, risk: risk.risk(net),
        flowsim.sharpness,
        slow(lambda net, risk: flowsim.integrate(net, risk).network),
        slow(lambda net, risk: flowsim.compare(net, risk, [0.1], steps=7).descents[0].trajectory.network),
        slow(lambda net, risk: flowsim.curvature.spectrum(net, risk).nodes),
        slow(
            lambda net, risk: flowsim.sweep(
                lambda times: jax.tree.map(lambda leaf: leaf * times, net), risk, {"times": [0.5, 1.0]}
            ).to_dataset()["final_risk"]
        ),
    ],
    ids=["descend", "risk", "sharpness", "integrate", "compare", "spectrum", "sweep"],
)
def test_weights_of_numpy_are_as_those_of_jax(asked):
    network = {"params": {"a": np.array([1.0, -0.5, 2.0]), "b": np.float64(0.3)}}
    risk = flowsim.Risk(quadratic(PYTREES["a dict"][1]))
    found, expected = asked(network, risk), asked(PYTREES["a dict"][0], risk)
    jax.tree.map(np.testing.assert_array_equal, found, expected)


@pytest.mark.parametrize(
    "asked",
    [
        lambda net, risk: flowsim.descend(net, risk, learning_rate=0.1, steps=7).network,
        lambda net, risk: flowsim.curvature.top_eigenpair(net, risk).vector,
        slow(lambda net, risk: flowsim.integrate(net, risk).network),
        slow(lambda net, risk: flowsim.compare(net, risk, [0.1], steps=7).flow.network),
        slow(lambda net, risk: flowsim.sweep(lambda: net, risk, {}).to_dataset()["final_risk"]),
    ],
    ids=["descend", "eigenpair", "integrate", "compare", "sweep"],
)
def test_single_precision_is_named_where_x64_is_on(asked):
    drawn = jax.tree.map(lambda leaf: leaf.astype("float32"), PYTREES["a dict"][0])  # as Flax draws them
    risk = flowsim.Risk(lambda net: quadratic(PYTREES["a dict"][1])(net).astype(net["params"]["b"].dtype))
    with pytest.warns(UserWarning, match=r"are float32 while x64 is .* for float64 write flowsim.networks.cast\("):
        found = asked(drawn, risk)
    assert {leaf.dtype for leaf in jax.tree.leaves(found) if isinstance(leaf, jax.Array)} <= {np.dtype("float32")}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asked(flowsim.networks.cast(drawn, "float64"), risk)


def test_weights_that_are_asked_for_are_found_under_that_name():
    network, parts = PYTREES["a dict"]
    run = flowsim.descend(network, flowsim.Risk(quadratic(parts)), learning_rate=0.1, steps=7, weights=True)
    np.testing.assert_array_equal(run.weights["params"]["a"][-1], run.network["params"]["a"])
    assert run.path is run.weights  # the name of before


@pytest.mark.slow
def test_the_sharpness_of_a_dict_is_exact():
    network, parts = PYTREES["a dict"]
    risk = flowsim.Risk(quadratic(parts))
    descent = flowsim.descend(network, risk, learning_rate=0.1, steps=7, sharpness=True, weights=True)
    np.testing.assert_allclose(descent.sharpness, EIGENVALUES[-1], rtol=1e-9)
    assert flowsim.sharpness(network, risk) == pytest.approx(EIGENVALUES[-1], rel=1e-12)
    assert descent.weights["params"]["a"].shape == (8, 3)


@pytest.mark.slow
def test_a_comparison_of_a_dict_is_printed_and_stored(tmp_path):
    network, parts = PYTREES["a dict"]
    both = flowsim.compare(network, flowsim.Risk(quadratic(parts), infimum=0.0), [0.1], steps=60)
    assert "converged" in str(both)
    assert both.descents[0].distance_to_flow < 1e-2
    both.save(tmp_path / "mine")
    stored = flowsim.open_results(tmp_path / "mine").trajectories
    np.testing.assert_allclose(stored["final_sharpness"], EIGENVALUES[-1], rtol=1e-8)


SLOPE = 3.0


def other_gradient(network):
    """Return A(w − w*) times three, so that it is seen which gradient was taken."""
    first, second = network["params"]["a"], network["params"]["b"]
    found = SLOPE * (MATRIX @ (jnp.append(first, second) - TARGET))
    return {"params": {"a": found[:3], "b": found[3]}}


@pytest.mark.slow
def test_a_gradient_of_ones_own_is_taken_by_flow_descent_and_hessian_products():
    network, parts = PYTREES["a dict"]
    # Beside a derivative that JAX sees, another gradient is refused.
    risk = flowsim.Risk(lambda tree: quadratic(parts)(jax.lax.stop_gradient(tree)), gradient=other_gradient)
    flow = flowsim.integrate(network, risk, ts=[0.2], t1=0.2, rtol=1e-9)
    np.testing.assert_allclose(np.append(*parts(flow.network)), weights_at(SLOPE * 0.2), atol=1e-8)
    assert float(flow.risk[-1]) == pytest.approx(float(quadratic(parts)(flow.network)), rel=1e-12)
    descent = flowsim.descend(network, risk, learning_rate=0.1 / SLOPE, steps=7)
    np.testing.assert_allclose(np.append(*parts(descent.network)), descended_to(7, 0.1), rtol=1e-12)
    assert flowsim.sharpness(network, risk) == pytest.approx(SLOPE * EIGENVALUES[-1], rel=1e-12)


def test_a_gradient_spares_the_risk_its_derivative():
    def rounded(weight):  # a function without a derivative
        return jnp.sum(jax.pure_callback(lambda w: np.asarray(w) ** 2, jax.ShapeDtypeStruct((2,), float), weight))

    flow = flowsim.descend(jnp.ones(2), flowsim.Risk(rounded, gradient=lambda w: 2 * w), learning_rate=0.25, steps=2)
    np.testing.assert_allclose(flow.network, [0.25, 0.25], rtol=1e-15)
    np.testing.assert_allclose(flow.risk, [2.0, 0.5, 0.125], rtol=1e-15)


@pytest.mark.slow
def test_the_gradient_of_a_module_may_leave_out_what_does_not_move():
    network, parts = PYTREES["an Equinox module"]
    plain = quadratic(parts)
    risk = flowsim.Risk(plain, gradient=eqx.filter_grad(plain))
    with_gradient = flowsim.descend(network, risk, learning_rate=0.1, steps=7).network
    np.testing.assert_allclose(np.append(*parts(with_gradient)), descended_to(7, 0.1), rtol=1e-12)
    assert with_gradient.activation is jnp.tanh


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize("start", [[1.0, -2.0, 0.5], [0.0, 0.0, 0.0]])
def test_a_wrong_gradient_is_refused_at_the_start_of_a_run_with_both_numbers(dtype, start):
    weight = jnp.array(start, dtype)
    wrong = flowsim.Risk(lambda w: jnp.sum(w**2), gradient=lambda w: w)
    for run in (
        lambda: flowsim.integrate(weight, wrong),
        lambda: flowsim.descend(weight, wrong, learning_rate=0.1, steps=2),
    ):
        with pytest.raises(ValueError, match=r"the gradient is not that of the risk: near the start") as told:
            run()
        changed, claimed = re.findall(r"by (-?\d[\w.+-]*)", str(told.value))
        assert float(changed) == pytest.approx(2 * float(claimed), rel=1e-4)
    flowsim.Risk(lambda w: jnp.sum(w**2), gradient=lambda w: 2 * w).check_start(weight)


def test_a_gradient_at_a_kink_and_one_that_jax_does_not_see_are_let_through():
    at_kink = jnp.zeros(3)
    flowsim.Risk(lambda w: jnp.sum(jnp.abs(w)), gradient=lambda w: jnp.where(w >= 0, 1.0, -1.0)).check_start(at_kink)
    flowsim.Risk(lambda w: jnp.sum(jnp.round(w)), gradient=jnp.ones_like).check_start(at_kink)


class OfData(eqx.Module):
    """A risk whose data are fields."""

    target: jax.Array

    def __call__(self, weight):
        return jnp.sum((weight - self.target) ** 2)


@pytest.mark.slow
def test_data_in_a_module_are_arguments_and_functions_written_anew_are_known(compiled):
    def run(target):
        return flowsim.descend(jnp.ones(2), flowsim.Risk(OfData(jnp.full(2, target))), learning_rate=0.5, steps=2)

    def written_anew():
        return flowsim.descend(
            jnp.ones(2), flowsim.Risk(lambda w: jnp.sum(w**4), gradient=lambda w: 4 * w**3), learning_rate=0.1, steps=2
        )

    np.testing.assert_allclose(run(2.0).network, 2.0, rtol=1e-15)
    written_anew()
    before = compiled()
    np.testing.assert_allclose(run(3.0).network, 3.0, rtol=1e-15)
    written_anew()
    assert compiled() == before


@pytest.mark.slow
def test_a_run_of_a_risk_can_be_returned_from_jit_and_mapped():
    def run(start):
        risk = flowsim.Risk(lambda net: jnp.sum(net["w"] ** 2), gradient=lambda net: {"w": 2 * net["w"]})
        return flowsim.descend({"w": start}, risk, learning_rate=0.25, steps=3)

    alone, mapped = jax.jit(run)(jnp.ones(2)), jax.vmap(run)(jnp.ones((3, 2)))
    np.testing.assert_allclose(alone.network["w"], 0.125)
    np.testing.assert_allclose(mapped.network["w"], np.full((3, 2), 0.125))


W = {"w": jnp.ones(3)}


def descended(network=W, function=lambda net: jnp.sum(net["w"] ** 2), **options):
    return flowsim.descend(network, flowsim.Risk(function, **options), learning_rate=0.1, steps=2)


# fmt: off
MISUSES = {
    "no arrays": (lambda: descended({"n": 3}), "dict holds no weights: expected floating-point arrays"),
    "an empty dict": (lambda: descended({}), "dict holds no weights"),
    "whole numbers": (lambda: descended({"w": jnp.ones(3, int)}), "dict holds no weights"),
    "complex weights": (lambda: descended({"w": jnp.ones(3) * 1j}), "complex128 at ['w']: expected real weights"),
    "complex weights of NumPy": (lambda: descended({"w": np.ones(3) * 1j}), "complex128 at ['w']: expected real wei"),
    "two types": (lambda: descended({"w": jnp.ones(3), "v": jnp.ones(3, "float32")}), "weights have several types"),
    "a vector": (lambda: descended(function=lambda net: net["w"]), "the risk returns shape (3,) of float64: expec"),
    "a vector, evaluated": (lambda: flowsim.Risk(lambda net: net["w"])(W), "the risk returns shape (3,) of float64"),
    "nothing": (lambda: descended(function=lambda net: None), "the risk returns NoneType: expected a real scalar"),
    "a pair": (lambda: descended(function=lambda net: (1.0, 2.0)), "the risk returns tuple: expected a real scalar"),
    "a complex number": (lambda: descended(function=lambda net: 1j * net["w"][0]), "shape () of complex128: expected"),
    "a whole number": (lambda: descended(function=lambda net: 3), "the risk returns shape () of int64: expected"),
    "another key": (lambda: descended(function=lambda net: net["v"]), "the risk fails on the network, a dict (KeyErr"),
    "of NumPy": (lambda: descended(function=lambda net: np.sum(np.sin(net["w"]))), "write jnp in place of np"),
    "no function": (lambda: descended(function=3), "the risk is a int: expected a function of the network that re"),
    "a class": (lambda: descended(function=OfData), "the risk is the class OfData itself: write OfData(...)"),
    "a problem": (lambda: descended(function=flowsim.Risk(lambda net: 0.0)), "the risk is a Risk: expected a function"),
    "no gradient": (lambda: descended(gradient=3), "the gradient is a int: expected a function of the network that"),
    "a gradient of other shapes": (lambda: descended(gradient=lambda net: {"w": jnp.ones(2)}),
        "the gradient returns ['w'] (2,) where the network has the weights ['w'] (3,): expected the same structure"),
    "a gradient of another structure": (lambda: descended(gradient=lambda net: net["w"]),
        "the gradient returns array (3,) where the network has the weights ['w'] (3,)"),
    "a gradient that is nothing": (lambda: descended(gradient=lambda net: None), "the gradient returns no arrays"),
    "a gradient that fails": (lambda: descended(gradient=lambda net: net.w), "the gradient fails on the network, a di"),
    "an infimum in quotes": (lambda: descended(infimum="0"), "infimum must be a number, or NaN where it is not known"),
    "an infimum beyond all": (lambda: descended(infimum=np.inf), "infimum must be a number"),
    "several infima": (lambda: descended(infimum=[0.0, 1.0]), "infimum must be a number"),
}
# fmt: on


@pytest.mark.parametrize("name", MISUSES)
def test_a_misuse_is_told_what_it_is_and_what_to_write(name):
    misuse, message = MISUSES[name]
    with pytest.raises((ValueError, TypeError)) as caught:
        misuse()
    assert message in str(caught.value)


def test_whole_numbers_of_samples_stay_whole_for_a_network_that_takes_them_for_places():
    class Bag(eqx.Module):
        table: jax.Array

        def __call__(self, tokens):
            return jnp.sum(self.table[tokens])

    tokens = np.random.default_rng(0).integers(0, 5, (12, 3))
    problem = flowsim.EmpiricalRisk(tokens, np.ones(12))
    assert problem.X.dtype.kind == "i"
    run = flowsim.descend(Bag(jnp.arange(5.0)), problem, learning_rate=0.01, steps=3)
    assert float(run.risk[-1]) < float(run.risk[0])
    same = flowsim.EmpiricalRisk(tokens.astype(float), np.ones(12))
    layer = eqx.nn.Linear(3, "scalar", key=jax.random.key(0))
    assert float(problem(layer)) == pytest.approx(float(same(layer)), rel=1e-14)


def test_samples_in_single_precision_are_looked_at_in_their_own():
    X, y = RNG.standard_normal((6, 2)).astype(np.float32), np.ones(6, np.float32)
    assert flowsim.EmpiricalRisk(X, y).X.dtype == jnp.float64  # pytest makes errors of warnings
    X[2, 1] = np.inf
    with pytest.raises(ValueError, match=r"X\[2, 1\] is inf"):
        flowsim.EmpiricalRisk(X, y)


def test_what_has_no_derivative_says_so_in_words():
    def start_of(scale):
        return scale * jnp.array([1.0, 1.2])

    problem = flowsim.Risk(lambda w: (w[0] * w[1] - 1) ** 2)
    for model in (None, flowsim.CentralFlow(0.3), flowsim.EdgeFlow(0.3)):

        def end(scale, model=model):
            return flowsim.integrate(start_of(scale), problem, model=model, t1=1.0).risk[-1]

        with pytest.raises(RuntimeError, match="a flow whose steps adapt has no derivative"):
            jax.grad(end)(1.0)


@pytest.fixture
def without_x64():
    jax.config.update("jax_enable_x64", False)
    yield
    jax.config.update("jax_enable_x64", True)


@pytest.mark.parametrize("ask", [flowsim.integrate, flowsim.sharpness])
def test_double_precision_that_was_switched_off_is_said(ask, request):
    weights, problem = jnp.ones(2), flowsim.Risk(lambda w: jnp.sum(w**2))
    request.getfixturevalue("without_x64")
    with pytest.raises(ValueError, match=r"weights are float64, and x64 is switched off: switch it on, .* to float32"):
        ask(weights, problem)


@pytest.mark.parametrize(("sizes", "t1"), [((2, 1), 1.0), ((1, 2), 1.0), ((2, 2, 1), float("inf"))])
@pytest.mark.slow
def test_a_diagnostic_whose_shape_changes_is_told_so(sizes, t1):
    calls = iter((*sizes, *[sizes[-1]] * 20))
    with pytest.raises(TypeError, match=r"recorded at .*'shifty'.* expected a probe or diagnostic to return the same"):
        flowsim.integrate(
            jnp.ones(2),
            flowsim.Risk(lambda w: jnp.sum(w**2)),
            t1=t1,
            diagnostics={"shifty": lambda _: jnp.ones(next(calls))},
        )
