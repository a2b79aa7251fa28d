"""The layers of a network: which of its weights belong to which of them."""

import abc
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import DictKey, GetAttrKey
from jaxtyping import Array, Float, Int, PyTree

from .weights import split


class NumberedLayers(NamedTuple):
    """The layers of a network in order."""

    numbers: PyTree[Int[np.ndarray, "..."]]
    """The number of the layer, from zero, of every weight: of each array one number, or one for each entry of its
    leading axis, along which layers are stacked."""
    names: tuple[str, ...]
    """What the layers are called."""

    def restricted(self, vector: PyTree, layer: int | Int[Array, ""]) -> PyTree:
        """Return a vector as the weights with zeros in all other layers."""

        def of_leaf(leaf: Array, numbers: np.ndarray) -> Array:
            flags = jnp.asarray(numbers) == layer
            return jnp.where(flags.reshape(flags.shape + (1,) * (leaf.ndim - flags.ndim)), leaf, 0)

        return jax.tree.map(of_leaf, vector, self.numbers)

    def sums(self, entries: PyTree) -> Float[Array, " layers"]:
        """Return the sum over each layer of numbers that are as the weights."""
        total = jnp.zeros(len(self.names), jnp.result_type(*jax.tree.leaves(entries)))
        for leaf, numbers in zip(jax.tree.leaves(entries), jax.tree.leaves(self.numbers), strict=True):
            total = total.at[numbers].add(jnp.sum(leaf, axis=tuple(range(np.ndim(numbers), leaf.ndim))))
        return total


class Layered(eqx.Module):
    """A network that says itself which layer each of its weights belongs to, as one that stacks several in an array.

    It may stand in another network, whose other layers are known by their places.
    """

    @abc.abstractmethod
    def layer_numbers(self) -> list[Int[np.ndarray, "..."]]:
        """Return the number of the layer, from zero, of each array of weights, or such numbers along its first axis."""


def numbered_layers(network: PyTree) -> NumberedLayers:
    """Return the layers of a network: those of a `Layered` one are called 1, 2, …, others after their places.

    The arrays in the fields of one module, as `weight` and `bias` of `equinox.nn.Linear`, are a layer called
    `layers[0]`, say, and so is any array that stands in a list, or in a field of the network itself. Those of a
    `Layered` network in the field `head` are `head.1`, `head.2`, …. Raises `ValueError` where one does not say
    the number of each array of its weights.
    """
    weights = split(network)[0]
    names: list[str] = []
    numbers: list[Int[np.ndarray, ...]] = []
    parts, _ = jax.tree_util.tree_flatten_with_path(weights, is_leaf=lambda node: isinstance(node, Layered))
    for path, part in parts:
        if isinstance(part, Layered):
            inner, count = [np.asarray(number) for number in part.layer_numbers()], len(jax.tree.leaves(part))
            if len(inner) != count or any(number.ndim > 1 or number.min() < 0 for number in inner):
                raise ValueError(
                    f"layer_numbers of {type(part).__name__} returns {inner}: expected numbers from zero on, or lists "
                    f"of them, for each of its {count} arrays of weights"
                )
            numbers += [len(names) + number for number in inner]
            place = jax.tree_util.keystr(path).removeprefix(".")
            layers = range(1, 2 + max(int(number.max()) for number in inner))
            names += [f"{place}.{layer}" if place else str(layer) for layer in layers]
            continue
        of_field = len(path) > 1 and isinstance(path[-1], GetAttrKey | DictKey)
        name = jax.tree_util.keystr(path[:-1] if of_field else path).removeprefix(".")
        names += [] if name in names else [name]
        numbers.append(np.asarray(names.index(name)))
    return NumberedLayers(jax.tree.structure(weights).unflatten(numbers), tuple(names))
