"""A probe: a number, or an array of them, that is measured at every record of a run."""

import abc
import reprlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
from jaxtyping import Array, Float, PyTree

from ..kinds import Registry, got, reason_of
from ..problems import Problem
from ..problems.validation import remedy_of_traced
from ..runtime.identity import static_function


@dataclass(frozen=True)
class Label:
    """What tables, figures and stored arrays call what a probe measures.

    A probe that measures a dict fills one column for each of its keys, called `name_key`. Raises `TypeError` for
    `parts` that are no tuple of labels, and `ValueError` for another way to be drawn.
    """

    name: str
    """A word without spaces."""
    meaning: str
    """What is measured, as a phrase."""
    symbol: str
    """That for the axis of a figure (TeX between dollars)."""
    unit: str = "1"
    """That of UDUNITS."""
    logarithmic: bool = True
    """Whether a logarithmic axis suits it."""
    parts: tuple["Label", ...] = ()
    """What each key of a dict is called, by labels of these names."""
    drawn: str = "curves"
    """How arrays are shown: as "curves", one for each number; of one number for each layer, or matrix, as a map of
    "layers", or "matrices", over time; or as "nothing" by themselves."""
    rows: tuple[str, ...] = ()
    """The names of the rows of such a map, which are numbered where there are none."""

    def __post_init__(self):
        if self.drawn not in ("curves", "layers", "matrices", "nothing"):
            raise ValueError(f"drawn is {self.drawn!r}: expected curves, layers, matrices or nothing")
        if not isinstance(self.parts, tuple) or not all(isinstance(part, Label) for part in self.parts):
            raise TypeError(
                f"the parts of the label {self.name} are {reprlib.repr(self.parts)}: expected a tuple of labels; "
                f'write parts=(flowsim.Label("{self.name}_key", meaning, symbol), ...)'
            )

    def of(self, column: str) -> "Label":
        """Return the label of one of the columns that the probe fills: that of a part by its name, or this one."""
        return self.columns().get(column, self)

    def columns(self) -> dict[str, "Label"]:
        """Return this label and those of the parts by their names."""
        return {label.name: label for label in (self, *self.parts)}


class Moment(eqx.Module):
    """A run at one time, as a probe sees it.

    At the starts and the ends of the runs of a sweep, which are measured afterwards, `state` is `None` and `time` is
    NaN.
    """

    network: PyTree
    """The network at this time."""
    problem: Problem
    """The risk R."""
    state: PyTree
    """That of the dynamics, whose weights are those of the network."""
    time: Float[Array, ""]
    """The time of the run."""
    gradient_norm: Float[Array, ""]
    """‖∇R‖ here."""
    preconditioner: PyTree | None = None
    """The diagonal of P as the weights where the steps go along P⁻¹ times a gradient, else `None`."""
    oscillation: PyTree | None = None
    """Vectors vᵢ as the weights, with a leading axis, if the dynamics predicts an oscillation of covariance Σᵢ vᵢvᵢᵀ
    about them, else `None`."""
    objective: Float[Array, ""] | None = None
    """That of the problem where the dynamics holds it, else `None`."""
    learning_rate: Float[Array, ""] | None = None
    """That of a descent at this time, or of the flow that models one, else `None`."""
    threshold: Float[Array, ""] | None = None
    """The curvature up to which its steps are stable, else `None`."""

    @property
    def risk(self) -> Float[Array, ""]:
        """R(W): the objective where that is known and the risk itself, else by a pass over the data."""
        own = type(self.problem).objective is Problem.objective
        return self.objective if own and self.objective is not None else self.problem(self.network)

    @property
    def excess_risk(self) -> Float[Array, ""]:
        """R(W) − R_min, NaN where the minimum is not known; without cancellation where the problem knows how."""
        own = type(self.problem).excess_risk is Problem.excess_risk
        return self.risk - self.problem.infimum if own else self.problem.excess_risk(self.network)


