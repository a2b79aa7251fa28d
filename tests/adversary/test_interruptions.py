"""Whatever ends a sweep, and however often, it ends with the files of an undisturbed one, and nothing half written."""

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds the workers by /proc"),
]

NOISES = [0.5, 1.0, 1.5, 2.0]
SCENARIO = f"""
data: {{kind: gaussian, samples: 20, features: 3}}
network: {{kind: mlp, depth: 3, scale: 0.5}}
sweep:
  over: {{data.noise: {NOISES}}}
  flow: false
  descent: [{{learning_rates: [1.0e-3], steps: 20000}}]
"""


def processes():
    """Return the parent and the state of every process."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            words = path.read_text().rpartition(")")[2].split()
            found[int(path.parent.name)] = (int(words[1]), words[0])
    return found


def children(pid):
    return {child for child, (parent, state) in processes().items() if parent == pid and state != "Z"}


def files(folder):
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


def blocks_in(out):
    return len(list((out / ".blocks").glob("*/[!.]*.block")))


def until(condition, seconds=30):
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.002)
    return found


class Runs:
    """Runs of one sweep, one at a time."""

    def __init__(self, folder, environment):
        self.folder = folder
        (folder / "tiny.yaml").write_text(SCENARIO)
        command = [sys.executable, str(Path(__file__).with_name("forked_sweeps.py"))]
        options = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        # What is killed cannot tidy up its semaphores, which is complained about.
        environment = environment | {"OPENBLAS_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
        self._server = subprocess.Popen(command, env=environment, **options)
        # Which end with it: that of the workers, and that of their semaphores.
        self._others = until(lambda: len(found := children(self._server.pid)) == 2 and found)

    def begin(self, out):
        """Begin a run with its results in `out`, and return its process."""
        (self.folder / "log").touch()
        words = [str(self.folder / "tiny.yaml"), "--out", str(out), "--jobs", "2", str(self.folder / "log")]
        print(json.dumps(words), file=self._server.stdin, flush=True)
        return int(self._server.stdout.readline())

    def end(self):
        """Wait until the run has ended, and its workers have; return its exit code and what it said."""
        code = int(self._server.stdout.readline())
        until(lambda: not self.workers())
        said = (self.folder / "log").read_text()
        (self.folder / "log").unlink()
        return code, said

    def workers(self):
        """Return the processes of the workers."""
        return {worker for other in self._others for worker in children(other)}

    def close(self):
        self._server.stdin.close()
        self._server.wait(timeout=30)
        self._server.stdout.close()


@pytest.fixture(scope="module")
def runs(tmp_path_factory, quick_environment):
    made = Runs(tmp_path_factory.mktemp("runs"), quick_environment)
    yield made
    made.close()


@pytest.fixture(scope="module")
def undisturbed(runs):
    """The files of a sweep that nobody disturbed."""
    runs.begin(runs.folder / "undisturbed")
    assert runs.end()[0] == 0
    return files(runs.folder / "undisturbed")


def seconds_with_all_blocks(runs):
    """Return how long a run takes that has nothing to compute."""
    began = time.monotonic()
    runs.begin(runs.folder / "undisturbed")
    assert runs.end()[0] == 0
    return time.monotonic() - began


def assert_it_ends_as_undisturbed(runs, out, undisturbed):
    runs.begin(out)
    assert runs.end()[0] == 0
    assert files(out) == undisturbed


def an_hour_passes(folder):
    """Age every file of `folder`: what a killed run left half written among the blocks may be another's until then."""
    hour_ago = time.time() - 3600
    for path in folder.rglob("*"):
        if path.is_file():
            os.utime(path, (hour_ago, hour_ago))


def kill(process):
    with contextlib.suppress(ProcessLookupError):  # it was faster
        os.kill(process, signal.SIGKILL)


def test_a_sweep_that_is_killed_six_times_ends_with_the_same_files(runs, undisturbed, tmp_path):
    codes = []

    def killed_when(moment):
        process = runs.begin(tmp_path)
        moment()
        kill(process)
        codes.append(runs.end()[0])

    for seconds in (0.01, 0.5):
        killed_when(lambda seconds=seconds: time.sleep(seconds))
    for count in (1, len(NOISES)):
        killed_when(lambda count=count: until(lambda: blocks_in(tmp_path) >= count))
    rest = seconds_with_all_blocks(runs)
    for share in range(2):
        killed_when(lambda share=share: time.sleep((share + 0.5) / 2 * rest))
    assert set(codes) <= {0, -signal.SIGKILL}
    assert codes.count(-signal.SIGKILL) >= 4
    (tmp_path / ".blocks" / f".{'0' * 40}-{'1' * 16}.block").touch()  # as one that died between write and rename
    an_hour_passes(tmp_path)
    assert_it_ends_as_undisturbed(runs, tmp_path, undisturbed)


def test_a_sweep_whose_workers_are_killed_ends_with_the_same_files(runs, undisturbed, tmp_path):
    runs.begin(tmp_path)
    # A block that is there when its worker dies for the third time is given up: not the same worker each time.
    for count, newest in ((0, False), (1, True), (len(NOISES) // 2, False), (len(NOISES), True)):
        until(lambda count=count: blocks_in(tmp_path) >= count and runs.workers())
        for worker in sorted(runs.workers(), reverse=newest)[:1]:
            kill(worker)
    assert runs.end()[0] == 0
    assert files(tmp_path) == undisturbed


def test_a_sweep_that_is_asked_to_end_leaves_whole_blocks_alone_and_goes_on(runs, undisturbed, tmp_path):
    for count, number in enumerate((signal.SIGINT, signal.SIGTERM, signal.SIGHUP)):
        process = runs.begin(tmp_path)
        lock = tmp_path / "tiny" / ".lock"  # blocks there may be of the run before
        until(lambda count=count, lock=lock: lock.exists() and blocks_in(tmp_path) >= count)
        os.kill(process, number)
        code, said = runs.end()
        assert code == 128 + number, said
        assert said.strip().count("\n") == 0
        assert "run the same again" in said
        stored = files(tmp_path)
        assert len(stored) >= count
        assert stored.items() < undisturbed.items()
    assert_it_ends_as_undisturbed(runs, tmp_path, undisturbed)
