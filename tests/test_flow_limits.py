"""The sharpness of the flow's limit from the points of a descent."""

import jax.numpy as jnp
import numpy as np
import pytest

import flowsim


def limit_of_two(w1, w2, target):
    """S = 2√(c² + 4s²) of the limit of R = (w₁w₂ − s)², with c = w₁² − w₂², which the flow conserves."""
    return 2 * np.sqrt((w1**2 - w2**2) ** 2 + 4 * target**2)


@pytest.fixture(scope="module")
def descent():
    """Descent past its edge: 2/η = 10, and the flow from the start ends at S = 12.2."""
    network = {"a": jnp.array(2.4), "b": jnp.array(0.1)}
    problem = flowsim.Risk(lambda w: (w["a"] * w["b"] - 1.0) ** 2, infimum=0.0)
    return flowsim.descend(network, problem, learning_rate=0.2, steps=60, record_steps=np.arange(61), weights=True)


@pytest.mark.slow
def test_the_limits_from_the_iterates_of_a_scalar_network_are_those_of_the_closed_form(descent):
    run = flowsim.FlowLimits(records=61).added_to(descent)
    expected = limit_of_two(np.asarray(run.weights["a"]), np.asarray(run.weights["b"]), 1.0)
    np.testing.assert_allclose(run.diagnostics["limit_sharpness"], expected, rtol=1e-5)


@pytest.mark.slow
def test_the_sharpness_of_the_flows_limit_falls_along_descent_on_a_scalar_network(descent):
    """Kreisler et al. (2023), while that of the iterates themselves goes up and down."""
    limits = np.asarray(flowsim.FlowLimits(records=61).added_to(descent).diagnostics["limit_sharpness"])
    assert (np.diff(limits) <= 1e-6 * limits[:-1]).all()
    assert limits[0] > 12 > 10 > limits[-1]


@pytest.mark.slow
def test_a_few_records_are_measured_and_the_last_among_them(descent):
    said = []
    found = flowsim.FlowLimits(records=4, max_steps=5000).added_to(descent, progress=said.append)
    limits = np.asarray(found.diagnostics["limit_sharpness"])
    assert said == ["limits of the flow", *(f"limits of the flow: {done} of {len(said)} points" for done in (1, 2, 3))]
    assert 3 <= np.isfinite(limits).sum() <= 6
    assert np.isfinite(limits[-1])


def test_runs_without_weights_and_no_records_are_refused(descent):
    with pytest.raises(ValueError, match="did not keep its weights"):
        flowsim.FlowLimits().added_to(flowsim.descend(descent.network, descent.problem, learning_rate=0.1, steps=3))
    with pytest.raises(ValueError, match="records is 0: expected"):
        flowsim.FlowLimits(records=0)
