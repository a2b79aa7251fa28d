"""Whoever computes a sweep, and whatever befalls them, its files are the same to the last bit."""

import contextlib
import hashlib
import json
import logging
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
from types import SimpleNamespace

import numpy as np
import pytest

from flowsim import cli
from flowsim.data import DataError
from flowsim.scenarios import environment, read_scenario
from flowsim.sweeps import BlockStore, ClusterError, PendingSweep, cluster as CLUSTER, scenario_blocks, sweeps_ahead
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


def parent_of(pid):
    """Return the parent of a process as Linux tells, `None` if it has ended."""
    with contextlib.suppress(OSError):
        state, parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
        return None if state == "Z" else int(parent)


def workers_of(pid):
    """Return the processes that `pid` spawned for work."""

    def is_worker(child):
        with contextlib.suppress(OSError):
            return parent_of(child) == pid and b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()

    return [int(path.name) for path in Path("/proc").glob("[0-9]*") if is_worker(path.name)]


def until(condition, seconds=60):
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.05)
    return value


def start(arguments):
    """Start flowsim as a terminal does: in a group of processes of its own."""
    command = [sys.executable, "-m", "flowsim", *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, **pipes, env=os.environ | {"JAX_PLATFORMS": "cpu"}, start_new_session=True)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The files of a sweep that this process computed alone."""
    folder = tmp_path_factory.mktemp("undisturbed")
    assert cli.main([*write(folder), "--jobs", "1"]) == 0
    return files(folder / "out")


@pytest.mark.slow
def test_two_processes_one_of_them_killed_give_the_same_files_as_one(undisturbed, tmp_path):
    def kill_a_worker():
        pid = until(lambda: workers_of(os.getpid()))[0]
        time.sleep(0.5)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

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
def test_a_block_that_kills_every_worker_is_given_up_after_some_attempts(tmp_path):
    write(tmp_path)
    block, other, *_ = scenario_blocks(read_scenario(tmp_path / "tiny.yaml"), tmp_path)
    deadly = replace(block, recipe=replace(block.recipe, folder=Deadly()))
    workers = Spawned(1, attempts=2)
    try:
        results = {id(block): result for block, result in workers.results([[deadly, other]])}
    finally:
        workers.close()
    assert [(failure.cell, failure.message) for failure in results[id(deadly)].failures] == [
        (f"data.noise=0.5, repetition {repetition}", "its worker died 2 times") for repetition in (0, 1)
    ]
    assert results[id(other)].failures == []
    ((_, alone),) = InProcess().results([[other]])
    for name, array in results[id(other)].arrays.items():
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
    datasets = [sweep.result(lambda progress: None).dataset for sweep in sweeps[1:]]
    assert len(pool.asked) == 5
    one, other = (dataset.drop_attrs().sel(noise=[0.5]) for dataset in datasets)
    assert one.identical(other)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=lambda number: number.name)
def test_workers_end_with_the_main_process_however_it_ends_and_ctrl_c_leaves_nothing(tmp_path, number):
    process = start([*write(tmp_path, LONG), "--jobs", "2"])
    workers = until(lambda: len(pids := workers_of(process.pid)) == 2 and pids)
    # The workers are at their imports: the worst moment. Ctrl-C goes to their whole group.
    os.kill(-process.pid if number == signal.SIGINT else process.pid, number)
    output, error = process.communicate(timeout=60)
    until(lambda: not any(parent_of(pid) for pid in workers))
    if number == signal.SIGINT:
        assert process.returncode == 130
        assert error.startswith("flowsim: interrupted; files written so far are whole, the others are missing; ")
        assert error.count("\n") == 1
        assert output.strip() == ""
        assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_run_that_is_ended_twice_goes_on_where_it_stopped_to_the_same_files(undisturbed, tmp_path, monkeypatch):
    """It is killed behind its first block, and then ended by SIGTERM while what all blocks give is drawn."""
    arguments = [*write(tmp_path), "--jobs", "1"]
    out = tmp_path / "out"

    for stored, number in ((".blocks/*/[!.]*.block", signal.SIGKILL), ("tiny/sweep.nc", signal.SIGTERM)):
        process = start(arguments)
        until(lambda stored=stored: list(out.glob(stored)))
        os.kill(process.pid, number)
        _, error = process.communicate()
        if number == signal.SIGTERM:
            assert (process.returncode, error.count("\n")) == (128 + number, 1)
            assert "run the same again" in error
            assert files(out).items() < undisturbed.items()
    monkeypatch.setattr(WORKERS, "compute", lambda *_: pytest.fail("it computed again what was stored"))
    assert cli.main(arguments) == 0
    assert files(out) == undisturbed


@pytest.mark.slow
def test_a_dask_cluster_of_which_a_worker_is_killed_gives_the_same_files(undisturbed, tmp_path):
    pytest.importorskip("distributed")
    file, stored = tmp_path / "cluster" / "scheduler.json", tmp_path / "out" / ".blocks"
    file.parent.mkdir()
    common = ["--scheduler-file", str(file), "--no-dashboard"]
    worker = ["worker", "--nthreads", "1", "--no-nanny", "--host", "127.0.0.1", *common]
    options = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": file.parent}
    options["env"] = os.environ | {"JAX_PLATFORMS": "cpu"}

    def kill_a_worker():
        until(lambda: list(stored.glob("*/[!.]*.block")))
        processes[1].kill()

    with contextlib.ExitStack() as running:
        processes = []
        for command in (["scheduler", "--port", "0", *common], worker, worker):
            processes.append(subprocess.Popen([sys.executable, "-m", "dask", *command], **options))
            running.callback(processes[-1].wait)
            running.callback(processes[-1].kill)
        until(lambda: file.exists() and file.read_text().endswith("}"))
        killer = threading.Thread(target=kill_a_worker)
        killer.start()
        assert cli.main([*write(tmp_path), "--dask", json.loads(file.read_text())["address"]]) == 0
        killer.join()
    assert files(tmp_path / "out") == undisturbed


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


@pytest.mark.parametrize(
    ("address", "greeting", "message"),
    [
        ("tcp://127.0.0.1:9", None, "no answer (Timed out trying to connect to tcp://127.0.0.1:9"),
        ("nowhere", None, "no address (missing port number in address 'nowhere'); write for instance tcp://localhost"),
        (None, b"", "what answers there is not a Dask scheduler; write the address "),
        (None, b"SSH-2.0-OpenSSH\r\n", "what answers there is not a Dask scheduler; write the address "),
    ],
)
def test_a_cluster_that_does_not_answer_as_one_is_one_message(
    tmp_path, monkeypatch, capsys, address, greeting, message
):
    pytest.importorskip("distributed")
    monkeypatch.setattr(CLUSTER, "_client", partial(CLUSTER._client, seconds=0.2))
    with contextlib.nullcontext(address) if address else listening(greeting) as place:
        assert cli.main([*write(tmp_path), "--dask", place]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"flowsim: --dask {place}: {message}")
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


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
    notices, pending = [], SimpleNamespace(has_ready=lambda: False)
    with pytest.raises(ClusterError, match="no worker within 60 seconds"):
        WORKERS.OnDask(Cluster({}), notices.append, look_seconds=0.0)._wait_for(pending)
    assert notices == ["the cluster has no workers; waiting 60 seconds for one"]


def test_without_the_package_the_remedy_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert cli.main([*write(tmp_path), "--dask", "tcp://127.0.0.1:9"]) == 2
    assert "--dask: needs Dask's distributed; write pip install 'flowsim[dask]'" in capsys.readouterr().err


def test_a_scheduler_that_goes_while_versions_are_compared_is_named_as_the_cause(tmp_path, monkeypatch, capsys):
    class Gone(Cluster):
        def run(self, function):
            raise OSError("Stream is closed")  # as the CommClosedError of Dask is one

    monkeypatch.setattr(CLUSTER, "_client", lambda address: Gone({"tcp://there:1": {}}))
    assert cli.main([*write(tmp_path), "--dask", "tcp://here:8786"]) == 2
    assert "the scheduler has gone; start one and run this again" in capsys.readouterr().err


def test_no_part_of_dask_reports_a_lost_connection_by_itself():
    pytest.importorskip("distributed")
    logging.getLogger("distributed.client").setLevel(logging.WARNING)  # as Dask's settings do
    with pytest.raises(CLUSTER.ClusterError, match="no answer"):
        CLUSTER._client("tcp://127.0.0.1:9", seconds=0.1)
    assert logging.getLogger("distributed.client").level == logging.CRITICAL
