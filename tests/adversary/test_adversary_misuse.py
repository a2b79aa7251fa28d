"""Whatever is handed to the functions of flowsim by mistake, the message says what it is and what to write instead."""

import re

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import flowsim
from flowsim.data import gaussian_teacher, standardize, unit_regressor

RNG = np.random.default_rng(0)
X, Y, SEVERAL = RNG.standard_normal((20, 3)), RNG.standard_normal(20), RNG.standard_normal((20, 3))
KEY = jax.random.key(0)
LINEAR = eqx.nn.Linear(3, "scalar", key=KEY)


class Model(eqx.Module):
    """A model with one array, of whatever type, and one function of array and sample."""

    weight: object
    function: object = eqx.field(static=True, default=lambda weight, x: weight @ x)

    def __call__(self, x):
        return self.function(self.weight, x)


class Keyed(eqx.Module):
    inner: eqx.nn.Linear

    def __call__(self, x, key):
        return self.inner(x) + jax.random.normal(key)


def deep(**options):
    return flowsim.DeepLinear.gaussian(**{"widths": [3, 2, 1], "scale": 0.5, "key": KEY} | options)


NETWORK, REGRESSION, RISK = deep(), flowsim.LinearRegression(X, Y), flowsim.EmpiricalRisk(X, Y)
SINGLE = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), NETWORK)
EQUAL, SQUARE = flowsim.EmpiricalRisk(X, SEVERAL), eqx.nn.Linear(3, 3, key=KEY)


class Stateful(eqx.Module):
    """A model around one with a state."""

    inner: eqx.Module
    state: object

    def __call__(self, x):
        state = self.state.value if isinstance(self.state, flowsim.Fixed) else self.state
        return self.inner(x, state)[0]


def stateful(make):
    return eqx.nn.make_with_state(make)()


BATCH_NORM, _ = stateful(lambda: eqx.nn.BatchNorm(3, "batch", mode="batch"))
NORMALIZED, STATE = stateful(lambda: eqx.nn.Sequential([SQUARE, eqx.nn.BatchNorm(3, "batch", mode="batch")]))


def descended(network=NETWORK, problem=REGRESSION, **options):
    return flowsim.descend(network, problem, **{"learning_rate": 0.1, "steps": 2} | options)


def optimized(optimizer, **options):
    return flowsim.descend(NETWORK, REGRESSION, optimizer=optimizer, steps=2, **options)


def flown(network=NETWORK, problem=REGRESSION, **options):
    return flowsim.integrate(network, problem, **{"max_steps": 2} | options)


def stopping(**parts):
    """Check a criterion as outside of the tests, where types are not checked by their annotations."""
    made = flowsim.Stopping()
    for name, part in parts.items():
        object.__setattr__(made, name, part)
    made.__check_init__()


def risk_of(function):
    """Return the risk of a linear model whose loss is the function."""
    return flowsim.EmpiricalRisk(X, Y, function)(LINEAR)


def scaled(by):
    return jax.tree.map(lambda leaf: by * leaf, NETWORK)


def perceptron(**options):
    return flowsim.Perceptron.gaussian(**{"widths": [3, 1], "scale": 1.0, "key": KEY} | options)


