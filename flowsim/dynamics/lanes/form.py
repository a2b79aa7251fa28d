"""How one step of many descents is computed: by the structure of the network and the problem."""

from collections.abc import Callable
from typing import Protocol

import equinox as eqx
from jaxtyping import Array, Bool, Float, PyTree

from ...problems import Problem
from .linear import LinearForm
from .model import ModelForm
from .perceptron import PerceptronForm

Move = Callable[[Float[Array, " lanes"], Bool[Array, " lanes"]], PyTree]


class Form(Protocol):
    """One way to compute the objectives and gradients of all lanes of a group."""

    @property
    def width(self) -> int:
        """The number of lanes that one program takes: such that what a step touches stays in a core's own cache."""
        ...

    def enter(self, weights: PyTree, fixed: PyTree) -> tuple[PyTree, PyTree]:
        """Return weights and fixed arrays, given with the lane axis first, as `evaluate` takes them."""
        ...

    def leave(self, weights: PyTree) -> PyTree:
        """Return the weights with the lane axis first again."""
        ...

    def unchanged(self, before: PyTree, after: PyTree) -> Bool[Array, " lanes"]:
        """Tell for each lane whether all its weights are the same."""
        ...

    def evaluate(self, weights: PyTree, fixed: PyTree) -> tuple[Float[Array, " lanes"], Move]:
        """Return the objectives, and the function (rates, moving) ↦ weights after one step of the lanes moving."""
        ...


def form_for(network: eqx.Module, problem: Problem) -> Form:
    """Return the fastest form that fits one `network` of the lanes (shapes will do) and the `problem`."""
    forms = (LinearForm, PerceptronForm, ModelForm)
    return next(form.of(network, problem) for form in forms if form.fits(network, problem))
