"""A checkpoint is of one run alone, in any process, and not a bit of it may be another."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import flowsim
from flowsim.runtime.identity import identity_of

KILLED_RUNS = Path(__file__).with_name("killed_runs.py")


def killed_runs(word, folder, environment, seed):
    # Another seed: sets have another order in each process.
    command = [sys.executable, str(KILLED_RUNS), word, str(folder)]
    return subprocess.Popen(command, env=environment | {"PYTHONHASHSEED": seed}, stdout=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_every_kind_of_run_that_is_killed_goes_on_in_another_process_to_the_same_bits(tmp_path, quick_environment):
    process = killed_runs("park", tmp_path, quick_environment, "1")
    assert process.stdout.readline() == "all stand\n"
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    printed, _ = (second := killed_runs("resume", tmp_path, quick_environment, "2")).communicate()
    assert second.returncode == 0
    for line in printed.splitlines():
        name, found, fresh, steps, same = line.split("; ")
        assert 0 < int(found) < int(steps), name
        assert (fresh, same) == ("0", "True"), name
    assert len(printed.splitlines()) >= 9
    assert not list(tmp_path.glob(".*"))


class Vector(eqx.Module):
    weight: jax.Array


class Quadratic(flowsim.Problem):
    target: jax.Array
    power: int = eqx.field(static=True, default=2)

    def __call__(self, network):
        return jnp.sum((network.weight - self.target) ** self.power)


RUN = (Vector(jnp.arange(3.0)), Quadratic(jnp.ones(3)))


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """What the checkpoint of a run holds that ended, and the run."""
    path = tmp_path_factory.mktemp("checkpoint") / "run"
    flow = flowsim.integrate(*RUN, ts=[], checkpoint=path)
    return path.read_bytes(), flow


@pytest.mark.slow
def test_a_checkpoint_of_which_any_byte_is_another_is_refused(tmp_path, written):
    content, _ = written
    path = tmp_path / "run"
    for place in [*range(0, 150, 7), *np.linspace(150, len(content) - 1, 60).astype(int)]:
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises(ValueError, match=r"damaged: delete it|not a checkpoint|another version"):
            flowsim.integrate(*RUN, ts=[], checkpoint=path)
    assert [file.name for file in tmp_path.iterdir()] == ["run"]


@pytest.mark.parametrize("length", [0, 5, 25, 100, 200, -1])
@pytest.mark.slow
def test_a_truncated_checkpoint_is_refused(tmp_path, written, length):
    path = tmp_path / "run"
    path.write_bytes(written[0][:length])
    with pytest.raises(ValueError, match=r"damaged: delete it|not a checkpoint|another version"):
        flowsim.integrate(*RUN, ts=[], checkpoint=path)


def test_a_checkpoint_of_an_older_form_is_said_to_be_one(tmp_path, written):
    path = tmp_path / "run"
    path.write_bytes(written[0].replace(b"checkpoint 3", b"checkpoint 2"))
    with pytest.raises(ValueError, match="a checkpoint of another version of flowsim: delete it to begin anew"):
        flowsim.integrate(*RUN, ts=[], checkpoint=path)


def test_a_whole_checkpoint_is_taken_as_it_is(tmp_path, written):
    content, flow = written
    (tmp_path / "run").write_bytes(content)
    again = flowsim.integrate(*RUN, ts=[], checkpoint=tmp_path / "run")
    np.testing.assert_array_equal(again.network.weight, flow.network.weight)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: path.mkdir(), "run is a folder: choose the name of a file for the checkpoint"),
        (lambda path: path.symlink_to(path.name), "run cannot be read"),
        (lambda path: path.symlink_to("/dev/null"), "not a checkpoint"),
        (lambda path: path.parent.rmdir() or path.parent.write_text(""), "place is not a folder: choose another place"),
        (lambda path: path.parent.rmdir() or path.parent.symlink_to("nowhere"), "place is not a folder: choose anoth"),
    ],
)
def test_a_place_where_no_checkpoint_can_be_is_refused_before_anything_is_computed(
    tmp_path, monkeypatch, make, message
):
    (tmp_path / "place").mkdir()
    make(tmp_path / "place" / "run")
    monkeypatch.setattr("flowsim.dynamics.driver.advance", lambda *_: pytest.fail("it computed"))
    with pytest.raises(ValueError, match=message):
        flowsim.integrate(*RUN, ts=[], checkpoint=tmp_path / "place" / "run")


def test_a_dangling_link_is_no_checkpoint_yet(tmp_path, written):
    (tmp_path / "run").symlink_to("nowhere")
    flowsim.integrate(*RUN, ts=[], checkpoint=tmp_path / "run")
    assert (tmp_path / "run").read_bytes() == written[0]


def test_what_a_killed_run_left_half_written_is_cleared_away_later(tmp_path):
    names = {".run.abcdefgh": 1000.0, ".run.abcdefg_": None, ".run.notes": 1000.0, ".running.abcdefgh": 1000.0}
    for name, touched in names.items():
        (tmp_path / name).touch()
        if touched is not None:
            os.utime(tmp_path / name, (touched, touched))
    flowsim.integrate(*RUN, ts=[], checkpoint=tmp_path / "run")
    assert {file.name for file in tmp_path.iterdir()} == {"run", *names} - {".run.abcdefgh"}


def same_risk_twice(power):
    return [flowsim.EmpiricalRisk(np.ones((3, 2)), np.ones(3), lambda p, t: jnp.abs(p - t) ** power) for _ in range(2)]


SCALE = 2.0


def scaled(x):
    return SCALE * x


def other_of(name):
    """Return the class of this name, made once more with another body."""
    bodies = {
        "method": lambda self, network: jnp.sum(network.weight**2) + 1,
        "constant": vars(Quadratic)["__call__"],
    }
    members = {"__call__": bodies[name], "__module__": __name__, "__qualname__": "Quadratic", "constant": name}
    return type("Quadratic", (flowsim.Problem,), members)


def test_a_function_is_known_by_what_it_does():
    one, other = same_risk_twice(4)
    assert identity_of(one) == identity_of(other)
    assert identity_of(one) != identity_of(same_risk_twice(3)[0])  # another closure
    assert identity_of(lambda x: x + 1) != identity_of(lambda x: x + 2)
    assert identity_of(jnp.tanh) != identity_of(jnp.sin)
    assert identity_of(jax.nn.relu) == identity_of(jax.nn.relu)


def test_a_function_is_known_by_the_globals_that_it_reads(monkeypatch):
    def through_another(x):
        return scaled(x)

    before = identity_of(through_another)
    assert before == identity_of(through_another)
    monkeypatch.setattr(sys.modules[__name__], "SCALE", 3.0)
    assert before != identity_of(through_another)


def test_a_class_of_ones_own_is_known_by_its_methods_and_constants():
    assert len({identity_of(kind) for kind in (Quadratic, other_of("method"), other_of("constant"))}) == 3


def test_a_module_is_known_by_its_static_fields_too():
    assert identity_of(Quadratic(jnp.ones(3))) == identity_of(Quadratic(jnp.ones(3), 2))
    assert identity_of(Quadratic(jnp.ones(3))) != identity_of(Quadratic(jnp.ones(3), 4))
    assert identity_of(Quadratic(jnp.ones(3))) != identity_of(Quadratic(jnp.ones(3).at[0].add(1e-15)))


@pytest.mark.parametrize("package", ["flowsim", "jax", "diffrax", "equinox"])
def test_a_run_is_known_by_the_versions_that_compute_it(monkeypatch, package):
    before = identity_of(RUN)
    monkeypatch.setattr("flowsim.runtime.identity._version", lambda name: "0.0" if name == package else "1")
    first = identity_of(RUN)
    monkeypatch.setattr("flowsim.runtime.identity._version", lambda name: "1")
    assert len({before, first, identity_of(RUN)}) == 3


def test_what_no_other_process_would_know_again_is_refused_with_a_remedy(tmp_path):
    lock = threading.Lock()
    with pytest.raises(ValueError, match=r"cannot tell one _thread\.lock from another: leave it out of the network"):
        flowsim.integrate(*RUN, probes=[lambda n: n.weight[0] * (lock is not None)], checkpoint=tmp_path / "run")
