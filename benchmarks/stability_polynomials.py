"""Make the table of stabilized fourth-order methods, `flowsim/solvers/stability_polynomials.json`.

    python benchmarks/stability_polynomials.py

Each method of s stages has a stability polynomial R(z) = exp(z) + O(z⁵) with |R| ≤ 0.95 on [−ℓ, −0.06], and ℓ nearly
as long as can be. It is w(z) P(z), w of degree four with two pairs of complex zeros, P orthogonal with respect to
w²/√(1 − x²) on [−ℓ, −δ] mapped to [−1, 1], so that P has a three-term recurrence (Abdulle 2002, SIAM J. Sci. Comput.
23). The zeros of w start from those of the optimal polynomial, a linear program (Ketcheson and Ahmadia 2012, CAMCoS
7), and are then solved for with P in place, in extended precision: four order conditions and the height at the edge
δ. The last four stages, an explicit Runge–Kutta method of its own after the recurrence, follow from the eight order
conditions of the whole.
"""

import json
import math
from pathlib import Path

import numpy as np
import scipy.optimize
from numpy.polynomial import chebyshev

HEIGHT = 0.95
STAGES = [*range(5, 15), 16, 18, 20, 23, 26, 30, 35, 40, 46, 53, 61, 70, 80, 92, 106, 122]
TABLE = Path(__file__).parents[1] / "flowsim/solvers/stability_polynomials.json"
# How much of the longest interval is asked for: P is not quite the optimal factor.
SHARE = 0.985
EXTENDED = np.longdouble
ORDER = 4


def optimal_polynomial(stages, length):
    """Return the Chebyshev coefficients over [−length, 0] of the polynomial of order 4 with the least height there."""
    count = 60 * stages
    nodes = np.cos(np.pi * (np.arange(count) + 0.5) / count)
    derivatives = np.zeros((ORDER + 1, stages + 1))
    for degree in range(stages + 1):
        value = 1.0
        for k in range(ORDER + 1):
            derivatives[k, degree] = value
            value *= (degree**2 - k**2) / (2 * k + 1)
    bounded = chebyshev.chebvander(nodes[(nodes - 1) * length / 2 <= math.log(HEIGHT)], stages)
    column = -np.ones((len(bounded), 1))
    scale = np.abs(derivatives).max(1)
    solution = scipy.optimize.linprog(
        np.append(np.zeros(stages + 1), 1),
        A_ub=np.block([[bounded, column], [-bounded, column]]),
        b_ub=np.zeros(2 * len(bounded)),
        A_eq=np.hstack([derivatives, np.zeros((ORDER + 1, 1))]) / scale[:, None],
        b_eq=(length / 2) ** np.arange(ORDER + 1) / scale,
        bounds=[(None, None)] * (stages + 1) + [(0, None)],
    ).x
    return solution[:-1], solution[-1]


def optimal_zeros(stages):
    """Return the longest interval of any polynomial, and the complex zeros of that one, by bisection."""
    low, high = 0.15 * stages**2, 0.36 * stages**2
    for _ in range(14):
        middle = (low + high) / 2
        low, high = (middle, high) if optimal_polynomial(stages, middle)[1] <= HEIGHT else (low, middle)
    zeros = (chebyshev.chebroots(optimal_polynomial(stages, low)[0]) - 1) * low / 2
    upper = zeros[zeros.imag > 1e-6]
    first, second = sorted(upper[np.argsort(np.abs(upper))][:2], key=lambda zero: zero.real)
    return low, np.array([first.real, first.imag, second.real, second.imag, -math.log(HEIGHT)], EXTENDED)


def recurrence(pairs, origin, per_unit, degree):
    """Return α and β of the monic orthogonal polynomials, by the Stieltjes procedure in Gauss–Chebyshev nodes."""
    count = degree + 8
    nodes = np.cos((np.arange(count, dtype=EXTENDED) + 0.5) * (4 * np.arctan(EXTENDED(1))) / count)
    weight = np.ones(count, EXTENDED)
    for real, imaginary in pairs:
        weight = weight * ((nodes - (origin + real / per_unit)) ** 2 + (imaginary / per_unit) ** 2)
    weight = (weight / weight.max()) ** 2
    alphas, betas, before, here, size_before = [], [], np.zeros_like(nodes), np.ones_like(nodes), None
    for _ in range(degree):
        size = np.sum(weight * here**2)
        alphas.append(np.sum(weight * nodes * here**2) / size)
        betas.append(EXTENDED(0) if size_before is None else size / size_before)
        before, here, size_before = here, (nodes - alphas[-1]) * here - betas[-1] * before, size
    return alphas, betas


def taylor(pairs, origin, per_unit, alphas, betas, x):
    """Return the value and four derivatives of w P at x."""
    before, here = np.zeros(5, EXTENDED), np.eye(5, dtype=EXTENDED)[0]
    for alpha, beta in zip(alphas, betas, strict=True):
        shifted = np.append(0, np.arange(1, 5) * here[:-1])
        before, here = here, (x - alpha) * here + shifted - beta * before
    for real, imaginary in pairs:
        away = x - (origin + real / per_unit)
        factor = np.array([away**2 + (imaginary / per_unit) ** 2, 2 * away, 2, 0, 0], EXTENDED)
        here = np.array([sum(math.comb(k, i) * here[i] * factor[k - i] for i in range(k + 1)) for k in range(5)])
    return here


