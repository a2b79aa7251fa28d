"""Many gradient descents on one problem, run in groups through one compiled program."""

import functools
import time
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Int, PyTree

from ..dynamics import Optax, as_descent
from ..dynamics.descent import Descent
from ..dynamics.gradient_descent import GradientDescent
from ..dynamics.learning_rates import check_learning_rate, is_of_function, with_rate
from ..dynamics.outcome import Outcome, decide
from ..dynamics.stopping import divergence_ceiling, has_diverged
from ..networks import cast, records, split
from ..problems import Problem
from ..runtime.compiling import compiled
from ..solvers.field import checked_parts
from .kernel import Kernel, kernel_for

if TYPE_CHECKING:
    import optax


_OPTIONS = {
    # XLA halves the vectors of processors with AVX-512 unless told; others know no such vectors, and it does no harm.
    "xla_cpu_prefer_vector_width": 512,
    # YNNPACK takes sums of products over, and writes all the products to memory first: up to four times the time.
    "xla_cpu_experimental_ynn_fusion_type": "",
}


class BatchState(NamedTuple):
    """The state of all runs. All arrays have the batch axis first.

    `limits` is the step at which a run ends, `floors` the objective at or below which it ends earlier, `steps` the
    number of steps so far, `codes` the `Outcome`, `ceilings` the objective above which it has diverged (known from its
    first evaluation on), `returned` whether a block of steps led back to its own beginning, which pauses the run.
    """

    weights: PyTree
    fixed: PyTree
    rates: Float[np.ndarray, " batch"]
    limits: Int[np.ndarray, " batch"]
    floors: Float[np.ndarray, " batch"]
    steps: Int[np.ndarray, " batch"]
    codes: Int[np.ndarray, " batch"]
    ceilings: Float[np.ndarray, " batch"]
    returned: Bool[np.ndarray, " batch"]

    @classmethod
    def starting(
        cls, weights: PyTree, fixed: PyTree, rates: np.ndarray, limits: np.ndarray, floors: np.ndarray
    ) -> "BatchState":
        """Return runs that have made no step yet; the arrays are NumPy's."""
        zeros = np.zeros_like(limits)
        return cls(weights, fixed, rates, limits, floors, zeros, zeros.copy(), np.zeros_like(rates), zeros.astype(bool))

    def taken(self, indices: np.ndarray) -> "BatchState":
        """Return the runs of these indices."""
        return jax.tree.map(lambda leaf: leaf[indices], self)

    def put(self, indices: np.ndarray, group: "BatchState") -> None:
        """Overwrite the runs of these indices by the first ones of a group."""
        for mine, theirs in zip(jax.tree.leaves(self), jax.tree.leaves(group), strict=True):
            mine[indices] = np.asarray(theirs)[: indices.size]


def run_to_ends(
    kernel: Kernel,
    batch: BatchState,
    *,
    block: int = 32,
    blocks: int = 8,
    most_blocks: int = 1 << 20,
    seconds: float = 0.3,
) -> BatchState:
    """Return the runs at their ends.

    Every `block` of steps is checked for having led back to its own beginning. The first call makes so many `blocks`;
    later ones take about `seconds`, so that they can be interrupted, and runs that have ended leave their group.
    """
    batch = jax.tree.map(np.array, batch)
    limits = batch.limits.copy()
    while (running := np.flatnonzero(batch.codes == Outcome.RUNNING)).size:
        slowest = 0.0
        for start in range(0, running.size, kernel.width):
            began = time.monotonic()
            _advance_group(kernel, batch, running[start : start + kernel.width], blocks=blocks, block=block)
            slowest = max(slowest, time.monotonic() - began)
        _end_cycles(kernel, batch, block)
        blocks = min(max(1, int(blocks * min(2.0, seconds / max(slowest, 1e-3)))), most_blocks)
    steps = np.where(batch.codes == Outcome.STEP_LIMIT, limits, batch.steps)
    return batch._replace(limits=limits, steps=steps)


def _end_cycles(kernel: Kernel, batch: BatchState, block: int) -> None:
    """End the runs at a fixed point, and skip the remaining whole blocks of those on a cycle, which change nothing."""
    returned = np.flatnonzero(batch.returned)
    batch.returned[:] = False
    for start in range(0, returned.size, kernel.width):
        _advance_group(kernel, batch, returned[start : start + kernel.width], blocks=1, block=1)
    batch.codes[batch.returned] = Outcome.FIXED_POINT
    cycling = returned[~batch.returned[returned]]
    batch.limits[cycling] = batch.steps[cycling] + (batch.limits[cycling] - batch.steps[cycling]) % block
    batch.returned[:] = False


def _advance_group(kernel: Kernel, batch: BatchState, indices: np.ndarray, *, blocks: int, block: int) -> None:
    padded = np.concatenate([indices, np.full(kernel.width - indices.size, indices[0])])
    batch.put(indices, jax.device_get(_advance()(kernel, batch.taken(padded), np.int32(blocks), np.int32(block))))


