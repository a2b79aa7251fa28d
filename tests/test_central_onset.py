"""The central flow of order two, and when it holds the sharpness, against what SciPy makes of its equations."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import flowsim
from flowsim.edge.central_onset import Growth
from flowsim.scenarios import build, parse_overrides, read_scenario

ETA = 0.2
FOREVER = flowsim.Stopping(gradient_norm=None)


@flowsim.Risk
def tide(w):
    """Return ½(8 + x)y² + V, V = −x − z + xz/4: the curvature along y is 8 + x, and x' = 1 − z/4, z' = 1 − x/4.

    With M = 1 + ηH/2, x' = 1 − z/4 + (η/8)(1 − x/4), and z' likewise. Held with X, x' has −X/2 and z' −(η/16)X more.
    """
    return (8 + w["x"]) * w["y"] ** 2 / 2 - w["x"] - w["z"] + w["x"] * w["z"] / 4


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


def run_of(amplitude, times, rtol, dtype=float):
    start = {"x": jnp.zeros((), dtype), "y": jnp.asarray(amplitude, dtype), "z": jnp.zeros((), dtype)}
    model = flowsim.CentralFlow(ETA, order=2, rtol=rtol)
    probes = [flowsim.probes.Oscillation()]
    return flowsim.integrate(start, tide, model=model, ts=times, t1=times[-1], weights=True, probes=probes)


@pytest.mark.parametrize(("begin", "end"), [(1e-3, 12.0), (1e-4, 12.9)])
@pytest.mark.slow
def test_x_passes_the_edge_until_the_oscillation_is_large_enough_and_comes_back(begin, end):
    """ηS is 1.6 where it begins: the first amplitude is the way to the floor, decays up to x = 2, and then grows."""
    times = np.linspace(0.5, end, 24)
    (x, z), held = reference(first_amplitude(begin), times)
    assert x.max() > 3.7
    run = run_of(begin, times, 1e-8)
    np.testing.assert_allclose(np.asarray(run.weights["x"])[:24], x, atol=1e-4)
    np.testing.assert_allclose(np.asarray(run.weights["z"])[:24], z, atol=1e-4)
    oscillates = np.asarray(run.diagnostics["oscillation"])[:24] > 0
    assert oscillates.tolist() == (times > held).tolist()


@pytest.mark.slow
def test_the_tighter_the_tolerance_the_smaller_the_error_of_order_two():
    times = np.array([8.0, 11.5])
    (x, z), _ = reference(first_amplitude(1e-3), times)
    for rtol, expected in ((1e-3, 1e-2), (1e-5, 5e-3), (1e-7, 2e-3), (1e-9, 2e-4)):
        path = run_of(1e-3, times, rtol).weights
        error = np.hypot(np.asarray(path["x"])[:2] - x, np.asarray(path["z"])[:2] - z)
        assert error.max() < expected


@pytest.mark.slow
def test_order_two_runs_in_single_precision_and_under_vmap(compiled_quickly):
    times = np.linspace(0.5, 12.0, 24)
    (x, _), _ = reference(first_amplitude(1e-3), times)
    run = run_of(np.float32(1e-3), times, 1e-4, dtype=jnp.float32)
    assert run.weights["x"].dtype == jnp.float32
    np.testing.assert_allclose(np.asarray(run.weights["x"])[:24], x, atol=2e-3)

    def end(amplitude):
        return run_of(amplitude, times[-1:], 1e-6).network["x"]

    amplitudes = jnp.array([1e-3, 3e-4])
    np.testing.assert_allclose(compiled_quickly(jax.vmap(end))(amplitudes), list(map(end, amplitudes)), atol=1e-6)


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
    file = Path(__file__).parents[1] / "scenarios" / "edge_of_stability.yaml"
    problem, network, _ = build(read_scenario(file, parse_overrides(["seed=1"])), file.parent)
    names = ["gradient", "central", "central_2"]
    found = flowsim.compare(network, problem, [0.08, 0.1], models=names, t1=40.0, stopping=FOREVER)
    assert [run.dynamics for run in found.models] == ["central"] * 2 + ["central_2"] * 2
    runs = (*found.descents, *found.models)
    columns = [np.asarray(run.trajectory.diagnostics["centre_distance"]) for run in runs]
    flow, published, second = np.reshape([known[np.isfinite(known)][-1] for known in columns], (3, 2))
    assert (second < published / [10, 2]).all()
    assert (second < flow / 10).all()


@pytest.mark.slow
def test_from_a_minimum_beyond_the_edge_it_comes_down_when_descent_does():
    """Where S is at rest beyond 2/η, no oscillation is too small to hold it; it takes one that has grown to turn it."""
    eta, top, begun = 0.5, 4.4, 1e-9
    risk = flowsim.Risk(lambda w: w[0] ** 2 * w[1] / 2 + (w[1] - top) ** 2 / 4)
    x, y = begun, 3.6
    heights = []
    for _ in range(160):
        x, y = x - eta * x * y, y - eta * (x * x / 2 + (y - top) / 2)
        heights.append(y)
    times = eta * np.arange(1, 161)
    model = flowsim.CentralFlow(eta, order=2)
    start = jnp.array([begun, 3.6])
    run = flowsim.integrate(start, risk, model=model, ts=times, t1=80.0, max_steps=1000, weights=True, stopping=FOREVER)
    held = np.asarray(run.weights)[:, 1]
    beyond = [times[: len(along)][along > (top + 2 / eta) / 2] for along in (np.array(heights), held)]
    assert np.ptp(beyond[0]) > 20  # descent stays there for a while
    np.testing.assert_allclose(*([along[0], along[-1]] for along in beyond), atol=1.5)
    assert held[-1] == pytest.approx(2 / eta, rel=1e-6)
