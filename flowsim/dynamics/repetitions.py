"""Many repetitions of a random descent, which differ in their seed, in one program."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Int, PyTree, UInt32

from ..curvature.finiteness import check_gradient
from ..networks import warn_of_single_precision
from ..networks.weights import weight_count
from ..probes import Probe
from ..problems import Problem
from ..runtime.compiling import compiled, with_standard_options
from ..solvers.field import GradientField, check_step_count, checked_parts, gradient_field
from .descend import default_record_steps
from .descent import Descent
from .dynamics import Clock
from .outcome import Outcome, decide
from .records import Instruments, instruments
from .stopping import divergence_ceiling, has_diverged
from .trajectory import as_times

# Ctrl-C waits for the end of a call.
_STEPS_OF_CALL = 2**12

Seeds = UInt32[Array, " seeds"]


@dataclass(frozen=True, eq=False)
class Repetitions:
    """What many repetitions of a descent recorded: what `flowsim.repeat` returns.

    Of a repetition that diverges probes are NaN from the record on where that shows.
    """

    seeds: UInt32[np.ndarray, " seeds"]
    """The seed of each."""
    steps: Int[np.ndarray, " records"]
    """The numbers of the recorded steps."""
    times: Float[np.ndarray, " records"]
    """Their times."""
    probes: dict[str, Any]
    """What each probe measured, by its name, or a dict of that: NumPy arrays with the axes (seeds, records, …)."""
    network: PyTree
    """The network at the end, its weights with a leading axis of seeds."""
    weights: PyTree | None
    """The network with the axes (seeds, records, …) where weights were kept, else `None`."""
    outcomes: Int[np.ndarray, " seeds"]
    """The numbers of DIVERGED or STEP_LIMIT."""

    def __repr__(self) -> str:
        diverged = int(np.sum(self.outcomes == Outcome.DIVERGED))
        ends = f", {diverged} diverged" if diverged else ""
        return f"Repetitions({len(self.seeds)} seeds, {len(self.times)} records, {self.steps[-1]} steps{ends})"

    def mean(self, name: str) -> PyTree:
        """Return the mean over the seeds of what a probe measured: (records, …), NaN from where one diverged on."""
        return jax.tree.map(lambda values: values.mean(0), self.probes[name])

    def standard_error(self, name: str) -> PyTree:
        """Return the standard error of that mean, NaN for a single seed."""

        def error(values: np.ndarray) -> np.ndarray:
            count = len(values)
            return values.std(0, ddof=1) / count**0.5 if count > 1 else np.full(values.shape[1:], np.nan)

        return jax.tree.map(error, self.probes[name])


@with_standard_options
def repeat(
    network: PyTree,
    problem: Problem,
    *,
    optimizer: Descent,
    seeds: ArrayLike,
    steps: int,
    record_steps: ArrayLike | None = None,
    probes: Sequence[Probe | Callable[[Any], Any]] = (),
    sharpness: bool = False,
    weights: bool = False,
) -> Repetitions:
    """Run a descent with a `seed`, such as `SGD`, once for each of many seeds, all of them in one program.

    Each repetition makes the steps that `descend` makes with that seed, from the same weights: none ends early, and of
    one that diverges records are NaN from then on. The full risk and its gradient are computed at records alone. It
    runs from record to record, and takes the memory of so many gradients at once.

    Args:
        network: The weights at step 0: any pytree of arrays, such as an Equinox module.
        problem: The risk R, with samples.
        optimizer: The descent, which has a `seed`.
        seeds: The seeds, of shape (seeds,), in place of its own.
        steps: The number of steps of each.
        record_steps: Increasing numbers of the steps that are recorded; by default as in `descend`.
        probes: What is recorded: a `flowsim.Probe`, or a function of the network.
        sharpness: Whether to record the sharpness.
        weights: Whether to record the weights.

    Returns:
        The records of all repetitions, with a leading axis of seeds.

    Raises:
        ValueError: For arguments that cannot be right, and as `descend` for a gradient that is not finite at the start.
        TypeError: For arguments of another type, as an optimizer that draws nothing.

    Examples:
        >>> import flowsim, jax, numpy as np
        >>> X, y = flowsim.data.gaussian_teacher(np.random.default_rng(0), 20, 3)
        >>> problem = flowsim.EmpiricalRisk(X, y)
        >>> network = flowsim.DeepLinear.gaussian(widths=[3, 1], scale=0.5, key=jax.random.key(0))
        >>> many = flowsim.repeat(network, problem, optimizer=flowsim.SGD(0.05, batch=4), seeds=[0, 1], steps=30)
        >>> print(many.network.weights[0].shape)
        (2, 1, 3)
    """
    network, rest, dtype = checked_parts(network, problem)
    warn_of_single_precision(network)
    drawn_by = _as_seeds(optimizer, seeds)
    known = jnp.asarray(drawn_by)
    dynamics = optimizer.checked(dtype)
    check_step_count("steps", steps)
    marks = default_record_steps(steps) if record_steps is None else as_times(record_steps, "record_steps", whole=True)
    marks = marks[marks < steps]
    tools = instruments(network, dynamics, None, probes, sharpness=sharpness, weights=weights)
    field, start = gradient_field(network, problem)
    states, ceiling = _start(dynamics, field, start, known)
    clock = Clock(jnp.zeros_like(ceiling), jnp.zeros_like(ceiling))
    made, found, gone = 0, [], [np.zeros(len(drawn_by), bool)]
    for mark in (*marks.tolist(), steps):
        while made < mark:
            further = min(_STEPS_OF_CALL, mark - made)
            states, clock = _advance(dynamics, field, known, states, clock, np.int32(made), np.int32(further))
            made += further
        record, diverged = _measure(dynamics, field, tools, known, states, clock, ceiling)
        found.append(jax.device_get(record))
        gone.append(gone[-1] | np.asarray(diverged))
        if gone[-1].all() and not gone[-2].all():
            check_gradient(network, problem, "at the initial weights")
    along = jax.tree.map(lambda *records: np.stack(records, axis=1), *found)
    lost = np.stack(gone[1:], axis=1)
    return Repetitions(
        seeds=drawn_by,
        steps=np.append(marks, steps),
        times=along["times"][0],
        probes=jax.tree.map(lambda values: np.where(_like(lost, values), np.nan, values), along["probes"]),
        network=eqx.combine(dynamics.weights(states), rest),
        weights=eqx.combine(along["weights"], rest) if weights else None,
        outcomes=decide({Outcome.DIVERGED: gone[-1], Outcome.STEP_LIMIT: True}),
    )


def _like(flags: Bool[np.ndarray, "seeds records"], values: np.ndarray) -> np.ndarray:
    """Return flags with as many axes as the values that they are of."""
    return flags.reshape(flags.shape + (1,) * (values.ndim - 2))


def _as_seeds(optimizer: object, seeds: ArrayLike) -> UInt32[np.ndarray, " seeds"]:
    if not isinstance(optimizer, Descent):
        raise TypeError(
            f"optimizer must be a flowsim.Descent with a seed, got {optimizer!r}: write flowsim.SGD(0.1, 8)"
        )
    optimizer.with_seed(0)
    known = np.asarray(seeds)
    if known.ndim != 1 or not known.size or known.dtype.kind not in "iu" or known.min() < 0 or known.max() >= 2**32:
        raise ValueError(f"seeds must be a list of whole numbers from 0 to {2**32 - 1}, got {seeds!r}")
    return known.astype(np.uint32)


@partial(compiled, few_calls=True)
def _start(dynamics: Descent, field: GradientField, weights: PyTree, seeds: Seeds) -> tuple[PyTree, Array]:
    """Return the state before the first step for each seed, and the objective above which it has diverged."""

    dtype = jax.tree.leaves(weights)[0].dtype

    def start(seed: UInt32[Array, ""]) -> PyTree:
        seeded = dynamics.at(jnp.zeros_like(seed, dtype)).with_seed(seed)
        unmeasured = seeded.start(field, weights)
        return seeded.attempt(field, unmeasured, jnp.array(jnp.inf), jnp.array(False)).state

    axes = _axes(jax.eval_shape(start, seeds[0]))
    return jax.vmap(start, out_axes=axes)(seeds), divergence_ceiling(field.objective(weights))


def _axes(states: PyTree) -> PyTree:
    """Return the axes of seeds in states: all are at the same batch, so that new orders are drawn in the same steps."""
    axes = jax.tree.map(lambda _: 0, states)
    return axes if states.draw is None else eqx.tree_at(lambda state: state.draw.count, axes, None)


@partial(compiled, donate="none")
def _advance(
    dynamics: Descent,
    field: GradientField,
    seeds: Seeds,
    states: PyTree,
    clock: Clock,
    made: Int[ArrayLike, ""],
    steps: Int[ArrayLike, ""],
) -> tuple[PyTree, Clock]:
    """Return the states after so many more steps than were `made`, and the time then."""
    axes, begun, far = _axes(states), jnp.array(True), jnp.array(jnp.inf)

    def step(index: Int[Array, ""], current: tuple[PyTree, Clock]) -> tuple[PyTree, Clock]:
        states, clock = current
        here = dynamics.at(clock.time)

        def after(seed: UInt32[Array, ""], state: PyTree) -> PyTree:
            return here.with_seed(seed).attempt(field, state, far, begun).state

        states = jax.vmap(after, in_axes=(0, axes), out_axes=axes)(seeds, states)
        length = jnp.asarray(here.time_of_step())
        constant = Clock(length * (made + index + 1), clock.remainder)
        return states, clock.after(length) if dynamics.is_scheduled() else constant

    return jax.lax.fori_loop(0, steps, step, (states, clock))


@partial(compiled, few_calls=True)
def _measure(
    dynamics: Descent,
    field: GradientField,
    tools: Instruments,
    seeds: Seeds,
    states: PyTree,
    clock: Clock,
    ceiling: Float[Array, ""],
    *,
    numbers_at_once: int = 2**18,
) -> tuple[dict[str, PyTree], Bool[Array, " seeds"]]:
    """Return a record of each state, and whether its run has diverged."""

    def measure(seed: UInt32[Array, ""], state: PyTree) -> tuple[dict[str, PyTree], Array]:
        seeded = dynamics.at(clock.time).with_seed(seed)
        objective, gradient_norm = seeded.observe(field, state)
        return tools.measure(seeded, field, state, clock, gradient_norm), has_diverged(objective, ceiling)

    if states.draw is not None:
        states = eqx.tree_at(lambda state: state.draw.count, states, jnp.full_like(seeds, states.draw.count, jnp.int32))
    # A probe that iterates takes as long for all that are measured at once as for the slowest.
    of_one = weight_count(dynamics.weights(states)) // len(seeds)
    at_once = max(1, min(len(seeds), numbers_at_once // of_one))
    return jax.lax.map(lambda pair: measure(*pair), (seeds, states), batch_size=at_once)
