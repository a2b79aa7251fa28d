"""Any network on any problem, by automatic differentiation."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from ..dynamics.descent import Descent, DescentState
from ..dynamics.minibatches import Draw
from ..problems import Problem
from .kernel import Kernel, Move


class AutomaticKernel(Kernel):
    """∇R by `jax.grad` of the problem's objective and any descent's own step, both mapped over the runs.

    Runs carry their weights, what the descent remembers of its steps, and where its sequence of minibatches is.
    """

    problem: Problem
    dynamics: Descent
    static: PyTree
    width: int = eqx.field(static=True, default=16)

    @classmethod
    def of(cls, network: PyTree, problem: Problem, dynamics: Descent) -> "AutomaticKernel":
        """Return the kernel for networks like `network` that move as `dynamics` does, each at a rate of its own."""
        static = eqx.partition(network, _is_array)[1]
        return cls(problem=problem, dynamics=dynamics, static=static)

    def start(self, weights: PyTree) -> PyTree:
        """Return the weights, what is remembered before the first step, and which samples are next."""

        def begun(one: PyTree) -> tuple[PyTree, PyTree, Draw | None]:
            sampler = self.dynamics.minibatches()
            return one, self.dynamics.remember(one), None if sampler is None else sampler.first(self.problem)

        return jax.vmap(begun)(weights)

    def end(self, weights: PyTree) -> PyTree:
        """Return the weights alone."""
        return weights[0]

    def enter(self, weights: PyTree, fixed: PyTree) -> tuple[PyTree, PyTree]:
        """Return what runs carry, and fixed arrays, as they are, the batch axis first."""
        return weights, fixed

    def leave(self, weights: PyTree) -> PyTree:
        """Return what runs carry as it is."""
        return weights

    def unchanged(self, before: PyTree, after: PyTree) -> Bool[Array, " batch"]:
        """Tell for each run whether all that it carries is the same."""
        pairs = zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True)
        same = [jnp.all((old == new).reshape(old.shape[0], -1), axis=1) for old, new in pairs]
        return jnp.all(jnp.stack(same), axis=0)

    def evaluate(self, weights: PyTree, fixed: PyTree) -> tuple[Float[Array, " batch"], Move]:
        """Return the objectives, and the function (rates, moving) ↦ what runs carry after a step.

        With minibatches the objectives are those of the samples that are next.
        """

        def evaluated(carried: PyTree, fixed: PyTree) -> tuple[Array, PyTree]:
            return jax.value_and_grad(self._objective(carried[2], fixed))(carried[0])

        def stepped(rate: Array, moving: Array, carried: PyTree, found: tuple[Array, PyTree], fixed: PyTree) -> PyTree:
            dynamics = eqx.tree_at(lambda one: one.learning_rate, self.dynamics, rate)
            here, memory, draw = carried
            state = DescentState(here, memory, *found, draw)
            after = (*dynamics.advanced(self._objective(draw, fixed), state), self._next(draw))
            return jax.tree.map(lambda new, old: jnp.where(moving, new, old), after, carried)

        found = jax.vmap(evaluated)(weights, fixed)
        return found[0], lambda rates, moving: jax.vmap(stepped)(rates, moving, weights, found, fixed)

    def _objective(self, draw: Draw | None, fixed: PyTree) -> Callable[[PyTree], Float[Array, ""]]:
        sampler = self.dynamics.minibatches()
        problem = self.problem if sampler is None or draw is None else sampler.taken(self.problem, draw)
        return lambda weights: problem.objective(eqx.combine(weights, fixed, self.static))

    def _next(self, draw: Draw | None) -> Draw | None:
        sampler = self.dynamics.minibatches()
        return None if sampler is None or draw is None else sampler.next(draw)


def _is_array(leaf: object) -> bool:
    return eqx.is_array(leaf) or isinstance(leaf, jax.ShapeDtypeStruct)
