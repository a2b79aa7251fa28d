"""Angles of the weights to the gradient and to given directions."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ..networks import split
from ..networks.weights import angle_between
from .probe import PROBES, Label, Moment, Probe


def _weights(network: eqx.Module) -> PyTree:
    return split(network)[0]


@PROBES.register("alignment")
class Alignment(Probe):
    """The angle between the weights and −∇R(W), in radians; NaN at W = 0 and where the gradient vanishes.

    The angle that `Stopping(direction=...)` checks, for logistic losses on separable data.
    """

    label = Label(
        "alignment",
        "angle between the weights and the negative gradient",
        r"angle of $W$ and $-\nabla R$",
        "radian",
    )

    def measure(self, moment: Moment) -> Float[Array, ""]:
        """Return the angle, at the price of one gradient."""
        weights, rest = split(moment.network)
        gradient = jax.grad(lambda moved: moment.problem.objective(eqx.combine(moved, rest)))(weights)
        return angle_between(weights, jax.tree.map(jnp.negative, gradient))


class Angle(Probe):
    """The angle between what `of` returns of the network and a direction, in radians; NaN where one of the two is zero.

    Raises `ValueError`, when it measures, for a direction of another structure or other shapes.
    """

    direction: PyTree
    """The direction, of the same structure: an array for `of=flowsim.DeepLinear.regressor`, such as that of
    `flowsim.theory.max_margin`, and by default another network."""
    of: Callable[[Any], PyTree] = eqx.field(static=True, default=_weights)
    """A function of the network; by default its weights."""
    label: Label = eqx.field(
        static=True, default=Label("angle", "angle to a given direction", "angle to a given direction", "radian")
    )
    """What it is called in tables and figures."""

    def measure(self, moment: Moment) -> Float[Array, ""]:
        """Return the angle."""
        direction = _weights(self.direction) if self.of is _weights else self.direction
        measured = self.of(moment.network)
        found, expected = _shapes(direction), _shapes(measured)
        if found != expected or jax.tree.structure(direction) != jax.tree.structure(measured):
            raise ValueError(
                f"the direction of an Angle holds arrays of shapes {found}, and the network {expected}: expected "
                "the same structure and shapes; write of=..., a function of the network that returns what points there"
            )
        return angle_between(measured, direction)


def _shapes(tree: PyTree) -> list[tuple[int, ...]]:
    return [jnp.shape(leaf) for leaf in jax.tree.leaves(tree)]
