"""Records along a run: what they hold, the slots for them, and when they are made."""

import abc
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Bool, Float, Int, PyTree

from ..probes import PROBES, Moment, MovingEdge, Probe, ScheduledRate, Sharpness, probe_of
from ..probes.probe import EVERY_RUN
from ..solvers.field import GradientField
from .dynamics import Clock, Dynamics

STANDARD: tuple[Probe, ...] = tuple(PROBES[name]() for name in EVERY_RUN)


class Instruments(eqx.Module):
    """What to record: the standard probes and `probes`, and the weights and the `states` of the run on request."""

    probes: tuple[Probe, ...]
    weights: bool = eqx.field(static=True)
    states: bool = eqx.field(static=True, default=False)

    def measure(
        self, dynamics: Dynamics, field: GradientField, state: PyTree, clock: Clock, gradient_norm: Float[Array, ""]
    ) -> dict[str, PyTree]:
        """Return one record of a run in `state` of its `dynamics`."""
        weights, dtype, measured = dynamics.weights(state), clock.time.dtype, {}
        rate, threshold = dynamics.rate_of_descent(), dynamics.edge_of_stability()
        moment = Moment(
            network=field.network(weights),
            problem=field.problem,
            state=state,
            time=clock.time,
            gradient_norm=gradient_norm,
            preconditioner=dynamics.preconditioner(state),
            oscillation=dynamics.oscillation(field, state),
            objective=dynamics.objective(field, state),
            learning_rate=None if rate is None else jnp.asarray(rate),
            threshold=None if threshold is None else jnp.asarray(threshold),
        )
        for probe in (*STANDARD, *self.probes):
            leaves, structure = jax.tree.flatten(probe.measure(moment), is_leaf=lambda part: part is None)
            for place, value in enumerate(leaves):
                kind = jnp.result_type(value) if eqx.is_array_like(value) else None
                if kind is None or jnp.issubdtype(kind, jnp.complexfloating):
                    returned = "None" if value is None else type(value).__name__ if kind is None else kind
                    raise TypeError(
                        f"the probe {probe.label.name!r} returns {returned}: expected real numbers, in arrays"
                    )
                # Slots without a record are NaN, so integers and booleans become floating-point numbers.
                leaves[place] = jnp.asarray(value, kind if jnp.issubdtype(kind, jnp.floating) else dtype)
            measured[probe.label.name] = structure.unflatten(leaves)
        return {
            "times": clock.time,
            "time_remainders": clock.remainder,
            "probes": measured,
            "weights": weights if self.weights else None,
        }


def instruments(
    network: PyTree,
    dynamics: Dynamics,
    diagnostics: Mapping[str, Any] | None,
    probes: Sequence[Any],
    *,
    sharpness: bool,
    weights: bool,
    states: bool = False,
) -> Instruments:
    """Return the instruments of a run from `network`: for `diagnostics`, `probes`, and what else is asked for.

    Of a `dynamics` whose learning rate changes, that and its edge of stability are recorded as well.
    Raises `TypeError` for a diagnostic that is not a function with a name, and for anything that is not a probe;
    `ValueError` for a name that is taken.
    """
    if not isinstance(diagnostics, Mapping | None):
        raise TypeError(f"diagnostics maps names to functions of the network, got a {type(diagnostics).__name__}")
    if isinstance(probes, str) or not isinstance(probes, Sequence):
        if isinstance(probes, str):
            probe_of(cast(Any, probes))  # which says what to write in place of a name
        raise TypeError(f"probes is a list of them, got a {type(probes).__name__}: write probes=[...]")
    for name, function in (diagnostics or {}).items():
        if not isinstance(name, str) or not callable(function) or isinstance(function, Probe):
            found = f"{name!r}: {type(function).__name__}"
            raise TypeError(f"diagnostics maps names to functions of the network, got {found}")
    chosen = [probe_of(function, name) for name, function in (diagnostics or {}).items()]
    chosen += [probe_of(entry).begin(network) for entry in probes]
    known = {type(probe) for probe in chosen}
    chosen += [kind() for kind in (ScheduledRate, MovingEdge) if dynamics.is_scheduled() and kind not in known]
    if sharpness:
        chosen.append(Sharpness())
    names = [probe.label.name for probe in (*STANDARD, *chosen)]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"{twice[0]!r} is recorded already: give the diagnostic another name, or leave it out")
    return Instruments(tuple(chosen), weights, states)


