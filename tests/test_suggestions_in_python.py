"""What the message of a function says to write is called: it is accepted."""

import ast
import re
import shlex
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import flowsim
from flowsim import cli
from flowsim.comparison.models import check_models
from flowsim.losses import CrossEntropy, Logistic

RNG = np.random.default_rng(0)
X, Y, CLASSES = RNG.standard_normal((20, 3)), RNG.standard_normal(20), np.arange(20) % 2
SIGNS, ROWS = 2 * CLASSES - 1, np.stack([CLASSES + 1, np.ones(20)], axis=1)


@cache
def deep():
    return flowsim.DeepLinear.gaussian(widths=[3, 2, 1], scale=0.5, key=jax.random.key(0))


@cache
def model(outputs="scalar"):
    return eqx.nn.Linear(3, outputs, key=jax.random.key(0))


BOWL = flowsim.Risk(lambda w: jnp.sum(w**2))


class Line:
    """A model that JAX does not look into."""

    weight = np.ones(3)

    def __call__(self, x):
        return x @ self.weight


def length(network):
    return np.linalg.norm(network.weights[0])


def descended(*, network=None, problem=None, **options):
    problem = flowsim.LinearRegression(X, Y) if problem is None else problem
    return flowsim.descend(
        deep() if network is None else network, problem, **{"learning_rate": 0.1, "steps": 2} | options
    )


def flown(**options):
    return flowsim.integrate(deep(), flowsim.LinearRegression(X, Y), **{"t1": 0.1, "max_steps": 100} | options)


def compared(**options):
    problem = flowsim.LinearRegression(X, Y)
    return flowsim.compare(
        deep(), problem, **{"learning_rates": [0.1], "steps": 2, "t1": 0.1, "sharpness": False} | options
    )


def swept(**options):
    make = options.pop("make_network", partial(flowsim.DeepLinear.gaussian, widths=[3, 2, 1]))
    return flowsim.sweep(make, flowsim.LinearRegression(X, Y), **{"t1": 0.1, "jobs": 1} | options)


def risk(y, loss, outputs="scalar"):
    return flowsim.EmpiricalRisk(X, y, loss)(model(outputs))


def drawn(batch):
    problem = flowsim.LinearRegression(X, Y, keep_samples=True)
    return descended(problem=problem, optimizer=flowsim.SGD(0.1, batch), learning_rate=None)


def repeated(optimizer):
    problem = flowsim.LinearRegression(X, Y, keep_samples=True)
    return flowsim.repeat(deep(), problem, optimizer=optimizer, seeds=[0, 1], steps=2)


def turned(of=None):
    angle = flowsim.probes.Angle(np.ones(3)) if of is None else flowsim.probes.Angle(np.ones(3), of=of)
    return descended(probes=[angle])


def contracted(directions):
    return flowsim.curvature.contractions(deep(), flowsim.LinearRegression(X, Y), directions)


