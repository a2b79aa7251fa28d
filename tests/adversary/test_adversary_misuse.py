"""Whatever is handed to the functions of flowsim by mistake, the message says what it is and what to write instead."""

import re
import sys
from functools import cache
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import flowsim

RNG = np.random.default_rng(0)
X, Y, SEVERAL = RNG.standard_normal((20, 3)), RNG.standard_normal(20), RNG.standard_normal((20, 3))


class Model(eqx.Module):
    """A model with one array, of whatever type, and one function of array and sample."""

    weight: object
    function: object = eqx.field(static=True, default=lambda weight, x: weight @ x)

    def __call__(self, x):
        return self.function(self.weight, x)


class Stateful(eqx.Module):
    """A model around one with a state."""

    inner: eqx.Module
    state: object

    def __call__(self, x):
        state = self.state.value if isinstance(self.state, flowsim.Fixed) else self.state
        return self.inner(x, state)[0]


@cache
def linear(outputs="scalar"):
    return eqx.nn.Linear(3, outputs, key=jax.random.key(0))


@cache
def regression():
    return flowsim.LinearRegression(X, Y)


@cache
def risk(several=False):
    return flowsim.EmpiricalRisk(X, SEVERAL if several else Y)


@cache
def normalized():
    """Return a network with batch normalization, and its state."""
    norm = eqx.nn.BatchNorm
    return eqx.nn.make_with_state(lambda: eqx.nn.Sequential([linear(3), norm(3, "batch", mode="batch")]))()


def deep(**options):
    return flowsim.DeepLinear.gaussian(**{"widths": [3, 2, 1], "scale": 0.5, "key": jax.random.key(0)} | options)


def perceptron(**options):
    return flowsim.Perceptron.gaussian(**{"widths": [3, 1], "scale": 1.0, "key": jax.random.key(0)} | options)


def descended(start=None, problem=None, **options):
    start, problem = deep() if start is None else start, regression() if problem is None else problem
    return flowsim.descend(start, problem, **{"learning_rate": 0.1, "steps": 2} | options)


def flown(**options):
    return flowsim.integrate(deep(), regression(), **{"max_steps": 2} | options)


def stop_at_true():
    """Check a criterion as outside of the tests, where types are not checked by their annotations."""
    stopping = flowsim.Stopping()
    object.__setattr__(stopping, "risk", True)
    stopping.__check_init__()


