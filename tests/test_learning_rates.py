"""Learning rates that change in time: in descents against recursions, in models against closed forms, and verdicts."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_optimizers import BOWL, CURVATURES, NEVER, START

import flowsim
from flowsim import CosineDecay, Outcome, StepDecay, WarmUp
from flowsim.comparison.plan import End, RunSpec
from flowsim.dynamics import StepTimes
from flowsim.dynamics.learning_rates import largest_rate, nominal_rate, rate_and_slope
from flowsim.sweeps.dataset import run_of


def warm_up(t, time=4.0, start=0.1):
    return math.sqrt(start**2 + (1 - start**2) * min(t / time, 1))


def cosine(t, time=12.0, final=0.05):
    return final + (1 - final) * (1 + math.cos(math.pi * min(t / time, 1))) / 2


BOTH = WarmUp(CosineDecay(0.3, time=12.0, final=0.05), time=4.0)
RATES = {
    "warm_up": (WarmUp(0.3, time=4.0), lambda t: 0.3 * warm_up(t)),
    "in_time": (WarmUp(0.3, time=4.0, start=0.2, linear_in="time"), lambda t: 0.3 * (0.2 + 0.8 * min(t / 4, 1))),
    "both": (BOTH, lambda t: 0.3 * warm_up(t) * cosine(t)),
    "step_decay": (
        StepDecay(0.4, times=(3.0, 6.5), decay=0.5),
        lambda t: 0.4 / 2 ** (int(t > 2.999) + int(t > 6.499)),
    ),
    "function": (lambda t: 0.3 / (1 + t), lambda t: 0.3 / (1 + t)),
}


def recursion(rate, steps, beta=0.0):
    """Return the weights and the times after each step of the heavy ball, as Polyak writes it."""
    w, v, t, weights, times = START, 0.0, 0.0, [START], [0.0]
    for _ in range(steps):
        v = beta * v + CURVATURES * w
        w, t = w - rate(t) * v, t + rate(t) / (1 - beta)
        weights.append(w)
        times.append(t)
    return np.array(weights), np.array(times)


def test_a_learning_rate_is_its_formula_in_time():
    times = np.array([0.0, 1.3, 2.9, 3.1, 4.2, 6.6, 13.0])
    rates = jax.jit(lambda: {name: [jnp.asarray(rate(t)) for t in times] for name, (rate, _) in RATES.items()})()
    for name, (_, formula) in RATES.items():
        np.testing.assert_allclose(rates[name], [formula(t) for t in times], rtol=1e-13, err_msg=name)


def test_the_edge_of_a_descent_of_a_sweep_is_that_after_its_last_step():
    halved = flowsim.GradientDescent(StepDecay(0.4, times=(3.0,), decay=0.5))
    spec = RunSpec(halved, 0.4, End(steps=10))
    assert run_of(spec).edge.threshold == pytest.approx(2 / 0.2, rel=1e-14)
    np.testing.assert_allclose(spec.step_times.after(np.array([7.0, 10.0])), [7 * 0.4, 8 * 0.4 + 2 * 0.2], rtol=1e-14)


@pytest.mark.parametrize("beta", [None, 0.5])
def test_a_descent_takes_the_rate_of_the_time_at_which_each_step_begins(beta):
    changing, rate = RATES["both"]
    optimizer = flowsim.GradientDescent(changing) if beta is None else flowsim.HeavyBall(changing, momentum=beta)
    run = flowsim.descend(jnp.asarray(START), BOWL, optimizer=optimizer, steps=60, weights=True, stopping=NEVER)
    weights, times = recursion(rate, 60, beta or 0.0)
    rates = np.array([rate(t) for t in times])
    np.testing.assert_allclose(run.weights, weights, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(run.times, times, rtol=1e-14)
    np.testing.assert_allclose(run.diagnostics["scheduled_rate"], rates, rtol=1e-12)
    np.testing.assert_allclose(run.diagnostics["moving_edge"], 2 * (1 + (beta or 0)) / rates, rtol=1e-12)
    np.testing.assert_allclose(StepTimes(optimizer).after(np.arange(61)), times, rtol=1e-14)
    assert StepTimes(optimizer).until(times[41]) == 41


def test_a_warm_up_is_linear_in_the_number_of_steps():
    # By Euler and Maclaurin, as steps take η: the rate at step k is linear in k up to the change in a step.
    rate, start, steps = 1e-3, 0.2, 2000
    time = steps * (1 + start) * rate / 2
    times = StepTimes(flowsim.GradientDescent(WarmUp(rate, time=time, start=start))).after(np.arange(steps + 1))
    rates = np.diff(times)
    linear = rate * (start + (1 - start) * np.arange(steps) / steps)
    np.testing.assert_allclose(rates, linear, atol=3 * rate / steps)
    assert abs(times[-1] / time - 1) < 2 / steps


def test_the_largest_rate_from_a_time_on_is_known():
    now = jnp.asarray(2.0)
    assert float(largest_rate(WarmUp(0.3, time=4.0), now)) == 0.3
    assert float(largest_rate(CosineDecay(0.3, time=4.0), now)) == pytest.approx(0.3 * (0.01 + 0.99 / 2))
    assert float(largest_rate(StepDecay(0.3, times=(1.0, 3.0)), now)) == pytest.approx(0.03)
    assert 0.3 * cosine(2) <= float(largest_rate(BOTH, now)) <= 0.3
    assert nominal_rate(BOTH) == 0.3
    assert nominal_rate(lambda t: 0.3 / (1 + t)) == 0.3
    eta, slope = rate_and_slope(WarmUp(0.3, time=4.0), now)
    h = 1e-6
    assert float(slope) == pytest.approx(0.3 * (warm_up(2 + h) - warm_up(2 - h)) / (2 * h), rel=1e-8)
    assert float(eta) == pytest.approx(0.3 * warm_up(2.0))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: WarmUp(0.1, time=0.0), "time must be a finite number above 0, got 0.0"),
        (lambda: WarmUp(0.1, time=1.0, start=0.0), "start must be a number from 1e-06 to 1, got 0.0"),
        (lambda: WarmUp(0.1, time=1.0, linear_in="epochs"), "linear_in must be steps or time, got 'epochs'"),
        (lambda: CosineDecay(0.1, time=1.0, final=1.5), "final must be"),
        (lambda: StepDecay(0.1, times=(2.0, 1.0)), "increasing times above zero"),
        (lambda: StepDecay(0.1, times=(1.0,), decay=0), "decay must be"),
        (lambda: WarmUp(-0.1, time=1.0), "learning_rate must be a positive finite number"),
        (lambda: lambda t: t, "learning_rate must be a positive finite number of float64, .* got 0.0"),
        (lambda: lambda t: 0.1 * min(1.0, t), "function of time that cannot be used"),
        (lambda: lambda t: jnp.ones(2) * t, "array of the shape"),
    ],
)
def test_what_is_no_learning_rate_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        flowsim.descend(jnp.asarray(START), BOWL, learning_rate=make(), steps=1)


def test_a_function_that_stops_to_be_a_learning_rate_ends_a_run():
    rate = lambda t: jnp.where(t < 0.5, 0.1, -0.1)  # noqa: E731
    run = flowsim.descend(jnp.asarray(START), BOWL, learning_rate=rate, steps=200, stopping=NEVER)
    assert run.outcome is Outcome.SOLVER_FAILED
    assert int(run.steps) < 20


@pytest.mark.slow
def test_a_rate_within_a_schedule_may_be_a_function():
    def make(rate):
        return flowsim.GradientDescent(WarmUp(lambda t: rate / (1 + t), time=4.0))

    rates, starts = [0.3, 0.2], jnp.stack([jnp.asarray(START)] * 2)
    ends = flowsim.batch.descend_batch(starts, BOWL, learning_rates=rates, steps=40, optimizer=make)
    run = flowsim.descend(jnp.asarray(START), BOWL, optimizer=make(0.3), steps=40, weights=True, stopping=NEVER)
    for weights, rate in ((run.weights[-1], 0.3), *zip(ends.networks, rates, strict=True)):
        expected = recursion(lambda t, rate=rate: rate / (1 + t) * warm_up(t), 40)[0][-1]
        np.testing.assert_allclose(weights, expected, rtol=1e-12)
    with pytest.raises(ValueError, match=r"optimizer\(0.3\) is a descent with the learning rate 0.6"):
        flowsim.batch.descend_batch(
            starts, BOWL, learning_rates=rates, steps=4, optimizer=lambda rate: flowsim.HeavyBall(2 * rate)
        )


# -- the models


def valley(weights):
    """A valley along y of the curvature y across, at whose floor descent sharpens at the rate one."""
    x, y = weights
    return x**2 * y / 2 - y


@pytest.mark.slow
def test_the_central_flow_stays_at_an_edge_that_moves_and_leaves_one_that_rises_faster_than_descent_sharpens():
    model = flowsim.CentralFlow(CosineDecay(0.5, time=8.0, final=0.25), rtol=1e-8)
    options = {"t1": 16.0, "ts": np.linspace(0, 16, 41)[1:], "weights": True, "probes": [flowsim.probes.Oscillation()]}
    run = flowsim.integrate(jnp.array([0.0, 3.9]), flowsim.Risk(valley), model=model, stopping=NEVER, **options)
    times, y, edge = np.asarray(run.times), np.asarray(run.weights[:, 1]), np.asarray(run.diagnostics["moving_edge"])
    sizes, at_edge = np.asarray(run.diagnostics["oscillation"]), np.isclose(y, edge, rtol=1e-9)
    assert at_edge[times < 2.0].sum() > 3
    assert at_edge[-1]
    assert not at_edge.all()
    # S = y, so that Σ = 2(1 − (2/η)') holds it at 2/η(t) while the edge rises no faster than descent sharpens.
    rises = np.where(times < 8, edge**2 / 2 * 0.5 * 0.75 * np.pi / 16 * np.sin(np.pi * times / 8), 0)
    np.testing.assert_allclose(sizes[at_edge] ** 2, 2 * (1 - rises[at_edge]), rtol=1e-6)
    # From where (2/η)' = 1 on it is free, and sharpens at the rate one.
    free = np.flatnonzero(~at_edge & (times > 2.0))
    np.testing.assert_allclose(np.diff(y[free]), np.diff(times[free]), rtol=1e-7)
    assert (sizes[free] == 0).all()


def grown(model, at):
    """Return by how much the logarithm of the amplitude of an oscillation grows between two times."""
    options = {"ts": np.asarray(at), "t1": float(at[-1]), "probes": [flowsim.probes.Oscillation()], "stopping": NEVER}
    run = flowsim.integrate(jnp.array([1e-4, 1e-7]), BOWL, model=model, **options)
    return float(np.diff(np.log(np.asarray(run.diagnostics["oscillation"])[:2]))[0])


@pytest.mark.slow
@pytest.mark.parametrize("order", [1, 2])
def test_an_oscillation_grows_as_that_of_descent_up_to_the_order_of_the_model(order):
    # A mode of curvature 2 is multiplied by 1 − 2η(t_k) in each step.
    def errors(time):
        rate = WarmUp(1.15, time=time, start=0.9, linear_in="time")
        times = StepTimes(flowsim.GradientDescent(rate)).after(np.arange(61))
        exact = np.sum(np.log(2 * np.diff(times)[20:50] - 1))
        return abs(grown(flowsim.EdgeFlow(rate, order=order, rtol=1e-9), times[[20, 50]]) / exact - 1)

    # What is left out changes with the speed of the schedule, in order two with its square.
    slow, fast = errors(320.0), errors(160.0)
    assert fast < (0.03 if order == 1 else 3e-5)
    assert 1.4 * order < fast / slow < 2.6 * order


@pytest.mark.slow
def test_so_does_that_of_the_flow_of_a_centre():
    # With momentum the mode turns from weights to memory as η changes, and decays back in a way that is followed less.
    for beta, rate, error in ((0.0, 1.04, 1e-5), (0.5, 1.53, 1e-2)):
        heavy = flowsim.HeavyBall(WarmUp(rate, time=600.0, start=0.97, linear_in="time"), momentum=beta)
        times = StepTimes(heavy).after(np.arange(161))
        options = {"steps": 160, "weights": True, "record_steps": np.arange(161), "stopping": NEVER}
        run = flowsim.descend(jnp.array([1e-4, 1e-7]), BOWL, optimizer=heavy, **options)
        size = np.abs(np.asarray(run.weights)[:, 1])
        exact = np.log(size[150] / size[100])
        assert abs(grown(flowsim.CentreFlow(heavy, rtol=1e-8), times[[100, 150]]) / exact - 1) < error


# -- verdicts


def curved(weights):
    """A minimum along x = 0 whose curvature falls with y, on which descent does not move."""
    x, y = weights
    return x**2 * (1 + jnp.exp(-y)) / 2


FLAT = flowsim.Risk(curved, infimum=0.0)


@pytest.mark.slow
def test_a_minimum_that_a_warm_up_will_leave_is_no_limit():
    start = jnp.array([0.1, 0.0])
    calm, rate = WarmUp(0.5, time=1.0, start=1.0), WarmUp(1.2, time=200.0, start=0.4)
    run = flowsim.descend(start, FLAT, learning_rate=calm, steps=20_000)
    assert run.outcome is Outcome.CONVERGED
    assert run.final_sharpness > 1.9
    run = flowsim.descend(start, FLAT, learning_rate=rate, steps=20_000)
    assert run.outcome is Outcome.CONVERGED
    # The edge comes down to 2/1.2, and S with it; only a minimum below that is one.
    assert run.time > 200
    assert run.final_sharpness < 2 / 1.2
    assert run.sharpness_threshold == pytest.approx(2 / 1.2)
    # Of a function the largest of many later rates counts.
    ramp = flowsim.descend(start, FLAT, learning_rate=lambda t: 1.2 * jnp.minimum(1, 0.4 + t / 300), steps=20_000)
    assert ramp.outcome is Outcome.CONVERGED
    assert ramp.final_sharpness < 2 / 1.2


def test_a_minimum_at_which_descent_begins_is_certified_by_its_curvature():
    # A gradient of 1e-9 says nothing: of curvature 2 it grows with every step, of 1.6 it falls.
    for weight, stays in ((0.0, False), (0.6, True)):
        start = jnp.array([1e-9, weight])
        run = flowsim.descend(start, FLAT, learning_rate=1.2, steps=20_000)
        assert run.outcome is Outcome.CONVERGED
        assert 1 + np.exp(-float(run.network[1])) < 2 / 1.2
        assert (abs(float(run.network[1]) - weight) < 1e-6) == stays


# -- times of steps


@pytest.mark.parametrize("rate", [0.1, WarmUp(0.1, time=1.0)])
def test_the_nearest_step_to_no_time_is_none_and_to_each_end_of_a_step_that_step(rate):
    times = StepTimes(flowsim.GradientDescent(rate))
    steps = np.arange(40.0)
    np.testing.assert_array_equal(times.nearest(times.after(steps)), steps)
    np.testing.assert_array_equal(times.nearest(np.array([np.nan, 0.0, np.inf])), [np.nan, 0.0, np.inf])
    assert times.nearest(np.zeros(0)).shape == (0,)
