"""A checkpoint is of one run alone, in any process, and not a bit of it may be another."""

import os
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
from flowsim.dynamics.checkpoint import Checkpoint
from flowsim.runtime.identity import identity_of


@pytest.mark.slow
def test_every_kind_of_run_that_is_killed_goes_on_in_another_process_to_the_same_bits(tmp_path, quick_environment):
    def started(word, seed):
        command = [sys.executable, str(Path(__file__).with_name("killed_runs.py")), word, str(tmp_path)]
        environment = quick_environment | {"PYTHONHASHSEED": seed}  # sets have another order in each process
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)

    process = started("park", "1")
    assert process.stdout.readline() == "all stand\n"
    process.kill()
    process.communicate()
    printed, _ = (second := started("resume", "2")).communicate()
    assert second.returncode == 0
    assert len(printed.splitlines()) == 3
    for line in printed.splitlines():
        name, done, fresh, steps, same = line.split("; ")
        assert 0 < int(done) < int(steps), name
        assert (fresh, same) == ("0", "True"), name
    assert not list(tmp_path.glob(".*"))


class Vector(eqx.Module):
    weight: jax.Array


class Quadratic(flowsim.Problem):
    target: jax.Array
    power: int = eqx.field(static=True, default=2)

    def __call__(self, network):
        return jnp.sum((network.weight - self.target) ** self.power)


def run():
    return Vector(np.arange(3.0)), Quadratic(np.ones(3))


STATE = {"weights": np.arange(200.0), "steps": np.array(7)}


def fresh():
    return {"weights": np.zeros(200), "steps": np.array(0)}


@pytest.fixture
def path(tmp_path):
    """A file that holds the checkpoint of a run."""
    checkpoint = Checkpoint(tmp_path / "run", run(), seconds=0.0)
    checkpoint.save_if_due(STATE, ended=False)
    return checkpoint.path


def loaded(path, request=None):
    return Checkpoint(path, run() if request is None else request, seconds=0.0).load(fresh)


def test_a_whole_checkpoint_gives_the_state_back_to_the_same_run_alone(path):
    for name, value in loaded(path).items():
        np.testing.assert_array_equal(value, STATE[name])
    with pytest.raises(ValueError, match="the checkpoint of a run with another network"):
        loaded(path, (Vector(np.arange(3.0)), Quadratic(np.zeros(3))))
    path.unlink()
    np.testing.assert_array_equal(loaded(path)["weights"], 0)


def test_a_checkpoint_is_written_once_in_its_seconds_and_at_the_end(tmp_path):
    checkpoint = Checkpoint(tmp_path / "run", run(), seconds=1000.0)
    checkpoint.save_if_due(STATE, ended=False)
    assert not checkpoint.path.exists()
    checkpoint.save_if_due(STATE, ended=True)
    assert loaded(checkpoint.path)["steps"] == 7


def test_a_checkpoint_that_is_damaged_at_any_byte_or_truncated_or_of_another_version_is_refused(path):
    content, checkpoint = path.read_bytes(), Checkpoint(path, run(), seconds=0.0)
    damaged = [content[:length] for length in (0, 5, 25, 100, 200, -1)]
    for place in [*range(0, 200, 3), *np.linspace(200, len(content) - 1, 60).astype(int)]:
        damaged.append(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
    for one in damaged:
        path.write_bytes(one)
        with pytest.raises(ValueError, match=r"damaged: delete it|not a checkpoint|another version"):
            checkpoint.load(fresh)
    assert [file.name for file in path.parent.iterdir()] == ["run"]
    path.write_bytes(content.replace(b"checkpoint 5", b"checkpoint 2"))
    with pytest.raises(ValueError, match="a checkpoint of another version of flowsim: delete it"):
        checkpoint.load(fresh)


def test_a_run_that_has_ended_is_taken_from_its_checkpoint_and_not_computed_again(tmp_path, monkeypatch):
    options = {"learning_rate": 0.1, "steps": 3, "checkpoint": tmp_path / "run"}
    descent = flowsim.descend(*run(), **options)
    (tmp_path / "link").symlink_to("nowhere")  # where there is no checkpoint yet
    flowsim.descend(*run(), **options | {"checkpoint": tmp_path / "link"})
    assert (tmp_path / "link").read_bytes() == (tmp_path / "run").read_bytes()
    monkeypatch.setattr(eqx, "tree_serialise_leaves", lambda *_: pytest.fail("it was written again"))
    again = flowsim.descend(*run(), **options)
    np.testing.assert_array_equal(again.network.weight, descent.network.weight)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: path.mkdir(), "run is a folder: choose the name of a file for the checkpoint"),
        (os.mkfifo, "run is a pipe: choose the name of a file for the checkpoint"),
        (lambda path: path.symlink_to(path.name), "run cannot be read"),
        (lambda path: path.symlink_to("/dev/null"), "not a checkpoint"),
        (lambda path: path.parent.rmdir() or path.parent.write_text(""), "place is not a folder: choose another place"),
    ],
)
def test_a_place_where_no_checkpoint_can_be_is_refused_before_anything_is_computed(
    tmp_path, monkeypatch, make, message
):
    (tmp_path / "place").mkdir()
    make(tmp_path / "place" / "run")
    monkeypatch.setattr("flowsim.dynamics.driver.advance", lambda *_: pytest.fail("it computed"))
    with pytest.raises(ValueError, match=message):
        flowsim.integrate(*run(), ts=[], checkpoint=tmp_path / "place" / "run")


