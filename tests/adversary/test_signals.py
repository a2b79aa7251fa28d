"""Ctrl-C, SIGTERM and SIGHUP end the command line, also while it imports, in one line, with exit code 128 + n."""

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from multiprocessing.context import SpawnProcess
from pathlib import Path

import filelock
import pytest

import flowsim
from flowsim import cli
from flowsim.cli import run
from flowsim.results import result_folder, store
from flowsim.runtime import signals
from flowsim.runtime.errors import UserError
from flowsim.sweeps import workers

SCENARIO = """
data: {kind: gaussian, samples: 20, features: 3}
network: {kind: mlp, depth: 3, scale: 0.5}
"""
LINES = {
    signal.SIGINT: "flowsim: interrupted; files written so far are whole, the others are missing; ",
    signal.SIGTERM: "flowsim: ended by SIGTERM; files written so far are whole, the others are missing; ",
    signal.SIGHUP: "flowsim: ended by SIGHUP; files written so far are whole, the others are missing; ",
}
GO_ON = "run the same again: what is stored of a sweep is not computed again\n"
each_signal = pytest.mark.parametrize("number", LINES, ids=lambda number: number.name)


@each_signal
def test_a_signal_during_the_work_is_one_line_and_leaves_no_lock(tmp_path, monkeypatch, capsys, number):
    def work(jobs, pool):
        with jobs[0].folder.locked():
            os.kill(os.getpid(), number)
            time.sleep(60)

    monkeypatch.setattr(run, "run_all", work)
    (tmp_path / "tiny.yaml").write_text(SCENARIO)
    handlers = [signal.getsignal(other) for other in signals.ENDING]
    assert cli.main([str(tmp_path / "tiny.yaml"), "--out", str(tmp_path / "out")]) == 128 + number
    assert capsys.readouterr().err == LINES[number] + GO_ON
    assert [path.name for path in tmp_path.iterdir()] == ["tiny.yaml"]
    assert [signal.getsignal(other) for other in signals.ENDING] == handlers


def test_a_signal_in_the_middle_of_a_comparison_is_that_signal(tmp_path, monkeypatch, capsys):
    def work(jobs, pool):
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(60)
        except KeyboardInterrupt as stopped:
            raise flowsim.Interrupted([]) from stopped

    monkeypatch.setattr(run, "run_all", work)
    (tmp_path / "tiny.yaml").write_text(SCENARIO)
    assert cli.main([str(tmp_path / "tiny.yaml"), "--out", str(tmp_path / "out")]) == 128 + signal.SIGTERM
    assert capsys.readouterr().err == LINES[signal.SIGTERM] + GO_ON


@pytest.mark.parametrize("error", [RuntimeError, OSError, UserError])
def test_an_error_that_a_signal_leads_to_is_that_signal(tmp_path, monkeypatch, capsys, error):
    def work(jobs, pool):
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(60)
        finally:
            raise error("release unlocked lock")  # as `threading.Condition.wait`, between two lines of which it came

    monkeypatch.setattr(run, "run_all", work)
    (tmp_path / "tiny.yaml").write_text(SCENARIO)
    assert cli.main([str(tmp_path / "tiny.yaml"), "--out", str(tmp_path / "out")]) == 128 + signal.SIGTERM
    assert capsys.readouterr().err == LINES[signal.SIGTERM] + GO_ON


def cleared_after_a_signal():
    """Let one signal end what is under way, and another come while that clears up."""
    try:
        os.kill(os.getpid(), signal.SIGHUP)
        time.sleep(60)
    finally:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.01)
        yield "cleared"


def test_a_second_signal_does_not_disturb_what_is_cleared_away_after_the_first():
    clearing = cleared_after_a_signal()
    with signals.ending_signals():
        assert next(clearing) == "cleared"
        with pytest.raises(signals.Ended, match=f"^{int(signal.SIGHUP)}$"):
            next(clearing)


