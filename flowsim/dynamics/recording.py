"""What is written down along a run, and when."""

from collections.abc import Callable, Mapping

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from ..curvature import top_eigenpair
from ..problems import Problem
from .field import GradientField

Diagnostics = Mapping[str, Callable[[eqx.Module], PyTree]]

_CAPACITY = 256
# Weight of the risk's own fall, against its logarithm's, in the spacing of records: both get about half of them.
_LINEAR_WEIGHT = 40.0
_FIRST_SPACING = 0.5


class Instruments(eqx.Module):
    """What to measure: `diagnostics` maps names to functions of the network; `weights` keeps the weights too."""

    diagnostics: dict[str, Callable[[eqx.Module], PyTree]]
    weights: bool = eqx.field(static=True)

    def measure(
        self,
        field: GradientField,
        weights: PyTree,
        time: Float[Array, ""],
        gradient_norm: Float[Array, ""],
        *,
        time_remainder: Float[Array, ""] | None = None,
    ) -> dict[str, PyTree]:
        """Return one record of the run, at the time `time` + `time_remainder`."""
        network, problem = field.network(weights), field.problem
        return {
            "times": time,
            "time_remainders": jnp.zeros_like(time) if time_remainder is None else time_remainder,
            "risk": problem(network),
            "excess_risk": problem.excess_risk(network),
            "squared_distance": problem.squared_distance(network),
            "gradient_norm": gradient_norm,
            "diagnostics": {
                name: jax.tree.map(jnp.asarray, function(network)) for name, function in self.diagnostics.items()
            },
            "weights": weights if self.weights else None,
        }


def instruments(problem: Problem, diagnostics: Diagnostics | None, *, sharpness: bool, weights: bool) -> Instruments:
    """Return the instruments asked for; `TypeError` for a diagnostic that is not a function with a name."""
    chosen = dict(diagnostics or {})
    for name, function in chosen.items():
        if not isinstance(name, str) or not callable(function):
            raise TypeError(
                f"diagnostics maps names to functions of the network, got {name!r}: {type(function).__name__}"
            )
    if "sharpness" in chosen:
        raise ValueError("'sharpness' is what sharpness=True records: give the diagnostic another name")
    if sharpness:
        chosen["sharpness"] = PathSharpness(problem)
    return Instruments(chosen, weights)


class PathSharpness(eqx.Module):
    """The sharpness as a diagnostic: always by Lanczos, which is cheaper than a full decomposition."""

    problem: Problem

    def __call__(self, network: eqx.Module) -> Float[Array, ""]:
        """Return the sharpness, NaN where it could not be certified."""
        pair = top_eigenpair(network, self.problem, dense=False)
        return jnp.where(pair.converged, pair.value, jnp.nan)


