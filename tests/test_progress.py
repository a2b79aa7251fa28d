"""How far long work is: what a function hears, and what a bar shows, while nothing else changes."""

import io
import os
import re
import subprocess
import sys
import threading
import time
from functools import partial, reduce
from itertools import pairwise
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console

import flowsim
from flowsim.dynamics import Outcome, driver
from flowsim.dynamics.driver import FlowProgress
from flowsim.dynamics.records import Records
from flowsim.formatting import report_progress
from flowsim.formatting.progress import show_progress_bar


@pytest.fixture
def often(monkeypatch):
    """Have the compiled loop come back to Python after every few steps."""
    monkeypatch.setattr(driver.CallLength, "first", lambda *arguments, **options: 7)
    monkeypatch.setattr(driver, "CallLength", partial(driver.CallLength, seconds=1e-4))


def same(one, other):
    leaves = [jax.tree.leaves((run.network, run.times, run.risk, run.gradient_norm)) for run in (one, other)]
    return all(np.array_equal(a, b, equal_nan=True) for a, b in zip(*leaves, strict=True))


def test_an_event_is_a_text_and_knows_how_much_is_done():
    assert flowsim.Progress("flow") == flowsim.Progress("flow", 0, 8, "steps") == "flow"
    assert flowsim.Progress("flow", 2, 8) == "flow: 25%"
    event = flowsim.Progress("flow", 2, 8, "steps")
    assert event == "flow: 2 of 8 steps"
    assert (event.stage, event.done, event.total, event.unit, event.fraction) == ("flow", 2, 8, "steps", 0.25)
    assert event.renamed("part") == "part: 2 of 8 steps"
    assert flowsim.Progress("flow", 3, None, "steps").fraction is None
    assert flowsim.Progress("flow", 3, 12_345_678, "steps") == "flow: 3 of 12345678 steps"
    assert flowsim.Progress("stored already", 0, 0).fraction == flowsim.Progress("flow", 9, 8).fraction == 1


def test_a_progress_that_is_no_function_is_refused_at_the_call():
    start, risk = np.ones(3), flowsim.Risk(lambda weights: weights @ weights)
    for run in (
        lambda **options: flowsim.integrate(start, risk, **options),
        lambda **options: flowsim.descend(start, risk, learning_rate=0.1, steps=3, **options),
        lambda **options: flowsim.compare(start, risk, [0.02], **options),
        lambda **options: flowsim.sweep(lambda: start, risk, {}, **options),
    ):
        with pytest.raises(TypeError, match=r"progress must be True .*flowsim\.Progress"):
            run(progress="yes")


def bowl(weights):
    return weights[0] ** 2 + 3 * weights[1] ** 2


@pytest.mark.slow
def test_a_run_that_is_heard_is_the_same_to_the_last_bit_and_compiles_nothing(often, compiled):
    problem, start, messages = flowsim.Risk(bowl), jnp.ones(2), []
    flow = partial(flowsim.integrate, start, problem)
    descend = partial(flowsim.descend, start, problem, learning_rate=0.02, steps=4000)
    silent, before = [flow(), descend()], compiled()
    heard = flow(progress=messages.append)
    assert same(heard, silent[0])
    assert len(messages) > 5
    done = [event.fraction for event in messages]
    assert done[0] == 0
    assert done == sorted(done)
    assert done[-2] < done[-1] == 1
    assert {event.stage for event in messages} == {"gradient flow"}
    messages.clear()
    heard = descend(progress=messages.append)
    assert same(heard, silent[1])
    assert compiled() == before
    assert heard.steps < 4000
    assert {event.total for event in messages[:-1]} == {4000}
    assert messages[-1] == f"gradient descent: {int(heard.steps)} of {int(heard.steps)} steps"
    assert all(early.done < late.done for early, late in pairwise(messages))


def request_of(**stopping):
    asked = flowsim.Stopping(**stopping)
    return SimpleNamespace(dynamics=flowsim.GradientFlow(), stopping=asked, t1=10.0, max_steps=1000)


def state_of(*, steps=0, time=0.0, stationarity=1.0, bound=1e-8, risks=(), code=Outcome.RUNNING):
    def record(risk):
        return {"times": jnp.array(time), "probes": {"risk": jnp.array(risk), "excess_risk": jnp.array(risk)}}

    records = reduce(lambda filled, risk: filled.add(record(risk)), risks, Records.empty(len(risks) + 1, record(0.0)))
    return SimpleNamespace(
        steps=steps,
        rejected_steps=steps,
        clock=SimpleNamespace(time=time),
        stationarity=stationarity,
        watch=SimpleNamespace(bound=bound),
        schedule=SimpleNamespace(records=records),
        code=code,
        question=False,
    )


def test_every_second_record_is_the_first_the_third_and_so_on():
    records = Records.empty(4, {"times": jnp.array(0.0)})
    for moment in (1.0, 2.0, 3.0, 4.0):
        records = records.add({"times": jnp.array(moment)})
    halved = records.every_second()
    assert int(halved.count) == 2
    np.testing.assert_array_equal(halved.slots["times"][:2], [1.0, 3.0])