# What is said, the call that is refused, and what is to be written in its place: each call of that is accepted.
# fmt: off
CALLS = {
    "write parts=(flowsim.Label(": (lambda: flowsim.Label("a", "b", "c", parts="d"),
        lambda: flowsim.Label("a", "b", "c", parts=(flowsim.Label("a_key", "b", "c"),))),
    "the class CrossEntropy itself: write CrossEntropy()": (lambda: risk(CLASSES, CrossEntropy, 2),
        lambda: risk(CLASSES, CrossEntropy(), 2)),
    "the labels -1 and 1; write 2 * y - 1": (lambda: risk(CLASSES, Logistic()),
        lambda: risk(2 * CLASSES - 1, Logistic())),
    "write np.where(y > threshold, 1, -1)": (lambda: risk(Y, Logistic()),
        lambda: risk(np.where(Y > 0, 1, -1), Logistic())),
    "for labels that are numbers of classes write flowsim.losses.CrossEntropy(), or np.eye(2)[y]": (
        lambda: flowsim.EmpiricalRisk(X, CLASSES)(model(2)), lambda: risk(CLASSES, CrossEntropy(), 2),
        lambda: flowsim.EmpiricalRisk(X, np.eye(2)[CLASSES])(model(2))),
    "or write flowsim.losses.CrossEntropy() for more classes": (lambda: risk(SIGNS, Logistic(), 2),
        lambda: risk(CLASSES, CrossEntropy(), 2)),
    "or write flowsim.losses.Logistic() for one": (lambda: risk(CLASSES, CrossEntropy()),
        lambda: risk(SIGNS, Logistic())),
    "write y - y.min()": (lambda: risk(SIGNS, CrossEntropy(), 2),
        lambda: risk(CLASSES + 1 - CLASSES.min() - 1, CrossEntropy(), 2)),
    "write y.astype(int) for classes 0, 1, 2": (lambda: risk(1.0 * CLASSES, CrossEntropy(), 2),
        lambda: risk(CLASSES, CrossEntropy(), 2)),
    "write y / y.sum(1, keepdims=True) for counts": (lambda: risk(ROWS, CrossEntropy(), 2),
        lambda: risk(ROWS / ROWS.sum(1, keepdims=True), CrossEntropy(), 2)),
    "numpy.ravel(y) of one column": (lambda: risk(CLASSES[:, None], CrossEntropy(), 2),
        lambda: risk(np.ravel(CLASSES[:, None]), CrossEntropy(), 2)),
    "outputs or more, or, of classes counted from 1, write y - 1": (lambda: risk(CLASSES + 1, CrossEntropy(), 2),
        lambda: risk(CLASSES + 1 - 1, CrossEntropy(), 2), lambda: risk(CLASSES + 1, CrossEntropy(), 3)),
    "write X[:, None] for samples of one feature": (lambda: flowsim.EmpiricalRisk(X[:, 0], Y),
        lambda: flowsim.EmpiricalRisk(X[:, 0][:, None], Y)),
    "write X.T, whose rows are the samples": (lambda: flowsim.EmpiricalRisk(X.T, Y),
        lambda: flowsim.EmpiricalRisk(X.T.T, Y)),
    "write it for these shapes, without the axis of the samples": (
        lambda: risk(Y, lambda p, t: jnp.mean((p - t) ** 2, axis=1)), lambda: risk(Y, lambda p, t: (p - t) ** 2)),
    "write it for one sample of shape (3,), without the axis of the samples": (
        lambda: flowsim.EmpiricalRisk(X, Y)(jax.tree_util.Partial(lambda w, x: x[:, 0] @ w, np.ones(3))),
        lambda: flowsim.EmpiricalRisk(X, Y)(jax.tree_util.Partial(lambda w, x: x @ w, np.ones(3)))),
    "write jnp.where(condition, one, other) in place of if": (
        lambda: risk(Y, lambda p, t: p - t if p > t else t - p),
        lambda: risk(Y, lambda p, t: jnp.where(p > t, p - t, t - p))),
    "write jax.tree_util.Partial(function, weights)": (
        lambda: descended(network=lambda x: x @ np.ones(3), problem=flowsim.EmpiricalRisk(X, Y)),
        lambda: flowsim.EmpiricalRisk(X, Y)(jax.tree_util.Partial(lambda w, x: x @ w, np.ones(3)))),
    "write class Line(eqx.Module), with a line for each array": (
        lambda: descended(network=Line(), problem=flowsim.EmpiricalRisk(X, Y)),
        lambda: flowsim.EmpiricalRisk(X, Y)(model())),
    "the probe 'length' fails (TracerArrayConversionError": (
        lambda: descended(probes=[length]), lambda: jnp.linalg.norm(deep().weights[0])),
    "'lr': write learning_rate": (lambda: descended(lr=0.1), lambda: None),
    "'epochs': expected one of network, problem, learning_rate, optimizer, steps": (
        lambda: descended(epochs=3), lambda: None),
    "write flowsim.integrate and flowsim.descend there": (
        lambda: jax.jit(lambda w: flowsim.compare(w, BOWL, [0.1], steps=5).flow.final_risk)(np.ones(2)),
        lambda: jax.jit(lambda w: flowsim.descend(w, BOWL, learning_rate=0.1, steps=5).final_risk)(np.ones(2))),
    "write flowsim.compare(network, ...) for one network": (
        lambda: swept(make_network=model(), over={"rtol": [1e-6]}), lambda: None),
    "write jnp in place of np": (lambda: risk(Y, lambda p, t: np.sin(p)), lambda: risk(Y, lambda p, t: jnp.sin(p))),
    "write jnp.sum(...) or jnp.mean(...)": (lambda: risk(ROWS, lambda p, t: p - t, 2), lambda: risk(ROWS,
        lambda p, t: jnp.sum(p - t), 2)),
    "write flowsim.Risk(function)": (lambda: flowsim.EmpiricalRisk(X, Y)(np.ones(3)),
        lambda: flowsim.Risk(jnp.sum)(np.ones(3))),
    "write eqx.nn.inference_mode(network)": (
        lambda: flowsim.EmpiricalRisk(X, Y)(eqx.nn.Sequential([model(), eqx.nn.Dropout()])),
        lambda: flowsim.EmpiricalRisk(X, Y)(eqx.nn.inference_mode(eqx.nn.Sequential([model(), eqx.nn.Dropout()])))),
}
RUNS = {
    "write flowsim.probes.Sharpening()": (lambda: compared(probes=["sharpening"]),
        lambda: compared(probes=[flowsim.probes.Sharpening()])),
    "write flowsim.probes.LayerNorms()": (lambda: compared(probes="layer_norms"),
        lambda: compared(probes=[flowsim.probes.LayerNorms()])),
    "got the text 'spectrum_trace': write flowsim.probes.SpectralDensity()": (
        lambda: descended(probes=["spectrum_trace"]),
        lambda: descended(probes=[flowsim.probes.SpectralDensity()])),
    "write flowsim.probes.Sharpness(), or leave it out": (lambda: descended(probes=["sharpness"]),
        lambda: descended(probes=[flowsim.probes.Sharpness()])),
    "leave it out, as every run records risk": (lambda: descended(probes=["risk"]), descended),
    "the class LayerNorms itself: write LayerNorms()": (lambda: descended(probes=[flowsim.probes.LayerNorms]),
        lambda: descended(probes=[flowsim.probes.LayerNorms()])),
    "write flowsim.Optax(optax.adam(1e-3), time_per_step=1e-3) in the list": (
        lambda: compared(learning_rates=[optax.adam(1e-3)]),
        lambda: compared(learning_rates=[flowsim.Optax(optax.adam(1e-3), time_per_step=1e-3)])),
    "write probes=[...]": (lambda: descended(probes=3), lambda: descended(probes=[])),
    "the class Adam itself: write Adam(learning_rate=...)": (
        lambda: descended(optimizer=flowsim.Adam, learning_rate=None),
        lambda: descended(optimizer=flowsim.Adam(learning_rate=0.1), learning_rate=None)),
    "write EdgeFlow(learning_rate=...)": (lambda: flown(model=flowsim.EdgeFlow),
        lambda: flowsim.EdgeFlow(learning_rate=0.01).checked(np.dtype(float))),
    "found central_2 twice, which results could not tell apart: write each once": (
        lambda: compared(models=["central_2", flowsim.CentralFlow(order=2)]),
        lambda: check_models(["central_2"], [flowsim.GradientDescent(0.1)], np.dtype(float))),
    "leave it out, or write None for it": (
        lambda: compared(models=[flowsim.EdgeFlow(0.1, order=1)]),
        lambda: check_models([flowsim.EdgeFlow(None, order=1)], [flowsim.GradientDescent(0.1)], np.dtype(float))),
    "write optimizer=flowsim.Adam, or optimizer=lambda eta: flowsim.Adam(eta, b1=0.8)": (
        lambda: compared(optimizer=3), lambda: compared(optimizer=flowsim.Adam),
        lambda: compared(optimizer=lambda eta: flowsim.Adam(eta, b1=0.8))),
    "write optimizer=lambda eta: flowsim.Optax(optax.sgd(eta), time_per_step=eta)": (
        lambda: compared(optimizer=optax.sgd),
        lambda: compared(optimizer=lambda eta: flowsim.Optax(optax.sgd(eta), time_per_step=eta))),
    "batch=40 is more than the 20 samples: write 20 or fewer": (lambda: drawn(40), lambda: drawn(20)),
    "write flowsim.SGD(0.1, 8)": (lambda: repeated(3), lambda: repeated(flowsim.SGD(0.1, 8))),
    "write most=4": (lambda: flown(model=flowsim.CentralFlow(0.01, most=0)),
        lambda: flowsim.CentralFlow(0.01, most=4).checked(np.dtype(float))),
    "gradient_norm=1e-16 is below what float64 resolves: write 1e-15 or more": (
        lambda: flown(stopping=flowsim.Stopping(gradient_norm=1e-16)),
        lambda: flown(stopping=flowsim.Stopping(gradient_norm=1e-15))),
    "write descend(..., states=True)": (lambda: descended().branch(1), lambda: descended(states=True).branch(1)),
    "write learning_rates": (lambda: compared(learning_rate=[0.1]), lambda: compared(learning_rates=[0.1])),
    "found 0.1 twice; expected no repetitions; write every entry once": (lambda: compared(learning_rates=[0.1, 0.1]),
        compared),
    "write the network first, then the problem": (
        lambda: descended(network=flowsim.LinearRegression(X, Y), problem=deep()), descended),
    "over['scale'] has no values: write one or more": (lambda: swept(over={"scale": []}),
        lambda: swept(over={"scale": [0.5]})),
    "over['scale'] has 0.5 twice: write every value once": (lambda: swept(over={"scale": [0.5, 0.5]}),
        lambda: swept(over={"scale": [0.5]})),
    "needs scale: write the values in over": (lambda: swept(over={}), lambda: swept(over={"scale": [0.5]})),
    "leave flow=False out, or write over={'learning_rate': [0.02], ...}": (
        lambda: swept(over={"scale": [0.5]}, flow=False),
        lambda: swept(over={"scale": [0.5]}),
        lambda: swept(over={"scale": [0.5], "learning_rate": [0.02]}, flow=False, steps=2)),
    "write of=..., a function of the network": (turned, lambda: turned(lambda network: network.regressor())),
    "the vectors of flowsim.curvature.top_eigenpairs, or jax.tree.map(lambda leaf: leaf[None], direction)": (
        lambda: contracted(deep()),
        lambda: contracted(jax.tree.map(lambda leaf: leaf[None], deep()))),
}
# What is prose, or is tried elsewhere: the command line below, modules of PyTorch in tests/test_torch.py, scenarios in
# tests/test_suggestions.py, folders of results in tests/test_store.py.
UNTRIED = (
    "another learning rate", "both parts apart", "it so that its derivative", "a model around it", "another record",
    "no theory", "fewer", "the two that you want", "samples: 1000", "jax.vmap(flowsim.sharpness)", "the call under",
    "rtol={} or more", "{}.astype(float)", "--to", "--jobs", "python -m flowsim", "pip install", "{}", "module.",
    "flowsim.torch.network", "jax.numpy.asarray(tensor", "jax.config.update", "it with other operations",
    "overwrite=True", "({})", "there; use", "or another --out", "for instance tcp", "a star before a list",
    ". for the current folder", "the path without it",
)
# fmt: on


