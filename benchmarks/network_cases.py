"""Ordinary networks on ordinary data: tanh, GELU, ReLU, convolutions, recurrence, attention, and no hidden layer.

Each case has its loss twice: flowsim's, and one written in JAX alone, through which the rivals see it. Importing this
switches JAX to float64.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.resources import files

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

import flowsim

jax.config.update("jax_enable_x64", True)

Loss = Callable[[jax.Array, jax.Array], jax.Array]


@dataclass(frozen=True, eq=False)
class NetworkCase:
    """A network, its data in float64, its loss as flowsim's and as a plain function, and how far its flow is taken.

    The weights may be in float32; then so is every run. `jumps` says that the gradient does, as that of a ReLU network.
    """

    name: str
    what: str
    network: eqx.Module
    X: np.ndarray
    y: np.ndarray
    loss: flowsim.losses.Loss
    plain: Loss
    t: float
    jumps: bool = False

    @property
    def dtype(self) -> np.dtype:
        """The precision of the weights."""
        return self.start.dtype

    @property
    def start(self) -> np.ndarray:
        """The weights before the first step, as one vector."""
        return np.asarray(ravel_pytree(eqx.filter(self.network, eqx.is_inexact_array))[0])

    @property
    def tolerances(self) -> tuple[float, ...]:
        """The tolerances that flowsim runs at, its default the last."""
        return (1e-4, 1e-5, 1e-6) if self.dtype == np.float64 else (1e-2, 1e-3, 1e-4)

    @property
    def problem(self) -> flowsim.EmpiricalRisk:
        """The problem as flowsim sees it."""
        return flowsim.EmpiricalRisk(self.X, self.y, self.loss)

    def data(self, dtype: np.dtype) -> tuple[jax.Array, jax.Array]:
        """Return the samples in a precision, labels of classes as they are."""
        whole = np.issubdtype(self.y.dtype, np.integer)
        return jnp.asarray(self.X, dtype), jnp.asarray(self.y, None if whole else dtype)

    def risk(self) -> Callable[[jax.Array, tuple[jax.Array, jax.Array]], jax.Array]:
        """Return the mean loss as a function of one vector of weights, of any precision, and the samples."""
        weights, rest = eqx.partition(self.network, eqx.is_inexact_array)
        leaves, structure = jax.tree.flatten(weights)
        ends = np.cumsum([leaf.size for leaf in leaves])[:-1]

        def of_weights(flat: jax.Array, data: tuple[jax.Array, jax.Array]) -> jax.Array:
            parts = [part.reshape(leaf.shape) for part, leaf in zip(jnp.split(flat, ends), leaves, strict=True)]
            network = eqx.combine(structure.unflatten(parts), rest)
            return jnp.mean(jax.vmap(lambda x, target: self.plain(network(x), target))(*data))

        return of_weights


def squared_error(prediction: jax.Array, target: jax.Array) -> jax.Array:
    return jnp.sum((prediction - target) ** 2)


def cross_entropy(prediction: jax.Array, target: jax.Array) -> jax.Array:
    return -jax.nn.log_softmax(prediction)[target]


def logistic(prediction: jax.Array, target: jax.Array) -> jax.Array:
    return jnp.logaddexp(0.0, -target * prediction)


def digits(samples: int, *, images: bool = False, repeats: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Return the first digits, scaled to [0, 1], as vectors or as images of one channel, and their classes."""
    with (files("flowsim.data.sources") / "digits.npz").open("rb") as stream, np.load(stream) as archive:
        X, classes = archive["X"][:samples] / 16.0, archive["y"][:samples].astype(int)
    return X.reshape(-1, 1, 8, 8) if images else X.reshape(len(X), -1), classes


def mlp(widths: Sequence[int], activation: Callable, *, out: int | str = 10) -> eqx.nn.MLP:
    inputs, width, hidden = widths[0], widths[1], len(widths) - 1
    return eqx.nn.MLP(inputs, out, width, hidden, activation, key=jax.random.key(0))


def on_digits(
    name: str,
    what: str,
    network: eqx.Module,
    t: float,
    *,
    samples: int = 1000,
    images: bool = False,
    classes: bool = False,
    single: bool = False,
) -> NetworkCase:
    """Return a network on digits, by squared error against rows of an identity, or by cross-entropy."""
    X, labels = digits(samples, images=images)
    y = labels if classes else np.eye(10)[labels]
    loss = flowsim.losses.CrossEntropy() if classes else flowsim.losses.SquaredError()
    network = in_single(network) if single else network
    return NetworkCase(name, what, network, X, y, loss, cross_entropy if classes else squared_error, t)


def in_single(network: eqx.Module) -> eqx.Module:
    return jax.tree.map(lambda leaf: leaf.astype(jnp.float32) if eqx.is_inexact_array(leaf) else leaf, network)


class Recurrent(eqx.Module):
    """A gated recurrent unit that reads numbers one by one, and a linear read-out of its last state."""

    cell: eqx.nn.GRUCell
    out: eqx.nn.Linear

    def __init__(self, width: int, *, key: jax.Array):
        first, second = jax.random.split(key)
        self.cell = eqx.nn.GRUCell(1, width, key=first)
        self.out = eqx.nn.Linear(width, "scalar", key=second)

    def __call__(self, sequence: jax.Array) -> jax.Array:
        zero = jnp.zeros(self.cell.hidden_size, sequence.dtype)
        last, _ = jax.lax.scan(lambda state, x: (self.cell(x, state), None), zero, sequence)
        return self.out(last)


