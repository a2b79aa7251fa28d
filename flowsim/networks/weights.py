"""The weights of a network: which arrays they are, their precision, norm, stacks and flattening, and random draws."""

import functools
import inspect
import math
import sys
import types
import warnings
from collections.abc import Sequence
from functools import partial
from typing import Any, Self, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, PyTree

Tree = TypeVar("Tree")


class Fixed(eqx.Module):
    """An array, or a pytree of them, inside a network that is not trained: a projection of the output, say.

    The network reads it as `.value`; it is no weight, so neither gradients nor the Hessian include it. Weights that the
    risk has no derivative in, as behind `jax.lax.stop_gradient`, are refused: hold them so.
    """

    value: Any
    """The array, or a pytree of them."""


def split(network: Tree) -> tuple[Tree, Tree]:
    """Split `network` into its weights and all the rest; `equinox.combine` joins them again.

    The weights are its floating-point arrays that are not wrapped in `Fixed`; those of NumPy become JAX's, without x64
    in float32. Both parts have the tree structure of the network, with `None` where the other part has something.
    """
    leaves, structure = jax.tree.flatten(network, is_leaf=lambda leaf: isinstance(leaf, Fixed))
    weights, rest = [], []
    for leaf in leaves:
        movable = eqx.is_inexact_array(leaf)
        rest.append(None if movable else leaf)
        if movable and isinstance(leaf, np.ndarray | np.generic):
            leaf = jnp.asarray(leaf.astype(leaf.dtype.newbyteorder("=")))
        weights.append(leaf if movable else None)
    return jax.tree.unflatten(structure, weights), jax.tree.unflatten(structure, rest)


def weight_dtype(network: PyTree) -> jnp.dtype:
    """Return the one floating-point type of the weights of `network`; `ValueError` for none or several.

    Raises `TypeError` for weights that are complex or of PyTorch, and `ValueError` for those in double precision where
    that has been switched off since.
    """
    if inspect.isclass(network):
        raise TypeError(f"the network is the class {network.__name__} itself: expected an object of it, with weights")
    refuse_torch(network)
    found = set()
    for path, leaf in jax.tree_util.tree_leaves_with_path(split(network)[0]):
        if jnp.iscomplexobj(leaf):
            place = jax.tree_util.keystr(path)
            raise TypeError(f"the network holds {leaf.dtype} at {place}: expected real weights; write both parts apart")
        if leaf.size:
            found.add(leaf.dtype)
    if not found:
        leaves = jax.tree_util.tree_leaves_with_path(network, is_leaf=lambda leaf: isinstance(leaf, Fixed))
        numbers = [jax.tree_util.keystr(path) or "itself" for path, leaf in leaves if eqx.is_array_like(leaf)]
        others = f", got other numbers at {', '.join(numbers[:3])}: write jnp.asarray(number, float)" if numbers else ""
        name = type(network).__name__
        if not numbers and not isinstance(network, str) and jax.tree.structure(network) == jax.tree.structure(0):
            others = ", and it is no pytree, so that JAX cannot find them there: "
            others += (
                "write jax.tree_util.Partial(function, weights) for a function of weights and a sample"
                if isinstance(network, types.FunctionType | partial)
                else f"write class {name}(eqx.Module), with a line for each array, such as weight: jax.Array"
            )
        raise ValueError(f"{name} holds no weights: expected floating-point arrays in its fields{others}")
    if len(found) > 1:
        names = ", ".join(sorted(str(dtype) for dtype in found))
        raise ValueError(f"the weights have several types ({names}): cast them to one, for instance float64")
    dtype = found.pop()
    if (computed := jax.dtypes.canonicalize_dtype(dtype)) != dtype:
        raise ValueError(
            f"the weights are {dtype}, and x64 is switched off: switch it on, jax.config.update('jax_enable_x64', "
            f"True), or cast the weights to {computed}"
        )
    return dtype


def refuse_torch(network: PyTree) -> None:
    """Raise `TypeError` for a module or a tensor of PyTorch, also inside a network, with what makes a network of it."""
    torch: Any = sys.modules.get("torch")  # where there is such an object, it was imported
    if torch is None:
        return
    for path, leaf in jax.tree_util.tree_leaves_with_path(network):
        place = f"holds, at {jax.tree_util.keystr(path)}," if path else "is"
        if isinstance(leaf, torch.nn.Module):
            raise TypeError(
                f"the network {place} a torch.nn.Module, a {type(leaf).__name__}: expected a network of JAX arrays; "
                "write flowsim.torch.network(module, X), where X are samples"
            )
        if isinstance(leaf, torch.Tensor):
            raise TypeError(
                f"the network {place} a torch.Tensor: expected arrays of JAX; write "
                "jax.numpy.asarray(tensor.detach().cpu().numpy()), or for a module flowsim.torch.network(module, X)"
            )


