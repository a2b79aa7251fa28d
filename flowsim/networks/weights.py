"""What the flow moves in a network, and what it leaves alone."""

from collections.abc import Sequence
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

Network = TypeVar("Network", bound=eqx.Module)
Tree = TypeVar("Tree")


class Fixed(eqx.Module):
    """An array inside a network that the flow does not move, such as a projection of the output."""

    value: Array


def split(network: Network) -> tuple[Network, Network]:
    """Split `network` into its weights and all the rest; `equinox.combine` joins them again.

    The weights are its floating-point arrays that are not wrapped in `Fixed`. Both parts have the tree
    structure of the network, with `None` where the other part has something.
    """
    movable = jax.tree.map(lambda leaf: eqx.is_inexact_array(leaf), network, is_leaf=_is_fixed)
    return eqx.partition(network, movable, is_leaf=_is_fixed)


def weight_dtype(network: eqx.Module) -> jnp.dtype:
    """Return the one floating-point type of the weights of `network`; `ValueError` for none or several."""
    weights, _ = split(network)
    found = {leaf.dtype for leaf in jax.tree.leaves(weights)}
    if not found:
        raise ValueError(f"{type(network).__name__} holds no weights: expected floating-point JAX arrays in its fields")
    if len(found) > 1:
        names = ", ".join(sorted(str(dtype) for dtype in found))
        raise ValueError(f"the weights have several types ({names}): cast them to one, for instance float64")
    return found.pop()


def cast(tree: Tree, dtype: jnp.dtype) -> Tree:
    """Return `tree` with every floating-point array in precision `dtype`."""
    return jax.tree.map(lambda leaf: leaf.astype(dtype) if eqx.is_inexact_array(leaf) else leaf, tree)


def records(tree: Tree, index: slice | np.ndarray) -> Tree:
    """Return `leaf[index]` for every leaf without compiling a program for every shape, where that is possible.

    On the memory of one CPU, NumPy cuts for nothing; elsewhere the arrays stay on their devices.
    """
    leaves, structure = jax.tree.flatten(tree)
    if not all(len(leaf.sharding.device_set) == 1 and leaf.device.platform == "cpu" for leaf in leaves):
        return structure.unflatten([leaf[index] for leaf in leaves])
    cut = [np.asarray(leaf)[index] for leaf in leaves]
    # An array that nobody placed stays so: a change would compile every program that takes it once more.
    return structure.unflatten(jax.device_put(cut, [leaf.sharding if leaf.committed else None for leaf in leaves]))


def stacked(networks: Sequence[Network]) -> Network:
    """Return networks of one shape as one, with a leading axis in every array."""
    return jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves)), *networks)


def unstacked(network: Network, count: int) -> list[Network]:
    """Return the first `count` networks of a stack: the inverse of `stacked`."""
    on_host = jax.tree.map(np.asarray, network)
    return [jax.tree.map(lambda leaf, n=number: jnp.asarray(leaf[n]), on_host) for number in range(count)]


def _is_fixed(leaf: object) -> bool:
    return isinstance(leaf, Fixed)
