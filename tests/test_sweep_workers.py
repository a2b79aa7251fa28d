"""Whoever computes a sweep, and whatever befalls them, its files are the same to the last bit."""

import contextlib
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from flowsim import cli
from flowsim.data import DataError
from flowsim.results import result_folder
from flowsim.scenarios import environment, read_scenario, resolved
from flowsim.sweeps import BlockStore, ClusterError, PendingSweep, cluster as CLUSTER, plan, sweeps_ahead
from flowsim.sweeps.workers import InProcess, Spawned

# Not by its name, which is that of a function too.
WORKERS = import_module("flowsim.sweeps.workers")
SCENARIO = """
data: {kind: gaussian, samples: 20, features: 3}
network: {kind: mlp, depth: 1, scale: 0.5}
sweep:
  over: {data.noise: [0.5, 1.0, 1.5, 2.0]}
  repetitions: 2
  flow: false
  descent: [{learning_rates: [0.05, 5.0], steps: 100}]
"""
LONG = SCENARIO.replace("steps: 100", "steps: 1000000000").replace("5.0", "1.0e-9")


def write(folder, content=SCENARIO):
    (folder / "tiny.yaml").write_text(content)
    return [str(folder / "tiny.yaml"), "--out", str(folder / "out")]


def files(folder):
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file() and not path.name.startswith(".")  # half-written by a process that was killed
    }


@pytest.fixture
def blocks(tmp_path):
    write(tmp_path)
    return plan(read_scenario(tmp_path / "tiny.yaml"), tmp_path)