class Block(eqx.Module):
    """Attention, then a perceptron on every token, each on normalized tokens and beside an identity."""

    attention: eqx.nn.MultiheadAttention
    up: eqx.nn.Linear
    down: eqx.nn.Linear
    norms: tuple[eqx.nn.LayerNorm, eqx.nn.LayerNorm]

    def __init__(self, width: int, hidden: int, *, key: jax.Array):
        first, second, third = jax.random.split(key, 3)
        self.attention = eqx.nn.MultiheadAttention(4, width, key=first)
        self.up = eqx.nn.Linear(width, hidden, key=second)
        self.down = eqx.nn.Linear(hidden, width, key=third)
        self.norms = (eqx.nn.LayerNorm(width), eqx.nn.LayerNorm(width))

    def __call__(self, tokens: jax.Array) -> jax.Array:
        seen = jax.vmap(self.norms[0])(tokens)
        tokens = tokens + self.attention(seen, seen, seen)
        return tokens + jax.vmap(lambda token: self.down(jax.nn.gelu(self.up(self.norms[1](token)))))(tokens)


class Transformer(eqx.Module):
    """Two blocks on embedded tokens with learned positions, and a linear read-out of the mean token."""

    embedding: eqx.nn.Linear
    positions: jax.Array
    blocks: list[Block]
    out: eqx.nn.Linear

    def __init__(self, length: int, features: int, width: int, *, key: jax.Array):
        keys = jax.random.split(key, 5)
        self.embedding = eqx.nn.Linear(features, width, key=keys[0])
        self.positions = 0.1 * jax.random.normal(keys[1], (length, width))
        self.blocks = [Block(width, 6 * width, key=key) for key in keys[2:4]]
        self.out = eqx.nn.Linear(width, "scalar", key=keys[4])

    def __call__(self, sequence: jax.Array) -> jax.Array:
        tokens = jax.vmap(self.embedding)(sequence) + self.positions
        for block in self.blocks:
            tokens = block(tokens)
        return self.out(jnp.mean(tokens, axis=0))


class Linear(eqx.Module):
    weight: jax.Array

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.weight @ x


def regression(name: str, what: str, network: eqx.Module, X: np.ndarray, y: np.ndarray, t: float) -> NetworkCase:
    return NetworkCase(name, what, network, X, y, flowsim.losses.SquaredError(), squared_error, t)


def relu() -> NetworkCase:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((50, 5))
    y = np.sin(X.sum(axis=1) / 2) + 0.1 * rng.standard_normal(50)
    network = mlp((5, 50, 50), jax.nn.relu, out="scalar")
    return replace(regression("relu", "ReLU MLP 5-50-50-1", network, X, y, 3.0), jumps=True)


def recurrent() -> NetworkCase:
    X = np.random.default_rng(0).standard_normal((100, 12, 1))
    y = np.tanh(X[:, :, 0] @ np.linspace(0.2, 1.0, 12))
    return regression("gru", "GRU of width 24", Recurrent(24, key=jax.random.key(0)), X, y, 60.0)


def transformer() -> NetworkCase:
    X = np.random.default_rng(0).standard_normal((200, 8, 3))
    y = np.sin(X[:, :, 0].sum(axis=1) + X[:, 0, 1] * X[:, -1, 2])
    return regression("transformer", "transformer", Transformer(8, 3, 16, key=jax.random.key(0)), X, y, 10.0)


def classified(name: str, t: float) -> NetworkCase:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 5)) * np.array([1.0, 1.0, 0.5, 0.2, 0.1])
    y = np.where(X @ np.ones(5) + rng.logistic(size=200) > 0, 1.0, -1.0)
    return NetworkCase(name, "logistic regression", Linear(jnp.zeros(5)), X, y, flowsim.losses.Logistic(), logistic, t)


def convolutional(*, samples: int = 1000, shape: Sequence[int] = (16, 32), dense: Sequence[int] = (56,)):
    """A network of two convolutions and pooling, p = 12 594 unless told."""
    return flowsim.Convolutional.gaussian(
        (1, 8, 8), shape, 10, pooling=2, dense=dense, scale=1.5, key=jax.random.key(0)
    )


def tanh_network() -> eqx.nn.MLP:
    return mlp((64, 64, 64), jnp.tanh)


def gelu_network() -> eqx.nn.MLP:
    return mlp((64, 64, 64), jax.nn.gelu)


_WHAT = {"tanh": "tanh MLP 64-64-64-10", "gelu": "GELU MLP 64-64-64-10"}
CASES: dict[str, Callable[[], NetworkCase]] = {
    "tanh": lambda: on_digits("tanh", _WHAT["tanh"], tanh_network(), 20.0),
    "tanh-middle": lambda: on_digits("tanh-middle", _WHAT["tanh"], tanh_network(), 60.0),
    "tanh-long": lambda: on_digits("tanh-long", _WHAT["tanh"], tanh_network(), 400.0),
    "tanh-single": lambda: on_digits("tanh-single", _WHAT["tanh"], tanh_network(), 20.0, single=True),
    "gelu": lambda: on_digits("gelu", _WHAT["gelu"], gelu_network(), 60.0, classes=True),
    "gelu-long": lambda: on_digits("gelu-long", _WHAT["gelu"], gelu_network(), 400.0, classes=True),
    "relu": relu,
    "convolution": lambda: on_digits(
        "convolution", "two convolutions", convolutional(), 10.0, images=True, single=True
    ),
    "gru": recurrent,
    "transformer": transformer,
    "logistic": partial(classified, "logistic", 1.0),
    "logistic-long": partial(classified, "logistic-long", 300.0),
    "wide": lambda: on_digits("wide", "tanh MLP 64-256-256-10", mlp((64, 256, 256), jnp.tanh), 15.0, samples=300),
    "million": lambda: on_digits(
        "million", "tanh MLP 64-960-960-10", mlp((64, 960, 960), jnp.tanh), 1.0, samples=300, single=True
    ),
}