# fmt: off
MISUSES = {
    # Networks.
    "a nonlinear one": (lambda: descended(perceptron()), "needs a linear network with a regressor(), got Perceptron: "),
    "weights that are NaN": (lambda: descended(deep(scale=np.inf)), "weights that are not finite (NaN or infinity)"),
    "batch normalization in a row": (lambda: descended(normalized()[0], risk(True)), "whose state is at .layers[1].ba"),
    "a state among the weights": (lambda: descended(Stateful(*normalized()), risk(True)),
        "the network holds an eqx.nn.State at .state, which a flow would move as if it were weights: use eqx.nn.Laye"),
    "dropout": (lambda: descended(eqx.nn.Sequential([linear(), eqx.nn.Dropout()]), risk()),
        "the network holds an active eqx.nn.Dropout at .layers[1], so that its risk would be random: write eqx.nn.in"),
    "a tuple returned": (lambda: descended(Model(jnp.ones(3), lambda w, x: (w @ x, 0)), risk()), "returns a tuple for"),
    "other features of a regression": (lambda: descended(problem=flowsim.LinearRegression(X[:, :2], Y)),
        "a regressor of shape (3,), but the data have 2 features"),
    # Losses.
    "a loss that returns nothing": (lambda: flowsim.EmpiricalRisk(X, Y, lambda p, t: None)(linear()),
        "the loss returns NoneType for one sample"),
    "of NumPy": (lambda: flowsim.EmpiricalRisk(X, Y, lambda p, t: np.sin(p))(linear()),
        "of JAX arrays that returns a scalar; write jnp in place of"),
    # Data.
    "words as y": (lambda: flowsim.EmpiricalRisk(X, ["a"] * 20), "y holds words, such as 'a': expected real"),
    "ragged X": (lambda: flowsim.EmpiricalRisk([[1], [1, 2]], [1, 2]), "X makes no array (ValueError: setting an arra"),
    "no features": (lambda: flowsim.EmpiricalRisk(X[:, :0], Y), "no empty axis, got (20, 0) and (20,)"),
    "a regression of huge numbers": (lambda: flowsim.LinearRegression(X * 1e200, Y), "X has entries of size 2.3e+200,"),
    "a traced regression": (lambda: jax.jit(lambda x: flowsim.LinearRegression(x, Y)(deep()))(X), "outside jit and"),
    # Numbers.
    "a learning rate in quotes": (lambda: descended(learning_rate="0.1"), "got '0.1'"),
    "a learning rate that is flushed to zero": (lambda: descended(learning_rate=1e-320), "2.3e-308 or more, got 1e-32"),
    "a learning rate too small for float32": (
        lambda: descended(flowsim.networks.cast(deep(), "float32"), learning_rate=1e-60), "float32, 1.2e-38 or"),
    "steps beyond counting": (lambda: descended(steps=2**70), "at most 9223372036854775807, got 118059162071741130342"),
    "negative record steps": (lambda: descended(record_steps=[-1]), "record_steps must be a list of increasing whole "),
    "falling times": (lambda: flown(ts=[1, 0]), "ts must be a list of increasing numbers, zero or more, got [1 0]"),
    "t1 in quotes": (lambda: flown(t1="1"), "t1 must be a number, zero or more, got '1'"),
    "rtol NaN": (lambda: flown(rtol=np.nan), "expected 0 < rtol < 1 and atol ≥ 0, got rtol=nan"),
    "true as risk to stop at": (stop_at_true, "or None to switch it off; got True"),
    # Things.
    "problem and network swapped": (lambda: descended(regression(), deep()), "the network is a LinearRegression, w"),
    "a depth of zero": (lambda: flowsim.theory.minimal_sharpness_bounds(regression(), 0), "depth must be a whole numb"),
    "bounds of another problem": (lambda: flowsim.theory.minimal_sharpness_bounds(risk(), 2), "about a flowsim.Linear"),
    "the class of an optimizer": (lambda: descended(optimizer=flowsim.GradientDescent, learning_rate=None),
        "the class GradientDescent itself: wr"),
    "the class of a flow": (lambda: flown(model=flowsim.EdgeFlow), "write EdgeFlow(learning_rate=...)"),
    "a number as stopping": (lambda: descended(stopping=3), "flowsim.Stopping(gradient_norm=1e-6), got 3"),
    "an optimizer beside a rate": (lambda: descended(optimizer=flowsim.GradientDescent(0.1)), "give either a"),
    "a descent as flow": (lambda: flown(model=flowsim.GradientDescent(0.1)), "use flowsim.descend(..., optimizer=...)"),
    "a diagnostic in quotes": (lambda: flown(diagnostics={"a": "b"}), "diagnostics maps names to functions of the net"),
    "a diagnostic that returns a word": (lambda: flown(diagnostics={"a": lambda n: "b"}), "the probe 'a' returns str:"),
    "probes that are no list": (lambda: flown(probes=3), "probes is a list of them, got a int: write probes=[...]"),
    "width zero": (lambda: deep(widths=[3, 0, 1]), "every width must be a positive whole number, got [3, 0, 1]"),
    "scale in quotes": (lambda: deep(scale="1"), "scale must be a standard deviation, zero or more, got '1'"),
    "no weights": (lambda: flowsim.DeepLinear([]), "a network needs at least one weight matrix, got an empty list"),
    "one matrix for a list": (lambda: flowsim.DeepLinear(jnp.ones((1, 3))), "weights must be a list of matrices, W_1 "),
    "weights that do not fit": (lambda: flowsim.DeepLinear([jnp.ones((2, 3)), jnp.ones((1, 3))]), "weight 2 has shape"),
    "an unknown activation": (lambda: perceptron(activation="swish"), "found 'swish'; expected one of gelu, tanh"),
}
# fmt: on