def warn_of_single_precision(network: PyTree) -> None:
    """Warn of weights with fewer digits than x64 gives to all else, as those of Flax are where nothing is said.

    Python says a warning once for each line that warns: that is this one, whoever calls.
    """
    dtype = weight_dtype(network)
    if dtype == jnp.float32 and jnp.result_type(float) == jnp.float64:
        warnings.warn(
            "the weights are float32 while x64 is switched on, as Flax makes them by default: all is computed in "
            "float32, to its tolerances; for float64 write flowsim.networks.cast(network, 'float64'), or give Flax's "
            "layers param_dtype='float64'",
            stacklevel=1,
        )


def weight_count(network: PyTree) -> int:
    """Return the number of weights of `network`."""
    return sum(leaf.size for leaf in jax.tree.leaves(split(network)[0]))


def cast(tree: Tree, dtype: jnp.dtype) -> Tree:
    """Return a pytree with every floating-point array in another precision.

    Args:
        tree: The pytree, such as a network.
        dtype: The precision, as "float64".

    Returns:
        The pytree; what is no such array is as it was.
    """
    return jax.tree.map(lambda leaf: leaf.astype(dtype) if eqx.is_inexact_array(leaf) else leaf, tree)


def strongly_typed(tree: PyTree) -> PyTree:
    """Return a pytree of arrays, made of its numbers, whose types no arithmetic changes.

    Of weak types, as those of Python's numbers, a state that a program returns might have others than before, and
    compile the program once more.
    """
    arrays = jax.tree.map(jnp.asarray, tree)
    return jax.tree.map(lambda leaf: jax.lax.convert_element_type(leaf, leaf.dtype), arrays)


def records(tree: Tree, index: slice | np.ndarray | np.integer) -> Tree:
    """Return `leaf[index]` for every array without compiling a program for every shape, where that is possible.

    Other leaves, such as activation functions, stay as they are. On the memory of one CPU, NumPy cuts for nothing;
    elsewhere, and where derivatives are taken, JAX does. Arrays of NumPy become some of JAX.
    """
    arrays, others = eqx.partition(tree, eqx.is_array)
    leaves, structure = jax.tree.flatten(arrays)
    on_host = [
        isinstance(leaf, np.ndarray)
        or (not isinstance(leaf, Tracer) and len(leaf.sharding.device_set) == 1 and leaf.device.platform == "cpu")
        for leaf in leaves
    ]
    held = [leaf for leaf, here in zip(leaves, on_host, strict=True) if here]
    # An array that nobody placed stays so: a change would compile every program that takes it once more.
    places = [leaf.sharding if getattr(leaf, "committed", False) else None for leaf in held]
    cut = iter(jax.device_put([np.asarray(leaf)[index] for leaf in held], places))
    parts = [next(cut) if here else leaf[index] for leaf, here in zip(leaves, on_host, strict=True)]
    return eqx.combine(structure.unflatten(parts), others)


def stacked(networks: Sequence[Tree]) -> Tree:
    """Return networks of one shape as one, with a leading axis in every array; the rest is that of the first."""
    arrays, others = eqx.partition(list(networks), eqx.is_array)
    return eqx.combine(jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves)), *arrays), others[0])


def unstacked(network: Tree, count: int) -> list[Tree]:
    """Return the first `count` networks of a stack: the inverse of `stacked`."""
    arrays, others = eqx.partition(network, eqx.is_array)
    on_host = jax.tree.map(np.asarray, arrays)
    return [
        eqx.combine(jax.tree.map(lambda leaf, n=number: jnp.asarray(leaf[n]), on_host), others)
        for number in range(count)
    ]


class FlattenedParameters(eqx.Module):
    """How the arrays of a pytree, all of one type, are flattened into one vector and taken apart again.

    A program of one vector compiles faster than one of many small arrays, and runs faster on few numbers.
    """

    structure: Any = eqx.field(static=True)
    shapes: tuple[tuple[int, ...], ...] = eqx.field(static=True)

    @classmethod
    def of(cls, tree: PyTree, *, few_arrays: int = 3, many_entries: int = 2**14) -> Self | None:
        """Return how to flatten `tree`, or `None` where that does not pay.

        Up to `few_arrays` arrays are as fast apart. Beyond `many_entries` the time for a copy counts, and the arrays
        may be spread over devices.
        """
        leaves, structure = jax.tree.flatten(tree)
        if len(leaves) <= few_arrays or sum(leaf.size for leaf in leaves) > many_entries:
            return None
        return cls(structure, tuple(leaf.shape for leaf in leaves))

    def vector(self, tree: PyTree) -> Float[Array, " entries"]:
        """Return the entries one after the other."""
        return jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(tree)])

    def tree(self, vector: Float[Array, " entries"]) -> PyTree:
        """Return the pytree with these entries."""
        ends = np.cumsum([int(np.prod(shape)) for shape in self.shapes])
        parts = [vector[end - int(np.prod(shape)) : end] for end, shape in zip(ends, self.shapes, strict=True)]
        leaves = [part.reshape(shape) for part, shape in zip(parts, self.shapes, strict=True)]
        return jax.tree.unflatten(self.structure, leaves)


def norm(tree: PyTree) -> Float[Array, ""]:
    """Return the Euclidean norm of all entries of a pytree together; no square leaves the range of floats.

    The leaves are never brought together into one array, so each keeps its own sharding.
    """
    return norms(tree)[0]


