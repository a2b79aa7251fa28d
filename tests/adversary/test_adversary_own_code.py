"""What fails in a user's module ends in one message that says where; what fails in flowsim does not."""

import pytest
from made_runs import made_comparison

from flowsim import cli
from flowsim.data import DataError
from flowsim.results import ResultFolder, StoreError
from flowsim.scenarios import ScenarioError
from flowsim.scenarios.runner import failing

MODULE = """
import jax.numpy as jnp
import numpy as np
from jaxtyping import ArrayLike

import flowsim
from flowsim.data import Data, DataSource
from flowsim.results import Figure


def no_such_field(network):
    return network.nothing


def of_numpy(x):
    return np.tanh(x)


def of_a_root(x):
    return jnp.sqrt(x - x)


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


class Ends(DataSource):
    def load(self, rng, folder):
        raise SystemExit(0)


class Lists(DataSource):
    def load(self, rng, folder):
        return Data(([[1.0, 2.0]], [1.0]))
"""
DATA, NETWORK = "data: {kind: gaussian, samples: 20, features: 3}\n", "network: {kind: mlp, depth: 3, scale: 0.5}\n"
FLOW = "flow: {max_steps: 2}\n"


def run(options: str) -> str:
    return DATA + NETWORK + FLOW + options


# fmt: off
FAILURES = {
    "a probe of nothing": (run("record: 'own:no_such_field'"), "a run with own:no_such_field fails: AttributeError: "),
    "an optimizer": (run("descent: {optimizer: 'own:NoStep', learning_rates: [0.1], steps: 2}"),
        "a run with own:NoStep fails: KeyError: 'step' ("),
    "a gradient that is NaN": (DATA + NETWORK.replace("0.5", "0.5, activation: 'own:of_a_root'") + FLOW,
        "s.yaml: the gradient is NaN at the initial weights, in 18 of 18 entries of .stacks[0]: "),
    "validation errors": (run("figure: 'own:Unrefused'"),
        "found 'own:Unrefused', which cannot say what it refuses (KeyError: "),
    "a figure with arguments": (run("figure: 'own:Unmade'"), "figure: found 'own:Unmade', which cannot be made withou"),
    "an activation of NumPy": (DATA + NETWORK.replace("0.5", "0.5, activation: 'own:of_numpy'"),
        "fails on one sample of shape (3,) (TracerArrayConversionError"),
    "data that end the process": (f"data: {{kind: 'own:Ends'}}\n{NETWORK}",
        "data of kind own:Ends fails: SystemExit: 0 ("),
    "data in lists": (f"data: {{kind: 'own:Lists'}}\n{NETWORK}",
        "data of kind own:Lists fails: TypeError: load returns X as a list: expected an array of NumPy"),
}
FIGURES = {
    "Undrawn": "the figure undrawn, where it is drawn, fails: KeyError: 'draw' (",
    "DrawnAsNumber": "draw returns a int: expected a figure of Matpl",
    "Unclaimed": "the figure undrawn, where its claims are checked, fails: KeyError: 'c",
}
# fmt: on


@pytest.fixture
def said(tmp_path, capsys):
    """Return a function that runs a scenario, or redraws results, with `own:` a module, and returns the message."""
    name = f"own_{abs(hash(str(tmp_path)))}"  # Python imports a module of one name once
    (tmp_path / f"{name}.py").write_text(MODULE)

    def run(scenario: str, results: bool = False) -> str:
        (tmp_path / "s.yaml").write_text(scenario.replace("own:", f"{name}:"))
        words = [str(tmp_path / "s.yaml"), "--out", str(tmp_path / "out")]
        if results:
            place = ResultFolder(tmp_path)
            place.write_dataset(made_comparison([0.1]).to_dataset())
            place.write_scenario({"seed": 0, "figure": [scenario.replace("own:", f"{name}:")]}, {})
            words = ["report", "--trust", str(tmp_path)]
        assert cli.main(words) == 2
        error = capsys.readouterr().err.replace(name, "own").replace(f"{tmp_path}/", "")
        assert error.startswith("flowsim: ")
        assert error.count("\n") == 1
        return error

    return run


@pytest.mark.parametrize(("scenario", "message"), FAILURES.values(), ids=FAILURES)
def test_what_fails_in_a_users_code_is_one_message_and_exit_code_2(said, scenario, message):
    assert message in said(scenario)


@pytest.mark.parametrize("code", [0, 3, "'done'"])
def test_a_module_that_ends_the_process_is_one_message_and_exit_code_2(said, tmp_path, code):
    (script := tmp_path / f"script_{abs(hash((str(tmp_path), code)))}.py").write_text(
        f"import sys\n\nsys.exit({code})\n"
    )
    error = said(DATA + NETWORK.replace("mlp", f"'{script.stem}:Net'"))
    assert f"'{script.stem}:Net', whose module fails (SystemExit: " in error


@pytest.mark.parametrize(("figure", "message"), FIGURES.items(), ids=FIGURES)
def test_a_figure_of_a_user_that_fails_is_one_message_and_exit_code_2(said, monkeypatch, tmp_path, figure, message):
    monkeypatch.syspath_prepend(tmp_path)
    assert message in said(f"own:{figure}", results=True)


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
    sweep = f"sweep: {{flow: false, over: {{network.scale: [0.3]}}, {diverging}}}\n"
    data = DATA.replace("features: 3", "features: 3, test_samples: 5")
    figure = "figure: flowsim.papers.marion_chizat_2024:Figure6\n"
    (tmp_path / "s.yaml").write_text(data + NETWORK.replace("0.5", "0.5, activation: gelu") + sweep + figure)
    assert cli.main([str(tmp_path / "s.yaml"), "--out", str(tmp_path / "out"), "--jobs", "1"]) == 0
    assert (tmp_path / "out" / "s" / "figures" / "figure6.png").exists()
