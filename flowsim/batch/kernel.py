"""How one step of many descents is computed."""

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
from jaxtyping import Array, Bool, Float, PyTree

Move = Callable[[Float[Array, " lanes"], Bool[Array, " lanes"]], PyTree]


class Kernel(eqx.Module):
    """One way to compute the objectives and gradients of all lanes of a group, for some networks on some problems.

    To add one, subclass it in a file of its own, with `@register(network=…, problem=…, dynamics=…)` above the class.
    `width` is the number of lanes that one program takes: such that what a step touches stays in a core's own cache.
    """

    width: eqx.AbstractVar[int]

    @classmethod
    @abc.abstractmethod
    def of(cls, network: Any, problem: Any, dynamics: Any, /) -> "Kernel | None":
        """Return the kernel for lanes like `network`, of which shapes will do, or `None` where it fits only others.

        The types of the three are those that it is registered for; what else it needs of them, it asks here.
        """

    @abc.abstractmethod
    def start(self, weights: Any, /) -> PyTree:
        """Return what lanes that start from `weights` carry from step to step, the lane axis first: these at least."""

    @abc.abstractmethod
    def end(self, weights: PyTree, /) -> Any:
        """Return the weights in what lanes carry: the inverse of `start`."""

    @abc.abstractmethod
    def enter(self, weights: Any, fixed: Any, /) -> tuple[PyTree, PyTree]:
        """Return what lanes carry and fixed arrays, given with the lane axis first, as `evaluate` takes them."""

    @abc.abstractmethod
    def leave(self, weights: PyTree, /) -> PyTree:
        """Return what lanes carry with the lane axis first again."""

    @abc.abstractmethod
    def unchanged(self, before: PyTree, after: PyTree, /) -> Bool[Array, " lanes"]:
        """Tell for each lane whether all that it carries is the same."""

    @abc.abstractmethod
    def evaluate(self, weights: PyTree, fixed: PyTree, /) -> tuple[Float[Array, " lanes"], Move]:
        """Return the objectives, and the function (rates, moving) ↦ weights after one step of the lanes moving."""