def norms(*trees: PyTree, few: int = 2**14) -> Float[Array, " k"]:
    """Return the norms of pytrees of one structure, as `norm` does: of up to `few` numbers each in one pass for all.

    On a CPU, XLA compiles three kernels for each sum, whatever its length. Of many numbers memory counts, and each
    norm takes two passes.
    """
    if sum(leaf.size for leaf in jax.tree.leaves(trees[0])) > few:
        sizes = []
        for leaves in map(jax.tree.leaves, trees):
            largest = jnp.max(jnp.stack([jnp.max(jnp.abs(leaf), initial=0) for leaf in leaves]))
            scale = jnp.where((largest > 0) & jnp.isfinite(largest), largest, 1)
            sizes.append(scale * jnp.sqrt(sum(jnp.sum((leaf / scale) ** 2) for leaf in leaves)))
        return jnp.stack(sizes)
    return _norms(jax.tree.leaves(jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)))


@jax.custom_jvp
def _norms(rows: list[Float[Array, "k ..."]]) -> Float[Array, " k"]:
    """Return the norm of each row of all arrays together.

    In one pass for numbers of all sizes: as they are, and scaled by a power of two, which rounds nothing, down and up.
    """
    info = jnp.finfo(jnp.result_type(*rows))
    power = 2.0 ** (info.maxexp // 2 + 1)
    # A product of constants would overflow.
    scales = jax.lax.optimization_barrier(jnp.array([1 / power, 1, power], info.dtype))
    squares = [(row[None] * scales.reshape(3, *[1] * row.ndim)) ** 2 for row in rows]
    sums = [jnp.sum(square, axis=tuple(range(2, square.ndim))) for square in squares]
    large, ordinary, small = functools.reduce(jnp.add, sums)
    least = info.tiny / info.eps  # below, squares of entries that count may have underflowed
    known = jnp.where(jnp.isinf(ordinary), power * jnp.sqrt(large), jnp.sqrt(ordinary))
    return jnp.where(ordinary < least, jnp.sqrt(small) / power, known)


@_norms.defjvp
def _change_of_norms(primals: tuple[list[Array]], tangents: tuple[list[Array]]) -> tuple[Array, Array]:
    (rows,), (changes,) = primals, tangents
    sizes = _norms(rows)

    def along(row: Array, change: Array) -> Array:
        unit = row / sizes.reshape(-1, *[1] * (row.ndim - 1))
        return jnp.sum(unit * change, axis=tuple(range(1, row.ndim)))

    return sizes, functools.reduce(jnp.add, map(along, rows, changes))


def angle_between(one: PyTree, other: PyTree) -> Float[Array, ""]:
    """Return the angle between two pytrees of one structure, in radians; NaN where one of them is zero.

    It is 2 atan(‖u − v‖ / ‖u + v‖) of the unit vectors, which is accurate for small angles; a cosine is not.
    """
    sizes = norm(one), norm(other)
    first = jax.tree.map(lambda leaf: leaf / sizes[0], one)
    second = jax.tree.map(lambda leaf: leaf / sizes[1], other)
    apart, together = (norm(jax.tree.map(join, first, second)) for join in (jnp.subtract, jnp.add))
    return 2 * jnp.arctan2(apart, together)


def standard_normal(
    key: Array,
    index: int,
    shape: tuple[int, ...],
    dtype: jnp.dtype,
    *,
    shortest: int = 2**10,
    longest: int = 2**16,
    splits: int = 2**3,
) -> Float[Array, "..."] | Float[np.ndarray, "..."]:
    """Return `jax.random.normal(jax.random.split(key, count)[index], shape, dtype)`, `count` being any above `index`.

    JAX's own generator makes each number of its place alone. So few numbers are cut off a longer draw; they are
    NumPy's, on which arithmetic compiles nothing. Many are drawn in their own shape, as are those under a
    transformation of JAX, of a type that NumPy lacks, and of another generator, where `count` is a power of two.

    Lengths, from `shortest` to `longest`, and numbers of splits, `splits` or more, are powers of two: few programs.
    """
    size, splits = math.prod(shape), max(splits, 1 << index.bit_length())
    by_place = (
        not isinstance(key, Tracer)
        and str(jax.random.key_impl(key)) == "threefry2x32"
        and jax.config.jax_threefry_partitionable  # pyright: ignore[reportAttributeAccessIssue]
    )
    if size > longest or not by_place or not np.issubdtype(dtype, np.floating):
        return jax.random.normal(jax.random.split(key, splits)[index], shape, dtype)
    length = max(shortest, 1 << (size - 1).bit_length())
    with jax.ensure_compile_time_eval():
        drawn = _drawn(key, np.asarray(index), splits, length, dtype)
    return np.asarray(drawn)[:size].reshape(shape)


@partial(jax.jit, static_argnums=(2, 3, 4))
def _drawn(key: Array, index: Array, splits: int, length: int, dtype: jnp.dtype) -> Array:
    return jax.random.normal(jax.random.split(key, splits)[index], (length,), dtype)
