"""The short programs of examples/ run, some for less long; figures refuse scenarios that they cannot show."""

import re
import runpy
import sys

import jax
import matplotlib.pyplot as plt
import pytest
from shown_outputs import ROOT

import flowsim
from flowsim.scenarios import ScenarioError, parse_overrides, read_scenario

PRINTED = {
    "own_network": "GD  0.05",
    "own_loss": "Cauchy CONVERGED",
    "own_data": "442 samples of 10 features",
    "sweep_over_width": "width 16: S =",
    "edge_of_stability": "distance from the centre  edge",
}
LIGHTER = {
    "own_data": ("compare", [0.002], {"steps": 500}),
    "sweep_over_width": ("sweep", {"width": [16], "learning_rate": [0.1]}, {"repetitions": 1}),
    "edge_of_stability": ("compare", [0.08], {"t1": 3, "models": ["gradient", "edge"]}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(path.stem for path in (ROOT / "examples").glob("*.py")))
def test_an_example_runs_from_another_folder_in_double_precision(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [name])
    plt.switch_backend("agg")
    if name in LIGHTER:
        called, rates, options = LIGHTER[name]
        function = getattr(flowsim, called)
        monkeypatch.setattr(flowsim, called, lambda *start, **given: function(*start[:2], rates, **given | options))
    jax.config.update("jax_enable_x64", False)  # as it is in a new process
    try:
        runpy.run_path(str(ROOT / "examples" / f"{name}.py"), run_name="__main__")
        assert jax.config.jax_enable_x64
    finally:
        jax.config.update("jax_enable_x64", True)
    assert PRINTED[name] in capsys.readouterr().out


SGD = "optimizer: {kind: sgd, batch: 4, replacement: true}"
FORKS = f"{{step: 1, optimizer: gradient_descent}}, {{step: 9, learning_rates: [0.5]}}, {{step: 9, {SGD}}}"
CURVATURES = 'record=[{kind: "andreyev_2024:BatchCurvatures", batches: [%s], along: [8]}]'
REFUSED = {
    "papers/andreyev_2024/stochastic_edge": [
        (f"descent.forks=[{FORKS}]", "forks: full batch, other, other; expected sgd with replacement at one rate"),
        ("sweep.descent=[{learning_rates: [0.17], steps: 10}]", "sweep: found a sweep with 1 descents"),
        (CURVATURES % "4, 16", "record: found no record of the curvatures of batches of 8, 32"),
        (CURVATURES % 0, "batch must be a number of samples"),
    ],
    "papers/matveev_2025/norm_and_sharpness": [
        ("sweep=null", "figure: found no sweep of flow and descents"),
        ("record=[test_risk]", "record: found no record of squared_norm"),
        ("data.nonzero=50", "data.nonzero: found 50; expected at most 40"),
        ("network={kind: mlp, depth: 2, scale: 0.5}", "network.kind: found network of kind mlp"),
    ],
    "papers/kalra_2024/warm_up": [
        ("sweep=null", "figure: found no sweep of the flow over two scales or more"),
        ("sweep.descent=[{learning_rates: [0.1, 0.2], steps: 10}]", "1 descents without a schedule, 0 with a warm_up"),
        ("descent.schedule=[]", "descent: found no descent at one rate with a warm_up alone"),
    ],
    "scenarios/appendix_c": [
        ("network.activation=linear", "found a linear network; expected a nonlinear one"),
        ("data.noise=0", "found data without noise; expected some"),
        ("sweep.over={network.depth: [3, 5]}", "found a sweep over network.depth"),
        ("sweep={over: {network.scale: [0.5]}, flow: true}", "found a sweep without gradient descent"),
    ],
    "papers/lewkowycz_2020/catapult": [
        ("sweep.over={network.scale: [0.5]}", "found no sweep over the width alone"),
        ("loss=huber", "found the loss huber; expected squared_error"),
        ("data={kind: gaussian, samples: 5, features: 2}", "found data of kind gaussian; expected what the recursion"),
        ("network.width=0", "width is 0: expected one or more"),
    ],
    "papers/boursier_2025/grokking": [
        ("sweep=null", "figure: found no sweep of the flow over weight_decay, zero among it"),
        ("record=[test_risk]", "record: found no record of squared_norm, unregularized_risk"),
    ],
    "papers/jacot_2021/saddle_to_saddle": [
        ("sweep=null", "figure: found no sweep over network.depth, network.scale, network.draw alone"),
        ("record=[sharpness]", "record: found no saddles among what is recorded"),
        ("data={kind: gaussian, samples: 9, features: 5, outputs: 4}", "data: found data of kind gaussian"),
        ("data.samples=4", "data.samples: found 4 of 5 features, which cannot be whitened"),
        ("data.singular_values=[5.0, 4.0, 3.0, 2.0, 1.0]", "expected up to 4 positive numbers"),
    ],
    "papers/marion_2024/sharpening": [
        ("sweep.over={network.scale: [0.3]}", "no sweep over depth and scale alone"),
        ("record=[]", "no course of the sharpness"),
        ('record=[{kind: "marion_2024:SharpnessCourse", records: 3}]', "records is 3: expected 4 or more"),
    ],
    "papers/marion_2026/which_model": [
        ("flow.models=[gradient, edge]", "no sweep of the flow and of gradient descents with two models"),
        ("record=[risk]", "no squared_norm among what is recorded"),
    ],
    "papers/marion_2026/edge_nonlinear": [
        ("flow.models=[gradient]", "found no model of descent beside the gradient flow"),
        ("sharpness=false", "found the sharpness at the end of the runs alone"),
    ],
    "papers/wu_2024/logistic": [
        ("loss=cross_entropy", "found the loss cross_entropy; expected logistic"),
        ("network={kind: mlp, depth: 2, scale: 0.1}", "found another network than one linear layer"),
        ("descent.learning_rates=[]", "found no descent; expected learning rates"),
        ("record=[accuracy]", "found no normalized_margin among what is recorded"),
    ],
}


@pytest.mark.parametrize(("name", "setting", "message"), [(name, *case) for name in REFUSED for case in REFUSED[name]])
def test_a_figure_refuses_the_shipped_scenario_without_what_it_shows(name, setting, message):
    with pytest.raises(ScenarioError, match=re.escape(message)):
        read_scenario(ROOT / f"{name}.yaml", parse_overrides([setting]))
