"""From a YAML file to results on disk: networks, losses and records that are not the paper's."""

import numpy as np
import pytest

import flowsim
from flowsim import Outcome, cli

DIGITS = "data: {kind: digits, samples: 30, test_samples: 20"
SWEPT = f"""
{DIGITS}, classes: [3, 8]}}
network: {{kind: "equinox.nn:MLP", width_size: 4, depth: 1}}
loss: cross_entropy
flow: {{t1: 0.2}}
record: [accuracy, test_risk, {{kind: top_eigenvalues, count: 3}}]
sweep:
  over: {{network.width_size: [3, 4]}}
  repetitions: 2
  descent: [{{learning_rates: [0.1], steps: 20}}]
"""
LOGISTIC = f"""
{DIGITS}, classes: [3, 8]}}
network: {{kind: mlp, depth: 1, scale: 0.1}}
loss: logistic
flow: {{margin: 0.1}}
record: [margin, accuracy]
descent: {{learning_rates: [0.1], steps: 20}}
"""
ONE_HOT = f"""
{DIGITS}, labels: one_hot}}
network: {{kind: residual_mlp, depth: 2, width: 4, scale: 0.5}}
loss: squared_error
flow: {{t1: 0.2}}
record: [accuracy, test_accuracy, {{kind: top_eigenvalues, count: 3}}]
descent: {{learning_rates: [0.01], steps: 20}}
"""


def ran(folder, content, code):
    """Return the results of a scenario that ends with this exit code."""
    (folder / "mine.yaml").write_text(content)
    assert cli.main([str(folder / "mine.yaml"), "--out", str(folder / "out"), "--jobs", "1"]) == code
    return flowsim.open_results(folder / "out" / "mine")


@pytest.mark.slow
def test_a_network_of_equinox_is_swept_with_accuracy_and_the_risk_of_held_out_samples(tmp_path):
    found = ran(tmp_path, SWEPT, 0).required("sweep")
    assert (found.outcome.isel(run=0) == Outcome.TIME_LIMIT).all()
    descent = found.isel(run=1)
    assert (descent.outcome == Outcome.STEP_LIMIT).all()
    assert np.isfinite(descent.final_test_risk).all()
    right = 30 * descent.final_accuracy.values
    np.testing.assert_allclose(right, np.round(right), atol=1e-9)
    assert found.final_top_eigenvalues.shape == (2, 2, 2, 3)
    np.testing.assert_allclose(descent.final_top_eigenvalues[..., 0], descent.final_sharpness, rtol=1e-6)


@pytest.mark.slow
def test_a_logistic_loss_stops_at_the_margin_that_a_scenario_asks_for(tmp_path):
    runs = ran(tmp_path, LOGISTIC, 0).required("trajectories")
    assert runs.outcome[0] == Outcome.MARGIN_REACHED
    last = int(runs.records[0]) - 1
    assert runs.margin[0, last] >= 0.1
    assert runs.accuracy[0, last] == 1


@pytest.mark.slow
def test_digits_as_ones_and_zeros_are_regressed_on_by_a_residual_perceptron(tmp_path):
    runs = ran(tmp_path, ONE_HOT, 0).required("trajectories")
    assert runs.outcome.values.tolist() == [Outcome.TIME_LIMIT, Outcome.STEP_LIMIT]
    assert runs.top_eigenvalues.shape[-1] == 3
    last = int(runs.records[1]) - 1
    eigenvalues = runs.top_eigenvalues[1, last].values
    assert (np.diff(eigenvalues) <= 0).all()
    np.testing.assert_allclose(eigenvalues[0], runs.final_sharpness[1], rtol=1e-6)
    right = 20 * runs.test_accuracy[1, last].item()
    assert right == pytest.approx(round(right), abs=1e-9)
