"""Any scalar function of any pytree of arrays as a risk."""

import functools
import inspect
import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ..networks import split, weight_dtype
from ..networks.weights import norm
from ..runtime.compiling import compiled, with_standard_options
from ..runtime.identity import static_function
from .problem import Problem
from .validation import call, real_number, real_scalar


class Risk(Problem):
    """The risk R = function(network) of any pytree of arrays: nested dicts, as of Flax, tuples, Equinox modules.

    What the functions read besides the network becomes a constant of the compiled program. Large data are better kept
    in the fields of an Equinox module with a method `__call__`, as are arrays that change.

    Args:
        function: A function of the network that returns a real scalar.
        gradient: Another, which returns ∇R in the structure of the network. Flow, descent and Hessian–vector products
            take that and differentiate it once; by default the function is differentiated automatically.
        infimum: That of the function, where it is known; excess risks are NaN without.

    Raises:
        TypeError: For what is no function.
        ValueError: For an infimum that is no number; when it is called, for a value that is no real scalar, and for a
            gradient of another structure than the network's; at the start of a run, for a gradient that is not that of
            the function.
    """

    function: Callable[[Any], Array]
    gradient: Callable[[Any], PyTree] | None
    least: Float[Array, ""]

    @with_standard_options
    def __init__(
        self,
        function: Callable[[Any], Any],
        *,
        gradient: Callable[[Any], PyTree] | None = None,
        infimum: float = float("nan"),
    ):
        self.function = static_function(_check_function(function, "the risk", "a scalar"))
        known = None if gradient is None else _check_function(gradient, "the gradient", "∇R in its structure")
        self.gradient = static_function(known)
        self.least = real_number("infimum", infimum, jnp.result_type(float))

    @property
    def infimum(self) -> Float[Array, ""]:
        """The `infimum` that was given, else NaN."""
        return self.least

    def __call__(self, network: Any) -> Float[Array, ""]:
        """Return the risk R of a network; its derivative is the gradient that was given, if there is one."""
        if self.gradient is None:
            return self._value(network)
        weights, rest = split(network)

        @jax.custom_jvp
        def risk(weights: PyTree) -> Float[Array, ""]:
            return self._value(eqx.combine(weights, rest))

        @risk.defjvp
        def directional_derivative(primals: tuple[PyTree], tangents: tuple[PyTree]) -> tuple[Array, Array]:
            (weights,), (direction,) = primals, tangents
            slopes = self._slopes(eqx.combine(weights, rest), weights)
            pairs = zip(jax.tree.leaves(slopes), jax.tree.leaves(direction), strict=True)
            return risk(weights), functools.reduce(jnp.add, [jnp.sum(slope * change) for slope, change in pairs])

        return risk(weights)

    def check_start(self, network: Any) -> None:
        """Raise `ValueError` for a gradient that is not that of the risk along one direction.

        The two are compared at a point near the network, as at a kink, such as one at zero, either side may be right.
        Nothing is checked where JAX cannot differentiate the risk, or its derivative is zero, as of a step function.
        """
        if self.gradient is None:
            return
        try:
            derivative, slope, size = map(float, _derivatives_near(self, network))
        except Exception:  # what JAX cannot differentiate; other errors are raised where they occur
            return
        apart = abs(derivative - slope)
        # By what part the two may differ, by the bytes of a weight.
        allowed = {8: 1e-3, 4: 5e-2, 2: 0.3}[weight_dtype(network).itemsize] * max(abs(derivative), abs(slope), size)
        if derivative != 0 and allowed < apart < math.inf:
            raise ValueError(
                f"the gradient is not that of the risk: near the start the risk changes by {derivative:.6g} along one "
                f"direction, and by the gradient it would by {slope:.6g}; correct it, or leave gradient= out, and JAX "
                "differentiates the risk"
            )

    def _value(self, network: Any) -> Float[Array, ""]:
        value = _call(self.function, network, "the risk", "a real scalar")
        return jnp.asarray(real_scalar(value, "the risk"), weight_dtype(network))

    def _slopes(self, network: Any, weights: PyTree) -> PyTree:
        """Return what the gradient returns, as the weights."""
        found = _call(self.gradient, network, "the gradient", "∇R")
        arrays = jax.tree.map(lambda leaf: jnp.asarray(leaf) if isinstance(leaf, np.ndarray | float) else leaf, found)
        slopes, _ = split(arrays)
        shapes, expected = ([leaf.shape for leaf in jax.tree.leaves(tree)] for tree in (slopes, weights))
        if jax.tree.structure(slopes) != jax.tree.structure(weights) or shapes != expected:
            raise ValueError(
                f"the gradient returns {_in_words(slopes)} where the network has the weights {_in_words(weights)}: "
                "expected the same structure and shapes"
            )
        return jax.tree.map(lambda slope, weight: slope.astype(weight.dtype), slopes, weights)


@compiled
def _derivatives_near(risk: Risk, network: Any, step: float = 1e-3) -> tuple[Array, Array, Array]:
    """Return the derivative of the risk along a direction, that by its gradient, and the norm of the gradient.

    They are taken at a distance of `step` times the norm of the weights, or of `step` where that is less than one.
    """
    weights, rest = split(network)
    leaves, structure = jax.tree.flatten(weights)
    keys = jax.random.split(jax.random.key(0), len(leaves))
    drawn = [jax.random.normal(key, leaf.shape, leaf.dtype) for key, leaf in zip(keys, leaves, strict=True)]
    direction = structure.unflatten(drawn)
    length = step * jnp.maximum(1.0, norm(weights)) / math.sqrt(sum(leaf.size for leaf in leaves))
    nearby = jax.tree.map(lambda leaf, change: leaf + length * change, weights, direction)
    _, derivative = jax.jvp(lambda moved: risk._value(eqx.combine(moved, rest)), (nearby,), (direction,))
    slopes = risk._slopes(eqx.combine(nearby, rest), nearby)
    products = jax.tree.map(lambda slope, change: jnp.sum(slope * change), slopes, direction)
    return derivative, functools.reduce(jnp.add, jax.tree.leaves(products)), norm(slopes)


def _call(function: Any, network: Any, name: str, expected: str) -> Any:
    """Return what a function of a user's own returns; `ValueError` where it fails."""
    # Under JAX's transformations an array is a tracer, of one of many types.
    kind = "an array" if isinstance(network, jax.Array) else f"a {type(network).__name__}"
    expected = f"a function of JAX arrays that returns {expected}"
    return call(function, network, fails=f"{name} fails on the network, {kind}", expected=expected)


def _check_function(function: Any, name: str, expected: str) -> Any:
    if inspect.isclass(function):
        raise TypeError(f"{name} is the class {function.__name__} itself: write {function.__name__}(...)")
    if isinstance(function, Problem) or not callable(function):
        found = type(function).__name__
        raise TypeError(f"{name} is a {found}: expected a function of the network that returns {expected}")
    return function


def _in_words(tree: PyTree) -> str:
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return ", ".join(f"{jax.tree_util.keystr(path) or 'array'} {leaf.shape}" for path, leaf in leaves) or "no arrays"
