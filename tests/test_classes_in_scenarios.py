"""Losses of classes in scenarios: their labels are never centred or rescaled."""

import numpy as np
import pytest

from flowsim import cli
from flowsim.scenarios import build, parse_overrides, read_scenario, run

SCENARIO = """
data: {kind: file, path: classes.csv, target: sign, features: [a, b], standardize: false, unit_regressor: false}
network: {kind: mlp, depth: 1, scale: 0.5}
loss: logistic
"""


@pytest.fixture
def scenario(tmp_path):
    X = np.random.default_rng(0).standard_normal((20, 2))
    sign = np.where(X[:, 0] + 0.3 * X[:, 1] > 0, 1, -1)
    p = 1 / (1 + np.exp(-X[:, 0]))
    columns = np.column_stack([X, sign, (sign + 1) // 2, p])
    header = "a,b,sign,zero_or_one,p"
    np.savetxt(tmp_path / "classes.csv", columns, delimiter=",", header=header, comments="", fmt="%.17g")
    path = tmp_path / "classes.yaml"
    path.write_text(SCENARIO)
    return path


# fmt: off
WRONG = {
    "centred labels": (["data.standardize=true"], "data.standardize: found true beside the loss logistic"),
    "rescaled probabilities": (["data.unit_regressor=true", "loss=cross_entropy"], "true beside the loss cross_ent"),
    "zeros and ones": (["data.target=zero_or_one"], "y holds 0.0, 1.0: Logistic expects the labels -1 and 1"),
    "numbers for classes": (["loss=cross_entropy"], "CrossEntropy expects the numbers of classes as integers"),
    "no threshold": (["loss={kind: huber, delta: 0}"], "delta must be positive and finite"),
    "a margin of none": (["loss=huber", "data.target=p", "flow.margin=1"], "flow: margin is about samples of classes"),
    "a direction of none": (["loss=huber", "flow.direction=0.1"], "flow: direction is that of weights which grow"),
    "a margin below zero": (["flow.margin=-1"], "flow.margin: found -1; expected more than 0"),
}
# fmt: on


@pytest.mark.parametrize(("options", "message"), WRONG.values(), ids=WRONG)
def test_what_would_make_other_labels_of_classes_is_refused(scenario, capsys, options, message):
    words = [word for option in options for word in ("--set", option)]
    assert cli.main([str(scenario), "--out", str(scenario.parent / "out"), *words]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (scenario.parent / "out").exists()


@pytest.mark.slow
def test_a_flow_of_classes_from_a_file_ends_at_the_margin_that_is_asked_for(scenario):
    classes = read_scenario(scenario, parse_overrides(["flow.margin=2"]))
    outcome = run(classes, *build(classes, scenario.parent)).flow.outcome
    assert outcome.name == "MARGIN_REACHED"
    assert outcome.as_asked


def test_the_command_line_says_once_that_a_split_leaves_a_class_out(tmp_path, capsys):
    (tmp_path / "t.csv").write_text("x,y\n" + "".join(f"{i},{int(i == 0)}\n" for i in range(20)))
    path = tmp_path / "s.yaml"
    path.write_text(
        "data: {kind: labelled, path: t.csv, test_samples: 18, samples: 2}\n"
        "network: {kind: mlp, depth: 1, scale: 0.5}\nloss: cross_entropy\nflow: {t1: 1}\n"
    )
    assert cli.main(["check", str(path)]) == 0
    said = [line for line in capsys.readouterr().err.splitlines() if "training sample" in line]
    write = "write test_samples: 14 and samples: 6"
    assert said == [f"flowsim: {path}: data: no training sample has the label 1, as all 2 have the label 0; {write}"]
