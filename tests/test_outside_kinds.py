"""A data source and a network of a user's module are named in a scenario exactly as those of the package are."""

import json
import pickle
import sys

import equinox as eqx
import numpy as np
import pytest

from flowsim import cli
from flowsim.scenarios import parse_overrides, read_scenario, resolved
from flowsim.scenarios.runner import build_network
from flowsim.sweeps import BlockStore, run_sweep, scenario_blocks, workers

MODULE = """
from typing import ClassVar

import diffrax
import equinox as eqx
import flowsim.losses
import jax
import jax.numpy as jnp
import numpy as np
from flowsim.data import Data, DataSource
from flowsim.networks import NetworkRecipe


class Wave(DataSource):
    samples: int = 12
    period: float
    centres: tuple[float, ...] = (0.0, 1.0)

    def load(self, rng, folder):
        X = rng.standard_normal((self.samples, len(self.centres))) + np.array(self.centres)
        return Data((X, np.sin(2 * np.pi * X.sum(axis=1) / self.period)))


class Net(eqx.Module):
    inner: jax.Array
    outer: jax.Array

    def __call__(self, x):
        return self.outer @ jnp.tanh(self.inner @ x)


class Huber(flowsim.losses.Loss):
    delta: float = 1.0
    infimum: ClassVar[float] = 0.0
    attained: ClassVar[bool] = True

    def __check_init__(self):
        if self.delta <= 0:
            raise ValueError(f"delta is {self.delta}: expected more than 0")

    def __call__(self, prediction, target):
        return jnp.sum(self.delta**2 * (jnp.sqrt(1 + ((prediction - target) / self.delta) ** 2) - 1))

    def curvature(self, prediction, target):
        return flowsim.losses.differentiated_curvature(self, prediction, target)


class Careful(diffrax.Bosh3):
    pass


def sine(x):
    return jnp.sin(x)


def norm(network):
    return jnp.linalg.norm(network.inner)


inner_norm = eqx.filter_jit(norm)


class Shallow(NetworkRecipe):
    width: int = 3
    size: float = 0.5
    start_options = frozenset({"size"})

    def build(self, inputs, outputs, *, key, shared):
        if self.width == 13:
            raise ValueError("not so many")
        one, two = jax.random.split(key)
        inner = self.size * jax.random.normal(one, (self.width, inputs))
        return Net(inner, self.size * jax.random.normal(two, (self.width,)))
"""
SCENARIO = """\
seed: 3
data: {kind: mine:Wave, period: 4.0}
network: {kind: mine:Shallow, width: 2}
flow: {gradient_norm: 1.0e-2, max_steps: 30}
descent: {learning_rates: [0.05], steps: 20}
"""
SWEEP = """\
loss: {kind: mine:Huber, delta: 0.5}
sweep:
  over: {network.size: [0.4, 0.6], data.period: [3.0, 5.0]}
  repetitions: 2
  descent: [{learning_rates: [0.05], steps: 20}]
"""