def test_what_a_killed_run_left_half_written_is_cleared_away_later(tmp_path):
    names = {".run.abcdefgh": 1000.0, ".run.abcdefg_": None, ".run.notes": 1000.0, ".running.abcdefgh": 1000.0}
    for name, touched in names.items():
        (tmp_path / name).touch()
        if touched is not None:
            os.utime(tmp_path / name, (touched, touched))
    Checkpoint(tmp_path / "run", run(), seconds=0.0)
    assert {file.name for file in tmp_path.iterdir()} == {*names} - {".run.abcdefgh"}


def risk_of(power):
    return flowsim.EmpiricalRisk(np.ones((3, 2)), np.ones(3), lambda p, t: jnp.abs(p - t) ** power)


SCALE = 2.0


def scaled(x):
    return SCALE * x


def other_of(name):
    """Return the class of this name, made once more with another body."""
    other = {"method": lambda self, network: jnp.sum(network.weight**2) + 1, "constant": vars(Quadratic)["__call__"]}
    members = {"__call__": other[name], "__module__": __name__, "__qualname__": "Quadratic", "constant": name}
    return type("Quadratic", (flowsim.Problem,), members)


def test_a_function_is_known_by_what_it_does_and_by_the_globals_that_it_reads(monkeypatch):
    assert identity_of(risk_of(4)) == identity_of(risk_of(4))
    assert identity_of(risk_of(4)) != identity_of(risk_of(3))  # another closure
    assert identity_of(lambda x: x + 1) != identity_of(lambda x: x + 2)
    assert identity_of(jnp.tanh) != identity_of(jnp.sin)
    assert identity_of(jax.nn.relu) == identity_of(jax.nn.relu)

    def through_another(x):
        return scaled(x)

    before = identity_of(through_another)
    assert before == identity_of(through_another)
    monkeypatch.setattr(sys.modules[__name__], "SCALE", 3.0)
    assert before != identity_of(through_another)


def test_a_class_is_known_by_its_methods_and_constants_and_a_module_by_its_static_fields_too():
    assert len({identity_of(kind) for kind in (Quadratic, other_of("method"), other_of("constant"))}) == 3
    one = identity_of(Quadratic(np.ones(3)))
    assert one == identity_of(Quadratic(np.ones(3), 2))
    assert one != identity_of(Quadratic(np.ones(3), 4))
    assert one != identity_of(Quadratic(np.array([1 + 1e-15, 1, 1])))


def test_a_run_is_known_by_the_versions_that_compute_it(monkeypatch):
    identities = {identity_of(run())}
    for other in ("", "flowsim", "jax", "diffrax", "equinox"):
        version = lambda name, other=other: "0.0" if name == other else "1"  # noqa: E731
        monkeypatch.setattr("flowsim.runtime.identity._version", version)
        identities.add(identity_of(run()))
    assert len(identities) == 6


def test_what_no_other_process_would_know_again_is_refused_with_a_remedy(tmp_path):
    lock = threading.Lock()
    with pytest.raises(ValueError, match=r"cannot tell one _thread\.lock from another: leave it out of the network"):
        flowsim.integrate(*run(), probes=[lambda n: n.weight[0] * (lock is not None)], checkpoint=tmp_path / "run")
