"""The central flow of order two, and when it holds the sharpness, against what SciPy makes of its equations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import ArrayLike
from test_edge_flow import FOREVER, edge_of_stability

import flowsim
from flowsim.edge.central_onset import Growth

ETA = 0.2


class Tide(flowsim.Problem):
    """½(floor + x)y² + (x − top)²/4 in a well, or V = −x − z + xz/4: x' = 1 − z/4, z' = 1 − x/4, with floor = 8.

    With M = 1 + ηH/2, x' = 1 − z/4 + (η/8)(1 − x/4), and z' likewise. Held with X, x' has −X/2 and z' −(η/16)X more.
    """

    floor: ArrayLike = 8.0
    flows: ArrayLike = 1.0
    top: ArrayLike = 0.0

    def __call__(self, w):
        x, y, z = w["x"], w["y"], w["z"]
        well = (1 - self.flows) * (x - self.top) ** 2 / 4
        return (self.floor + x) * y**2 / 2 + well - self.flows * (x + z - x * z / 4)


def variance(x, z):
    """Return the X that keeps x where it is."""
    return 2 * (1 - z / 4 + ETA / 8 * (1 - x / 4))


def slope(t, point):
    x, z, _ = point
    growth = np.log(abs(ETA * (8 + x) - 1)) / ETA
    return [variance(x, z) / 2, 1 - x / 4 + ETA / 8 * (1 - z / 4), growth]


def slope_when_held(t, point):
    """Return the same where x − 2 fades in the time η."""
    x, z = point
    back = (variance(x, z) + 2 * (x - 2) / ETA) / 2
    return [variance(x, z) / 2 - back, 1 - x / 4 + ETA / 8 * (1 - z / 4) - ETA / 8 * back]


def reference(amplitude, times):
    """Return x and z at the times, and when x is held."""
    import scipy.integrate

    large = lambda t, point: point[2] - np.log(variance(*point[:2])) / 2  # noqa: E731
    large.terminal = large.direction = 1
    options = {"rtol": 1e-11, "atol": 1e-12, "dense_output": True}
    first = scipy.integrate.solve_ivp(slope, (0, times[-1]), [0, 0, np.log(amplitude)], events=large, **options)
    held = first.t[-1]
    then = scipy.integrate.solve_ivp(slope_when_held, (held, times[-1]), first.y[:2, -1], **options)
    return np.where(times < held, first.sol(times)[:2], then.sol(times)), held


def first_amplitude(y):
    """Return the way from (0, y, 0) to the floor, along the first eigenvector."""
    hessian = np.array([[0, y, 0.25], [y, 8, 0], [0.25, 0, 0]])
    values, columns = np.linalg.eigh(hessian)
    return abs(columns[:, -1] @ [y**2 / 2 - 1, 8 * y, -1]) / values[-1]


RECORDS = 160


def run_of(y, times, rtol=None, *, eta=ETA, x=0.0, tide=None):
    """Return a run with room for its records; another one compiles nothing."""
    assert len(times) == RECORDS
    start = {"x": jnp.array(x), "y": jnp.array(y), "z": jnp.array(0.0)}
    tide = jax.tree.map(jnp.asarray, Tide() if tide is None else tide)
    options = {"weights": True, "probes": [flowsim.probes.Oscillation()], "max_steps": 1000, "stopping": FOREVER}
    model = flowsim.CentralFlow(eta, order=2, rtol=rtol)
    return flowsim.integrate(start, tide, model=model, ts=times, t1=times[-1], **options)


TIMES = np.linspace(0.5, 12.0, RECORDS)


@pytest.mark.slow
def test_x_passes_the_edge_until_the_oscillation_is_large_enough_and_comes_back():
    """ηS is 1.6 where it begins: the first amplitude is the way to the floor, decays up to x = 2, and then grows."""
    (x, z), held = reference(first_amplitude(1e-3), TIMES)
    assert x.max() > 3.7
    run = run_of(1e-3, TIMES, 1e-8)
    np.testing.assert_allclose(np.asarray(run.weights["x"])[:RECORDS], x, atol=1e-4)
    np.testing.assert_allclose(np.asarray(run.weights["z"])[:RECORDS], z, atol=1e-4)
    oscillates = np.asarray(run.diagnostics["oscillation"])[:RECORDS] > 0
    assert oscillates.tolist() == (held < TIMES).tolist()


@pytest.mark.slow
def test_the_tighter_the_tolerance_the_smaller_the_error_of_order_two():
    at = np.searchsorted(TIMES, [8.0, 11.5])
    (x, z), _ = reference(first_amplitude(1e-3), TIMES[at])
    for rtol, expected in ((1e-3, 1e-2), (1e-5, 5e-3), (1e-7, 2e-3), (1e-9, 2e-4)):
        path = run_of(1e-3, TIMES, rtol).weights
        error = np.hypot(np.asarray(path["x"])[at] - x, np.asarray(path["z"])[at] - z)
        assert error.max() < expected


@pytest.mark.slow
def test_from_a_minimum_beyond_the_edge_it_comes_down_when_descent_does():
    """Where S is at rest beyond 2/η, no oscillation is too small to hold it; it takes one that has grown to turn it."""
    eta, top, begun = 0.5, 4.4, 1e-9
    x, y = 3.6, begun
    heights = []
    for _ in range(RECORDS):
        x, y = x - eta * (y * y / 2 + (x - top) / 2), y - eta * x * y
        heights.append(x)
    times = eta * np.arange(1, RECORDS + 1)
    held = np.asarray(run_of(begun, times, eta=eta, x=3.6, tide=Tide(0.0, 0.0, top)).weights["x"])[:RECORDS]
    beyond = [times[: len(along)][along > (top + 2 / eta) / 2] for along in (np.array(heights), held)]
    assert np.ptp(beyond[0]) > 20  # descent stays there for a while
    np.testing.assert_allclose(*([along[0], along[-1]] for along in beyond), atol=1.5)
    assert held[-1] == pytest.approx(2 / eta, rel=1e-6)


@pytest.mark.parametrize("bend", [0.0, 1.5])
def test_growth_is_the_integral_of_the_logarithm(bend):
    import scipy.integrate
    from scipy.optimize import brentq

    @jax.jit
    def grown(log_least, begin, end, slopes):
        start = Growth(jnp.array(-3.0), log_least, begin, slopes[0], jnp.array(0.0))
        return start.after(jnp.array(30.0), end, slopes[1]).log_amplitude

    cubic = np.polynomial.Polynomial([0.2, 1.0 + bend, 0.5 - bend])
    slopes = cubic.deriv()(np.array([0, 1])) / 30
    grows = scipy.integrate.quad(lambda s: np.log(cubic(s)), 0, 1)[0] * 30
    least = brentq(lambda s: cubic(s) - 1, 0, 1)
    falls = scipy.integrate.quad(lambda s: np.log(cubic(s)), 0, least)[0] * 30
    assert float(grown(-40.0, cubic(0), cubic(1), slopes)) == pytest.approx(-3 + grows, abs=1e-4)
    assert float(grown(-5.0, cubic(0), cubic(1), slopes)) == pytest.approx(-5 + grows - falls, abs=1e-3)
    assert float(grown(-40.0, 1.5, 1.5, np.zeros(2))) == pytest.approx(-3 + 30 * np.log(1.5), rel=1e-12)


def test_an_oscillation_takes_over_from_a_sharpness_that_rises_rests_or_falls():
    cases = [
        (1.2, 3.0, 3.0),  # a rising S is let fall as fast as it rises
        (1.2, 0.0, 2 * np.log(1.2) / ETA),  # one at rest as its oscillation grows, e^{γt} with γ = ln(ηS − 1)/η
        (1.2, -5.0, 2 * np.log(1.2) / ETA),  # and so one that falls by itself
        (0.9, 3.0, 0.0),  # below the edge an oscillation decays
    ]

    @jax.jit
    def turning(factor, rate):
        none = jnp.zeros_like(factor)
        return jax.vmap(lambda *of: Growth(*of[:5]).turning(of[5], jnp.array(2.0), jnp.array(ETA)))(
            none - 3, none - 3, factor, none, none, rate
        )

    factor, rate, expected = np.transpose(cases)
    np.testing.assert_allclose(turning(factor, rate), expected, rtol=1e-12)


@pytest.mark.slow
def test_order_two_is_closer_to_descent_below_the_edge_and_at_it():
    """The flow of seed 1 goes to ηS = 1.74 and 2.18 until t = 40."""
    names, options = ["gradient", "central", "central_2"], {"t1": 40.0, "stopping": FOREVER, "sharpness": False}
    compared = flowsim.compare(*edge_of_stability("seed=1"), [0.08, 0.1], models=names, **options)
    assert [run.dynamics for run in compared.models] == ["central"] * 2 + ["central_2"] * 2
    runs = (*compared.descents, *compared.models)
    columns = [np.asarray(run.trajectory.diagnostics["centre_distance"]) for run in runs]
    flow, published, second = np.reshape([known[np.isfinite(known)][-1] for known in columns], (3, 2))
    assert (second < published / [10, 2]).all()
    assert (second < flow / 10).all()
