"""What a learning rate is: a number, or a function of the time of a run."""

import abc
import math
from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Bool, Float

from ...formatting.numbers import rounded_up
from ...kinds import Registry, is_kind_of, reason_of
from ...runtime.identity import static_function
from ...solvers.field import constant

# A number or an array of one, traced perhaps, with which arithmetic does as it does with a float.
Scalar = Any
Dynamics_ = TypeVar("Dynamics_", bound=eqx.Module)


class LearningRate(eqx.Module):
    """A learning rate that changes in the time t of a run: η(t), the nominal `rate` times a `factor`.

    To add one, say what the factor is:

        class InverseRoot(flowsim.LearningRate):
            rate: ArrayLike
            time: float

            def factor(self, time):
                return 1 / jnp.sqrt(1 + time / self.time)

    and write it in the place of a number: `flowsim.GradientDescent(InverseRoot(0.1, time=20.0))`. Time is that of the
    flow that a descent follows, so that a step at time t takes η(t) of it, with momentum η(t)/(1 − β). `rate` may be
    another learning rate that changes, of which the factor is taken: `WarmUp(CosineDecay(0.1, time=100.0), time=10.0)`.
    A run is named after its nominal rate.
    """

    rate: eqx.AbstractVar[Scalar]
    """The nominal rate, or another learning rate that changes."""

    @abc.abstractmethod
    def factor(self, time: Float[Array, ""]) -> Float[ArrayLike, ""]:
        """Return η(t)/rate, which must be positive at all times."""

    def largest_factor(self, time: Float[Array, ""]) -> Float[ArrayLike, ""]:
        """Return the largest factor from a time on, which decides whether a minimum will be stable.

        By default it is the largest of those at 400 later times, spread evenly in the logarithm of how much later.
        """
        later = time + jnp.append(0.0, jnp.geomspace(1e-3, 1e9, 400)).astype(jnp.result_type(time))
        return jnp.nanmax(jax.vmap(lambda one: jnp.asarray(self.factor(one), later.dtype))(later))

    def __call__(self, time: Float[Array, ""]) -> Float[Array, ""]:
        """Return η(t)."""
        return rate_at(self.rate, time) * self.factor(time)

    def largest(self, time: Float[Array, ""]) -> Scalar:
        """Return a bound of η from a time on."""
        return largest_rate(self.rate, time) * self.largest_factor(time)


class _OfFunction(LearningRate):
    """A function of time as a learning rate, its nominal one that at time zero."""

    function: Callable[[Any], Any]
    rate: Scalar

    def factor(self, time: Float[Array, ""]) -> Float[Array, ""]:
        return self.function(time) / self.rate

    def __call__(self, time: Float[Array, ""]) -> Float[Array, ""]:
        return jnp.asarray(self.function(time))


class _From(LearningRate):
    """A learning rate in the time from `origin` on, its nominal one that there."""

    whole: LearningRate
    origin: Float[Array, ""]

    @property
    def rate(self) -> Scalar:
        return self.whole(self.origin)

    def factor(self, time: Float[Array, ""]) -> Float[Array, ""]:
        return self(time) / self.rate

    def largest(self, time: Float[Array, ""]) -> Scalar:
        return self.whole.largest(self.origin + time)

    def __call__(self, time: Float[Array, ""]) -> Float[Array, ""]:
        return self.whole(self.origin + time)


LEARNING_RATES: Registry[type[LearningRate]] = Registry(
    "a learning rate that changes", accepts=is_kind_of(LearningRate), expected="a subclass of flowsim.LearningRate"
)


def rate_at(rate: Scalar, time: ArrayLike) -> Scalar:
    """Return the number that a learning rate is at a time."""
    return rate(jnp.asarray(time)) if callable(rate) else rate


def rate_from(rate: Scalar, time: Float[Array, ""]) -> Scalar:
    """Return a learning rate in the time from `time` on."""
    return _From(rate, time) if isinstance(rate, LearningRate) else rate  # pyright: ignore[reportCallIssue]


def nominal_rate(rate: Scalar) -> Scalar:
    """Return the number after which a learning rate is named, itself where it is one."""
    if isinstance(rate, LearningRate):
        return nominal_rate(rate.rate)
    return rate(0.0) if callable(rate) else rate


def largest_rate(rate: Scalar, time: ArrayLike) -> Scalar:
    """Return the number that bounds a learning rate from a time on."""
    return rate.largest(jnp.asarray(time)) if isinstance(rate, LearningRate) else rate_at(rate, time)


def rate_and_slope(rate: Scalar, time: ArrayLike) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Return η and η' at a time."""
    here = jnp.asarray(time)
    return jax.jvp(rate, (here,), (jnp.ones_like(here),))


