"""What the functions of a problem read besides its fields, brought into fields."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ..networks import cast, weight_dtype
from ..problems import Problem


class _Opened(Problem):
    """A problem with all that its functions read in its fields: its own `arrays`, and what they `close_over`."""

    function: Callable[..., Array] = eqx.field(static=True)
    dtypes: tuple[Any, ...] = eqx.field(static=True)
    arrays: PyTree
    close_over: list[Array]

    def __call__(self, network: Any) -> Float[Array, ""]:
        """Return what is descended, the objective of the problem that was opened."""
        read = [value.astype(dtype) for value, dtype in zip(self.close_over, self.dtypes, strict=True)]
        return self.function((eqx.filter(network, eqx.is_array), self.arrays), *read)


def opened(network: PyTree, problem: Problem) -> Problem:
    """Return a problem of the same objective whose fields hold what its functions read and a derivative may move.

    These are values traced around a function, such as c in `flowsim.Risk(lambda w: c * w @ w)`: a rule of
    differentiation of one's own is told only of its arguments. A problem without them is returned as it is. What is
    returned is for networks like `network`, and in their precision.
    """
    problem = cast(problem, weight_dtype(network))
    arrays, static = eqx.partition((network, problem), eqx.is_array)

    def objective(given: PyTree) -> Float[Array, ""]:
        other, its_problem = eqx.combine(given, static)
        return its_problem.objective(other)

    function, found = jax.closure_convert(objective, arrays)
    read = [jnp.asarray(value) for value in found]
    return _Opened(function, tuple(value.dtype for value in read), arrays[1], read) if read else problem