def _advanced(kernel: Kernel, batch: BatchState, blocks: Int[ArrayLike, ""], block: Int[ArrayLike, ""]) -> BatchState:
    """Return a group after so many blocks of so many steps, or when all of its runs have ended."""
    weights, fixed = kernel.enter(batch.weights, batch.fixed)
    given, batch = batch, batch._replace(weights=weights, fixed=None)

    def step(_: Array, current: BatchState) -> BatchState:
        return _step(kernel, fixed, current)

    def next_block(carry: tuple[Array, BatchState]) -> tuple[Array, BatchState]:
        count, before = carry
        after = jax.lax.fori_loop(0, block, step, before)
        # A difference is one in what stays, the batch axis first: a kernel may keep more.
        pairs = zip(*(jax.tree.leaves(kernel.leave(state.weights)) for state in (before, after)), strict=True)
        same = jnp.stack([jnp.all(old == new, axis=tuple(range(1, old.ndim))) for old, new in pairs])
        unchanged = jnp.all(same, axis=0) & (after.codes == Outcome.RUNNING)
        return count + 1, after._replace(returned=before.returned | unchanged)

    def unfinished(carry: tuple[Array, BatchState]) -> Bool[Array, ""]:
        return (carry[0] < blocks) & jnp.any(_moving(carry[1]))

    _, batch = jax.lax.while_loop(unfinished, next_block, (jnp.zeros_like(blocks), batch))
    leaves = jax.tree.leaves(kernel.leave(batch.weights))
    return batch._replace(weights=jax.tree.unflatten(jax.tree.structure(given.weights), leaves), fixed=given.fixed)


@functools.cache
def _advance() -> Callable[..., BatchState]:
    return compiled(_advanced, options=_OPTIONS)


def _step(kernel: Kernel, fixed: PyTree, batch: BatchState) -> BatchState:
    """Return the runs after one step, with the outcome by the objective before it."""
    objectives, move = kernel.evaluate(batch.weights, fixed)
    ceilings = jnp.where(batch.steps == 0, divergence_ceiling(objectives), batch.ceilings)
    outcome = decide(
        {
            Outcome.DIVERGED: has_diverged(objectives, ceilings),
            Outcome.RISK_REACHED: objectives <= batch.floors,
            Outcome.NO_MINIMIZER: objectives < -ceilings,
            Outcome.STEP_LIMIT: jnp.asarray(batch.steps >= batch.limits),
        }
    )
    codes = jnp.where(batch.codes == Outcome.RUNNING, outcome.astype(batch.codes.dtype), batch.codes)
    batch = batch._replace(codes=codes, ceilings=ceilings)
    moving = _moving(batch)
    return batch._replace(weights=move(jnp.asarray(batch.rates), jnp.asarray(moving)), steps=batch.steps + moving)


def _moving(batch: BatchState) -> Bool[ArrayLike, " batch"]:
    return (batch.codes == Outcome.RUNNING) & ~batch.returned


AtRate = Callable[[float], "Descent | optax.GradientTransformation"]


class Ends(eqx.Module):
    """How many descents ended: one run for each, in the order in which they were given."""

    networks: PyTree
    """The last state of each, the batch axis first."""
    outcomes: Int[np.ndarray, " batch"]
    """The numbers of its `Outcome`."""
    steps: Int[np.ndarray, " batch"]
    """The steps that it took; fixed points are searched every 32 steps, and counted with the steps up to there."""


def descend_batch(
    networks: PyTree,
    problem: Problem,
    *,
    learning_rates: "ArrayLike | Sequence[float | Descent]",
    steps: ArrayLike,
    optimizer: AtRate = GradientDescent,
    floors: ArrayLike = -np.inf,
) -> Ends:
    """Run gradient descent W ← W − η∇R(W), or another descent, from each of many networks on one problem.

    Each run does what `descend` does without a `stopping`, and its end does not depend, to the last bit, on the other
    runs. It ends early if its risk diverges (DIVERGED, with the state in which that showed) or has no bound
    (NO_MINIMIZER), or if a step changes no weight (FIXED_POINT, with the state that it would have at the last step);
    else it ends at STEP_LIMIT. The precision is that of the weights.

    Args:
        networks: One network whose arrays all have a leading batch axis, as from `jax.vmap` of a constructor.
        problem: The risk R.
        learning_rates: η of each run, of shape (batch,), or a list with the descent of each run, which holds its own.
        steps: One number of steps, or one for each run.
        optimizer: Makes the descent, or a transformation of Optax, of each η that is a number.
        floors: A run ends early, RISK_REACHED, where the problem's `objective` is at this or below: one number, or one
            for each run.

    Returns:
        How each run ended, in the order of the networks.

    Raises:
        ValueError: For arguments that cannot be right.
        TypeError: For arguments of another type.
    """
    networks, rest, dtype = checked_parts(networks, problem)
    weights, _ = split(networks)
    batch = _batch_size(networks)
    fixed, static = eqx.partition(rest, eqx.is_array)
    descents, rates = _descents(learning_rates, optimizer, batch, dtype)
    limits = _limits(steps, batch)
    floors = np.broadcast_to(np.asarray(floors, dtype), (batch,))
    one = jax.eval_shape(lambda tree: jax.tree.map(lambda leaf: leaf[0], tree), eqx.filter(networks, eqx.is_array))
    found: list[tuple[PyTree, np.ndarray, np.ndarray]] = []
    groups = _alike(descents)
    for dynamics, members in groups:
        kernel = kernel_for(eqx.combine(one, static), cast(problem, dtype), dynamics)
        own_weights, own_fixed = records((weights, fixed), members)
        numbers = (rates[members], limits[members], floors[members])
        end = run_to_ends(kernel, BatchState.starting(kernel.start(own_weights), own_fixed, *numbers))
        found.append((kernel.end(end.weights), end.codes, end.steps))
    order = np.argsort(np.concatenate([members for _, members in groups]))
    ends, outcomes, made = jax.tree.map(lambda *parts: np.concatenate(parts)[order], *found)
    return Ends(eqx.combine(jax.tree.map(jnp.asarray, ends), rest), outcomes, made)