class Probe(eqx.Module):
    """Something that can be recorded along a run. To add one, say what it is called and how it is measured:

        class FirstLayer(flowsim.Probe):
            label = flowsim.Label("first_layer", "norm of the first layer", r"$\\Vert W_1 \\Vert$")

            def measure(self, moment):
                return jnp.linalg.norm(moment.network.weights[0])

    Pass it as `probes=[FirstLayer()]`, or write `record: [my_module:FirstLayer]` in a scenario. A probe has no state:
    it is evaluated inside the compiled run, and must return floating-point arrays of the same shapes each time: one, or
    a dict of them.
    """

    if TYPE_CHECKING:
        label: Label = eqx.field(init=False)  # else a checker would ask for it in calls of a class that sets it
    else:
        label: eqx.AbstractVar[Label]

    def check(self, network: PyTree, problem: Problem) -> None:
        """Raise `ValueError` where this cannot be measured of a run of the network. By default nothing is checked."""

    def gradients(self, network: PyTree) -> float:
        """Return about how many gradients of the risk a record costs, by default one."""
        return 1.0

    def begin(self, network: PyTree) -> "Probe":
        """Return the probe of a run that begins at `network`, by default this one itself.

        One that knows a start already keeps it: so forks of a run begin where that began.
        """
        return self

    @abc.abstractmethod
    def measure(self, moment: Moment) -> Float[Array, "..."] | dict[str, Float[Array, "..."]]:
        """Return what is to be recorded of this moment."""


OF_EIGENPAIR = 32.0
"""About how many gradients the search for an eigenpair takes from a random start."""


class FunctionProbe(Probe):
    """A function of the network as a probe, under a name."""

    function: Callable[[Any], PyTree] = eqx.field(converter=static_function)
    """The function, which returns floating-point arrays."""
    label: Label = eqx.field(static=True)
    """What it is called in tables and figures."""

    def measure(self, moment: Moment) -> PyTree:
        """Return the function's value; `ValueError` where it needs the numbers behind traced arrays."""
        try:
            return self.function(moment.network)
        except Exception as error:  # whatever the code of a user does
            if not (write := remedy_of_traced(error)):
                raise
            raise ValueError(
                f"the probe {self.label.name!r} fails ({reason_of(error)}): expected a function of JAX arrays; {write}"
            ) from error


def columns_of(measured: Mapping[str, PyTree]) -> Iterator[tuple[str, str, Array]]:
    """Yield each array that probes measured, given by their names: its probe, the column that it fills, and itself."""
    for path, values in jax.tree_util.tree_leaves_with_path(dict(measured)):
        yield (
            jax.tree_util.keystr(path[:1], simple=True),
            jax.tree_util.keystr(path, simple=True, separator="_"),
            values,
        )


def _is_probe(kind: object) -> bool:
    return issubclass(kind, Probe) if isinstance(kind, type) else callable(kind)


PROBES: Registry[Any] = Registry(
    "a probe", accepts=_is_probe, expected="a subclass of flowsim.Probe, or a function of the network"
)


def probe_of(entry: Probe | Callable[[Any], PyTree], name: str | None = None) -> Probe:
    """Return a probe as it is, and a function of the network as one.

    Args:
        entry: A probe, or a function of the network.
        name: What a function is called; by default as it calls itself.

    Returns:
        The probe.

    Raises:
        TypeError: For anything else.
    """
    if isinstance(entry, Probe):
        return entry
    if isinstance(entry, str):
        raise TypeError(_named_by_text(entry))
    if isinstance(entry, type) and issubclass(entry, Probe):
        raise TypeError(f"a probe is an object, got {got(entry, Probe)}")
    name = getattr(entry, "__name__", None) if name is None else name
    if not callable(entry) or not isinstance(name, str):
        raise TypeError(
            f"a probe is a flowsim.Probe, or a function of the network with a name, got {type(entry).__name__}"
        )
    return FunctionProbe(function=entry, label=Label(name, name.replace("_", " "), name.replace("_", " ")))


EVERY_RUN = ("risk", "excess_risk", "squared_distance", "gradient_norm")
"""The names of the probes that every run records."""


def _named_by_text(name: str) -> str:
    """Return the message about a name in place of a probe: names are for scenarios."""
    near = PROBES.nearest(name)
    if near is None:
        remedy = "write a function of the network, or a probe of flowsim.probes"
    elif near in EVERY_RUN:
        remedy = f"leave it out, as every run records {near}"
    else:
        remedy = f"write flowsim.probes.{got(PROBES[near], Probe).partition('write ')[2]}"
        remedy += ", or leave it out where sharpness=... records it" if near == "sharpness" else ""
    return f"a probe is a flowsim.Probe, got the text {name!r}: {remedy}"
