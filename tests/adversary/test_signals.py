"""Ctrl-C, SIGTERM and SIGHUP end the command line, also while it imports, in one line, with exit code 128 + n.

No signal is sent to the process of the tests: `deliver` calls the handler that would act, at a known line.
"""

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
from multiprocessing.context import SpawnProcess
from pathlib import Path

import filelock
import pytest
from scenario_texts import TINY

import flowsim
from flowsim import cli
from flowsim.cli import run
from flowsim.results import result_folder, store
from flowsim.runtime import signals
from flowsim.runtime.errors import UserError
from flowsim.sweeps import workers

LINES = {
    number: f"flowsim: {ending}; files written so far are whole, the others are missing; run the same again: what is "
    "stored of a sweep is not computed again\n"
    for number, ending in (
        (signal.SIGINT, "interrupted"),
        (signal.SIGTERM, "ended by SIGTERM"),
        (signal.SIGHUP, "ended by SIGHUP"),
    )
}
each_signal = pytest.mark.parametrize("number", LINES, ids=lambda number: number.name)


def deliver(number):
    """Have the handler of a signal act, as it would if the signal came now."""
    handler = signal.getsignal(number)
    if handler is not signal.SIG_IGN:
        assert callable(handler), f"{signal.Signals(number).name} would end this process"
        handler(number, None)


@pytest.fixture(autouse=True)
def handlers(monkeypatch):
    """Python's own handlers, however the tests were started: under nohup, SIGHUP is ignored."""
    monkeypatch.setattr(signal, "raise_signal", deliver)
    own = dict.fromkeys(signals.ENDING, signal.SIG_DFL) | {signal.SIGINT: signal.default_int_handler}
    before = {number: signal.signal(number, handler) for number, handler in own.items()}
    yield
    left = {number: signal.signal(number, handler) for number, handler in before.items()}
    assert left == own


@pytest.fixture
def ended(tmp_path, monkeypatch, capsys):
    """Return a function that runs the command line with other work than its own, and returns how that ended."""

    def run_with(work):
        monkeypatch.setattr(run, "run_all", work)
        (tmp_path / "tiny.yaml").write_text(TINY)
        code = cli.main([str(tmp_path / "tiny.yaml"), "--out", str(tmp_path / "out")])
        assert [path.name for path in tmp_path.iterdir()] == ["tiny.yaml"]
        return code, capsys.readouterr().err

    return run_with


@each_signal
def test_a_signal_during_the_work_is_one_line_and_leaves_no_lock(ended, number):
    def work(jobs, pool):
        with jobs[0].folder.locked():
            deliver(number)

    assert ended(work) == (128 + number, LINES[number])


# A comparison in its middle; and as `threading.Condition.wait`, between two lines of which a signal may come.
LATER = [flowsim.Interrupted([]), RuntimeError("release unlocked lock"), OSError(), UserError()]


@pytest.mark.parametrize("error", LATER, ids=lambda error: type(error).__name__)
def test_an_error_that_a_signal_leads_to_is_that_signal(ended, error):
    def work(jobs, pool):
        try:
            deliver(signal.SIGTERM)
        finally:
            raise error

    assert ended(work) == (128 + signal.SIGTERM, LINES[signal.SIGTERM])


@pytest.mark.parametrize(("grace", "last"), [(5.0, signal.SIGHUP), (0.0, signal.SIGTERM)])
def test_a_second_signal_does_not_disturb_what_is_cleared_away_after_the_first_for_some_seconds(grace, last):
    def clear_up():
        try:
            deliver(signal.SIGHUP)
        finally:
            deliver(signal.SIGTERM)
            cleared.append(True)

    cleared = []
    with signals.ending_signals(grace), pytest.raises(signals.Ended, match=f"^{int(last)}$"):
        clear_up()
    assert cleared == [True] * (grace > 0)


def test_a_signal_that_is_ignored_stays_so():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    with signals.ending_signals():
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    assert signal.signal(signal.SIGHUP, before) is signal.SIG_IGN


def test_a_signal_that_is_held_acts_at_the_end():
    done = []

    def work():
        with signals.ending_held():
            deliver(signal.SIGTERM)
            deliver(signal.SIGINT)
            done.append("held")
        done.append("after it")

    with signals.ending_signals(), pytest.raises(signals.Ended, match=f"^{int(signal.SIGTERM)}$"):
        work()
    assert done == ["held"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("call", range(2 * len(signals.ENDING)))
def test_a_signal_while_handlers_change_acts_once_and_the_handlers_are_given_back(monkeypatch, number, call):
    def handler(number, frame):
        acted.append(number)
        if number == signal.SIGINT:
            raise KeyboardInterrupt

    def interrupted(*handler):
        calls.append(change(*handler))
        if len(calls) == call + 1:
            deliver(number)

    acted, calls, change = [], [], signal.signal
    before = {number: signal.signal(number, handler) for number in signals.ENDING}
    with monkeypatch.context() as patch:
        patch.setattr(signal, "signal", interrupted)
        with contextlib.suppress(KeyboardInterrupt), signals.ending_held():
            pass
    left = [signal.signal(other, one) for other, one in before.items()]
    assert left == [handler] * len(before)
    assert acted == [number]


@each_signal
def test_a_signal_while_the_lock_is_taken_leaves_none(tmp_path, monkeypatch, number):
    class Interrupted(filelock.FileLock):
        def acquire(self):
            deliver(number)
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
        deliver(signal.SIGTERM)  # the executor does not know the process yet

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
# A process inherits which signals are ignored, as SIGHUP under nohup.
STARTED = """
import gc, runpy, signal
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)

def state():
    return [signal.getsignal(number) for number in signal.valid_signals()], gc.isenabled(), gc.get_threshold()

before = state()
import flowsim.cli
assert state() == before, "an import changes the process"
runpy.run_module("flowsim", run_name="__main__")
"""


def test_a_signal_during_the_import_of_jax_is_one_line_and_no_import_changes_handlers_before(tmp_path):
    (tmp_path / "tiny.yaml").write_text(TINY)
    (tmp_path / "jax.py").write_text(INTERRUPTED.format(number=signal.SIGTERM))
    path = os.pathsep.join((str(tmp_path), str(Path(flowsim.__file__).parents[1])))
    command = [sys.executable, "-c", STARTED, "tiny.yaml"]
    environment = os.environ | {"PYTHONPATH": path}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (128 + signal.SIGTERM, LINES[signal.SIGTERM])