def children(pid):
    """Return the processes that descend from `pid`, as far as Linux tells."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            words = path.read_text().rpartition(")")[2].split()
            if int(words[1]) == pid:
                found += [int(path.parent.name), *children(int(path.parent.name))]
    return found


def workers_of(pid):
    def is_worker(child):
        with contextlib.suppress(OSError):
            return b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()
        return False

    return [child for child in children(pid) if is_worker(child)]


def is_alive(pid):
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def until(condition, seconds=60):
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.05)
    return found


def start(arguments):
    """Start flowsim as a terminal does: in a group of processes of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "flowsim", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        start_new_session=True,
    )


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The files of a sweep that this process computed alone."""
    folder = tmp_path_factory.mktemp("undisturbed")
    assert cli.main([*write(folder), "--jobs", "1"]) == 0
    return files(folder / "out")


def kill_a_worker():
    """Kill the first worker of this process that lives for a moment."""
    pid = until(lambda: workers_of(os.getpid()))[0]
    time.sleep(0.5)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.slow
def test_two_processes_one_of_them_killed_give_the_same_files_as_one(undisturbed, tmp_path):
    killer = threading.Thread(target=kill_a_worker)
    killer.start()
    assert cli.main([*write(tmp_path), "--jobs", "2"]) == 0
    killer.join()
    assert files(tmp_path / "out") == undisturbed
    assert workers_of(os.getpid()) == []


class Deadly:
    """What kills whoever reads it from a pipe."""

    def __reduce__(self):
        return os._exit, (1,)


@pytest.mark.slow
def test_a_block_that_kills_every_worker_is_given_up_after_three(blocks):
    deadly = replace(blocks[0], recipe=replace(blocks[0].recipe, folder=Deadly()))
    workers = Spawned(1)
    try:
        found = list(workers.results([[deadly, blocks[1]]]))
    finally:
        workers.close()
    results = {id(block): result for block, result in found}
    assert [(failure.cell, failure.message) for failure in results[id(deadly)].failures] == [
        (f"data.noise=0.5, repetition {repetition}", "its worker died 3 times") for repetition in (0, 1)
    ]
    assert results[id(blocks[1])].failures == []
    ((_, alone),) = InProcess().results([[blocks[1]]])
    for name, array in results[id(blocks[1])].arrays.items():
        np.testing.assert_array_equal(array, alone.arrays[name])


class Eager(InProcess):
    """Asks for all blocks before it computes the first, as a cluster does."""

    elsewhere = True

    def __init__(self):
        self.asked = []

    def results(self, groups):
        for group in groups:
            self.asked += group
        yield from super().results([self.asked])


def test_what_two_sweeps_miss_is_computed_once_and_one_that_cannot_be_planned_leaves_them_alone(tmp_path):
    pool, sweeps = Eager(), []
    (tmp_path / "data.csv").write_text("a,y\n1,2\n3,\n")
    broken = SCENARIO.replace("{kind: gaussian, samples: 20, features: 3}", "{kind: file, path: data.csv, target: y}")
    broken = broken.replace("data.noise: [0.5, 1.0, 1.5, 2.0]", "network.scale: [0.5]")
    wider = SCENARIO.replace("[0.5, 1.0, 1.5, 2.0]", "[0.5, 2.5]")
    for number, content in enumerate((broken, SCENARIO, wider)):
        path = tmp_path / f"sweep{number}.yaml"
        path.write_text(content)
        sweeps.append(PendingSweep(read_scenario(path), tmp_path, BlockStore(tmp_path / "blocks"), pool))
    sweeps_ahead(sweeps, pool)
    with pytest.raises(DataError, match=r"data\.csv"):
        sweeps[0].result(lambda progress: None)
    both = [sweep.result(lambda progress: None).dataset for sweep in sweeps[1:]]
    assert len(pool.asked) == 5
    shared = [dataset.drop_attrs().sel(noise=[0.5]) for dataset in both]
    assert shared[0].identical(shared[1])


def test_two_runs_in_one_folder_at_a_time_are_refused(tmp_path, capsys):
    arguments = write(tmp_path)
    specification = read_scenario(tmp_path / "tiny.yaml")
    with result_folder(tmp_path / "out", "tiny", resolved(specification)).locked():
        assert cli.main([*arguments, "--jobs", "1"]) == 2
    assert "tiny: another run is at work there; wait for it, or use another --out" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_ctrl_c_ends_everything_with_exit_code_130_and_leaves_nothing_half_written(tmp_path):
    process = start([*write(tmp_path, LONG), "--jobs", "2"])
    workers = until(lambda: len(found := workers_of(process.pid)) == 2 and found)
    os.killpg(process.pid, signal.SIGINT)  # the workers are at their imports: the worst moment
    printed, said = process.communicate(timeout=30)
    assert process.returncode == 130
    assert said.startswith("flowsim: interrupted; files written so far are whole, the others are missing; ")
    assert said.count("\n") == 1
    assert printed.strip() == ""
    until(lambda: not any(is_alive(pid) for pid in workers), 10)
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_workers_end_with_the_main_process_however_it_ends(tmp_path):
    process = start([*write(tmp_path, LONG), "--jobs", "2"])
    workers = until(lambda: len(found := workers_of(process.pid)) == 2 and found)
    process.kill()  # the workers are at their imports, and notice after them
    until(lambda: not any(is_alive(pid) for pid in workers))
    process.communicate()


@pytest.mark.slow
def test_a_run_that_is_ended_twice_goes_on_where_it_stopped_to_the_same_files(undisturbed, tmp_path, monkeypatch):
    """It is killed in the middle of a block, and then ended by SIGTERM while what all blocks give is drawn."""
    arguments = [*write(tmp_path), "--jobs", "1"]
    out = tmp_path / "out"

    def stored():
        return list((out / ".blocks").glob("*/[!.]*.block"))

    for blocks, number in ((1, signal.SIGKILL), (4, signal.SIGTERM)):
        process = start(arguments)
        until(lambda blocks=blocks: (out / "tiny" / ".lock").exists() and len(stored()) >= blocks)
        os.kill(process.pid, number)
        _, error = process.communicate()
        if number == signal.SIGTERM:
            assert (process.returncode, error.count("\n")) == (128 + number, 1)
            assert "run the same again" in error
            assert files(out).items() < undisturbed.items()
    monkeypatch.setattr(WORKERS, "compute", lambda *_: pytest.fail("it computed again what was stored"))
    assert cli.main(arguments) == 0
    assert files(out) == undisturbed


@pytest.fixture
def cluster(tmp_path):
    """A Dask scheduler and two workers, each a process of its own; return their address and the workers."""
    pytest.importorskip("distributed")
    file = tmp_path / "cluster" / "scheduler.json"
    file.parent.mkdir()
    options = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": file.parent}
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    common = ["--scheduler-file", str(file), "--no-dashboard"]
    commands = [["scheduler", "--port", "0", *common]]
    commands += 2 * [["worker", "--nthreads", "1", "--no-nanny", "--host", "127.0.0.1", *common]]
    processes = [
        subprocess.Popen([sys.executable, "-m", "dask", *command], **options, env=environment) for command in commands
    ]
    until(lambda: file.exists() and file.read_text().endswith("}"))
    yield json.loads(file.read_text())["address"], processes[1:]
    for process in processes:
        process.kill()
        process.wait()


@pytest.mark.slow
def test_a_dask_cluster_of_which_a_worker_is_killed_gives_the_same_files(undisturbed, tmp_path, cluster):
    address, workers = cluster
    stored = tmp_path / "out" / ".blocks"

    def kill():
        until(lambda: list(stored.glob("*/[!.]*.block")))
        workers[0].kill()

    killer = threading.Thread(target=kill)
    killer.start()
    assert cli.main([*write(tmp_path), "--dask", address]) == 0
    killer.join()
    assert files(tmp_path / "out") == undisturbed


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("tcp://127.0.0.1:9", "no answer (Timed out trying to connect to tcp://127.0.0.1:9"),
        ("nowhere", "no address (missing port number in address 'nowhere'); write for instance tcp://localhost:8786"),
    ],
)
def test_a_cluster_that_does_not_answer_is_one_message(tmp_path, monkeypatch, capsys, address, message):
    pytest.importorskip("distributed")
    monkeypatch.setattr(CLUSTER, "_client", partial(CLUSTER._client, seconds=0.2))
    assert cli.main([*write(tmp_path), "--dask", address]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"flowsim: --dask {address}: {message}")
    assert said.count("\n") == 1
    assert not (tmp_path / "out").exists()


@contextlib.contextmanager
def listening(greeting):
    """Yield the address of a service that greets everybody so, and then waits."""
    with contextlib.ExitStack() as opened:
        listener = opened.enter_context(socket.create_server(("127.0.0.1", 0)))

        def greet():
            with contextlib.suppress(OSError):
                while True:
                    opened.enter_context(listener.accept()[0]).sendall(greeting)

        greeter = threading.Thread(target=greet, daemon=True)
        greeter.start()
        yield f"tcp://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)  # which ends its waiting, as closing it alone does not
        greeter.join()


@pytest.mark.parametrize("greeting", [b"", b"SSH-2.0-OpenSSH\r\n"])
def test_what_is_no_scheduler_is_called_so(tmp_path, monkeypatch, capsys, greeting):
    pytest.importorskip("distributed")
    monkeypatch.setattr(CLUSTER, "_client", partial(CLUSTER._client, seconds=0.2))
    with listening(greeting) as address:
        assert cli.main([*write(tmp_path), "--dask", address]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"flowsim: --dask {address}: what answers there is not a Dask scheduler; write the address ")
    assert said.count("\n") == 1


class Cluster:
    """What flowsim asks of a client: a cluster with some workers, each with its versions."""

    def __init__(self, versions):
        self.versions, self.closed, self.waited = versions, False, None

    def scheduler_info(self):
        return {"workers": self.versions}

    def wait_for_workers(self, count, timeout):
        self.waited = timeout
        raise TimeoutError

    def run(self, function):
        return self.versions

    def close(self):
        self.closed = True


def test_a_cluster_without_workers_is_waited_for_visibly_and_not_for_ever(tmp_path, monkeypatch, capsys):
    cluster = Cluster({})
    monkeypatch.setattr(CLUSTER, "_client", lambda address: cluster)
    assert cli.main([*write(tmp_path), "--dask", "tcp://here:8786"]) == 2
    assert capsys.readouterr().err.replace("flowsim: --dask tcp://here:8786: ", "").splitlines() == [
        "the cluster has no workers; waiting 60 seconds for one",
        "no worker within 60 seconds; start some (dask worker ADDRESS) and run this again",
    ]
    assert (cluster.waited, cluster.closed) == (60, True)


def test_a_worker_with_other_versions_is_refused_before_it_gets_work(tmp_path, monkeypatch, capsys):
    cluster = Cluster({"tcp://there:1": environment(), "tcp://there:2": environment() | {"jax": "0.1"}})
    monkeypatch.setattr(CLUSTER, "_client", lambda address: cluster)
    assert cli.main([*write(tmp_path), "--dask", "tcp://here:8786"]) == 2
    assert capsys.readouterr().err == (
        f"flowsim: --dask tcp://here:8786: the worker tcp://there:2 has jax 0.1, and this process has "
        f"{environment()['jax']}; install the same there\n"
    )
    assert cluster.closed


def test_workers_that_go_away_are_missed():
    class Ended:
        def has_ready(self):
            return False

    heard = []
    with pytest.raises(ClusterError, match="no worker within 60 seconds"):
        WORKERS.OnDask(Cluster({}), heard.append, look_seconds=0.0)._wait_for(Ended())
    assert heard == ["the cluster has no workers; waiting 60 seconds for one"]


def test_without_the_package_the_remedy_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert cli.main([*write(tmp_path), "--dask", "tcp://127.0.0.1:9"]) == 2
    assert "--dask: needs Dask's distributed; write pip install 'flowsim[dask]'" in capsys.readouterr().err
