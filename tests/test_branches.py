"""Descents that go on from a record of another, and forks of a comparison."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas
import pytest

import flowsim
from flowsim import SGD, Adam, CosineDecay, Fork, GradientDescent, HeavyBall, Outcome, WarmUp
from flowsim.cli.command import main
from flowsim.report import table
from flowsim.scenarios import ScenarioError, build, read_scenario

NEVER = flowsim.Stopping(gradient_norm=None)
X = np.random.default_rng(0).standard_normal((12, 3))
Y = X @ np.array([1.0, -2.0, 0.5]) + 0.3 * np.random.default_rng(1).standard_normal(12)
RISK = flowsim.EmpiricalRisk(X, Y)


class Network(eqx.Module):
    inner: jax.Array
    outer: jax.Array

    def __call__(self, x):
        return jnp.sum(self.outer * jnp.tanh(self.inner @ x))


NETWORK = Network(jax.random.normal(jax.random.key(0), (4, 3)), jax.random.normal(jax.random.key(1), (4,)))
MARKS = np.arange(0, 81, 20)


def descend(optimizer, steps=80, **options):
    return flowsim.descend(NETWORK, RISK, optimizer=optimizer, steps=steps, stopping=NEVER, **options)


def same(one, other):
    return all(map(np.array_equal, jax.tree.leaves(one), jax.tree.leaves(other)))


def whole(optimizer):
    return descend(optimizer, states=True, record_steps=MARKS)


DESCENTS = {
    "gradient_descent": GradientDescent(0.1),
    "heavy_ball": HeavyBall(0.03),
    "adam": Adam(0.01),
    "sgd": SGD(0.05, batch=5, momentum=0.5),
    "replacement": SGD(0.05, batch=5, replacement=True),
    "schedule": HeavyBall(WarmUp(CosineDecay(0.05, time=20.0), time=5.0)),
}


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=[] if one in ("sgd",) else pytest.mark.slow) for one in DESCENTS]
)
def test_a_branch_that_changes_nothing_is_the_run_bit_for_bit(name):
    optimizer = DESCENTS[name]
    run = whole(optimizer)
    branch = descend(optimizer, 40, after=run.branch(40), record_steps=MARKS[2:], weights=True, states=True)
    assert same(branch.network, run.network)
    for quantity in ("times", "risk", "gradient_norm"):
        np.testing.assert_array_equal(getattr(branch, quantity), getattr(run, quantity)[2:])
    assert int(branch.steps) == 80
    assert same(run.network, descend(optimizer, record_steps=MARKS).network)  # to keep states changes nothing
    later = descend(optimizer, 20, after=branch.branch(60))
    assert same(later.network, run.network)
    np.testing.assert_array_equal(later.time, run.time)


@pytest.mark.slow
def test_another_rate_keeps_the_memory_and_goes_on_in_time():
    run = whole(HeavyBall(0.03))
    branch = descend(HeavyBall(0.06), 10, after=run.branch(40), record_steps=np.arange(40, 51), weights=True)
    point = run.branch(40)
    w, v = point.weights, point.state.dynamics.memory[0].trace
    gradient = jax.grad(lambda weights: RISK(weights))
    for _ in range(10):
        v = jax.tree.map(lambda a, b: 0.9 * a + b, v, gradient(w))
        w = jax.tree.map(lambda a, b: a - 0.06 * b, w, v)
    assert all(map(np.allclose, jax.tree.leaves(branch.network), jax.tree.leaves(w)))
    np.testing.assert_allclose(branch.times, 40 * 0.3 + 0.6 * np.arange(11), rtol=1e-14)
    assert repr(point) == "BranchPoint(heavy_ball, η = 0.03, step 40, t = 12)"


@pytest.mark.slow
def test_another_kind_begins_without_memory():
    run = whole(GradientDescent(0.1))
    branch = descend(Adam(0.02), 15, after=run.branch(60))
    alone = flowsim.descend(run.branch(60).weights, RISK, optimizer=Adam(0.02), steps=15, stopping=NEVER)
    assert same(branch.network, alone.network)
    assert float(branch.times[0]) == pytest.approx(6.0)
    assert float(branch.time) == pytest.approx(6.0 + 15 * 0.02)
    again = descend(Adam(0.02), 15, after=run.branch(60), states=True)
    assert same(descend(Adam(0.02), 5, after=again.branch(70)).network, again.network)


@pytest.mark.slow
def test_another_problem_or_criterion_is_seen_from_the_first_step_on():
    run = whole(GradientDescent(0.1))
    other = flowsim.EmpiricalRisk(X + 1, Y)
    fresh = flowsim.descend(run.branch(40).weights, other, learning_rate=0.1, steps=3, stopping=NEVER)
    branch = flowsim.descend(NETWORK, other, learning_rate=0.1, steps=3, after=run.branch(40), stopping=NEVER)
    np.testing.assert_array_equal(branch.risk, fresh.risk)
    np.testing.assert_array_equal(branch.gradient_norm, fresh.gradient_norm)
    criterion = flowsim.Stopping(gradient_norm=float(run.gradient_norm[-1]))
    branch = flowsim.descend(NETWORK, RISK, learning_rate=0.1, steps=90, after=run.branch(40), stopping=criterion)
    assert branch.final_gradient_norm <= float(run.gradient_norm[-1])


@pytest.mark.slow
def test_a_branch_goes_on_from_its_checkpoint(tmp_path):
    run = whole(HeavyBall(0.03))
    options = {"after": run.branch(40), "checkpoint": tmp_path / "branch"}
    ends = [descend(HeavyBall(0.06), 10, **options) for _ in range(2)]
    assert same(ends[0].network, ends[1].network)
    with pytest.raises(ValueError, match="another network, problem, options"):
        descend(HeavyBall(0.06), 10, **options | {"after": run.branch(60)})


def test_what_cannot_be_gone_on_from_is_refused():
    run = whole(GradientDescent(0.1))
    with pytest.raises(ValueError, match="no state was recorded at step 41: there are 0, 20, 40"):
        run.branch(41)
    with pytest.raises(ValueError, match=r"states=True"):
        descend(GradientDescent(0.1)).branch(40)
    with pytest.raises(TypeError, match=r"run.branch\(400\), got 40"):
        descend(GradientDescent(0.1), after=40)
    with pytest.raises(ValueError, match="here from 40 on, got 0"):
        descend(GradientDescent(0.1), after=run.branch(40), record_steps=[0, 50])
    with pytest.raises(ValueError, match="of another network"):
        flowsim.descend(jnp.ones(3), RISK, learning_rate=0.1, steps=1, after=run.branch(40))
    wild = flowsim.descend(NETWORK, RISK, learning_rate=1e3, steps=80, states=True)
    assert wild.outcome is Outcome.DIVERGED
    with pytest.raises(ValueError, match="had diverged at step"):
        wild.branch(int(wild.steps))
    with pytest.raises(ValueError, match="outside jit and vmap"):
        jax.vmap(lambda rate: flowsim.descend(NETWORK, RISK, learning_rate=rate, steps=2, states=True).risk)(
            jnp.array([0.1, 0.2])
        )


# -- forks of a comparison


@pytest.fixture(scope="module")
def forked():
    forks = [
        Fork(300),
        Fork(300, learning_rate=0.2),
        Fork(200, optimizer=lambda rate: SGD(rate, batch=4)),
        Fork(300, 0.2, lambda rate: GradientDescent(CosineDecay(rate, time=60.0))),
    ]
    return flowsim.compare(NETWORK, RISK, [0.05], steps=1000, forks=forks, records=60, t1=60.0, sharpness=False)


@pytest.mark.slow
def test_forks_are_rows_of_their_own(forked):
    dataset = forked.to_dataset()
    branches = [int(branch.split()[1]) if branch else 0 for branch in dataset["branch"].values]
    assert branches == [0, 0, 300, 300, 200, 300]
    assert dataset["branch"].values[2] == "step 300 of η = 0.05"
    plain, control, faster, noisy, cooled = forked.descents
    common = np.isin(plain.trajectory.times, control.trajectory.times)
    np.testing.assert_array_equal(
        np.asarray(plain.trajectory.risk)[common],
        np.asarray(control.trajectory.risk)[np.isin(control.trajectory.times, plain.trajectory.times)],
    )
    assert common.sum() >= 2
    assert same(plain.trajectory.network, control.trajectory.network)
    assert int(control.trajectory.steps) == int(plain.trajectory.steps) == 1000
    # All of them end when the descent was to end, t = 50, up to a step.
    for fork, begins in ((faster, 15.0), (noisy, 10.0), (cooled, 15.0)):
        assert float(fork.trajectory.times[0]) == pytest.approx(begins)
        assert 50 <= float(fork.trajectory.time) < 50.2 + 1e-9
    names = [row["method"] for row in table.rows(dataset)]
    assert names == ["GF", "GD", "GD, fork 1", "GD, fork 2", "sgd, fork 3", "GD, fork 4"]
    last = table.rows(dataset)[-1]
    assert last["learning_rate"] == 0.2
    assert last["two_over_eta"] == pytest.approx(2 / float(cooled.trajectory.diagnostics["scheduled_rate"][-1]))
    text = str(forked)
    assert "GD, fork 2, η = 0.2: goes on from step 300 of η = 0.05" in text
    assert "the learning rate changes, and is" in text


@pytest.mark.slow
def test_forks_come_back_from_disk(forked, tmp_path):
    forked.save(tmp_path / "forks")
    stored = flowsim.open_results(tmp_path / "forks").to_dataframe()
    pandas.testing.assert_frame_equal(stored, forked.to_dataframe())
    assert stored["branch"].nunique() == 3


def test_a_fork_where_a_descent_does_not_get_to_is_refused():
    with pytest.raises(ValueError, match="a fork at step 50 of a descent of 50 steps: expected a step before its last"):
        flowsim.compare(NETWORK, RISK, [0.05], steps=50, forks=[Fork(50)])
    with pytest.raises(ValueError, match="that diverged at step"):
        flowsim.compare(NETWORK, RISK, [1e3], steps=50, forks=[Fork(40)])
    with pytest.raises(TypeError, match="forks must be a list of "):
        flowsim.compare(NETWORK, RISK, [0.05], steps=50, forks=[40])
    with pytest.raises(ValueError, match="step"):
        Fork(0)


# -- scenarios

SCENARIO = """\
data: {kind: gaussian, samples: 20, features: 3}
network: {kind: mlp, depth: 2, scale: 0.5}
flow: {t1: 20.0}
"""


def read(folder, descent):
    (folder / "fork.yaml").write_text(f"{SCENARIO}descent: {descent}\n")
    return read_scenario(folder / "fork.yaml")


def test_a_scenario_makes_forks_and_schedules(tmp_path):
    text = "{learning_rates: [0.1], schedule: {kind: warm_up, time: 5}, forks: [{step: 40, learning_rates: [0.2, 0.3]},"
    scenario = read(tmp_path, text + " {step: 60, optimizer: {kind: sgd, batch: 4}, schedule: []}]}")
    first, second, third = scenario.descent.made_forks()
    assert (first.step, first.learning_rate, second.learning_rate) == (40, 0.2, 0.3)
    assert third.learning_rate is None
    assert not third.optimizer(0.1).is_scheduled()
    assert isinstance(first.optimizer(0.1).learning_rate, WarmUp)
    optimizer = read(
        tmp_path, "{learning_rates: [0.1], schedule: [{kind: cosine_decay, time: 9}, {kind: warm_up, time: 2}]}"
    )
    both = optimizer.descent.at(0.1).learning_rate
    assert isinstance(both, WarmUp)
    assert isinstance(both.rate, CosineDecay)
    assert scenario.descent.all_steps(20.0) > 200  # more than without a warm-up, as early steps are short


@pytest.mark.parametrize(
    ("descent", "message"),
    [
        (
            "{learning_rates: [0.1], schedule: {kind: warmup, time: 3}}",
            "expected one of cosine_decay, step_decay, warm_up",
        ),
        (
            "{learning_rates: [0.1], schedule: {kind: warm_up, time: -3}}",
            "time must be a finite number above 0, got -3.0",
        ),
        ("{learning_rates: [0.1], schedule: warm_up}", r"write schedule: \[{kind: warm_up, time: 10.0}\]"),
        ("{learning_rates: [0.1], steps: 100, forks: [{step: 100}]}", "expected a step before the last, 100"),
        ("{learning_rates: [0.1], forks: [{stp: 100}]}", "found an unknown key; expected one of step, learning_rates"),
        ("{forks: [{step: 100}]}", "1 without learning rates; expected descents that they go on from"),
    ],
)
def test_a_scenario_says_what_of_them_cannot_be(tmp_path, descent, message):
    with pytest.raises(ScenarioError, match=message):
        read(tmp_path, descent)


@pytest.mark.slow
def test_a_scenario_whose_descent_does_not_get_to_its_fork_says_so(tmp_path, capsys):
    (tmp_path / "fork.yaml").write_text(
        f"{SCENARIO}descent: {{learning_rates: [9.0], steps: 90, forks: [{{step: 40}}]}}\n"
    )
    assert main([str(tmp_path / "fork.yaml"), "--out", str(tmp_path / "out")]) == 2
    assert "descent.forks: a fork at step 40 of a descent that diverged at step" in capsys.readouterr().err


@pytest.mark.slow
def test_a_sweep_over_rates_with_a_schedule_is_one_of_single_descents(tmp_path):
    (tmp_path / "sweep.yaml").write_text(
        f"{SCENARIO}sweep:\n  over: {{network.scale: [0.5]}}\n  flow: false\n  descent:\n"
        "    - {learning_rates: [0.1, 0.2], steps: 300, schedule: {kind: warm_up, time: 5}}\n"
    )
    assert main([str(tmp_path / "sweep.yaml"), "--out", str(tmp_path / "out")]) in (0, 1)
    dataset = flowsim.open_results(tmp_path / "out" / "sweep").to_dataset()
    scenario = read_scenario(tmp_path / "sweep.yaml")
    problem, network, _ = build(scenario, tmp_path)
    for place, rate in enumerate((0.1, 0.2)):
        run = flowsim.descend(network, problem, learning_rate=WarmUp(rate, time=5.0), steps=300, stopping=NEVER)
        np.testing.assert_allclose(dataset["final_risk"].values.ravel()[place], run.final_risk, rtol=1e-9)
        ended = dataset["steps"].values.ravel()[place]
        times = flowsim.dynamics.times_of_steps(GradientDescent(WarmUp(rate, time=5.0)), steps=300)
        np.testing.assert_allclose(dataset["end_time"].values.ravel()[place], times[ended], rtol=1e-12)
