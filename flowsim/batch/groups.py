"""Many lanes through one compiled program: in groups of one width, lanes that ended left out.

All groups have the same width and go through the same machine code, so a lane's numbers cannot depend on the others.
"""

import functools
import time
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Int, PyTree

from ..dynamics.outcome import Outcome
from ..dynamics.verdict import divergence_ceiling
from ..runtime.compiling import with_options
from .kernel import Kernel

_BLOCK = 32  # steps between two looks at whether a lane is back where it was
_FIRST_BLOCKS = 8
_MOST_BLOCKS = 1 << 20
_SECONDS_PER_CALL = 0.3
_OPTIONS = {
    # XLA halves the vectors of processors with AVX-512 unless told; others know no such vectors, and it does no harm.
    "xla_cpu_prefer_vector_width": 512,
    # YNNPACK takes sums of products over, and writes all the products to memory first: up to four times the time.
    "xla_cpu_experimental_ynn_fusion_type": "",
}


class Lanes(NamedTuple):
    """Where every lane is. All arrays have the lane axis first.

    `limits` is the step at which a lane ends, `floors` the objective at or below which it ends before, `steps` the
    steps made so far, `codes` the `Outcome`, `ceilings` the objective above which it has diverged (known from its first
    evaluation on), `returned` whether its last block of steps led back to where the block began, which makes it wait.
    """

    weights: PyTree
    fixed: PyTree
    rates: Float[np.ndarray, " lanes"]
    limits: Int[np.ndarray, " lanes"]
    floors: Float[np.ndarray, " lanes"]
    steps: Int[np.ndarray, " lanes"]
    codes: Int[np.ndarray, " lanes"]
    ceilings: Float[np.ndarray, " lanes"]
    returned: Bool[np.ndarray, " lanes"]

    @classmethod
    def starting(
        cls, weights: PyTree, fixed: PyTree, rates: np.ndarray, limits: np.ndarray, floors: np.ndarray
    ) -> "Lanes":
        """Return lanes that have made no step yet; the arrays are NumPy's."""
        zeros = np.zeros_like(limits)
        return cls(weights, fixed, rates, limits, floors, zeros, zeros.copy(), np.zeros_like(rates), zeros.astype(bool))

    def taken(self, indices: np.ndarray) -> "Lanes":
        """Return the lanes of these indices."""
        return jax.tree.map(lambda leaf: leaf[indices], self)

    def put(self, indices: np.ndarray, group: "Lanes") -> None:
        """Overwrite the lanes of these indices by the first ones of a group."""
        for mine, theirs in zip(jax.tree.leaves(self), jax.tree.leaves(group), strict=True):
            mine[indices] = np.asarray(theirs)[: indices.size]


def run_to_ends(kernel: Kernel, lanes: Lanes) -> Lanes:
    """Return the lanes at their ends."""
    lanes = jax.tree.map(np.array, lanes)
    limits, blocks = lanes.limits.copy(), _FIRST_BLOCKS
    while (running := np.flatnonzero(lanes.codes == Outcome.RUNNING)).size:
        slowest = 0.0
        for start in range(0, running.size, kernel.width):
            began = time.monotonic()
            _advance_group(kernel, lanes, running[start : start + kernel.width], blocks=blocks, block=_BLOCK)
            slowest = max(slowest, time.monotonic() - began)
        _settle(kernel, lanes)
        blocks = min(max(1, int(blocks * min(2.0, _SECONDS_PER_CALL / max(slowest, 1e-3)))), _MOST_BLOCKS)
    steps = np.where(lanes.codes == Outcome.STEP_LIMIT, limits, lanes.steps)
    return lanes._replace(limits=limits, steps=steps)


def _settle(kernel: Kernel, lanes: Lanes) -> None:
    """End the lanes at a fixed point, and let those on a cycle jump to their last turn of it.

    A block of steps that led back to where it began will do so for ever: what is left of whole blocks changes nothing.
    """
    returned = np.flatnonzero(lanes.returned)
    lanes.returned[:] = False
    for start in range(0, returned.size, kernel.width):
        _advance_group(kernel, lanes, returned[start : start + kernel.width], blocks=1, block=1)
    lanes.codes[lanes.returned] = Outcome.FIXED_POINT
    cycling = returned[~lanes.returned[returned]]
    lanes.limits[cycling] = lanes.steps[cycling] + (lanes.limits[cycling] - lanes.steps[cycling]) % _BLOCK
    lanes.returned[:] = False


def _advance_group(kernel: Kernel, lanes: Lanes, indices: np.ndarray, *, blocks: int, block: int) -> None:
    padded = np.concatenate([indices, np.full(kernel.width - indices.size, indices[0])])
    lanes.put(indices, jax.device_get(_advance()(kernel, lanes.taken(padded), np.int32(blocks), np.int32(block))))


def _advanced(kernel: Kernel, lanes: Lanes, blocks: Int[ArrayLike, ""], block: Int[ArrayLike, ""]) -> Lanes:
    """Return a group after so many blocks of so many steps, or when all of its lanes have ended."""
    weights, fixed = kernel.enter(lanes.weights, lanes.fixed)
    given, lanes = lanes, lanes._replace(weights=weights, fixed=None)

    def step(_: Array, current: Lanes) -> Lanes:
        return _step(kernel, fixed, current)

    def next_block(carry: tuple[Array, Lanes]) -> tuple[Array, Lanes]:
        count, before = carry
        after = jax.lax.fori_loop(0, block, step, before)
        unchanged = kernel.unchanged(before.weights, after.weights) & (after.codes == Outcome.RUNNING)
        return count + 1, after._replace(returned=before.returned | unchanged)

    def unfinished(carry: tuple[Array, Lanes]) -> Bool[Array, ""]:
        return (carry[0] < blocks) & jnp.any(_moving(carry[1]))

    _, lanes = jax.lax.while_loop(unfinished, next_block, (jnp.zeros_like(blocks), lanes))
    return lanes._replace(weights=_like(given.weights, kernel.leave(lanes.weights)), fixed=given.fixed)


@functools.cache
def _advance() -> Callable[..., Lanes]:
    return with_options(_advanced, _OPTIONS)


def _step(kernel: Kernel, fixed: PyTree, lanes: Lanes) -> Lanes:
    """Return the lanes after one step, with the verdict on the objective before it."""
    objectives, move = kernel.evaluate(lanes.weights, fixed)
    ceilings = jnp.where(lanes.steps == 0, divergence_ceiling(objectives), lanes.ceilings)
    lost = ~jnp.isfinite(objectives) | (objectives > ceilings)
    verdict = jnp.where(lanes.steps >= lanes.limits, Outcome.STEP_LIMIT, Outcome.RUNNING)
    verdict = jnp.where(objectives <= lanes.floors, Outcome.RISK_REACHED, verdict)
    verdict = jnp.where(lost, Outcome.DIVERGED, verdict)
    codes = jnp.where(lanes.codes == Outcome.RUNNING, verdict.astype(lanes.codes.dtype), lanes.codes)
    lanes = lanes._replace(codes=codes, ceilings=ceilings)
    moving = _moving(lanes)
    return lanes._replace(weights=move(jnp.asarray(lanes.rates), jnp.asarray(moving)), steps=lanes.steps + moving)


def _like(tree: PyTree, leaves: PyTree) -> PyTree:
    return jax.tree.unflatten(jax.tree.structure(tree), jax.tree.leaves(leaves))


def _moving(lanes: Lanes) -> Bool[ArrayLike, " lanes"]:
    return (lanes.codes == Outcome.RUNNING) & ~lanes.returned
