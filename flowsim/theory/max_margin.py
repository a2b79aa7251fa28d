"""The linear network of largest margin, to whose direction flows on separable data tend."""

from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int

from ..problems import EmpiricalRisk


class Separator(NamedTuple):
    """A regressor of unit norm whose least margin is the largest."""

    direction: Float[np.ndarray, "..."]
    """The regressor, (d,) or (d, m)."""
    margin: float
    """Its least margin."""
    support: Int[np.ndarray, " k"]
    """The numbers of the samples on which it depends: the support vectors."""


def max_margin(problem: EmpiricalRisk, *, resolution: float = 1e-7) -> Separator:
    """Return the regressor π of unit norm for which min_i m_i is largest, m_i the margins of x ↦ πᵀx.

    Gradient flow and descent of one linear layer under a logistic loss or cross-entropy on separable data tend to its
    direction, with an angle like 1/log t (Soudry et al. 2018); so does the regressor of deeper linear networks (Ji and
    Telgarsky 2019). It is π/‖π‖ for the least ‖π‖ with all margins at one or more, found by non-negative least squares
    (Lawson and Hanson 1974, chapter 23).

    Args:
        problem: The risk on samples of classes.
        resolution: A margin below this part of the largest sample counts as none.

    Returns:
        The direction, its margin and the support vectors.

    Raises:
        TypeError: For another problem than an `EmpiricalRisk`.
        ValueError: For targets that stand for no classes, samples that are no vectors, and classes that no linear
            network separates by more than rounding.
    """
    if not isinstance(problem, EmpiricalRisk):
        raise TypeError(f"a margin is that of a flowsim.EmpiricalRisk, got {type(problem).__name__}")
    if problem.X.ndim != 2:
        raise ValueError(f"X has shape {problem.X.shape}: expected (n, d), as a linear network maps vectors")
    constraints = _constraints(problem)
    n, per_sample = constraints.shape[:2]
    rows = constraints.reshape(n * per_sample, -1)
    size = float(np.abs(rows).max()) or 1.0
    regressor, active = _least_norm(rows / size, resolution)
    margins = rows @ regressor
    norm = float(np.linalg.norm(regressor))
    if norm == 0 or not margins.min() > resolution * size * norm:
        raise ValueError(
            "no linear network has all samples on the right side by more than rounding: expected separable data, for "
            "which there is a largest margin; a risk on others has a minimizer, to which flowsim.integrate goes"
        )
    shape = constraints.shape[2:] if constraints.shape[3] > 1 else constraints.shape[2:3]
    support = np.unique(np.flatnonzero(active) // per_sample)
    return Separator((regressor / norm).reshape(shape), float(margins.min()) / norm, support)


def _constraints(problem: EmpiricalRisk) -> Float[np.ndarray, "n k d m"]:
    """Return the derivative of every margin in the regressor, in which margins are linear."""
    prediction = problem.zero_prediction()
    if not problem.has_margins():
        raise ValueError(
            f"{type(problem.loss).__name__} knows no margins of these targets: expected classes, with "
            "flowsim.losses.Logistic() or CrossEntropy()"
        )
    slopes = jax.vmap(lambda target: jax.jacfwd(lambda f: problem.loss.margins(f, target))(prediction))(problem.y)
    slopes = np.asarray(slopes, float).reshape(len(problem.y), -1, prediction.size)
    return np.einsum("nd,nkm->nkdm", np.asarray(problem.X, float), slopes)


def _least_norm(
    rows: Float[np.ndarray, "k p"], resolution: float
) -> tuple[Float[np.ndarray, " p"], Float[np.ndarray, " k"]]:
    """Return the shortest v with `rows` v ≥ 1, and the multipliers of the rows; zero where there is none."""
    from scipy.optimize import nnls  # takes a moment to import, and is rarely needed

    count = rows.shape[1]
    system = np.vstack([rows.T, np.ones(len(rows))])
    unit = np.append(np.zeros(count), 1.0)
    multipliers, _ = nnls(system, unit, maxiter=30 * len(rows))
    residual = system @ multipliers - unit
    if not residual[-1] < -(resolution**2):
        return np.zeros(count), multipliers
    return -residual[:count] / residual[-1], multipliers
