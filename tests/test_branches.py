"""Descents that go on from a record of another, and forks of a comparison."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import flowsim
from flowsim import SGD, Adam, CosineDecay, Fork, GradientDescent, HeavyBall, Outcome, WarmUp
from flowsim.cli.command import main
from flowsim.scenarios import ScenarioError, read_scenario

NEVER = flowsim.Stopping(gradient_norm=None)
X = np.random.default_rng(0).standard_normal((12, 3))
Y = X @ np.array([1.0, -2.0, 0.5]) + 0.3 * np.random.default_rng(1).standard_normal(12)
MARKS = np.arange(0, 81, 20)


class Network(eqx.Module):
    inner: jax.Array
    outer: jax.Array

    def __call__(self, x):
        return jnp.sum(self.outer * jnp.tanh(self.inner * x))


@pytest.fixture(scope="module")
def network():
    return Network(jnp.array([0.3, -0.8, 0.5]), jnp.array([1.0, 0.4, -0.7]))


@pytest.fixture(scope="module")
def risk():
    return flowsim.EmpiricalRisk(X, Y)


@pytest.fixture(scope="module")
def descend(network, risk):
    """Return a function that runs a descent, its states kept at five records: another one of its kind compiles less."""

    def descend(optimizer, steps=80, **options):
        kept = {"states": True, "record_steps": MARKS, "stopping": NEVER}
        return flowsim.descend(network, risk, optimizer=optimizer, steps=steps, **kept | options)

    return descend


def same(one, other):
    return all(map(np.array_equal, jax.tree.leaves(one), jax.tree.leaves(other)))


@pytest.mark.parametrize(
    "optimizer",
    [
        SGD(0.05, batch=5, momentum=0.5),
        pytest.param(HeavyBall(WarmUp(CosineDecay(0.05, time=20.0), time=5.0)), marks=pytest.mark.slow),
    ],
    ids=["sgd", "schedule"],
)
def test_a_branch_that_changes_nothing_is_the_run_bit_for_bit(optimizer, descend):
    run = descend(optimizer)
    # Records that are never made keep their number, and with it the program.
    branch = descend(optimizer, 40, after=run.branch(40), record_steps=[40, 60, 80, 90, 100])
    assert same(branch.network, run.network)
    for quantity in ("times", "risk", "gradient_norm"):
        np.testing.assert_array_equal(getattr(branch, quantity), getattr(run, quantity)[2:])
    assert int(branch.steps) == 80
    later = descend(optimizer, 20, after=branch.branch(60), record_steps=[60, 80, 90, 100, 110])
    assert same(later.network, run.network)
    np.testing.assert_array_equal(later.time, run.time)


@pytest.fixture(scope="module")
def ball(descend):
    return descend(HeavyBall(0.03))


def test_another_rate_keeps_the_memory_and_goes_on_in_time(ball, descend, risk):
    point = ball.branch(40)
    other = flowsim.Stopping(gradient_norm=1e-14)  # which is no reason to forget
    branch = descend(HeavyBall(0.06), 10, after=point, record_steps=[40, 45, 60, 70, 80], stopping=other)
    w, v = point.weights, point.state.dynamics.memory[0].trace
    slope = jax.jit(jax.grad(lambda weights: risk(weights)))
    for _ in range(10):
        v = jax.tree.map(lambda a, b: 0.9 * np.asarray(a) + np.asarray(b), v, slope(w))
        w = jax.tree.map(lambda a, b: np.asarray(a) - 0.06 * b, w, v)
    for mine, theirs in zip(jax.tree.leaves(branch.network), jax.tree.leaves(w), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-12)
    np.testing.assert_allclose(branch.times, 40 * 0.3 + 0.6 * np.array([0, 5, 10]), rtol=1e-14)
    assert repr(point) == "BranchPoint(heavy_ball, η = 0.03, step 40, t = 12)"


@pytest.mark.slow
def test_another_kind_begins_without_memory(ball, descend, risk):
    branch = descend(Adam(0.02), 15, after=ball.branch(60), record_steps=[60, 75, 80, 90, 100])
    options = {"states": True, "record_steps": [0, 15, 20, 30, 40], "stopping": NEVER}
    alone = flowsim.descend(ball.branch(60).weights, risk, optimizer=Adam(0.02), steps=15, **options)
    assert same(branch.network, alone.network)
    assert float(branch.times[0]) == pytest.approx(18.0)
    assert float(branch.time) == pytest.approx(18.0 + 15 * 0.02)


@pytest.mark.slow
def test_another_problem_or_criterion_is_seen_from_the_first_step_on(ball, network, risk):
    other, options = flowsim.EmpiricalRisk(X + 1, Y), {"optimizer": HeavyBall(0.03), "after": ball.branch(40)}
    branch = flowsim.descend(network, other, steps=3, stopping=NEVER, **options)
    there, gradient = jax.jit(jax.value_and_grad(lambda weights: other(weights)))(ball.branch(40).weights)
    assert float(branch.risk[0]) == pytest.approx(float(there), rel=1e-12)
    norm = np.linalg.norm(np.concatenate(jax.tree.leaves(gradient)))
    assert float(branch.gradient_norm[0]) == pytest.approx(norm, rel=1e-12)
    criterion = flowsim.Stopping(gradient_norm=float(ball.gradient_norm[-1]))
    branch = flowsim.descend(network, risk, steps=90, stopping=criterion, **options)
    assert branch.final_gradient_norm <= float(ball.gradient_norm[-1])


@pytest.mark.slow
def test_a_branch_goes_on_from_its_checkpoint(ball, descend, tmp_path):
    options = {"after": ball.branch(40), "checkpoint": tmp_path / "branch", "record_steps": [40]}
    ends = [descend(HeavyBall(0.06), 10, **options) for _ in range(2)]
    assert same(ends[0].network, ends[1].network)
    with pytest.raises(ValueError, match="another network, problem, options"):
        descend(HeavyBall(0.06), 10, **options | {"after": ball.branch(20)})


def test_what_cannot_be_gone_on_from_is_refused(ball, descend, network, risk):
    with pytest.raises(ValueError, match="no state was recorded at step 41: there are 0, 20, 40"):
        ball.branch(41)
    with pytest.raises(TypeError, match=r"run.branch\(400\), got 40"):
        descend(HeavyBall(0.1), after=40)
    with pytest.raises(ValueError, match="here from 40 on, got 0"):
        descend(HeavyBall(0.1), after=ball.branch(40), record_steps=[0, 50])
    with pytest.raises(ValueError, match="of another network"):
        flowsim.descend(jnp.ones(3), risk, learning_rate=0.1, steps=1, after=ball.branch(40))
    wild = descend(HeavyBall(1e30))
    assert wild.outcome is Outcome.DIVERGED
    with pytest.raises(ValueError, match="had diverged at step"):
        wild.branch(int(wild.steps))
    with pytest.raises(ValueError, match="outside jit and vmap"):
        jax.vmap(lambda rate: flowsim.descend(network, risk, learning_rate=rate, steps=2, states=True).risk)(
            jnp.array([0.1, 0.2])
        )


# -- forks of a comparison


@pytest.fixture(scope="module")
def forked(network, risk):
    forks = [
        Fork(300),
        Fork(200, optimizer=lambda rate: SGD(rate, batch=4)),
        Fork(300, 0.2, lambda rate: GradientDescent(CosineDecay(rate, time=60.0))),
    ]
    return flowsim.compare(network, risk, [0.05], steps=1000, forks=forks, records=60, t1=60.0, sharpness=False)


@pytest.mark.slow
def test_forks_are_rows_of_their_own(forked, tmp_path):
    import pandas

    dataset = forked.to_dataset()
    branches = [int(branch.split()[1]) if branch else 0 for branch in dataset["branch"].values]
    assert branches == [0, 0, 300, 200, 300]
    assert dataset["branch"].values[2] == "step 300 of η = 0.05"
    plain, control, noisy, cooled = forked.descents
    known, again = plain.trajectory, control.trajectory
    common, times = np.isin(known.times, again.times), np.isin(again.times, known.times)
    np.testing.assert_array_equal(np.asarray(known.risk)[common], np.asarray(again.risk)[times])
    assert common.sum() >= 2
    assert same(known.network, again.network)
    assert int(again.steps) == int(known.steps) == 1000
    # All of them end when the descent was to end, t = 50, up to a step.
    for fork, begins in ((noisy, 10.0), (cooled, 15.0)):
        assert float(fork.trajectory.times[0]) == pytest.approx(begins)
        assert 50 <= float(fork.trajectory.time) < 50.2 + 1e-9
    names = [row["method"] for row in flowsim.tables.rows(dataset)]
    assert names == ["GF", "GD", "GD, fork 1", "sgd, fork 2", "GD, fork 3"]
    last = flowsim.tables.rows(dataset)[-1]
    assert last["learning_rate"] == 0.2
    assert last["two_over_eta"] == pytest.approx(2 / float(cooled.trajectory.diagnostics["scheduled_rate"][-1]))
    assert "GD, fork 3, η = 0.2: goes on from step 300 of η = 0.05" in str(forked)
    forked.save(tmp_path / "forks")
    stored = flowsim.open_results(tmp_path / "forks").to_dataframe()
    pandas.testing.assert_frame_equal(stored, forked.to_dataframe())


VALLEY = flowsim.Risk(lambda w: (w[0] * w[1] - 1) ** 2 / 2)


@pytest.fixture(scope="module")
def at_rest():
    """Return a descent that converges after some ten steps, and its forks."""
    forks = [Fork(300), Fork(6), Fork(300, 0.7), Fork(300, 0.1)]
    return flowsim.compare(jnp.array([2.0, 0.2]), VALLEY, [0.2], steps=600, forks=forks, records=30)


@pytest.mark.parametrize("number", [1, 2], ids=["after the end", "before"])
def test_a_fork_that_changes_nothing_is_the_run_where_that_converged(number, at_rest):
    run, control = (at_rest.descents[place].trajectory for place in (0, number))
    assert run.outcome is control.outcome is Outcome.CONVERGED
    assert int(run.steps) == int(control.steps) < 300
    assert same(run.network, control.network)
    for quantity in ("time", "final_risk", "final_gradient_norm", "final_sharpness"):
        assert getattr(run, quantity) == getattr(control, quantity)


def test_a_fork_with_another_rate_goes_on_from_where_its_run_converged(at_rest):
    run, _, _, larger, smaller = (run.trajectory for run in at_rest.descents)
    for fork in (larger, smaller):
        assert fork.outcome is Outcome.CONVERGED
        assert fork.times[0] == run.time
        assert fork.risk[0] == pytest.approx(run.final_risk, rel=1e-12)
        assert int(fork.steps) > int(run.steps)
    # The minimum of the run is too sharp for the larger rate alone.
    assert 2 / 0.7 < run.final_sharpness < 2 / 0.1
    assert larger.final_sharpness < 2 / 0.7
    assert smaller.final_sharpness == pytest.approx(run.final_sharpness, rel=1e-6)


def test_remarks_list_forks_in_the_order_of_the_plan(at_rest):
    lines = [line for line in str(at_rest).splitlines() if "goes on from" in line]
    assert [int(line.split()[2].rstrip(",")) for line in lines] == [1, 2, 3, 4]


def test_the_edge_of_a_fork_in_single_precision_is_that_of_its_learning_rate():
    bowl = flowsim.Risk(lambda w: w @ w)
    forked = flowsim.compare(jnp.ones(2, jnp.float32), bowl, [0.25], steps=10, forks=[Fork(5, 0.29)])
    assert all(run.run.has_edge_of_descent for run in forked.descents)


def test_a_fork_where_a_descent_does_not_get_to_is_refused():
    start, bowl = jnp.array([1.0, 1.0]), flowsim.Risk(lambda w: w @ w)
    with pytest.raises(ValueError, match="a fork at step 50 of a descent of 50 steps: expected a step before its last"):
        flowsim.compare(start, bowl, [0.05], steps=50, forks=[Fork(50)])
    with pytest.raises(ValueError, match="that diverged at step"):
        flowsim.compare(start, bowl, [1e30], steps=50, forks=[Fork(40)])
    with pytest.raises(TypeError, match="forks must be a list of "):
        flowsim.compare(start, bowl, [0.05], steps=50, forks=[40])
    with pytest.raises(ValueError, match="step"):
        Fork(0)


# -- scenarios

SCENARIO = """\
data: {kind: gaussian, samples: 20, features: 3}
network: {kind: mlp, depth: 2, scale: 0.5}
flow: {t1: 20.0}
"""


@pytest.fixture
def read(write):
    """Return a function that reads a scenario with these descents."""
    return lambda descent: read_scenario(write(f"{SCENARIO}descent: {descent}\n"))


def test_a_scenario_makes_forks_and_schedules(read):
    text = "{learning_rates: [0.1], schedule: {kind: warm_up, time: 5}, forks: [{step: 40, learning_rates: [0.2, 0.3]},"
    scenario = read(text + " {step: 60, optimizer: {kind: sgd, batch: 4}, schedule: []}]}")
    first, second, third = scenario.descent.made_forks()
    assert (first.step, first.learning_rate, second.learning_rate) == (40, 0.2, 0.3)
    assert third.learning_rate is None
    assert not third.optimizer(0.1).is_scheduled()
    assert isinstance(first.optimizer(0.1).learning_rate, WarmUp)
    both = "{learning_rates: [0.1], schedule: [{kind: cosine_decay, time: 9}, {kind: warm_up, time: 2}]}"
    both = read(both).descent.at(0.1).learning_rate
    assert isinstance(both, WarmUp)
    assert isinstance(both.rate, CosineDecay)
    assert scenario.descent.all_steps(20.0) > 200  # more than without a warm-up, as early steps are short


@pytest.mark.parametrize(
    ("descent", "message"),
    [
        ("{learning_rates: [0.1], schedule: {kind: warmup, time: 3}}", "expected one of cosine_decay"),
        ("{learning_rates: [0.1], schedule: {kind: warm_up, time: -3}}", "time must be a finite number above 0"),
        ("{learning_rates: [0.1], schedule: warm_up}", r"write schedule: \[{kind: warm_up, time: 10.0}\]"),
        ("{learning_rates: [0.1], steps: 100, forks: [{step: 100}]}", "expected a step before the last, 100"),
        ("{forks: [{step: 100}]}", "1 without learning rates; expected descents that they go on from"),
    ],
)
def test_a_scenario_says_what_of_them_cannot_be(read, descent, message):
    with pytest.raises(ScenarioError, match=message):
        read(descent)


@pytest.mark.slow
def test_a_scenario_whose_descent_does_not_get_to_its_fork_says_so(write, tmp_path, capsys):
    path = write(f"{SCENARIO}descent: {{learning_rates: [9.0], steps: 90, forks: [{{step: 40}}]}}")
    assert main([str(path), "--out", str(tmp_path / "out")]) == 2
    assert "descent.forks: a fork at step 40 of a descent that diverged at step" in capsys.readouterr().err
