"""What fails in a user's module ends in one message that says where; what fails in flowsim does not."""

import pytest

from flowsim import cli
from flowsim.data import DataError
from flowsim.results import StoreError
from flowsim.scenarios import ScenarioError
from flowsim.scenarios.runner import failing

MODULE = """
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import ArrayLike

import flowsim
from flowsim.data import Data, DataSource
from flowsim.results import Figure
from flowsim.networks import NetworkRecipe


def no_such_field(network):
    return network.nothing


def in_words(network):
    return "deep"


def of_numpy(x):
    return np.tanh(x)


class NoStep(flowsim.Descent):
    learning_rate: ArrayLike

    def remember(self, weights):
        return None

    def step(self, weights, gradient, memory):
        raise KeyError("step")


class Undrawn(Figure):
    name = "undrawn"

    def draw(self, results):
        raise KeyError("draw")


class DrawnAsNumber(Undrawn):
    def draw(self, results):
        return 3


class Unclaimed(Undrawn):
    def claims(self, results):
        raise KeyError("claims")


class Unrefused(Undrawn):
    def validation_errors(self, scenario):
        raise KeyError("validation_errors")


class Unmade(Undrawn):
    def __init__(self, colour):
        self.colour = colour


class Line(eqx.Module):
    weight: jax.Array

    def __call__(self, x):
        return self.weight @ x


class NotFinite(NetworkRecipe):
    def build(self, inputs, outputs, *, key, shared):
        return Line(jnp.full(inputs, jnp.nan))


class NoData(DataSource):
    def load(self, rng, folder):
        return None


class Lists(DataSource):
    def load(self, rng, folder):
        return Data(([[1.0, 2.0]], [1.0]))
"""
DATA, NETWORK = "data: {kind: gaussian, samples: 20, features: 3}\n", "network: {kind: mlp, depth: 3, scale: 0.5}\n"
FLOW = "flow: {max_steps: 2}\n"


def own_data(kind: str) -> str:
    return f"data: {{kind: 'own:{kind}'}}\n{NETWORK}"


def own_network(kind: str) -> str:
    return f"{DATA}network: {{kind: 'own:{kind}'}}\n"


def run(options: str) -> str:
    return DATA + NETWORK + FLOW + options


# fmt: off
FAILURES = {
    "a probe of nothing": (run("record: 'own:no_such_field'"), "a run with own:no_such_field fails: AttributeError: "),
    "a probe in words": (run("record: 'own:in_words'"), "TypeError: the probe 'in_words' returns str: expected real n"),
    "an optimizer": (run("descent: {optimizer: 'own:NoStep', learning_rates: [0.1], steps: 2}"),
        "a run with own:NoStep fails: KeyError: 'step' ("),
    "validation errors": (run("figure: 'own:Unrefused'"),
        "found 'own:Unrefused', which cannot say what it refuses (KeyError: "),
    "a figure with arguments": (run("figure: 'own:Unmade'"), "figure: found 'own:Unmade', which cannot be made withou"),
    "an activation of NumPy": (DATA + NETWORK.replace("0.5", "0.5, activation: 'own:of_numpy'"),
        "fails on one sample of shape (3,) (TracerArrayConversionError"),
    "weights that are not finite": (own_network("NotFinite"), "weights that are not finite (NaN or infinity) before i"),
    "no data": (own_data("NoData"), "data of kind own:NoData fails: TypeError: load returns a NoneType: expected Data"),
    "data in lists": (own_data("Lists"), "TypeError: load returns X as a list: expected an array of NumPy"),
}
# These are drawn after a run.
FIGURES = {
    "a figure": (run("figure: 'own:Undrawn'"), "the figure undrawn, where it is drawn, fails: KeyError: 'draw' ("),
    "a figure that is a number": (run("figure: 'own:DrawnAsNumber'"), "draw returns a int: expected a figure of Matpl"),
    "claims": (run("figure: 'own:Unclaimed'"), "the figure undrawn, where its claims are checked, fails: KeyError: 'c"),
}
# fmt: on
SLOW = [pytest.param(*case, marks=pytest.mark.slow, id=name) for name, case in FIGURES.items()]


@pytest.mark.parametrize(
    ("scenario", "message"), [*(pytest.param(*case, id=name) for name, case in FAILURES.items()), *SLOW]
)
def test_what_fails_in_a_users_code_is_one_message_and_exit_code_2(tmp_path, monkeypatch, capsys, scenario, message):
    name = f"own_{abs(hash(str(tmp_path)))}"  # Python imports a module of one name once
    (tmp_path / f"{name}.py").write_text(MODULE)
    (tmp_path / "s.yaml").write_text(scenario.replace("own:", f"{name}:"))
    assert cli.main([str(tmp_path / "s.yaml"), "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err.replace(name, "own").replace(f"{tmp_path}/", "")
    assert said.startswith("flowsim: ")
    assert message in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("error", [DataError("a"), ScenarioError("b"), StoreError("c"), MemoryError("d"), OSError("e")])
def test_an_error_with_words_of_its_own_keeps_them(error):
    with pytest.raises(type(error), match=str(error)), failing("a run"):
        raise error


def test_a_fault_of_flowsim_itself_is_not_taken_for_one_of_the_user(tmp_path, monkeypatch):
    def broken(*_, **__):
        raise KeyError("a fault")

    monkeypatch.setattr("flowsim.scenarios.runner.compare", broken)
    (tmp_path / "s.yaml").write_text(run(""))
    with pytest.raises(KeyError, match="a fault"):
        cli.main([str(tmp_path / "s.yaml"), "--out", str(tmp_path / "out")])


@pytest.mark.slow
def test_a_figure_of_which_there_is_nothing_to_show_is_drawn(tmp_path):
    diverging = "descent: [{learning_rates: [1000.0], steps: 5}]"
    sweep = f"sweep: {{flow: false, over: {{network.scale: [0.3, 0.5]}}, {diverging}}}\n"
    data = DATA.replace("features: 3", "features: 3, test_samples: 5")
    figure = "figure: flowsim.papers.marion_chizat_2024:Figure6\n"
    (tmp_path / "s.yaml").write_text(data + NETWORK.replace("0.5", "0.5, activation: gelu") + sweep + figure)
    assert cli.main([str(tmp_path / "s.yaml"), "--out", str(tmp_path / "out"), "--jobs", "1"]) == 0
    assert (tmp_path / "out" / "s" / "figures" / "figure6.png").exists()