class Records(eqx.Module):
    """A fixed number of slots, filled one after the other."""

    slots: PyTree
    count: Int[Array, ""]

    def add(self, record: PyTree) -> "Records":
        """Return the records with one more."""
        slots = jax.tree.map(lambda buffer, value: buffer.at[self.count].set(value), self.slots, record)
        return Records(slots, self.count + 1)

    def thinned(self) -> "Records":
        """Return every second record: the first, the third, ….  The slots behind them keep stale values."""
        capacity = jax.tree.leaves(self.slots)[0].shape[0]
        kept = jax.tree.map(lambda buffer: buffer.at[: capacity // 2].set(buffer[::2]), self.slots)
        return Records(kept, self.count // 2)


def empty_records(capacity: int, record: PyTree) -> Records:
    """Return `capacity` slots for records like `record`, of arrays or their shapes, filled with NaN."""
    return Records(
        jax.tree.map(lambda like: jnp.full((capacity, *like.shape), jnp.nan, like.dtype), record),
        jnp.array(0),
    )


class Pace(eqx.Module):
    """Where a run is, in coordinates in which records are to be evenly spread, and how fast it moves in them."""

    recorded: Float[Array, " 3"]
    here: Float[Array, " 3"]
    longest: Float[Array, ""]

    @classmethod
    def at(cls, coordinates: Float[Array, " 3"]) -> "Pace":
        """Return the pace before the first record and the first step."""
        infinite = jnp.full_like(coordinates, jnp.inf)
        return cls(infinite, coordinates, infinite[0])

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


class Spread(eqx.Module):
    """Records at ends of steps, some 130 to 250 in all, spread evenly over what happens.

    Distance is measured along log time (a plateau), the fall of the risk (the fast phase) and the logarithm
    of the gradient norm (the approach of the limit), and steps are kept short enough for it. When the slots are full,
    every second record is dropped and the spacing doubled, so the end of the run need not be known.
    """

    def init(self, record: PyTree, coordinates: Float[Array, " 3"]) -> SpreadState:
        """Return the state before the first record, which is due at once."""
        spacing = jnp.asarray(_FIRST_SPACING, record["times"].dtype)
        return SpreadState(empty_records(_CAPACITY, record), Pace.at(coordinates), spacing)

    def horizon(self, state: SpreadState) -> Float[Array, ""]:
        """Return the time of the next record, infinite: it is not known beforehand."""
        return jnp.full_like(state.spacing, jnp.inf)

    def longest_step(self, state: SpreadState) -> Float[Array, ""]:
        """Return how long the next step may be for the records to be dense enough."""
        return state.pace.longest

    def moved(self, state: SpreadState, coordinates: Float[Array, " 3"], length: Array) -> SpreadState:
        """Return the state after a step."""
        return SpreadState(state.records, state.pace.moved(coordinates, length, state.spacing), state.spacing)

    def due(self, state: SpreadState, time: Array, *, ended: Array) -> Bool[Array, ""]:
        """Tell whether a record should be made here."""
        return state.pace.due(state.spacing) | (ended & state.pace.elsewhere())

    def add(self, state: SpreadState, record: PyTree) -> SpreadState:
        """Return the state with one more record."""
        full = state.records.count == _CAPACITY
        records = jax.lax.cond(full, lambda records: records.thinned(), lambda records: records, state.records)
        return SpreadState(records.add(record), state.pace.now_recorded(), jnp.where(full, 2, 1) * state.spacing)


class AtTimesState(eqx.Module):
    """The records of an `AtTimes`, which of its times comes next, how many lie in between, and the run's pace."""

    records: Records
    upcoming: Int[Array, ""]
    between: Int[Array, ""]
    pace: Pace


class AtTimes(eqx.Module):
    """Records at the given increasing times `ts`, to which the flow steps exactly, and one at the end.

    With `between`, up to 256 more wherever enough has happened since the last record, as in `Spread`; the distance
    that counts as enough doubles with every 64 of them.
    """

    ts: Float[Array, " times"]
    between: bool = eqx.field(static=True, default=False)

    def init(self, record: PyTree, coordinates: Float[Array, " 3"]) -> AtTimesState:
        """Return the state before the first record."""
        capacity = self.ts.size + 1 + (_CAPACITY if self.between else 0)
        return AtTimesState(empty_records(capacity, record), jnp.array(0), jnp.array(0), Pace.at(coordinates))

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

    def due(self, state: AtTimesState, time: Array, *, ended: Array) -> Bool[Array, ""]:
        """Tell whether a record should be made here."""
        on_time = time >= self.horizon(state)
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
        spacing = _FIRST_SPACING * 2.0 ** (state.between // (_CAPACITY // 4))
        return jnp.where(state.between < _CAPACITY, spacing, jnp.inf).astype(dtype)


class Scales(eqx.Module):
    """The units in which a run measures its progress: its first step and its first objective."""

    time: Float[Array, ""]
    objective: Float[Array, ""]

    def coordinates(self, time: Array, objective: Array, gradient_norm: Array) -> Float[Array, " 3"]:
        """Return where a run is, in coordinates in which records are to be evenly spread."""
        fall = _LINEAR_WEIGHT * objective / jnp.where(self.objective > 0, self.objective, 1)
        return jnp.stack([jnp.log1p(time / self.time), fall, jnp.log(gradient_norm)])