def test_a_flow_is_as_far_as_the_nearest_of_its_criteria_from_the_highest_gradient_and_never_goes_back():
    def reached(**last):
        way = FlowProgress(request_of(excess_risk=1e-6))
        way(state_of(risks=(1.0,)))
        return way(state_of(**last)).fraction

    assert reached(steps=200, time=1.0) == 0.4  # with the rejected ones, of 1000
    assert reached(steps=1, time=7.0) == 0.7
    assert reached(time=1.0, stationarity=1e-6) == pytest.approx(0.75)  # six decades of eight
    assert reached(time=1.0, risks=(1.0, 1e-3)) == pytest.approx(0.5)  # three decades of six
    assert reached(time=1.0, stationarity=1e-9) == 0.99  # small enough, and yet not at its end
    assert reached(time=1.0, code=Outcome.DIVERGED) == 1
    way = FlowProgress(request_of())
    fractions = [way(state_of(stationarity=value)).fraction for value in (1e-4, 1e-6, 1e-2, 1e-4, 1e-6)]
    assert fractions == pytest.approx([0, 0.5, 0.5, 0.5, 4 / 6])


@pytest.mark.slow
def test_nothing_is_heard_inside_of_a_transformation():
    events = []

    def end(rate):
        options = {"steps": 3, "record_steps": [0, 3], "progress": events.append}
        return flowsim.descend(jnp.ones(2), flowsim.Risk(bowl), learning_rate=rate, **options).network

    np.testing.assert_allclose(jax.jit(jax.vmap(end))(jnp.array([0.1])), [[0.8**3, 0.4**3]], rtol=1e-12)
    assert events == []


@pytest.mark.slow
def test_a_comparison_is_heard_run_by_run():
    events = []
    flowsim.compare(jnp.ones(2), flowsim.Risk(bowl), [0.02, 0.5], steps=400, progress=events.append)
    stages = list(dict.fromkeys(event.stage for event in events))
    descents = [f"descent with η = {rate}" for rate in (0.02, 0.5)]
    assert stages == [*descents, "gradient flow", "sharpness along the way"]
    assert {event.fraction for event in events if event.stage == "gradient flow"} >= {0, 1}


def test_a_bar_shows_stage_and_part_and_is_gone_in_the_end_and_after_an_interrupt():
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    with show_progress_bar(console, "residual") as report:
        report(flowsim.Progress("descent", 1, 4, compiling=True))
        report.callback._bars.refresh()
        report(flowsim.Progress("flow", 1, 4))
        report.callback._bars.refresh()
        (task,) = report.callback._bars.tasks
        assert (task.description, task.percentage) == ("residual: flow", 25)
    shown = console.file.getvalue()
    assert re.search(r"residual: descent .*compiling.*residual: flow .* 25%", shown, re.DOTALL)
    gone = "\x1b[?25h\r\x1b[1A\x1b[2K"  # the cursor is seen again, and the line is empty
    assert shown.endswith(gone)

    def interrupt():
        with show_progress_bar(console) as report:
            report(flowsim.Progress("flow", 1, 4))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupt()
    assert console.file.getvalue().removeprefix(shown).endswith(gone)


def test_a_descent_is_heard_at_its_start_at_its_end_and_before_it_is_compiled(often, capfd):
    problem = flowsim.Risk(lambda weights: jnp.sum((weights - 2.0) ** 2))  # a function of this test: not compiled yet
    events = []

    def hear(event):
        events.append(event)
        float(jnp.sin(event.done))  # a callback may use JAX, also while a program is traced

    def descend(progress):
        events.clear()
        return flowsim.descend(jnp.zeros(3), problem, learning_rate=0.1, steps=3, progress=progress)

    heard = descend(hear)
    assert events[:3] == ["gradient descent", "gradient descent: compiling", "gradient descent"]
    assert [event.compiling for event in events] == [False, True] + [False] * (len(events) - 2)
    assert events[-1] == "gradient descent: 3 of 3 steps"
    assert same(descend(hear), heard)
    assert {event.compiling for event in events} == {False}
    assert same(descend(True), heard)  # where nobody looks nothing is written
    with report_progress(True) as report:
        assert report.callback is None
        assert report.during("part") is False
    assert capfd.readouterr() == ("", "")
    assert flowsim.Progress("flow", 1, 4, compiling=True).renamed("part") == "part: compiling"


def test_a_bar_appears_only_where_work_takes_long():
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    with show_progress_bar(console, after=60.0) as report:
        report(flowsim.Progress("flow", 1, 4))
    assert console.file.getvalue() == ""
    assert not [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)]
    with show_progress_bar(console, after=0.01) as report:
        report(flowsim.Progress("flow", 1, 4))
        started = time.monotonic()
        while "25%" not in console.file.getvalue() and time.monotonic() < started + 10:
            time.sleep(0.01)
    assert "25%" in console.file.getvalue()


_PROMPT = """
import sys, time, rich.console
class Terminal(rich.console.Console):
    is_terminal = True
rich.console.Console = Terminal
from flowsim.formatting import Progress, report_progress
def work(progress=None, inside=None):
    with report_progress(progress, patience=0.01) as report:
        report(Progress("flow", 1, 4))
        if inside is not None: work(inside=None)
        else: time.sleep(0.2)
work()
sys.ps1 = ">>> "
work(False, inside=True)
print("quiet", file=sys.stderr)
work()
"""


def test_a_bar_is_there_by_default_for_whoever_sits_at_a_prompt():
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
    command = [sys.executable, "-c", _PROMPT]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    quiet, shown = ran.stderr.split("quiet\n")
    assert quiet == ""
    assert "flow" in shown
