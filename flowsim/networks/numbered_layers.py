"""The layers of a network: which of its weights belong to which of them."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import DictKey, GetAttrKey
from jaxtyping import Array, Float, Int, PyTree

from .weights import split


class NumberedLayers(NamedTuple):
    """The layers of a network in order: their `names`, and the number of the layer, from zero, of every weight.

    `numbers` are as the weights: of each array one number, or one for each entry of its leading axis, along which
    layers are stacked.
    """

    numbers: PyTree[Int[np.ndarray, "..."]]
    names: tuple[str, ...]

    def restricted(self, vector: PyTree, layer: int | Int[Array, ""]) -> PyTree:
        """Return a vector as the weights with zeros in all other layers."""

        def of_leaf(leaf: Array, numbers: np.ndarray) -> Array:
            return jnp.where(_in_front(jnp.asarray(numbers) == layer, leaf.ndim), leaf, 0)

        return jax.tree.map(of_leaf, vector, self.numbers)

    def sums(self, entries: PyTree) -> Float[Array, " layers"]:
        """Return the sum over each layer of numbers that are as the weights."""
        total = jnp.zeros(len(self.names), jnp.result_type(*jax.tree.leaves(entries)))
        for leaf, numbers in zip(jax.tree.leaves(entries), jax.tree.leaves(self.numbers), strict=True):
            total = total.at[numbers].add(jnp.sum(leaf, axis=tuple(range(np.ndim(numbers), leaf.ndim))))
        return total


def _in_front(flags: Array, dimensions: int) -> Array:
    """Return flags with further axes of length one behind."""
    return flags.reshape(flags.shape + (1,) * (dimensions - flags.ndim))


def numbered_layers(network: PyTree) -> NumberedLayers:
    """Return the layers of a network, called 1, 2, … where it has a method `layer_numbers`, or else after their places.

    The method returns one entry for each array of weights: the number of its layer, from zero, or such numbers along
    its leading axis. Without it, the arrays in the fields of one module, as `weight` and `bias` of `equinox.nn.Linear`,
    are a layer called `layers[0]`, say, and so is any array that stands in a list, or in a field of the network itself.
    """
    paths, structure = jax.tree_util.tree_flatten_with_path(split(network)[0])
    own = getattr(network, "layer_numbers", None)
    if own is not None:
        numbers = [np.asarray(number) for number in own()]
        count = 1 + max(int(number.max()) for number in numbers)
        return NumberedLayers(structure.unflatten(numbers), tuple(str(k + 1) for k in range(count)))
    places = [path[:-1] if len(path) > 1 and isinstance(path[-1], GetAttrKey | DictKey) else path for path, _ in paths]
    named = [jax.tree_util.keystr(place).removeprefix(".") for place in places]
    names = tuple(dict.fromkeys(named))
    return NumberedLayers(structure.unflatten([np.asarray(names.index(name)) for name in named]), names)
