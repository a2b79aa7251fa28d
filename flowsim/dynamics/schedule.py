"""When records are made along a run: at given steps, at given times, or spread evenly along the trajectory."""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Int, PyTree

from .dynamics import Clock
from .records import Records


class Schedule(eqx.Module):
    """When records are made. Its state holds them, in `records`, and whatever decides about the next."""

    @abc.abstractmethod
    def init(self, record: PyTree) -> Any:
        """Return the state before the first step, from the shapes of a record."""

    def horizon(self, state: Any) -> Float[ArrayLike, ""]:
        """Return the time at which a step must end, infinite where none must."""
        return jnp.inf

    def longest_step(self, state: Any) -> Float[ArrayLike, ""]:
        """Return how long the next step may be for the records to be dense enough."""
        return jnp.inf

    def moved(self, state: Any, coordinates: Float[Array, " 3"], length: Array) -> Any:
        """Return the state after a step that counts, of a `length` in time."""
        return state

    @abc.abstractmethod
    def due(self, state: Any, clock: Clock, steps: Int[Array, ""], *, ended: Array) -> Bool[Array, ""]:
        """Tell whether a record should be made here."""

    @abc.abstractmethod
    def add(self, state: Any, record: PyTree) -> Any:
        """Return the state with one more record."""


class Pace(eqx.Module):
    """The position of a run in coordinates along which records are evenly spread, and its speed in them."""

    recorded: Float[Array, " 3"]
    here: Float[Array, " 3"]
    longest: Float[Array, ""]

    @classmethod
    def unknown(cls, dtype: jnp.dtype) -> "Pace":
        """Return the pace before it is known where the run begins."""
        infinite = jnp.full(3, jnp.inf, dtype)
        return cls(infinite, jnp.full_like(infinite, jnp.nan), infinite[0])

    def moved(self, coordinates: Float[Array, " 3"], length: Array, spacing: Array) -> "Pace":
        """Return the pace after a step of a `length` in time; the next may be as long as covers `spacing`."""
        distance = jnp.sum(jnp.abs(coordinates - self.here))
        longest = jnp.where(distance > 0, length * spacing / distance, jnp.inf)
        return Pace(self.recorded, coordinates, longest)

    def now_recorded(self) -> "Pace":
        """Return the pace with a record made here."""
        return Pace(self.here, self.here, self.longest)

    def due(self, spacing: Array) -> Bool[Array, ""]:
        """Tell whether more than half of `spacing` lies between here and the last record."""
        return ~(jnp.sum(jnp.abs(self.here - self.recorded)) < spacing / 2)

    def elsewhere(self) -> Bool[Array, ""]:
        """Tell whether the last record was made anywhere but here."""
        return jnp.any(self.here != self.recorded)


class SpreadState(eqx.Module):
    """The records of a `Spread`, the pace of the run, and the distance between records."""

    records: Records
    pace: Pace
    spacing: Float[Array, ""]


class Spread(Schedule):
    """Records at ends of steps, evenly spread: up to `capacity` of them, an even number, and half as many at least.

    Distance is measured in log time (plateaus), the decrease of the risk (the fast phase) and the logarithm of the
    gradient norm (the convergence), and steps are kept short enough to resolve it. When all slots are taken, every
    second record is dropped and the spacing doubled, so that the length of the run need not be known.
    """

    capacity: int = eqx.field(static=True, default=128)
    reach: float = eqx.field(static=True, default=128.0)
    """The distance that `capacity` records cover at the first spacing."""

    def init(self, record: PyTree) -> SpreadState:
        """Return the state before the first record, which is due at once."""
        spacing = jnp.asarray(self.reach / self.capacity, record["times"].dtype)
        return SpreadState(Records.empty(self.capacity, record), Pace.unknown(record["times"].dtype), spacing)

    def longest_step(self, state: SpreadState) -> Float[Array, ""]:
        """Return how long the next step may be for the records to be dense enough."""
        return state.pace.longest

    def moved(self, state: SpreadState, coordinates: Float[Array, " 3"], length: Array) -> SpreadState:
        """Return the state after a step."""
        return SpreadState(state.records, state.pace.moved(coordinates, length, state.spacing), state.spacing)

    def due(self, state: SpreadState, clock: Clock, steps: Int[Array, ""], *, ended: Array) -> Bool[Array, ""]:
        """Tell whether a record should be made here."""
        return state.pace.due(state.spacing) | (ended & state.pace.elsewhere())

    def add(self, state: SpreadState, record: PyTree) -> SpreadState:
        """Return the state with one more record."""
        full = state.records.count == self.capacity
        records = jax.lax.cond(full, lambda records: records.every_second(), lambda records: records, state.records)
        return SpreadState(records.add(record), state.pace.now_recorded(), jnp.where(full, 2, 1) * state.spacing)