def is_settled(rate: Scalar, time: Float[Array, ""]) -> Bool[Array, ""] | bool:
    """Tell whether a learning rate does not rise any more after a time."""
    if not callable(rate):
        return True
    return largest_rate(rate, time) <= rate_at(rate, time) * (1 + 4 * jnp.finfo(time.dtype).eps)


def is_scheduled(rate: Scalar) -> bool:
    """Tell whether a learning rate changes in time."""
    return callable(rate)


def is_of_function(rate: Scalar) -> bool:
    """Tell whether a plain function of time, at any depth, is what a learning rate is made of."""
    if isinstance(rate, LearningRate) and not isinstance(rate, _OfFunction):
        return is_of_function(rate.rate)
    return callable(rate)


def with_rate(dynamics: Dynamics_, rate: Scalar) -> Dynamics_:
    """Return the dynamics with another number for its learning rate, or for its nominal one where that changes."""

    def place(rate: Scalar) -> Scalar:
        return place(rate.rate) if isinstance(rate, LearningRate) else rate

    return eqx.tree_at(lambda one: place(one.learning_rate), dynamics, rate)


def check_learning_rate(rate: object, dtype: jnp.dtype) -> None:
    """Raise `ValueError` for anything but a positive finite normal number of `dtype`; a tracer passes.

    Compiled programs take a subnormal number for zero: nothing would move.
    """
    if isinstance(rate, Tracer):
        return
    known = np.asarray(rate)
    least, most = float(jnp.finfo(dtype).tiny), float(jnp.finfo(dtype).max)
    number = known.ndim == 0 and known.dtype.kind in "iuf"
    if not number or not least <= float(known) <= most:
        shown = rate if number else repr(rate)
        expected = f"{rounded_up(least, digits=2):.2g} or more"  # a subnormal number is not accepted
        raise ValueError(f"learning_rate must be a positive finite number of {dtype}, {expected}, got {shown}")


def checked_rate(rate: Any, dtype: jnp.dtype) -> Scalar:
    """Return a learning rate with its numbers as arrays of a type, so that others need no new compilation.

    Raises `ValueError` for one that is not positive and finite in this precision, nominally and at the start, and for a
    function that JAX cannot trace.
    """
    if callable(rate):
        _check_function(rate, dtype)
        check_learning_rate(rate_at(rate, jnp.zeros((), dtype)), dtype)
        rate = _without_functions(rate)
    check_learning_rate(nominal_rate(rate), dtype)
    leaves, structure = jax.tree.flatten(rate)
    for place, leaf in enumerate(leaves):
        of_python = isinstance(leaf, int | float | np.floating | np.integer) and not isinstance(leaf, bool)
        leaves[place] = constant(leaf, dtype) if of_python or eqx.is_inexact_array(leaf) else leaf
    return structure.unflatten(leaves)


def _without_functions(rate: Any) -> LearningRate:
    """Return a learning rate in which plain functions, at any depth, are some of flowsim's own."""
    if not isinstance(rate, LearningRate):
        return _OfFunction(static_function(rate), rate(0.0))
    inner = _without_functions(rate.rate) if callable(rate.rate) else rate.rate
    return eqx.tree_at(lambda one: one.rate, rate, inner) if inner is not rate.rate else rate


def _check_function(rate: Callable[[Any], Any], dtype: jnp.dtype) -> None:
    try:
        found = jax.eval_shape(lambda time: jnp.asarray(rate(time)), jax.ShapeDtypeStruct((), dtype))
        fault = "" if found.shape == () else f"it returns an array of the shape {found.shape}"
    except Exception as error:  # whatever the code of a user does
        fault = reason_of(error)
    if fault:
        raise ValueError(
            f"learning_rate is a function of time that cannot be used ({fault}): expected one that takes the time, an "
            "array, and returns a number by jax.numpy, as lambda t: 0.1 * jax.numpy.minimum(1.0, 0.1 + t / 10)"
        )


LEAST = 1e-6
"""A factor below it is no factor of a learning rate; its square is a number in single precision, too."""


def check_between(name: str, value: Any, least: float, most: float = math.inf) -> None:
    """Raise `ValueError` for what is not positive, finite, `least` at least, and at most `most`; a tracer passes."""
    if isinstance(value, Tracer):
        return
    known = np.asarray(value)
    if known.ndim or known.dtype.kind not in "iuf" or not (0 < known <= most and least <= known < np.inf):
        wanted = "a finite number above 0" if not least else f"a number from {least:g} to {most:g}"
        raise ValueError(f"{name} must be {wanted}, got {value!r}")
