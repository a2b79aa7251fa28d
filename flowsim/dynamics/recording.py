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
_FIRST_SPACING = 0.25


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
    ) -> dict[str, PyTree]:
        """Return one record of the run."""
        network, problem = field.network(weights), field.problem
        return {
            "times": time,
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


class Mark(eqx.Module):
    """Where a run is, in what decides whether it is time for a record."""

    time: Float[Array, ""]
    coordinates: Float[Array, " 3"]


class SpreadState(eqx.Module):
    """The records of a `Spread`, where the last one was made, and how far the next one is."""

    records: Records
    last: Float[Array, " 3"]
    spacing: Float[Array, ""]


class Spread(eqx.Module):
    """Records at ends of steps, some 130 to 250 in all, spread evenly over what happens.

    Distance is measured along log time (a plateau), the fall of the risk (the fast phase) and the logarithm
    of the gradient norm (the approach of the limit). When the slots are full, every second record is dropped
    and the spacing doubled, so the end of the run need not be known.
    """

    def init(self, record: PyTree) -> SpreadState:
        """Return the state before the first record, which is due at once."""
        dtype = record["times"].dtype
        return SpreadState(
            empty_records(_CAPACITY, record), jnp.full(3, jnp.inf, dtype), jnp.asarray(_FIRST_SPACING, dtype)
        )

    def horizon(self, state: SpreadState) -> Float[Array, ""]:
        """Return the time of the next record, infinite: it is not known beforehand."""
        return jnp.full((), jnp.inf, state.last.dtype)

    def due(self, state: SpreadState, mark: Mark) -> Bool[Array, ""]:
        """Tell whether a record should be made here."""
        moved = jnp.sum(jnp.abs(mark.coordinates - state.last))
        return ~(moved < state.spacing)

    def add(self, state: SpreadState, record: PyTree, mark: Mark) -> SpreadState:
        """Return the state with one more record."""
        full = state.records.count == _CAPACITY
        records = jax.lax.cond(full, lambda records: records.thinned(), lambda records: records, state.records)
        spacing = jnp.where(full, 2 * state.spacing, state.spacing)
        return SpreadState(records.add(record), mark.coordinates, spacing)


class AtTimesState(eqx.Module):
    """The records of an `AtTimes`, which of its times comes next, and what its records in between are spaced by."""

    records: Records
    upcoming: Int[Array, ""]
    between: Int[Array, ""]
    last: Float[Array, " 3"]


class AtTimes(eqx.Module):
    """Records at the given increasing times `ts`, to which the flow steps exactly, and one at the end.

    With `between`, up to 256 more wherever enough has happened since the last record, as in `Spread`; the distance
    that counts as enough doubles with every 64 of them.
    """

    ts: Float[Array, " times"]
    between: bool = eqx.field(static=True, default=False)

    def init(self, record: PyTree) -> AtTimesState:
        """Return the state before the first record."""
        capacity = self.ts.size + 1 + (_CAPACITY if self.between else 0)
        last = jnp.full(3, jnp.inf, record["times"].dtype)
        return AtTimesState(empty_records(capacity, record), jnp.array(0), jnp.array(0), last)

    def horizon(self, state: AtTimesState) -> Float[Array, ""]:
        """Return the time of the next record, infinite after the last."""
        ahead = jnp.append(self.ts, jnp.inf)
        return ahead[state.upcoming]

    def due(self, state: AtTimesState, mark: Mark) -> Bool[Array, ""]:
        """Tell whether a record should be made here."""
        on_time = mark.time >= self.horizon(state)
        if not self.between:
            return on_time
        spacing = _FIRST_SPACING * 2.0 ** (state.between // (_CAPACITY // 4))
        moved = jnp.sum(jnp.abs(mark.coordinates - state.last))
        return on_time | (~(moved < spacing) & (state.between < _CAPACITY))

    def add(self, state: AtTimesState, record: PyTree, mark: Mark) -> AtTimesState:
        """Return the state with one more record."""
        on_time = mark.time >= self.horizon(state)
        return AtTimesState(
            records=state.records.add(record),
            upcoming=state.upcoming + on_time,
            between=state.between + ~on_time,
            last=mark.coordinates,
        )


class Scales(eqx.Module):
    """The units in which a run measures its progress: its first step and its first objective."""

    time: Float[Array, ""]
    objective: Float[Array, ""]

    def mark(self, time: Array, objective: Array, gradient_norm: Array) -> Mark:
        """Return where a run is."""
        fall = _LINEAR_WEIGHT * objective / jnp.where(self.objective > 0, self.objective, 1)
        coordinates = jnp.stack([jnp.log1p(time / self.time), fall, jnp.log(gradient_norm)])
        return Mark(time, coordinates)