@pytest.mark.parametrize(("misuse", "message"), MISUSES.values(), ids=MISUSES)
def test_a_misuse_is_told_what_it_is_and_what_to_write(misuse, message):
    with pytest.raises((ValueError, TypeError, RuntimeError), match=re.escape(message)) as caught:
        misuse()
    assert "Tracer" not in str(caught.value) or "(TracerArrayConversionError: " in str(caught.value)


def test_the_reverse_derivative_of_a_descent_is_refused_with_the_forward_one_as_remedy():
    quartic = flowsim.Risk(lambda weights: jnp.sum((weights - 1) ** 4))
    with pytest.raises(RuntimeError, match=r"differentiate it forwards, with jax\.jvp or jax\.jacfwd"):
        jax.eval_shape(jax.grad(lambda weights: descended(weights, quartic).risk[-1]), np.arange(2.0))


@pytest.mark.slow
def test_layers_that_are_switched_off_and_a_state_that_is_fixed_are_no_misuse():
    square, (trained, state) = linear(3), normalized()
    quiet = eqx.nn.inference_mode(eqx.nn.Sequential([square, eqx.nn.Dropout(), eqx.nn.LayerNorm(3)]))
    assert float(risk(True)(quiet)) > 0
    assert float(risk(True)(eqx.nn.Sequential([square, eqx.nn.Dropout(p=0)]))) > 0
    held = Stateful(eqx.nn.inference_mode(trained), flowsim.Fixed(state))
    end = descended(held, risk(True)).network
    assert not np.allclose(end.inner.layers[0].weight, square.weight)
    for before, after in zip(*map(jax.tree.leaves, (held.state, end.state)), strict=True):
        np.testing.assert_array_equal(before, after)


@pytest.mark.slow
def test_a_descent_is_differentiated_forwards():
    """Of w² at 1 the risk after two steps is (1 − 2η)⁴, whose slope is −8(1 − 2η)³."""
    quadratic = flowsim.Risk(lambda weight: weight**2)
    slope = jax.jacfwd(lambda rate: descended(np.array(1.0), quadratic, learning_rate=rate).risk[-1])(0.1)
    np.testing.assert_allclose(slope, -8 * 0.8**3, rtol=1e-12)


def test_parts_of_pytorch_in_place_of_a_network_are_refused_where_pytorch_was_imported(monkeypatch):
    class Part:
        pass

    pytorch = SimpleNamespace(Tensor=type("Tensor", (), {}), nn=SimpleNamespace(Module=Part))
    monkeypatch.setitem(sys.modules, "torch", pytorch)
    for call in (descended, flowsim.integrate, flowsim.sharpness, lambda network, problem: problem(network)):
        with pytest.raises(
            TypeError, match=r"is a torch\.nn\.Module, a Part: .*write flowsim\.torch\.network\(module, X\)"
        ):
            call(Part(), flowsim.EmpiricalRisk(X, Y))
        with pytest.raises(TypeError, match=r"holds, at \['a'\], a torch\.Tensor: .*write jax\.numpy\.asarray\(tensor"):
            call({"a": pytorch.Tensor()}, flowsim.EmpiricalRisk(X, Y))


def test_a_diagnostic_of_whole_numbers_is_recorded_as_numbers():
    descent = descended(np.ones(2), flowsim.Risk(lambda w: w @ w), diagnostics={"size": lambda weights: weights.size})
    np.testing.assert_array_equal(descent.diagnostics["size"], [2.0, 2.0, 2.0])
