"""The refusal of weights at which the risk or its gradient is NaN or infinite, with the place in the network."""

from functools import partial
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, ArrayLike, Float, PyTree

from ..networks import split, weight_dtype
from ..problems import Problem
from ..runtime.compiling import compiled, is_traced
from ..runtime.errors import UserError
from .hessian import objective_of


class NotFiniteError(UserError, ValueError):
    """The weights, the risk or its gradient are NaN or infinite where a run or a search begins."""


def check_gradient(network: PyTree, problem: Problem, where: str = "at these weights") -> None:
    """Raise `NotFiniteError` where the weights, the risk or its gradient are not finite; outside of transformations.

    It costs a gradient, and the compilation of one: call it where a result is already known not to be finite.
    """
    dtype = weight_dtype(network)
    risk, gradient = jax.device_get(_risk_and_gradient(network, problem))
    if (found := _entries_not_finite(split(network)[0])) is not None:
        kind, place = found
        raise NotFiniteError(f"the weights are {kind}, in {place}: expected finite numbers")
    smaller = f"if numbers overflow {dtype}, write smaller weights or data" + ", or float64" * (dtype.itemsize < 8)
    if not np.isfinite(risk):
        raise NotFiniteError(
            f"the risk is {_kind(risk)} {where}: expected a finite number; is there a logarithm or a division at zero, "
            f"a root of a negative number, or NaN in the data? Start elsewhere, or correct it; {smaller}"
        )
    if (found := _entries_not_finite(gradient)) is not None:
        kind, place = found
        overflow = f"; {smaller}" if kind == "infinite" or dtype.itemsize < 8 else ""
        raise NotFiniteError(
            f"the gradient is {kind} {where}, in {place}: expected finite numbers; is there a norm, a square root, a "
            "logarithm or a division at zero? Start elsewhere, or write it so that its derivative is finite there, "
            f"such as jnp.sqrt(jnp.sum(x**2) + 1e-12) for jnp.linalg.norm(x){overflow}"
        )


def check_result(values: ArrayLike, network: PyTree, problem: Problem) -> None:
    """Raise as `check_gradient` does where a result at these weights is not finite; nothing inside transformations."""
    if not is_traced(values) and not np.isfinite(np.asarray(values)).all():
        check_gradient(network, problem)


@partial(compiled, few_calls=True)
def _risk_and_gradient(network: PyTree, problem: Problem) -> tuple[Float[Array, ""], PyTree]:
    objective, weights = objective_of(network, problem)
    return jax.value_and_grad(objective)(weights)


def _entries_not_finite(tree: PyTree) -> tuple[str, str] | None:
    """Return NaN or infinite, and in how many entries of which array; `None` where all entries are finite."""
    leaves = [(path, np.asarray(leaf)) for path, leaf in jax.tree_util.tree_leaves_with_path(tree)]
    bad = [(path, leaf) for path, leaf in leaves if not np.isfinite(leaf).all()]
    if not bad:
        return None
    path, leaf = bad[0]
    place = f"{int((~np.isfinite(leaf)).sum())} of {leaf.size} entries of {jax.tree_util.keystr(path) or 'the weights'}"
    others = len(bad) - 1
    more = f" and in {others} more array{'s' if others > 1 else ''}" if others else ""
    return _kind(leaf), place + more


def _kind(values: Any) -> str:
    return "NaN" if np.isnan(values).any() else "infinite"