# fmt: off
MODELS = {
    "a dict": (lambda: descended({"w": jnp.ones(3)}, RISK), "the network is a dict: expected an Equinox module that m"),
    "a list": (lambda: descended([jnp.ones(3)], RISK), "the network is a list: expected an Equinox module"),
    "an array": (lambda: descended(jnp.ones(3), RISK), "expected an Equinox module that maps one sample"),
    "a dict on a regression": (lambda: descended({"w": jnp.ones(3)}), "needs a linear network with a regressor(), got"),
    "nothing": (lambda: descended(None), "NoneType holds no weights: expected floating-point arrays"),
    "a word": (lambda: descended("network"), "str holds no weights"),
    "a function": (lambda: descended(lambda x: x.sum(), RISK), "function holds no weights"),
    "a class": (lambda: descended(flowsim.DeepLinear), "the network is the class DeepLinear itself: expected an obj"),
    "a nonlinear one": (lambda: descended(perceptron()), "needs a linear network with a regressor(), got Perceptron: "),
    "complex weights": (lambda: descended(Model(jnp.ones(3) * 1j), RISK), "holds complex128 at .weight: expected real"),
    "whole weights": (lambda: descended(Model(jnp.ones(3, int)), RISK), "Model holds no weights: expected floating-po"),
    "a number as weight": (lambda: descended(Model(1.0), RISK), "Model holds no weights"),
    "weights that are NaN": (lambda: descended(deep(scale=np.inf)), "weights that are not finite (NaN or infinity)"),
    "weights of two types": (lambda: descended(Model((jnp.ones(3), jnp.ones(3, "float32"))), RISK), "several types (f"),
    "batch normalization": (lambda: descended(BATCH_NORM, EQUAL),
        "a BatchNorm, fails on one sample of shape (3,) (TypeError: BatchNorm.__call__() missing 1 required"),
    "batch normalization, flown": (lambda: flown(BATCH_NORM, EQUAL), "without state (as o"),
    "batch normalization's remedy": (lambda: EQUAL(BATCH_NORM), "write eqx.nn.LayerNorm or eqx.nn.GroupNorm in pla"),
    "batch normalization in a row": (lambda: descended(NORMALIZED, EQUAL), "whose state is at .layers[1].batch_coun"),
    "spectral normalization": (lambda: descended(stateful(lambda: eqx.nn.SpectralNorm(SQUARE, "weight", key=KEY))[0],
        EQUAL), "in place of the layer whose state is at"),
    "a state among the weights": (lambda: descended(Stateful(eqx.nn.inference_mode(NORMALIZED), STATE), EQUAL),
        "the network holds an eqx.nn.State at .state, which a flow would move as if it were weights: use eqx.nn.Laye"),
    "dropout": (lambda: descended(eqx.nn.Sequential([LINEAR, eqx.nn.Dropout()]), RISK),
        "the network holds an active eqx.nn.Dropout at .layers[1], so that its risk would be random: write eqx.nn.in"),
    "dropout, flown": (lambda: flown(eqx.nn.Sequential([LINEAR, eqx.nn.Dropout()]), RISK), "Dropout at .layers[1]"),
    "dropout of attention": (lambda: EQUAL(eqx.nn.MultiheadAttention(1, 3, dropout_p=0.1, key=KEY)), "at .dropout, so"),
    "nothing but dropout": (lambda: RISK(eqx.nn.Dropout()), "an active eqx.nn.Dropout at its top, so that its risk"),
    "a key": (lambda: descended(Keyed(LINEAR), RISK), "missing 1 required positional argument: 'key'): expected a mod"),
    "a key's remedy": (lambda: descended(Keyed(LINEAR), RISK), "or a model of your own around it that holds the rest"),
    "a tuple returned": (lambda: descended(Model(jnp.ones(3), lambda w, x: (w @ x, 0)), RISK), "returns a tuple for o"),
    "nothing returned": (lambda: RISK(Model(jnp.ones(3), lambda w, x: None)), "returns a NoneType for one sample: exp"),
    "other features": (lambda: descended(LINEAR, flowsim.EmpiricalRisk(X[:, :2], Y)), "fails on one sample of shape ("),
    "other features of a regression": (lambda: descended(problem=flowsim.LinearRegression(X[:, :2], Y)),
        "a regressor of shape (3,), but the data have 2 features"),
    "one output for several": (lambda: descended(LINEAR, flowsim.EmpiricalRisk(X, SEVERAL)),
        "the network predicts shape () and y holds shape (3,) of float64, which SquaredError does not compare"),
    "several outputs for one": (lambda: descended(eqx.nn.Linear(3, 3, key=KEY), RISK),
        "the network predicts shape (3,) and y holds shape () of float64, which SquaredError does not compare"),
    "several outputs for a column": (lambda: flowsim.EmpiricalRisk(X, Y[:, None])(eqx.nn.Linear(3, 3, key=KEY)),
        "the network predicts shape (3,) and y holds shape (1,)"),
    "targets of a function": (lambda: flowsim.EmpiricalRisk(X, SEVERAL, lambda p, t: jnp.sum((p - t) ** 2))(LINEAR),
        "which PointwiseLoss does not compare"),
    "several targets of a regression": (lambda: descended(problem=flowsim.LinearRegression(X, SEVERAL)),
        "a regressor of shape (3,), but the data have 3 features and a regressor of shape (3, 3)"),
}
LOSSES = {
    "two numbers": (lambda: risk_of(lambda p, t: jnp.stack([p, t])), "the loss returns shape (2,) of float64 for one "),
    "one number in brackets": (lambda: risk_of(lambda p, t: (p - t)[None] ** 2), "returns shape (1,) of float64 for o"),
    "two numbers, descended": (lambda: descended(LINEAR, flowsim.EmpiricalRisk(X, Y, lambda p, t: jnp.stack([p, t]))),
        "expected a real scalar; write jnp.sum(...) or jnp.mean(...) around it"),
    "two numbers, flown": (lambda: flown(LINEAR, flowsim.EmpiricalRisk(X, Y, lambda p, t: jnp.stack([p, t]))),
        "expected a real scalar"),
    "a loss that returns nothing": (lambda: risk_of(lambda p, t: None), "the loss returns NoneType for one sample"),
    "a complex one": (lambda: risk_of(lambda p, t: 1j * p), "the loss returns shape () of complex128 for one sample"),
    "a whole number": (lambda: risk_of(lambda p, t: jnp.int32(3)), "the loss returns shape () of int32 for one sample"),
    "a tuple of numbers": (lambda: risk_of(lambda p, t: (p, t)), "the loss returns tuple for one sample"),
    "of one argument": (lambda: risk_of(lambda p: p), "the loss fails on one sample, prediction (), target () (TypeEr"),
    "of NumPy": (lambda: risk_of(lambda p, t: np.sin(p)), "of JAX arrays that returns a scalar; write jnp in place of"),
    "a name": (lambda: flowsim.EmpiricalRisk(X, Y, "squared"), "the loss is 'squared': expected a flowsim.losses.Loss"),
    "the class": (lambda: flowsim.EmpiricalRisk(X, Y, flowsim.losses.SquaredError), "the class SquaredError itself: w"),
}
DATA = {
    "X with NaN": (lambda: flowsim.EmpiricalRisk(X * np.nan, Y), "X[0, 0] is nan: expected finite numbers of float64;"),
    "y with NaN": (lambda: flowsim.EmpiricalRisk(X, Y * np.nan), "y[0] is nan: expected finite numbers of float64"),
    "X with infinity, on a device": (lambda: flowsim.EmpiricalRisk(jnp.asarray(X) * jnp.inf, Y), "inf: expected finit"),
    "complex y": (lambda: flowsim.EmpiricalRisk(X, Y * 1j), "y holds complex128: expected real numbers, such as float"),
    "complex X": (lambda: flowsim.EmpiricalRisk(X * 1j, Y), "X holds complex128: expected real numbers"),
    "words as X": (lambda: flowsim.EmpiricalRisk(X.astype(str), Y), "X holds <U32: expected real numbers"),
    "words as y": (lambda: flowsim.EmpiricalRisk(X, ["a"] * 20), "y holds <U1: expected real numbers"),
    "objects as X": (lambda: flowsim.EmpiricalRisk(X.astype(object), Y), "X holds object: expected real numbers"),
    "no X": (lambda: flowsim.EmpiricalRisk(None, Y), "X holds object: expected real numbers"),
    "ragged X": (lambda: flowsim.EmpiricalRisk([[1], [1, 2]], [1, 2]), "X makes no array (ValueError: setting an arra"),
    "one axis": (lambda: flowsim.EmpiricalRisk(Y, Y), "expected X of shape (n, …) and y of shape (n, …) with n ≥ 1"),
    "no samples": (lambda: flowsim.EmpiricalRisk(X[:0], Y[:0]), "with n ≥ 1 and no empty axis, got (0, 3) and (0,)"),
    "no features": (lambda: flowsim.EmpiricalRisk(X[:, :0], Y), "no empty axis, got (20, 0) and (20,)"),
    "different lengths": (lambda: flowsim.EmpiricalRisk(X, Y[:5]), "got (20, 3) and (5,)"),
    "a regression with NaN": (lambda: flowsim.LinearRegression(X * np.nan, Y), "X, row 1, column 1 (counted from 1): "),
    "a regression of different lengths": (lambda: flowsim.LinearRegression(X, Y[:5]), "X has 20 rows and y has 5"),
    "a regression of words": (lambda: flowsim.LinearRegression("X", "y"), "X has shape (): expected (n, columns)"),
    "a regression of ragged rows": (lambda: flowsim.LinearRegression([[1], [1, 2]], [1, 2]), "X makes no array (Value"),
    "a regression of objects": (lambda: flowsim.LinearRegression(X.astype(object), Y), "X holds object: expected real"),
    "a regression of huge numbers": (lambda: flowsim.LinearRegression(X * 1e200, Y), "X has entries of size 2.3e+200,"),
    "a traced regression": (lambda: jax.jit(lambda x: flowsim.LinearRegression(x, Y)(NETWORK))(X), "outside jit and v"),
    "standardized words": (lambda: standardize([["a"]]), "X holds <U1: expected real numbers"),
    "a regressor of a scalar": (lambda: unit_regressor(1.0, 2.0), "X has shape (): expected (n, columns)"),
    "noise without end": (lambda: gaussian_teacher(RNG, 5, 2, noise=1e308), "noise is 1e+308: expected a finite stand"),
}
NUMBERS = {
    "no learning rate": (lambda: optimized(None), "give either a learning_rate, for gradient descent, or an optimizer"),
    "learning rate zero": (lambda: descended(learning_rate=0.0), "must be a positive finite number of float64, 2.2e-3"),
    "a negative learning rate": (lambda: descended(learning_rate=-1), "a positive finite number of float64"),
    "learning rate NaN": (lambda: descended(learning_rate=np.nan), "more, got nan"),
    "a learning rate in quotes": (lambda: descended(learning_rate="0.1"), "got '0.1'"),
    "learning rates": (lambda: descended(learning_rate=[0.1, 0.2]), "got [0.1, 0.2]"),
    "true as learning rate": (lambda: descended(learning_rate=True), "got True"),
    "a complex learning rate": (lambda: descended(learning_rate=1j), "got 1j"),
    "a learning rate that is flushed to zero": (lambda: descended(learning_rate=1e-320), "2.2e-308 or more, got 1e-32"),
    "a learning rate too small for float32": (lambda: descended(SINGLE, learning_rate=1e-60), "float32, 1.2e-38 or mo"),
    "a learning rate that float32 flushes": (lambda: descended(SINGLE, learning_rate=1e-42), "float32, 1.2e-38 or mor"),
    "a rate of an optimizer": (lambda: optimized(flowsim.GradientDescent(1e-320)), "2.2e-308 or more, got 1e-320"),
    "broken steps": (lambda: descended(steps=2.5), "steps must be a whole number, one or more and at most"),
    "no steps": (lambda: descended(steps=0), "one or more and at most 9223372036854775807, got 0"),
    "true as steps": (lambda: descended(steps=True), "got True"),
    "steps beyond counting": (lambda: descended(steps=2**70), "at most 9223372036854775807, got 118059162071741130342"),
    "a limit beyond counting": (lambda: flown(max_steps=2**70), "max_steps must be a whole number, one or more and at"),
    "a broken limit": (lambda: flown(max_steps=1e3), "max_steps must be a whole number"),
    "negative record steps": (lambda: descended(record_steps=[-1]), "record_steps must be a list of increasing whole "),
    "a word as record steps": (lambda: descended(record_steps="all"), "zero or more, got 'all'"),
    "falling times": (lambda: flown(ts=[1, 0]), "ts must be a list of increasing numbers, zero or more, got [1 0]"),
    "times NaN": (lambda: flown(ts=[np.nan]), "ts must be a list of increasing numbers, zero or more, got [nan]"),
    "t1 in quotes": (lambda: flown(t1="1"), "t1 must be a number, zero or more, got '1'"),
    "t1 null": (lambda: flown(t1=None), "t1 must be a number, zero or more, got None"),
    "several t1": (lambda: flown(t1=np.ones(2)), "t1 must be a number, zero or more, got array([1., 1.])"),
    "rtol in quotes": (lambda: flown(rtol="1e-3"), "rtol must be a number, got '1e-3'"),
    "several atol": (lambda: flown(atol=[1.0]), "atol must be a number, got [1.0]"),
    "rtol NaN": (lambda: flown(rtol=np.nan), "expected 0 < rtol < 1 and atol ≥ 0, got rtol=nan"),
    "a gradient norm in quotes": (lambda: stopping(gradient_norm="a"), "gradient_norm must be a number, zero or more,"),
    "true as risk to stop at": (lambda: stopping(risk=True), "or None to switch it off; got True"),
    "risks to stop at": (lambda: stopping(risk=[0.1]), "risk must be a number, zero or more, or None to switch it off"),
    "a pair of risks to stop at": (lambda: stopping(risk=(0.1, 1)), "risk must be a number, zero or more, or None to "),
    "a depth of zero": (lambda: flowsim.theory.minimal_sharpness_bounds(REGRESSION, 0), "depth must be a whole number"),
    "learning rates of one number": (lambda: flowsim.compare(NETWORK, REGRESSION, 0.1), "must be a list of numbers, a"),
    "learning rates in quotes": (lambda: flowsim.compare(NETWORK, REGRESSION, ["a"]), "a list of numbers, as [0.02, 0"),
    "no records": (lambda: flowsim.compare(NETWORK, REGRESSION, [0.1], records=0), "records must be a whole number, t"),
}
THINGS = {
    "the class of a problem": (lambda: descended(problem=flowsim.LinearRegression), "the class LinearRegression itsel"),
    "problem and network swapped": (lambda: descended(REGRESSION, NETWORK), "the network is a LinearRegression, which"),
    "a function as problem": (lambda: descended(problem=lambda network: 0.0), "the problem is a function: expected"),
    "no problem for a sharpness": (lambda: flowsim.sharpness(NETWORK, None), "the problem is a NoneType: expected"),
    "a sharpness swapped": (lambda: flowsim.sharpness(REGRESSION, NETWORK), "the network is a LinearRegression, wh"),
    "bounds of another problem": (lambda: flowsim.theory.minimal_sharpness_bounds(RISK, 2), "about a flowsim.LinearRe"),
    "the class of a solver": (lambda: flown(solver=diffrax.Tsit5), "got the class Tsit5 itself: write Tsit5()"),
    "a solver in quotes": (lambda: flown(solver="Tsit5"), "pass a solver such as diffrax.Tsit5()"),
    "the class of an optimizer": (lambda: optimized(flowsim.GradientDescent), "the class GradientDescent itself: wr"),
    "the class of Adam": (lambda: optimized(flowsim.Adam), "the class Adam itself: write Adam(learning_rate=...)"),
    "another class as optimizer": (lambda: optimized(int), "such as optax.adam(1e-3), got the class int"),
    "the class of a flow": (lambda: flown(model=flowsim.EdgeFlow), "write EdgeFlow(learning_rate=...)"),
    "the class of a descent as flow": (lambda: flown(model=flowsim.Adam), "got the class Adam: use flowsim.descend"),
    "a number as stopping, flown": (lambda: flown(stopping=3), "stopping must be None or a flowsim.Stopping, such as"),
    "a number as stopping": (lambda: descended(stopping=3), "flowsim.Stopping(gradient_norm=1e-6), got 3"),
    "a number as stopping of a comparison": (lambda: flowsim.compare(NETWORK, REGRESSION, [0.1], steps=2, stopping=3),
        "stopping must be None or a flowsim.Stopping"),
    "the class of a stopping": (lambda: descended(stopping=flowsim.Stopping), "Stopping itself: write Stopping()"),
    "an optimizer beside a rate": (lambda: optimized(flowsim.GradientDescent(0.1), learning_rate=0.1), "give either a"),
    "a descent as flow": (lambda: flown(model=flowsim.GradientDescent(0.1)), "use flowsim.descend(..., optimizer=...)"),
    "a list of diagnostics": (lambda: flown(diagnostics=[len]), "diagnostics maps names to functions of the network, "),
    "a diagnostic in quotes": (lambda: flown(diagnostics={"a": "b"}), "diagnostics maps names to functions of the net"),
    "a diagnostic that returns a word": (lambda: flown(diagnostics={"a": lambda n: "b"}), "the probe 'a' returns str:"),
    "a complex diagnostic": (lambda: flown(diagnostics={"a": lambda n: 1j}), "the probe 'a' returns complex128: expec"),
    "a diagnostic of a taken name": (lambda: flown(diagnostics={"risk": len}), "'risk' is recorded already"),
    "a number as probe": (lambda: flown(probes=[3]), "a probe is a flowsim.Probe, or a function of the network with a"),
    "probes that are no list": (lambda: flown(probes=3), "probes is a list of them, got a int: write probes=[...]"),
    "width zero": (lambda: deep(widths=[3, 0, 1]), "every width must be a positive whole number, got [3, 0, 1]"),
    "scale in quotes": (lambda: deep(scale="1"), "scale must be a standard deviation, zero or more, got '1'"),
    "no weights": (lambda: flowsim.DeepLinear([]), "a network needs at least one weight matrix, got an empty list"),
    "weights null": (lambda: flowsim.DeepLinear(None), "weights must be a list of matrices, W_1 first, got a NoneType"),
    "one matrix for a list": (lambda: flowsim.DeepLinear(jnp.ones((1, 3))), "weights must be a list of matrices, W_1 "),
    "a word as weight": (lambda: flowsim.DeepLinear(["a"]), "weight 1 must be a floating-point matrix (out, in), got "),
    "weights of whole numbers": (lambda: flowsim.DeepLinear([np.ones((1, 3), int)]), "got shape (1, 3) of int64"),
    "weights that do not fit": (lambda: flowsim.DeepLinear([jnp.ones((2, 3)), jnp.ones((1, 3))]), "weight 2 has shape"),
    "an unknown activation": (lambda: perceptron(activation="swish"), "found 'swish'; expected one of gelu, tanh"),
    "a number as activation": (lambda: perceptron(activation=3), "activation must be a smooth function on arrays"),
    "results of nowhere": (lambda: flowsim.open_results("/nowhere"), "there is no such folder; give the folder of one"),
    "results in a file": (lambda: flowsim.open_results(__file__), "is a file; give the folder of one scenario's resul"),
    "the gradient of a descent": (lambda: jax.grad(lambda by: descended(scaled(by)).risk[-1])(1.0), "no derivative in"),
    "the gradient of a flow": (lambda: jax.grad(lambda by: flown(scaled(by), ts=[]).risk[-1])(1.0), "no derivative"),
    "a flow forwards": (lambda: jax.jacfwd(lambda by: flown(scaled(by), ts=[]).risk[-1])(1.0), "whose steps adapt has"),
    "a compiled gradient": (lambda: jax.jit(jax.grad(lambda eta: descended(learning_rate=eta).risk[-1]))(0.1),
        "differentiate it forwards, with jax.jvp or jax.jacfwd"),
}
# fmt: on
MISUSES = {**MODELS, **LOSSES, **DATA, **NUMBERS, **THINGS}