def _descents(
    learning_rates: Any, optimizer: AtRate, batch: int, dtype: jnp.dtype
) -> tuple[list[Descent], Float[np.ndarray, " batch"]]:
    """Return the descent of each run, one object for equal entries, and its learning rate."""
    entries: list[Any] = list(learning_rates) if isinstance(learning_rates, list | tuple) else []
    if len(entries) == batch and all(isinstance(entry, Descent) for entry in entries):
        checked = {id(entry): entry.checked(dtype) for entry in entries}
        descents = [checked[id(entry)] for entry in entries]
        return descents, np.array([descent.rate_of_descent() for descent in descents], dtype)
    rates = np.asarray(learning_rates)
    if rates.shape != (batch,):
        raise ValueError(f"learning_rates has shape {rates.shape}: expected ({batch},), one for each run")
    for rate in rates.tolist():
        check_learning_rate(rate, dtype)
    rates = rates.astype(dtype)
    made = {rate: as_descent(optimizer(rate)).checked(dtype) for rate in dict.fromkeys(rates.tolist())}
    for rate, descent in made.items():
        nominal = descent.rate_of_descent()
        of_function = isinstance(descent, Optax) or is_of_function(descent.learning_rate)
        if not of_function and not np.isclose(nominal, rate):
            raise ValueError(
                f"optimizer({rate:g}) is a descent with the learning rate {float(nominal):g}: expected that of the "
                "run, as all runs take theirs in one program; write another learning rate instead"
            )
    return [made[rate] for rate in rates.tolist()], rates


def _alike(descents: Sequence[Descent]) -> list[tuple[Descent, Int[np.ndarray, " members"]]]:
    """Return the descents that differ in more than their learning rate, each with the runs that it is for.

    One program takes a rate for each run; all other fields it takes from the first of these descents.
    """
    groups: dict[Any, tuple[Descent, list[int]]] = {}
    keys = {id(descent): _without_rate(descent) for descent in {id(one): one for one in descents}.values()}
    for run, descent in enumerate(descents):
        groups.setdefault(keys[id(descent)], (descent, []))[1].append(run)
    return [(descent, np.array(members)) for descent, members in groups.values()]


def _without_rate(dynamics: Descent) -> Any:
    """Return a hashable key of all fields of a descent but its learning rate."""

    def key(leaf: Any) -> Any:
        if isinstance(leaf, np.ndarray | np.generic | jax.Array):
            return str(leaf.dtype), leaf.shape, np.asarray(leaf).tobytes()
        return leaf if isinstance(leaf, Hashable) else id(leaf)

    fields = vars(with_rate(dynamics, 0.0))
    leaves, structure = jax.tree.flatten(fields)
    return type(dynamics), structure, tuple(map(key, leaves))


def _batch_size(networks: PyTree) -> int:
    """Return the length of the leading axis that all arrays share."""
    arrays = jax.tree_util.tree_leaves_with_path(eqx.filter(networks, eqx.is_array))
    found = {f"{jax.tree_util.keystr(path)}: {array.shape}" for path, array in arrays}
    lengths = {array.shape[:1] for _, array in arrays}
    if len(lengths) != 1 or lengths & {(), (0,)}:
        raise ValueError(
            f"every array of the networks needs the same leading batch axis, got {', '.join(sorted(found))}: "
            "build them by jax.vmap of a constructor, or stack them by jax.tree.map"
        )
    return lengths.pop()[0]


def _limits(steps: ArrayLike, batch: int) -> np.ndarray:
    limits = np.asarray(steps)
    limits = np.full(batch, limits) if limits.ndim == 0 else limits
    if limits.shape != (batch,):
        raise ValueError(f"steps has shape {limits.shape}: expected ({batch},), one for each run")
    whole = np.issubdtype(limits.dtype, np.integer)
    if not whole or limits.min() < 1 or limits.max() > np.iinfo(np.int32).max // 2:
        raise ValueError(f"steps must be whole numbers from one to {np.iinfo(np.int32).max // 2}, got {steps!r}")
    return limits.astype(np.int32)
