"""What is recorded along a run, and the slots that hold it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Float, Int, PyTree

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
        weights, measured = dynamics.weights(state), {}
        moment = Moment(
            network=field.network(weights),
            problem=field.problem,
            state=state,
            time=clock.time,
            gradient_norm=gradient_norm,
            preconditioner=dynamics.preconditioner(state),
            oscillation=dynamics.oscillation(field, state),
            objective=dynamics.objective(field, state),
            learning_rate=_known(dynamics.rate_of_descent()),
            threshold=_known(dynamics.edge_of_stability()),
        )
        for probe in (*STANDARD, *self.probes):
            as_floating = partial(_as_floating, probe.label.name, clock.time.dtype)
            measured[probe.label.name] = jax.tree.map(as_floating, probe.measure(moment))
        return {
            "times": clock.time,
            "time_remainders": clock.remainder,
            "probes": measured,
            "weights": weights if self.weights else None,
        }


def _known(number: ArrayLike | None) -> Array | None:
    return None if number is None else jnp.asarray(number)


def _as_floating(name: str, dtype: jnp.dtype, value: Any) -> Array:
    """Return what the probe of this name measured in floating point, as slots without a record are NaN.

    Integers and booleans become numbers of `dtype`. Raises `TypeError` for anything but real numbers.
    """
    kind = jnp.result_type(value) if eqx.is_array_like(value) else None
    if kind is None or jnp.issubdtype(kind, jnp.complexfloating):
        found = type(value).__name__ if kind is None else kind
        raise TypeError(f"the probe {name!r} returns {found}: expected real numbers, in arrays")
    return jnp.asarray(value, kind if jnp.issubdtype(kind, jnp.floating) else dtype)


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
        arrays = [_unfilled((capacity, *leaf.shape), leaf.dtype) for leaf in others]
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
        """Return the records with one more; `TypeError` for one of another shape."""
        check_same_shapes(self.structure.unflatten(self.shapes), record)
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


def _unfilled(shape: tuple[int, ...], dtype: jnp.dtype) -> Array:
    return jnp.full(shape, jnp.nan if jnp.issubdtype(dtype, jnp.floating) else 0, dtype)


def check_same_shapes(first: PyTree, other: PyTree) -> None:
    """Raise `TypeError` where what is measured has other names, shapes or types than it had at first."""

    def shapes(tree: PyTree) -> dict[str, str]:
        leaves = jax.tree_util.tree_leaves_with_path(tree)
        return {jax.tree_util.keystr(path): f"{leaf.dtype}{list(leaf.shape)}" for path, leaf in leaves}

    at_first, now = shapes(first), shapes(other)
    for path in at_first | now:
        if at_first.get(path) != now.get(path):
            raise TypeError(
                f"what is recorded at {path} is {now.get(path, 'nothing')} where it was "
                f"{at_first.get(path, 'nothing')} at first: expected a probe or diagnostic to return the same shapes "
                "and types at each call"
            )