def test_no_misuse_hides_another():
    assert len(MISUSES) == sum(map(len, (MODELS, LOSSES, DATA, NUMBERS, THINGS))) >= 93


# Each compiles a run anew, with its derivatives.
SLOW = ("the gradient of a flow", "a flow forwards", "a compiled gradient")


@pytest.mark.parametrize(
    ("misuse", "message"),
    [pytest.param(*case, marks=[pytest.mark.slow] * (name in SLOW), id=name) for name, case in MISUSES.items()],
)
def test_a_misuse_is_told_what_it_is_and_what_to_write(misuse, message):
    with pytest.raises((ValueError, TypeError, RuntimeError), match=re.escape(message)) as caught:
        misuse()
    assert "Tracer" not in str(caught.value) or "(TracerArrayConversionError: " in str(caught.value)


@pytest.mark.slow
def test_layers_that_are_switched_off_and_a_state_that_is_fixed_are_no_misuse():
    quiet = eqx.nn.inference_mode(eqx.nn.Sequential([SQUARE, eqx.nn.Dropout(), eqx.nn.LayerNorm(3)]))
    assert float(EQUAL(quiet)) > 0
    assert float(EQUAL(eqx.nn.Sequential([SQUARE, eqx.nn.Dropout(p=0)]))) > 0
    held = Stateful(eqx.nn.inference_mode(NORMALIZED), flowsim.Fixed(STATE))
    end = descended(held, EQUAL).network
    assert not np.allclose(end.inner.layers[0].weight, SQUARE.weight)
    for before, after in zip(*map(jax.tree.leaves, (held.state, end.state)), strict=True):
        np.testing.assert_array_equal(before, after)


@pytest.mark.slow
def test_a_descent_is_differentiated_forwards():
    rate, step = 0.1, 1e-6
    found = jax.jacfwd(lambda eta: descended(learning_rate=eta).risk[-1])(rate)
    above, below = (float(descended(learning_rate=rate + shift).risk[-1]) for shift in (step, -step))
    np.testing.assert_allclose(found, (above - below) / (2 * step), rtol=1e-6)


def test_a_diagnostic_of_whole_numbers_is_recorded_as_numbers():
    found = descended(diagnostics={"layers": lambda network: network.depth}).diagnostics["layers"]
    np.testing.assert_array_equal(found, [2.0, 2.0, 2.0])
