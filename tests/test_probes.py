"""What is recorded of samples that training does not see, and of the spectrum of the Hessian."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from jax.tree_util import Partial

import flowsim
from flowsim.cli import main
from flowsim.probes import Moment, TestAccuracy as Accuracy, TestRisk as Risk, TopEigenvalues
from flowsim.probes.held_out import right
from flowsim.scenarios import build, read_scenario

SCENARIO = """\
seed: 0
data: {kind: digits, classes: [0, 1, 2], samples: 12, test_samples: 9}
network: {kind: mlp, depth: 2, width: 3, activation: tanh, biases: true, fan_in: true, scale: 1.0}
flow: {t1: 0.05}
descent: {learning_rates: [0.01], steps: 3}
record: [test_risk, test_accuracy, {kind: top_eigenvalues, count: 2}]
"""


def linear(weight):
    return Partial(jnp.matmul, weight)


@eqx.filter_jit
def measured(probes, network, problem):
    """Return what probes measure, in one program."""
    return [probe.measure(Moment(network, problem, None, jnp.zeros(()), jnp.zeros(()))) for probe in probes]


def test_a_prediction_is_right_where_its_largest_entry_or_its_sign_is_that_of_the_label():
    for predictions, labels, expected in (
        ([[0.2, 0.1], [0.0, 3.0]], [0, 0], [True, False]),
        ([[0.2, 0.1], [0.0, 3.0]], [[0.0, 1.0], [0.0, 1.0]], [False, True]),
        ([[0.2], [-3.0]], [1.0, 1.0], [True, False]),
        ([0.2, -3.0], [-1.0, -1.0], [False, True]),
    ):
        np.testing.assert_array_equal(right(jnp.asarray(predictions), jnp.asarray(labels)), expected)


def test_the_risk_and_accuracy_of_held_out_samples_are_theirs():
    rng = np.random.default_rng(0)
    X, X_test, weight = rng.standard_normal((6, 3)), rng.standard_normal((5, 3)), rng.standard_normal((2, 3))
    y, y_test = np.eye(2)[rng.integers(2, size=6)], np.eye(2)[rng.integers(2, size=5)]
    probes = Risk(flowsim.EmpiricalRisk(X_test, y_test)), Accuracy((X_test, y_test))
    risk, accuracy = measured(probes, linear(weight), flowsim.EmpiricalRisk(X, y))
    predicted = X_test @ weight.T
    np.testing.assert_allclose(risk, np.mean(np.sum((predicted - y_test) ** 2, axis=1)), rtol=1e-14)
    share = np.mean(predicted.argmax(axis=1) == y_test.argmax(axis=1))
    assert 0 < share < 1
    np.testing.assert_allclose(accuracy, share, rtol=1e-15)


@pytest.mark.slow
def test_the_eigenvalues_of_a_layer_of_two_outputs_are_those_of_the_covariance_twice():
    X = np.random.default_rng(0).standard_normal((8, 3))
    problem = flowsim.EmpiricalRisk(X, np.zeros((8, 2)))
    (eigenvalues,) = measured([TopEigenvalues(count=4)], linear(np.ones((2, 3))), problem)
    np.testing.assert_allclose(eigenvalues, np.repeat(np.linalg.eigvalsh(2 * X.T @ X / 8)[:0:-1], 2), rtol=1e-9)


def test_more_eigenvalues_than_weights_and_fewer_than_one_are_refused():
    with pytest.raises(ValueError, match="count is 4: expected at most 3, the number of weights"):
        TopEigenvalues(count=4).check(linear(np.ones((1, 3))), None)
    with pytest.raises(ValueError, match="count is 0: expected how many"):
        TopEigenvalues(count=0)


def test_held_out_labels_that_stand_for_no_class_of_the_network_have_no_accuracy():
    network, X = linear(np.ones((1, 3))), np.random.default_rng(0).standard_normal((4, 3))
    signs, zeros = Accuracy((X, np.sign(X.sum(1)))), Accuracy((X, X.sum(1) > 0))
    np.testing.assert_array_equal(measured([signs, zeros], network, None), [1, np.nan])
    with pytest.raises(ValueError, match="test_samples hold 5 numbers for each sample, and the network predicts 1"):
        measured([Accuracy((X, np.eye(5)[:4]))], network, None)


def test_parts_of_a_label_that_are_no_tuple_of_labels_are_refused_where_they_are_written(tmp_path, capsys):
    with pytest.raises(TypeError, match=r"expected a tuple of labels; write parts=\("):
        flowsim.Label("size", "sizes", "s", parts=("first size",))
    (tmp_path / "probe_of_a_dict.py").write_text(
        "import flowsim\n\n\nclass Size(flowsim.Probe):\n"
        "    label = flowsim.Label('size', 'sizes', 's', parts={'first': 'first size'})\n"
    )
    (tmp_path / "s.yaml").write_text(SCENARIO)
    assert main([str(tmp_path / "s.yaml"), "--out", str(tmp_path), "--set", "record=probe_of_a_dict:Size"]) == 2
    assert "whose module fails (TypeError: the parts of the label size are" in capsys.readouterr().err


@pytest.mark.slow
def test_probes_with_options_and_held_out_samples_of_a_scenario_are_recorded_and_drawn(tmp_path):
    (tmp_path / "s.yaml").write_text(SCENARIO)
    problem, network, probes = build(read_scenario(tmp_path / "s.yaml"), tmp_path)
    run = flowsim.descend(network, problem, learning_rate=0.01, steps=3, probes=probes)
    assert "top eigenvalues" in str(run)
    runs = run.to_dataset()
    assert runs["top_eigenvalues"].dims == ("run", "record", "top_eigenvalues_0")
    eigenvalues = runs["top_eigenvalues"].values[0, -1]
    np.testing.assert_allclose(eigenvalues[0], run.final_sharpness, rtol=1e-6)
    assert eigenvalues[1] <= eigenvalues[0]
    share = runs["test_accuracy"].values[0, 0] * 9
    assert share == pytest.approx(round(float(share)), abs=1e-12)
    assert {"test_risk", "test_accuracy", "top_eigenvalues"} <= run.figures().keys()


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("data.test_samples=0", "record[0]: found test_risk beside data of kind digits"),
        ("record=[{kind: top_eigenvalues, cuont: 2}]", 'write --set "record=[{kind: top_eigenvalues, count: 2}]"'),
        ("record=[test_risk, test_risk]", "record: found two probes called test_risk"),
        ("data.labels=index", "the network predicts shape (3,)"),
        ("record=[balancedness]", "record: balancedness: the network is a Perceptron"),
    ],
)
def test_what_cannot_be_recorded_is_one_message_and_exit_code_2(tmp_path, capsys, option, message):
    (tmp_path / "s.yaml").write_text(SCENARIO)
    assert main([str(tmp_path / "s.yaml"), "--out", str(tmp_path), "--set", option]) == 2
    assert message in capsys.readouterr().err
