"""Recipes, which build networks from the options in YAML: their base class, registry, and that of a user's module."""

import inspect
import math
from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import equinox as eqx
import jax
from jaxtyping import Array
from pydantic_core import PydanticCustomError

from ...kinds import Registry, is_kind_of, reason_of
from ...kinds.recipes import Made, Recipe, recipe_of, validation_error
from ...kinds.recipes.values import MOST_NUMBERS, too_large
from ..weights import split

Keys = Callable[[str], Array]
Inputs = int | tuple[int, ...]
"""How many numbers a sample has; for a network that keeps their shape, that shape."""


class NetworkRecipe(Recipe):
    """How a network is built from the sizes of the data. A kind has its options as fields, and a method `build`:

        class Tanh(NetworkRecipe):
            width: int = 10

            def build(self, inputs, outputs, *, key, shared):
                return eqx.nn.MLP(inputs, outputs, self.width, 2, jnp.tanh, key=key)

    In YAML it is `network: {kind: my_module:Tanh, width: 20}`. The network maps one sample; any Equinox module whose
    weights are floating-point arrays will do. `start_options` names the options on which the numbers at the start
    depend, but no shape and no program: starts that differ in them alone are computed together in a sweep.
    """

    start_options: ClassVar[frozenset[str]] = frozenset()
    varied: ClassVar[frozenset[str]] = frozenset()
    """The options that the theory section may set in place of the values here: `depth`, or none."""
    linear_if: ClassVar[str] = "a linear network"
    """What to write for a network of this kind that is linear."""

    @abstractmethod
    def build(self, inputs: Any, outputs: int, *, key: Array, shared: Keys) -> eqx.Module:
        """Return the network for samples of so many numbers and labels, with weights drawn from `key`.

        `inputs` is a number; for a kind that keeps the shape of samples, that shape. `shared(name)` is the key of
        something random that all starts of a scenario have in common.
        """

    def keeps_shape(self) -> bool:
        """Return whether it takes samples in the shape that they have, such as images; else they come as vectors."""
        return False

    def inputs_for(self, shape: tuple[int, ...] | None) -> Inputs | None:
        """Return the `inputs` of the other methods for samples of this shape; None where it is not known yet."""
        return shape if shape is None or self.keeps_shape() else math.prod(shape)

    def is_linear(self) -> bool:
        """Return whether it is a linear network, of which the minimum is known and the theory speaks."""
        return False

    def starts_near_identity(self) -> bool:
        """Return whether W_k = I + s/√(Ld) N_k at the start, of which Theorem 4 speaks."""
        return False

    def count_matrices(self) -> int | None:
        """Return the number L of weight matrices; None for what is no chain of them."""
        return None

    def count_weights(self, inputs: Any, outputs: int | None) -> int | None:
        """Count the weights, of which none need exist; None where that takes sizes that are not known yet."""
        if inputs is None or outputs is None:
            return None
        options = self.model_dump_json(exclude=set(self.start_options))
        place = (type(self), options, inputs, outputs)
        if place not in _COUNTED:
            key = jax.random.key(0)
            shapes = eqx.filter_eval_shape(lambda: split(self.build(inputs, outputs, key=key, shared=lambda _: key))[0])
            _COUNTED[place] = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(shapes))
        return _COUNTED[place]

    def shape_errors(self, inputs: Any, outputs: int | None) -> Iterator[PydanticCustomError]:
        """Yield why the network cannot be built for so many numbers and labels; None: not known yet.

        A scenario asks about what it states itself; whoever loads the data asks again with their sizes.
        """
        yield from ()


# A sweep asks at every one of its points, and to trace a large network takes a moment.
_COUNTED: dict[tuple, int] = {}


NETWORKS: Registry[Any] = Registry(
    "a network",
    # A recipe, or what `network_recipe` makes a recipe of.
    accepts=lambda kind: is_kind_of(NetworkRecipe)(kind) or is_kind_of(eqx.Module)(kind) or inspect.isfunction(kind),
    expected="a class of Equinox modules, a function that returns one, or a flowsim.networks.NetworkRecipe with build",
)


def shape_errors(
    network: NetworkRecipe, shape: tuple[int, ...] | None, outputs: int | None
) -> Iterator[PydanticCustomError]:
    """Yield why `network` cannot be built for samples of this shape and so many labels, or should not be."""
    inputs = network.inputs_for(shape)
    if refused := list(network.shape_errors(inputs, outputs)):
        yield from refused
        return
    try:
        weights = network.count_weights(inputs, outputs) or 0
    except Exception as error:  # whatever a kind that is not ours does
        yield validation_error(
            found=f"a network that cannot be built for {inputs} inputs and {outputs} outputs ({reason_of(error)})",
            expected="options that fit these data",
            write="other options, or data of other sizes",
        )
        return
    if weights > MOST_NUMBERS:
        blamed = next((key for key in ("depth", "width") if key in type(network).model_fields), "kind")
        yield too_large(f"a network of {weights} weights", "depth or width", (blamed,))


class ModuleRecipe(Made, NetworkRecipe):
    """A network made by an Equinox class of a user's own, or by a function; its parameters are the options.

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
    return recipe_of(kind, given=frozenset({"in_size", "in_shape", "out_size", "key"}), base=ModuleRecipe)