@pytest.fixture(autouse=True)
def _modules_are_forgotten(monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    yield
    sys.modules.pop("mine", None)


@pytest.fixture
def write(tmp_path):
    (tmp_path / "mine.py").write_text(MODULE)

    def write(content=SCENARIO):
        (tmp_path / "own.yaml").write_text(content)
        return tmp_path / "own.yaml"

    return write


def test_a_scenario_of_kinds_from_outside_is_kept_with_all_their_options(write):
    path = write(SCENARIO.replace("{gradient", "{solver: mine:Careful, gradient"))
    scenario = read_scenario(path, parse_overrides(["network.width=4"]))
    resolution = resolved(scenario)
    assert resolution["data"].items() >= {"kind": "mine:Wave", "period": 4.0, "samples": 12}.items()
    assert resolution["network"] == {"kind": "mine:Shallow", "width": 4, "size": 0.5}
    assert type(scenario.flow.make().solver).__name__ == "Careful"


def test_starts_that_differ_in_start_options_alone_share_a_block(write, tmp_path):
    blocks = scenario_blocks(read_scenario(write(SCENARIO + SWEEP)), tmp_path)
    assert [sorted({start.options["size"] for start in block.starts}) for block in blocks] == 2 * [[0.4, 0.6]]


def test_a_sweep_may_run_over_losses_and_their_options(write, tmp_path):
    for axis in ("loss.kind: [squared_error, mine:Huber]", "loss.delta: [0.5, 2.0]"):
        loss = "loss: mine:Huber\n" if "delta" in axis else ""
        path = write(SCENARIO + loss + f"sweep: {{over: {{{axis}}}}}\n")
        blocks = scenario_blocks(read_scenario(path), tmp_path)
        losses = [block.recipe.scenario.loss.make() for block in blocks]
        assert len({float(loss(np.zeros(()), np.ones(()))) for loss in losses}) == 2


def test_a_recipe_arrives_in_another_process_as_it_was_validated(write, tmp_path):
    optimizer = "optimizer: {kind: adam, b1: 0.8, decoupled_decay: 0.1}, schedule: {kind: warm_up, time: 2}"
    text = SCENARIO + "record: [mine:inner_norm]\n" + SWEEP.replace("steps: 20}]", f"steps: 20, {optimizer}}}]")
    block, *_ = scenario_blocks(read_scenario(write(text)), tmp_path)
    sent = pickle.loads(pickle.dumps(block.recipe))
    assert sent.content == block.recipe.content
    assert sent.plan().descents[0].dynamics == block.recipe.plan().descents[0].dynamics
    made = sent.materials()
    assert made.problem.loss.delta == 0.5
    assert [probe.label.name for probe in made.probes] == ["norm"]


def test_a_loss_without_options_is_its_name_alone(write):
    overrides = parse_overrides(["loss=mine:Huber", "loss.delta=3"])
    assert read_scenario(write(), overrides).loss.make().delta == 3.0
    assert read_scenario(write(SCENARIO + "loss: mine:Huber\n"), parse_overrides(["loss.delta=2"])).loss.delta == 2.0


@pytest.mark.slow
def test_spawned_workers_find_the_module_beside_the_scenario_wherever_they_are_started(write, tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    options = ["descent.learning_rates=[]", "sweep.flow=false", "sweep.repetitions=1"]
    scenario = read_scenario(write(SCENARIO + SWEEP), parse_overrides(options))
    with workers(2) as pool:
        sweep = run_sweep(scenario, tmp_path, BlockStore(tmp_path / "blocks"), pool).to_dataset()
    assert json.loads(sweep.attrs["failures"]) == []
    assert dict(sweep.sizes) == {"size": 2, "period": 2, "repetition": 1, "run": 1}
    assert (sweep.steps == 20).all()
    assert sweep.initial_risk.notnull().all()
    assert sweep.sharpness_lower_bound.isnull().all()  # no chain of matrices


PLAIN = "data: {kind: gaussian, samples: 9, features: 2}\nnetwork: {kind: mlp, depth: 2, scale: 0.5"


@pytest.mark.parametrize(
    "text",
    [
        SCENARIO,
        PLAIN + ", activation: mine:sine}\n",
        PLAIN + "}\nflow: {solver: mine:Careful}\n",
        PLAIN + "}\nrecord: [mine:sine]\n",
    ],
)
def test_a_module_that_is_edited_has_other_blocks(write, tmp_path, text):
    def address():
        (one,) = scenario_blocks(read_scenario(write(text + "sweep: {}")), tmp_path)
        return one.address({})

    first = address()
    assert address() == first
    (tmp_path / "mine.py").write_text(MODULE + "# edited\n")
    assert address() != first


# fmt: off
WRONG = {
    "misspelled option": ("network.widht=3", "network.widht: found an unknown key; expected one of kind, width, size;"),
    "no value": ("data={kind: mine:Wave}", "data.period: found nothing; expected a value, for which there is no defau"),
    "no module": ("network.kind=mein:Shallow", "network.kind: found the text 'mein:Shallow', but no module mein; ex"),
    "not a network": ("network.kind=mine:Wave", "network.kind: found the text 'mine:Wave', which is not a network; expe"
        "cted a class of Equinox modules, a function that returns one, or a flowsim.networks.NetworkRecipe with"),
    "an abstract one": ("data.kind=mine:DataSource", "which lacks load; expected a subclass of flow"),
    "one that cannot be built": ("network.width=13", "ValueError: not so many"),
    "one that cannot be loaded": ("data.samples=-1", "data of kind mine:Wave fails: ValueError: negative dimensions"),
    "a refused option": ("loss={kind: mine:Huber, delta: -1}", "loss: found options that it refuses (ValueError: del"),
    "an implicit solver": ("flow.solver=diffrax:KenCarp4", "found 'diffrax:KenCarp4', which cannot be used as it is"),
    "a missing package": ("flow.solver=lame:Solver", "write pip install a_package_that_is_not_there"),
}
# fmt: on


@pytest.mark.parametrize(("option", "message"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_with_kinds_from_outside_is_one_message_and_exit_code_2(write, tmp_path, capsys, option, message):
    (tmp_path / "lame.py").write_text("import a_package_that_is_not_there")
    assert cli.main([str(write()), "--out", str(tmp_path / "out"), "--jobs", "1", "--set", option]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (SCENARIO, r"2: data\.kind: found 'mine:Wave'"),
        (PLAIN + ", activation: mine:sine}\n", r"2: network\.activation: found 'mine:sine'"),
    ],
)
def test_a_module_that_another_one_shadows_is_refused(write, tmp_path, text, place):
    read_scenario(write())
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine.py").write_text(MODULE)
    (tmp_path / "other" / "own.yaml").write_text(text)
    with pytest.raises(Exception, match=rf"own\.yaml:{place} in .*; expected the one in .*other"):
        read_scenario(tmp_path / "other" / "own.yaml")


def test_an_activation_from_outside_is_called_by_the_network(write):
    network = build_network(read_scenario(write(PLAIN + ", activation: mine:sine}\n")), 2, 1)
    x = np.array([0.3, -0.2])
    first, second = map(np.asarray, network.weights)
    np.testing.assert_allclose(eqx.filter_jit(network)(x), second[0] @ np.sin(first @ x), rtol=1e-15)