class AtTimesState(eqx.Module):
    """The records of an `AtTimes`, which of its times comes next, how many lie in between, and the run's pace."""

    records: Records
    upcoming: Int[Array, ""]
    between: Int[Array, ""]
    pace: Pace


class AtTimes(Schedule):
    """Records at the given increasing times `ts`, to which the flow steps exactly, and one at the end.

    With `between`, up to `most_between` more, each at the distance `first_spacing` from the last record, measured as in
    `Spread`; the spacing doubles with every quarter of them.
    """

    ts: Float[Array | np.ndarray, " times"]
    between: bool = eqx.field(static=True, default=False)
    most_between: int = eqx.field(static=True, default=256)
    first_spacing: float = eqx.field(static=True, default=0.5)

    def init(self, record: PyTree) -> AtTimesState:
        """Return the state before the first record."""
        capacity = self.ts.size + 1 + (self.most_between if self.between else 0)
        return AtTimesState(
            Records.empty(capacity, record), jnp.array(0), jnp.array(0), Pace.unknown(record["times"].dtype)
        )

    def horizon(self, state: AtTimesState) -> Float[Array, ""]:
        """Return the time of the next record, infinite after the last."""
        ahead = jnp.append(self.ts, jnp.inf)
        return ahead[state.upcoming]

    def longest_step(self, state: AtTimesState) -> Float[Array, ""]:
        """Return how long the next step may be for the records in between to be dense enough."""
        return state.pace.longest

    def moved(self, state: AtTimesState, coordinates: Float[Array, " 3"], length: Array) -> AtTimesState:
        """Return the state after a step."""
        pace = state.pace.moved(coordinates, length, self._spacing(state))
        return AtTimesState(state.records, state.upcoming, state.between, pace)

    def due(self, state: AtTimesState, clock: Clock, steps: Int[Array, ""], *, ended: Array) -> Bool[Array, ""]:
        """Tell whether a record should be made here."""
        on_time = clock.time >= self.horizon(state)
        ended = ended & state.pace.elsewhere()
        return on_time | ended | state.pace.due(self._spacing(state)) if self.between else on_time | ended

    def add(self, state: AtTimesState, record: PyTree) -> AtTimesState:
        """Return the state with one more record."""
        on_time = record["times"] >= self.horizon(state)
        return AtTimesState(
            records=state.records.add(record),
            upcoming=state.upcoming + on_time,
            between=state.between + ~on_time,
            pace=state.pace.now_recorded(),
        )

    def _spacing(self, state: AtTimesState) -> Float[Array, ""]:
        dtype = self.ts.dtype
        if not self.between:
            return jnp.asarray(jnp.inf, dtype)
        spacing = self.first_spacing * 2.0 ** (state.between // (self.most_between // 4))
        return jnp.where(state.between < self.most_between, spacing, jnp.inf).astype(dtype)


class AtStepsState(eqx.Module):
    """The records of an `AtSteps`, which of its marks comes next, and the step that it stands for."""

    records: Records
    upcoming: Int[Array, ""]
    next: Int[Array, ""]


class AtSteps(Schedule):
    """Records after so many steps, the increasing numbers `marks`, and one at the end."""

    marks: Int[ArrayLike, " marks"]

    def init(self, record: PyTree) -> AtStepsState:
        """Return the state before the first record."""
        marks = jnp.asarray(self.marks)
        return AtStepsState(Records.empty(marks.size + 1, record), jnp.array(0), marks[0])

    def due(self, state: AtStepsState, clock: Clock, steps: Int[Array, ""], *, ended: Array) -> Bool[Array, ""]:
        """Tell whether a record should be made here."""
        elsewhere = steps != jnp.asarray(self.marks)[state.upcoming - 1]
        return (ended & elsewhere) | (steps == state.next)

    def add(self, state: AtStepsState, record: PyTree) -> AtStepsState:
        """Return the state with one more record."""
        marks = jnp.asarray(self.marks)
        upcoming = jnp.minimum(state.upcoming + 1, marks.size)
        after = jnp.append(marks, -1)[upcoming]
        return AtStepsState(state.records.add(record), upcoming, after)


class Scales(eqx.Module):
    """The units in which a run measures its progress: its first step and its first objective."""

    time: Float[Array, ""]
    objective: Float[Array, ""]
    linear_weight: float = eqx.field(static=True, default=40.0)
    """The weight of the risk relative to the logarithm of its gradient norm: each gets about half of the records."""

    def coordinates(self, time: Array, objective: Array, gradient_norm: Array) -> Float[Array, " 3"]:
        """Return where a run is, in coordinates in which records are to be evenly spread."""
        fall = self.linear_weight * objective / jnp.where(self.objective > 0, self.objective, 1)
        # A run whose learning rate rises goes on from a gradient of zero.
        known = jnp.maximum(gradient_norm, jnp.finfo(gradient_norm.dtype).tiny)
        return jnp.stack([jnp.log1p(time / self.time), fall, jnp.log(known)])
