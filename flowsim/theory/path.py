"""The path of a flow for the theory: weights at every record, and times measured from the escape."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..dynamics import Outcome, Stopping, Trajectory, integrate
from ..networks import DeepLinear
from ..problems import LinearRegression
from ..solvers.choice import standard_rtol
from .gradients import GradientsAlong, Matrices, norm
from .statement import ROUNDING, Assumption


@dataclass(frozen=True, eq=False)
class FlowPath:
    """The weights of a deep linear network along a run, in float64 on the host."""

    problem: LinearRegression
    """The regression."""
    initial: DeepLinear
    """The network at the start."""
    end: Trajectory
    """The last part of the run."""
    weights: tuple[Matrices, ...]
    """W_1, …, W_L, each with a leading axis of records."""
    times: Float[np.ndarray, " records"]
    """Those of the records, from the escape: negative on the plateau before it, where a clock from the start would keep
    no digit of what follows."""
    escape_time: float
    """The time of the escape on the clock from the start."""
    rtol: float
    """The relative tolerance of each step."""
    atol: float
    """The absolute one."""
    steps: int
    """The number of steps of the integration."""

    @property
    def depth(self) -> int:
        """The number of layers, L."""
        return len(self.weights)

    @property
    def network(self) -> DeepLinear:
        """The network at the end of the run."""
        return self.end.network  # pyright: ignore[reportReturnType]

    @property
    def rounding(self) -> float:
        """The relative rounding error of both sides of a statement, in the precision of the weights."""
        double = jax.tree.leaves(self.end.network)[0].dtype.itemsize == 8
        return ROUNDING if double else 1e-3

    @property
    def projection_norm(self) -> float:
        """‖p‖, which is one for a multi-layer perceptron."""
        return float(self.network.projection_norm)

    @property
    def single_output(self) -> bool:
        """Whether there is one output, with or without a projection."""
        return self.problem.optimum.ndim == 1

    @property
    def converged(self) -> Assumption:
        """That the flow reached a minimizer."""
        return Assumption("the flow reached its limit", bool(self.end.converged), self.end.outcome.meaning)

    @cached_property
    def final_sharpness(self) -> float:
        """The sharpness at the end of the run, NaN where it could not be certified."""
        try:
            return float(self.end.final_sharpness)
        except RuntimeError:
            return float("nan")

    @cached_property
    def relative_residual(self) -> float:
        """‖X(π − w*)‖/‖Xw*‖ at the end: how far the end is from being a minimizer."""
        at_zero = float(self.problem.excess_risk(jnp.zeros_like(self.problem.optimum)))
        return float(np.sqrt(float(self.end.excess_risk[-1]) / at_zero)) if at_zero > 0 else 0.0

    def sharpness_error(self, sharpness: Any) -> Any:
        """Return by how much a `sharpness` at the end may differ from that at the limit.

        At relative distance δ from a minimizer that is a few L·δ, as every one of the L layers enters to first order.
        """
        return 10 * self.depth * self.relative_residual * sharpness

    @cached_property
    def gradients(self) -> GradientsAlong:
        """The gradients along the path."""
        projection = self.network.projection
        return GradientsAlong(
            self.problem, self.weights, None if projection is None else np.asarray(projection, np.float64)
        )

    @cached_property
    def integration_error(self) -> float:
        """The error to expect in W_{k+1}ᵀW_{k+1} − W_kW_kᵀ along the path, in the spectral norm.

        A step may change W_k by rtol·‖W_k‖_F + atol·√(entries), hence W_kW_kᵀ by twice that times ‖W_k‖_F, and so the
        difference of two by four times. The flow conserves the difference, so that the errors of the steps add up
        without growing. That they do so like the root of their number is no theorem, but leaves room: over the
        theory scenarios (16 flows of theory_conditioning) at rtol 1e-4, 1e-6, 1e-8 and 1e-10 the default solver drifted
        by at most 1/20 of this, mostly by 1/1000, and five other solvers by at most 1/15.
        """
        sizes = [float(np.max(norm(weight, (1, 2)))) for weight in self.weights]
        absolute = [self.atol * weight[0].size ** 0.5 for weight in self.weights]
        of_a_step = (4 * size * (self.rtol * size + extra) for size, extra in zip(sizes, absolute, strict=True))
        return self.steps**0.5 * max(of_a_step)


def deep_linear(network: object, problem: object) -> tuple[DeepLinear, LinearRegression]:
    """Return a deep linear network and a least-squares regression as what they are.

    Args:
        network: What is to be a `flowsim.DeepLinear`.
        problem: What is to be a `flowsim.LinearRegression`.

    Returns:
        Both, as they are.

    Raises:
        TypeError: For anything else, of which the theory does not speak.
    """
    if isinstance(network, DeepLinear) and isinstance(problem, LinearRegression):
        return network, problem
    raise TypeError(
        "the theory is about DeepLinear networks on LinearRegression, got "
        f"{type(network).__name__} on {type(problem).__name__}"
    )


def follow(
    network: DeepLinear,
    problem: LinearRegression,
    *,
    rtol: float | None = None,
    atol: float | None = None,
    stopping: Stopping | None = None,
    **options: Any,
) -> FlowPath:
    """Integrate the flow from a network to its limit, and return its path.

    The run is made in parts, the last of them from the escape from the plateau, where the excess risk has lost one part
    in a thousand. Each has a clock of its own: on one clock, the last 10¹² of a plateau that lasts 10²⁸ would be one
    moment. `t1` and `max_steps` are for each part.

    Args:
        network: The network at time zero.
        problem: The regression.
        rtol: Relative tolerance of a step; by default that of `integrate`.
        atol: Absolute tolerance of a step, which must be small beside the weights; by default 1e-3·rtol times the
            largest weight at the start, one at most.
        stopping: When the run counts as converged, as in `integrate`.
        **options: What `integrate` takes besides.

    Returns:
        The weights along the run.

    Raises:
        TypeError: For other networks and problems than deep linear networks on a least-squares regression.
        ValueError: As `integrate`.
    """
    deep_linear(network, problem)
    dtype = network.stacks[0].dtype
    rtol = standard_rtol(dtype) if rtol is None else rtol
    largest = max(float(jnp.max(jnp.abs(stack))) for stack in network.stacks)
    atol = 1e-3 * rtol * min(1.0, largest or 1.0) if atol is None else atol
    stopping = Stopping() if stopping is None else stopping
    options |= {"rtol": rtol, "atol": atol, "weights": True}
    if options.get("ts") is None:
        # Statements hold along the whole path: of each part twice as many records as a flow has by default.
        options.setdefault("records", 256)
    # A bound on the risk is one on the excess risk, as the infimum is known here.
    enough = max(stopping.excess_risk or 0.0, (stopping.risk or 0.0) - float(problem.infimum))
    start = float(problem.excess_risk(network))
    # A new clock starts where the excess risk has lost this part; the last is the escape.
    levels = [(1 - lost) * start for lost in (1e-14, 1e-10, 1e-6, 1e-3) if lost > 8 * jnp.finfo(dtype).eps]
    phases, current = [], network
    for level in [*(level for level in levels if level > enough), enough]:
        phases.append(integrate(current, problem, stopping=replace(stopping, excess_risk=level), **options))
        current = phases[-1].network
        if phases[-1].outcome != Outcome.RISK_REACHED:
            break
    return path_of(phases, network, rtol=rtol, atol=atol)


def path_of(phases: Sequence[Trajectory], initial: DeepLinear, *, rtol: float, atol: float = 0.0) -> FlowPath:
    """Return the path of a run in parts, each of which starts where the one before ended, the last at the escape.

    Args:
        phases: The parts, which have recorded their weights. A single one counts as its own escape, at time zero.
        initial: The network at the start.
        rtol: What each step was allowed to err by, relatively; for gradient descent, what it would be allowed as an
            integration of the flow.
        atol: The same, absolutely.

    Returns:
        The weights along the run.

    Raises:
        ValueError: If the weights were not recorded.
    """
    if any(phase.weights is None for phase in phases):
        raise ValueError("the theory looks at the weights along the path: integrate(..., weights=True)")
    clocks, ahead = [np.asarray(phases[-1].times, np.float64)], 0.0
    for phase in phases[-2::-1]:
        # Each part from its own end, so that a short one is not lost beside a long one before it.
        clocks.insert(0, _times_from_the_end(phase) - ahead)
        ahead += float(phase.time)
    weights = [[np.asarray(w, np.float64) for w in phase.weights.weights] for phase in phases]  # pyright: ignore
    return FlowPath(
        problem=phases[-1].problem,  # pyright: ignore[reportArgumentType]
        initial=initial,
        end=phases[-1],
        weights=tuple(np.concatenate(parts) for parts in zip(*weights, strict=True)),
        times=np.concatenate(clocks),
        escape_time=ahead,
        rtol=rtol,
        atol=atol,
        steps=sum(int(phase.steps) for phase in phases),
    )


def _times_from_the_end(phase: Trajectory) -> Float[np.ndarray, " records"]:
    """Return the times of the records before the last: negative, and exact however long the phase lasted."""
    times, remainders = np.asarray(phase.times, np.float64), np.asarray(phase.time_remainders, np.float64)
    return (times - times[-1]) + (remainders - remainders[-1])