def check(message, calls):
    refused, *written = calls
    with pytest.raises((ValueError, TypeError), match=re.escape(message)):
        refused()
    for call in written:
        call()


@pytest.mark.parametrize(("message", "calls"), CALLS.items(), ids=CALLS)
def test_what_a_function_says_to_write_is_accepted(message, calls):
    check(message, calls)


@pytest.mark.slow
@pytest.mark.parametrize(("message", "calls"), RUNS.items(), ids=RUNS)
def test_what_a_run_says_to_write_is_accepted(message, calls):
    check(message, calls)


def suggestions() -> Iterator[str]:
    """Yield what every `raise` of the package says to write, with {} for what is filled in."""
    for path in Path(flowsim.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Raise):
                parts = [part for part in ast.walk(node) if isinstance(part, ast.Constant | ast.FormattedValue)]
                words = [part.value if isinstance(part, ast.Constant) else "{}" for part in parts]
                _, write, suggestion = "".join(word for word in words if isinstance(word, str)).partition("write ")
                if write:
                    yield suggestion


def test_no_suggestion_is_left_untried():
    tried = "\n".join([*CALLS, *RUNS])
    for suggestion in suggestions():
        first = suggestion.split("{}")[0][:9]
        assert suggestion.startswith(UNTRIED) or (first and f"write {first}".strip() in tried) or first in tried, (
            suggestion
        )


def test_what_the_command_line_says_to_write_is_accepted(tmp_path, monkeypatch, capsys):
    """Each call is refused, and the next one is what its message says to write."""
    monkeypatch.chdir(tmp_path)
    for words in (["new", "residul"], ["residual"], ["chekc", "residual.yaml"], ["new", "residual"], []):
        assert cli.main(words) == 2
        write = capsys.readouterr().err.split("; write ")[-1].splitlines()[0].split(", then ")[0]
        given = shlex.split(write.removeprefix("python -m flowsim "))
        if given[0] == "--to":
            given = [*words, *given]
        if given[:1] == ["new"] and (tmp_path / "residual.yaml").exists() and "--to" not in given:
            (tmp_path / "residual.yaml").unlink()
        assert cli.main(given) == 0, write
        capsys.readouterr()
