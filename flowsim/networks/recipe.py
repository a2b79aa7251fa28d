"""What YAML says of a network, whatever its kind."""

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import ClassVar

import equinox as eqx
import jax
from jaxtyping import Array
from pydantic_core import PydanticCustomError

from ..kinds import Recipe, Registry, is_recipe_of, refusal
from ..kinds.values import MOST_NUMBERS, too_large
from .weights import split

Keys = Callable[[str], Array]


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
    def build(self, inputs: int, outputs: int, *, key: Array, shared: Keys) -> eqx.Module:
        """Return the network for samples of so many numbers and labels, with weights drawn from `key`.

        `shared(name)` is the key of something random that all starts of a scenario have in common.
        """

    def is_linear(self) -> bool:
        """Return whether it is a linear network, of which the minimum is known and the theory speaks."""
        return False

    def starts_near_identity(self) -> bool:
        """Return whether W_k = I + s/√(Ld) N_k at the start, of which Theorem 4 speaks."""
        return False

    def count_matrices(self) -> int | None:
        """Return the number L of weight matrices; None for what is no chain of them."""
        return None

    def count_weights(self, inputs: int | None, outputs: int | None) -> int | None:
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

    def shape_refusals(self, inputs: int | None, outputs: int | None) -> Iterator[PydanticCustomError]:
        """Yield why the network cannot be built for so many numbers and labels; None: not known yet.

        A scenario asks about what it states itself; whoever loads the data asks again with their sizes.
        """
        yield from ()


# A sweep asks at every one of its points, and to trace a large network takes a moment.
_COUNTED: dict[tuple, int] = {}

NETWORKS: Registry[type[NetworkRecipe]] = Registry(
    "a network",
    accepts=is_recipe_of(NetworkRecipe),
    expected="a subclass of flowsim.networks.NetworkRecipe with a method build",
)


def shape_refusals(network: NetworkRecipe, inputs: int | None, outputs: int | None) -> Iterator[PydanticCustomError]:
    """Yield why `network` cannot be built for so many numbers and labels, or should not be."""
    yield from network.shape_refusals(inputs, outputs)
    try:
        weights = network.count_weights(inputs, outputs) or 0
    except Exception as error:  # whatever a kind that is not ours does
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        yield refusal(
            found=f"a network that cannot be built for {inputs} inputs and {outputs} outputs ({reason})",
            expected="options that fit these data",
            write="other options, or data of other sizes",
        )
        return
    if weights > MOST_NUMBERS:
        blamed = next((key for key in ("depth", "width") if key in type(network).model_fields), "kind")
        yield too_large(f"a network of {weights} weights", "depth or width", (blamed,))