def mapped(unknowns, length):
    """Return the zeros as pairs, and the map x = origin + z per_unit⁻¹ that takes [−length, −δ] to [−1, 1]."""
    per_unit = (length - unknowns[4]) / 2
    return [tuple(unknowns[:2]), tuple(unknowns[2:4])], 1 + unknowns[4] / per_unit, per_unit


def conditions(unknowns, stages, length):
    """Return by how much the four order conditions and the height at the edge are missed."""
    pairs, origin, per_unit = mapped(unknowns, EXTENDED(length))
    alphas, betas = recurrence(pairs, origin, per_unit, stages - 4)
    there = taylor(pairs, origin, per_unit, alphas, betas, origin)
    edge = taylor(pairs, origin, per_unit, alphas, betas, EXTENDED(1))[0]
    return np.append(there[1:] / there[0] / per_unit ** np.arange(1, 5) - 1, edge / there[0] - EXTENDED(HEIGHT))


def newton(function, unknowns, difference):
    """Return a zero of a function by damped Newton steps of least length, derivatives from central differences."""
    missed = function(unknowns)
    while np.abs(missed).max() > 1e-16:
        columns = np.eye(len(unknowns), dtype=EXTENDED) * EXTENDED(difference)
        slopes = [(function(unknowns + c) - function(unknowns - c)) / (2 * EXTENDED(difference)) for c in columns]
        step = -np.linalg.lstsq(np.array(slopes, float).T, missed.astype(float), rcond=None)[0]
        factor = min(1.0, 0.3 / np.abs(step).max())
        while np.abs(function(unknowns + factor * step)).max() >= np.abs(missed).max():
            factor /= 2
            if factor < 1e-4:
                return unknowns, float(np.abs(missed).max())
        unknowns = unknowns + factor * step
        missed = function(unknowns)
    return unknowns, float(np.abs(missed).max())


def slope_series(series):
    """Return the B-series of h f(y), up to order four, of a y with this one: c, Ac, Ac², AAc are its first entries."""
    c, ac, acc, aac = series[:4]
    return np.array([1, c, c * c, ac, c**3, c * ac, acc, aac], EXTENDED)


def last_stages(pairs, origin, per_unit, alphas, betas):
    """Return the ten entries of the explicit method that ends a step: six of A by rows, four weights."""
    exact = np.array([1, 1 / EXTENDED(2), 1 / EXTENDED(3), 1 / EXTENDED(6)], EXTENDED)
    exact = np.append(exact, EXTENDED(1) / np.array([4, 8, 12, 24], EXTENDED))
    start = series_of_recurrence(origin, per_unit, alphas, betas)

    def missed(entries):
        rows = [entries[:0], entries[:1], entries[1:3], entries[3:6]]
        slopes = []
        for row in rows:
            moved = start + sum((a * slope for a, slope in zip(row, slopes, strict=True)), np.zeros(8, EXTENDED))
            slopes.append(slope_series(moved))
        return start + sum(b * slope for b, slope in zip(entries[6:], slopes, strict=True)) - exact

    left = 1 - start[0]
    classical = np.array([left / 2, 0, left / 2, 0, 0, left, left / 6, left / 3, left / 3, left / 6], EXTENDED)
    return newton(missed, classical, 1e-7)


def series_of_recurrence(origin, per_unit, alphas, betas):
    """Return the B-series of the stages that the three-term recurrence makes."""
    before, here = np.zeros(8, EXTENDED), np.zeros(8, EXTENDED)
    values = [EXTENDED(0), EXTENDED(1)]
    for alpha, beta in zip(alphas, betas, strict=True):
        values.append((origin - alpha) * values[-1] - beta * values[-2])
        older, old, new = values[-3:]
        moved = slope_series(here) * old / (per_unit * new) + (origin - alpha) * old / new * here
        before, here = here, moved - beta * older / new * before
    return here


def main():
    table, ratios, unknowns = [], {}, None
    for stages in STAGES:
        if stages <= 20:
            length, unknowns = optimal_zeros(stages)
            ratios[stages] = length / stages**2
        else:  # the zeros hardly move any more, and the interval is quadratic with a correction
            slope = (ratios[20] - ratios[16]) / (20**-2 - 16**-2)
            length = (ratios[20] + slope * (stages**-2 - 20**-2)) * stages**2
        length *= SHARE
        unknowns, missed = newton(lambda u, s=stages, z=length: conditions(u, s, z), unknowns, 1e-8)
        pairs, origin, per_unit = mapped(unknowns, EXTENDED(length))
        alphas, betas = recurrence(pairs, origin, per_unit, stages - 4)
        entries, missed_last = last_stages(pairs, origin, per_unit, alphas, betas)
        print(f"{stages:4d} stages: length {length / stages**2:.4f} s², missed {missed:.0e} and {missed_last:.0e}")
        assert max(missed, missed_last) < 1e-13
        table.append([stages, float(length), *map(float, unknowns), *map(float, entries)])
    columns = ["stages", "length", "re1", "im1", "re2", "im2", "edge", "a21", "a31", "a32", "a41", "a42", "a43"]
    lines = ",\n".join(f"  {json.dumps(row)}" for row in table)
    TABLE.write_text(f'{{"columns": {json.dumps([*columns, "b1", "b2", "b3", "b4"])},\n"rows": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
