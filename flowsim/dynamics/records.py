"""What is recorded along a run, and the slots that hold it."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from ..probes import (
    ExcessRisk,
    GradientNorm,
    Moment,
    Probe,
    Risk,
    Sharpness,
    SquaredDistance,
    probe_of,
)
from ..solvers.field import GradientField
from .dynamics import Clock, Dynamics

STANDARD = (Risk(), ExcessRisk(), SquaredDistance(), GradientNorm())


class Instruments(eqx.Module):
    """What to record: the standard probes and `probes`, and the weights where `weights` is true."""

    probes: tuple[Probe, ...]
    weights: bool = eqx.field(static=True)

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
            oscillation=dynamics.oscillation(state),
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
    diagnostics: Mapping[str, Any] | None, probes: Sequence[Any], *, sharpness: bool, weights: bool
) -> Instruments:
    """Return the instruments for `diagnostics` and `probes`, and for the `sharpness` and the `weights` on request.

    Raises `TypeError` for a diagnostic that is not a function with a name, and for anything that is not a probe;
    `ValueError` for a name that is taken.
    """
    if not isinstance(diagnostics, Mapping | None):
        raise TypeError(f"diagnostics maps names to functions of the network, got a {type(diagnostics).__name__}")
    if isinstance(probes, str) or not isinstance(probes, Sequence):
        raise TypeError(f"probes is a list of them, got a {type(probes).__name__}: write probes=[...]")
    for name, function in (diagnostics or {}).items():
        if not isinstance(name, str) or not callable(function) or isinstance(function, Probe):
            found = f"{name!r}: {type(function).__name__}"
            raise TypeError(f"diagnostics maps names to functions of the network, got {found}")
    chosen = [probe_of(function, name) for name, function in (diagnostics or {}).items()]
    chosen += [probe_of(entry) for entry in probes]
    if sharpness:
        chosen.append(Sharpness())
    names = [probe.label.name for probe in (*STANDARD, *chosen)]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"{twice[0]!r} is recorded already: give the diagnostic another name, or leave it out")
    return Instruments(tuple(chosen), weights)


class Records(eqx.Module):
    """A fixed number of slots, filled one after the other."""

    slots: PyTree
    count: Int[Array, ""]

    def add(self, record: PyTree) -> "Records":
        """Return the records with one more; `TypeError` for one of another shape."""
        check_same_shapes(
            jax.tree.map(lambda buffer: jax.ShapeDtypeStruct(buffer.shape[1:], buffer.dtype), self.slots), record
        )
        slots = jax.tree.map(lambda buffer, value: buffer.at[self.count].set(value), self.slots, record)
        return Records(slots, self.count + 1)

    def every_second(self) -> "Records":
        """Return every second record: the first, the third, …. The slots behind them keep stale values."""
        capacity = jax.tree.leaves(self.slots)[0].shape[0]
        kept = jax.tree.map(lambda buffer: buffer.at[: capacity // 2].set(buffer[::2]), self.slots)
        return Records(kept, self.count // 2)


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


def empty_records(capacity: int, record: PyTree) -> Records:
    """Return `capacity` slots for records like `record`, of arrays or their shapes, filled with NaN."""
    return Records(
        jax.tree.map(lambda like: jnp.full((capacity, *like.shape), jnp.nan, like.dtype), record),
        jnp.array(0),
    )