def test_a_signal_that_is_ignored_stays_so():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        with signals.ending_signals():
            os.kill(os.getpid(), signal.SIGHUP)
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_signal_that_is_held_acts_at_the_end():
    done = []

    def work():
        with signals.ending_held():
            for number in (signal.SIGTERM, signal.SIGINT):
                os.kill(os.getpid(), number)
                time.sleep(0.01)
            done.append("held")
        done.append("after it")

    with signals.ending_signals(), pytest.raises(signals.Ended, match=f"^{int(signal.SIGTERM)}$"):
        work()
    assert done == ["held"]


@pytest.fixture
def own_handlers():
    """The signals that have acted, by handlers as a program of one's own has them: that of SIGINT raises."""
    acted = []

    def handler(number, frame):
        acted.append(number)
        if number == signal.SIGINT:
            raise KeyboardInterrupt

    before = {number: signal.signal(number, handler) for number in signals.ENDING}
    yield acted
    assert [signal.getsignal(number) for number in before] == [handler] * len(before)
    for number, one in before.items():
        signal.signal(number, one)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("call", range(2 * len(signals.ENDING)))
def test_a_signal_while_handlers_change_acts_and_leaves_none_of_them(own_handlers, monkeypatch, number, call):
    def interrupted(*handler):
        calls.append(change(*handler))
        if len(calls) == call + 1:
            os.kill(os.getpid(), number)
            time.sleep(0.001)

    calls, change = [], signal.signal
    with monkeypatch.context() as patch:
        patch.setattr(signal, "signal", interrupted)
        with contextlib.suppress(KeyboardInterrupt), signals.ending_held():
            pass
    assert own_handlers == [number]
    assert signals._acting == []


@each_signal
def test_a_signal_while_the_lock_is_taken_leaves_none(tmp_path, monkeypatch, number):
    class Interrupted(filelock.FileLock):
        def acquire(self):
            os.kill(os.getpid(), number)
            time.sleep(0.01)
            taken.append(super().acquire())

    taken = []
    monkeypatch.setattr(store, "FileLock", Interrupted)
    folder = result_folder(tmp_path / "out", "tiny", {})
    with signals.ending_signals(), pytest.raises(signals.Ended, match=f"^{int(number)}$"), folder.locked():
        raise AssertionError("the signal came before")
    assert len(taken) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_signal_while_workers_are_started_leaves_none(monkeypatch):
    def start(process):
        begin(process)
        started.append(process)
        os.kill(os.getpid(), signal.SIGTERM)  # the executor does not know the process yet
        time.sleep(0.01)

    started, begin, before = [], SpawnProcess.start, multiprocessing.active_children()
    monkeypatch.setattr(SpawnProcess, "start", start)
    with signals.ending_signals(), pytest.raises(signals.Ended, match=f"^{int(signal.SIGTERM)}$"), workers(2):
        raise AssertionError("the signal came before")
    assert len(started) == 2
    assert set(multiprocessing.active_children()) == set(before)


# A module in the place of JAX, whose import a signal interrupts.
INTERRUPTED = """
import os, signal, time
os.kill(os.getpid(), signal.{number.name})
time.sleep(60)
"""


@each_signal
def test_a_signal_during_the_import_of_jax_is_one_line(tmp_path, number):
    (tmp_path / "tiny.yaml").write_text(SCENARIO)
    (tmp_path / "jax.py").write_text(INTERRUPTED.format(number=number))
    path = os.pathsep.join((str(tmp_path), str(Path(flowsim.__file__).parents[1])))
    command = [sys.executable, "-m", "flowsim", "tiny.yaml"]
    environment = os.environ | {"PYTHONPATH": path}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (128 + number, LINES[number] + GO_ON)


IMPORTED = """
import gc, signal

def state():
    return [signal.getsignal(number) for number in signal.valid_signals()], gc.isenabled(), gc.get_threshold()

before = state()
import flowsim.cli
assert state() == before
"""


def test_an_import_leaves_the_signals_and_the_garbage_collector_of_a_process_as_they_are():
    subprocess.run([sys.executable, "-c", IMPORTED], check=True)
