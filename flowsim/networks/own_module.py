"""An Equinox module of a user's own, or a function that returns one, as a kind of network."""

import inspect
from typing import Any

import equinox as eqx
from jaxtyping import Array

from ..kinds import Made, recipe_of
from .recipe import Keys, NetworkRecipe

GIVEN = frozenset({"in_size", "in_shape", "out_size", "key"})
"""The parameters of such a class or function that the data and the seed decide; all others are options."""


class OwnModule(Made, NetworkRecipe):
    """A network that a class or function makes, of which the parameters are the options.

    Handed over are those parameters that are called `in_size` (how many numbers a sample has), `in_shape` (its shape),
    `out_size` (how many numbers to predict) and `key`. Samples come as vectors to a network that asks for `in_size`,
    and in their own shape to any other.
    """

    def build(self, inputs: Any, outputs: int, *, key: Array, shared: Keys) -> eqx.Module:
        """Return the network. Raises `TypeError` where something else was made."""
        sizes = {"in_size": inputs, "in_shape": inputs if self.keeps_shape() else (inputs,)}
        made = self.make(**sizes, out_size=outputs, key=key)
        if not isinstance(made, eqx.Module):
            raise TypeError(f"{self.kind} returns a {type(made).__name__}: expected an Equinox module")
        return made

    def keeps_shape(self) -> bool:
        """Return whether it does not ask for the number of inputs."""
        return "in_size" not in self.given


def network_recipe(kind: Any) -> type[NetworkRecipe]:
    """Return a recipe as it is, and that of a class or function that makes a network."""
    if inspect.isclass(kind) and issubclass(kind, NetworkRecipe):
        return kind
    return recipe_of(kind, given=GIVEN, base=OwnModule)