class Records(eqx.Module):
    """A fixed number of slots, filled one after the other.

    The numbers of a record of its commonest type are columns of one `table`, and only its other arrays have slots of
    their own, in `arrays`: each array compiles some kernels.
    """

    table: Float[Array, "capacity columns"]
    arrays: list[Array]
    count: Int[Array, ""]
    structure: Any = eqx.field(static=True)
    shapes: tuple[jax.ShapeDtypeStruct, ...] = eqx.field(static=True)
    """Those of a record."""

    @classmethod
    def empty(cls, capacity: int, record: PyTree) -> "Records":
        """Return `capacity` slots for records like `record`, of arrays or their shapes, filled with NaN."""
        leaves, structure = jax.tree.flatten(record)
        shapes, dtype = tuple(jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves), record["times"].dtype
        none = cls(jnp.zeros((capacity, 0), dtype), [], jnp.array(0), structure, shapes)
        others = [leaf for leaf in shapes if not none._in_table(leaf)]
        table = jnp.full((capacity, len(shapes) - len(others)), jnp.nan, dtype)
        blank = [jnp.nan if jnp.issubdtype(leaf.dtype, jnp.floating) else 0 for leaf in others]
        arrays = [
            jnp.full((capacity, *leaf.shape), value, leaf.dtype) for leaf, value in zip(others, blank, strict=True)
        ]
        return replace(none, table=table, arrays=arrays)

    @property
    def capacity(self) -> int:
        """The number of slots."""
        return len(self.table)

    @property
    def slots(self) -> PyTree:
        """The slots, as a record with one more axis in front."""
        table = self.table if isinstance(self.table, Tracer) else np.asarray(self.table)  # to cut compiles nothing
        columns, arrays = iter(range(table.shape[1])), iter(self.arrays)
        filled = [table[:, next(columns)] if self._in_table(leaf) else next(arrays) for leaf in self.shapes]
        return self.structure.unflatten(filled)

    def add(self, record: PyTree) -> "Records":
        """Return the records with one more; `TypeError` for one of other names, shapes or types than the first."""
        first, now = (
            {jax.tree_util.keystr(path): f"{leaf.dtype}{list(leaf.shape)}" for path, leaf in leaves}
            for leaves in map(jax.tree_util.tree_leaves_with_path, (self.structure.unflatten(self.shapes), record))
        )
        for path in first | now:
            if first.get(path) != now.get(path):
                raise TypeError(
                    f"what is recorded at {path} is {now.get(path, 'nothing')} where it was "
                    f"{first.get(path, 'nothing')} at first: expected a probe or diagnostic to return the same shapes "
                    "and types at each call"
                )
        leaves = jax.tree.leaves(record)
        row = jnp.stack([leaf for leaf in leaves if self._in_table(leaf)])
        others = [leaf for leaf in leaves if not self._in_table(leaf)]
        arrays = [buffer.at[self.count].set(value) for buffer, value in zip(self.arrays, others, strict=True)]
        return replace(self, table=self.table.at[self.count].set(row), arrays=arrays, count=self.count + 1)

    def every_second(self) -> "Records":
        """Return every second record: the first, the third, …. The slots behind them keep stale values."""
        half = len(self.table) // 2
        table, arrays = jax.tree.map(lambda slots: slots.at[:half].set(slots[::2]), (self.table, self.arrays))
        return replace(self, table=table, arrays=arrays, count=self.count // 2)

    def _in_table(self, leaf: Any) -> bool:
        return leaf.shape == () and leaf.dtype == self.table.dtype


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
        pace = replace(state.pace, recorded=state.pace.here)
        return SpreadState(records.add(record), pace, jnp.where(full, 2, 1) * state.spacing)


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
            pace=replace(state.pace, recorded=state.pace.here),
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
