"""The descents that are compared: from learning rates, and an optimizer or descents that are given."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import PyTree

from ..dynamics import Descent, as_descent, check_learning_rate, check_maker, is_transformation
from ..dynamics.learning_rates import with_rate
from ..networks import weight_dtype
from .forks import Fork


def rates_and_makers(
    given: Sequence[Any], optimizer: Any, network: PyTree
) -> tuple[tuple[float, ...], list[Callable[[float], Any]]]:
    """Return the learning rates, and what makes the descents of each: the `optimizer`, or a descent that is given.

    Raises `ValueError` for anything but a list of positive numbers and descents.
    """
    entries = list(given) if isinstance(given, list | tuple) or np.ndim(given) == 1 else [None]
    found: list[Any] = [one.rate_of_descent() if isinstance(one, Descent) else one for one in entries]
    array = np.asarray(found if all(np.ndim(one) == 0 for one in found) else [None])
    if any(map(is_transformation, entries)):
        raise TypeError(
            "how much time of the flow passes in a step, a transformation of Optax does not report: write "
            "flowsim.Optax(optax.adam(1e-3), time_per_step=1e-3) in the list"
        )
    if array.size and array.dtype.kind not in "iuf":
        raise ValueError(
            "learning_rates must be a list of numbers, as [0.02, 0.1], or of descents, as [flowsim.Adam(1e-3)], got "
            f"{given!r}"
        )
    rates = tuple(array.tolist())
    for rate in rates:
        check_learning_rate(rate, weight_dtype(network))
    return rates, [partial(_with_rate, one) if isinstance(one, Descent) else optimizer for one in entries]


def descent_at(optimizer: Any, eta: float) -> Descent:
    """Return the descent with a learning rate; `TypeError` for an `optimizer` whose time per step is not known."""
    check_maker(optimizer)
    made = optimizer(eta)
    if is_transformation(made):
        raise TypeError(
            "how much time of the flow passes in a step, a transformation of Optax does not report: write "
            "optimizer=lambda eta: flowsim.Optax(optax.sgd(eta), time_per_step=eta), or a descent of flowsim's"
        )
    return as_descent(made)


def forked_descent(optimizer: Any, network: PyTree, fork: Fork, rate: float) -> Descent:
    """Return the descent of a fork; `TypeError` or `ValueError` for what is none."""
    check_learning_rate(rate, weight_dtype(network))
    return descent_at(fork.optimizer or optimizer, rate).checked(weight_dtype(network))


def _with_rate(descent: Descent, rate: float) -> Descent:
    """Return a descent as it is for its own learning rate, else with another."""
    return descent if float(descent.rate_of_descent()) == rate else with_rate(descent, rate)


def check_told_apart(descents: Sequence[Descent], rates: Sequence[float], *, modelled: bool) -> None:
    """Raise `ValueError` for descents of one kind and rate, which results could not tell apart, nor models by rate."""
    for number, (descent, rate) in enumerate(zip(descents, rates, strict=True)):
        for other in (one for one, its_rate in zip(descents[:number], rates, strict=False) if its_rate == rate):
            if bool(descent == other):
                raise ValueError(
                    f"learning_rates: found {rate!r} twice; expected no repetitions; write every entry once"
                )
            if descent.kind() == other.kind():
                raise ValueError(
                    f"learning_rates: found {rate!r} of {descent.kind()} twice, which results could not tell apart; "
                    "give them other rates, or compare each alone"
                )
            if modelled:
                raise ValueError(
                    f"learning_rates: found {rate!r} of {other.kind()} and of {descent.kind()}, whose models could not "
                    "be told apart; give them other rates, or compare each alone"
                )
