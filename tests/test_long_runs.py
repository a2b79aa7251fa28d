"""Runs that are killed and go on, and runs on several devices."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import flowsim
from flowsim.dynamics.checkpoint import Checkpoint


@pytest.fixture(scope="module")
def bowl():
    return flowsim.Risk(lambda w: w[0] ** 2 + 3 * w[1] ** 4 + jnp.sin(w[0]) * w[1])


def flow(bowl, path=None, scale=1.0, **options):
    return flowsim.integrate(scale * jnp.array([1.0, 2.0]), bowl, t1=5.0, checkpoint=path, **options)


def test_a_run_that_was_interrupted_goes_on_to_the_same_end_bit_for_bit(tmp_path, monkeypatch, bowl):
    unbroken = flow(bowl, tmp_path / "other")
    save = Checkpoint.save_if_due

    def save_and_interrupt(checkpoint, state, *, ended):
        save(checkpoint, state, ended=ended)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("flowsim.dynamics.driver.CallLength.first", lambda *_, **__: 5)
        patch.setattr(Checkpoint, "save_if_due", save_and_interrupt)
        with pytest.raises(KeyboardInterrupt):
            flow(bowl, tmp_path / "run", checkpoint_seconds=0.0)
    assert unbroken.steps > 10
    resumed = flow(bowl, tmp_path / "run")
    for mine, theirs in zip(jax.tree.leaves(resumed), jax.tree.leaves(unbroken), strict=True):
        np.testing.assert_array_equal(mine, theirs, strict=True)


def test_a_checkpoint_needs_a_run_outside_jit(tmp_path, bowl):
    with pytest.raises(ValueError, match="checkpoint"):
        jax.jit(lambda scale: flow(bowl, tmp_path / "run", scale).risk)(1.0)


_SHARDED = """
import jax
jax.config.update("jax_enable_x64", True)
import numpy as np, flowsim, equinox as eqx
from jax.sharding import NamedSharding, PartitionSpec as P

mesh = jax.make_mesh((2,), ("devices",), axis_types=(jax.sharding.AxisType.Auto,))

def spread(leaf, *spec):
    return jax.device_put(leaf, NamedSharding(mesh, P(*spec[: leaf.ndim])))

rng = np.random.default_rng(0)
data = flowsim.EmpiricalRisk(rng.standard_normal((64, 6)), rng.standard_normal(64))
tanh = flowsim.Perceptron.gaussian(widths=[6, 6, 1], scale=0.5, activation="tanh", key=jax.random.key(0))
rows = eqx.tree_at(lambda p: (p.X, p.y), data, (spread(data.X, "devices"), spread(data.y, "devices")))
columns = eqx.tree_at(lambda n: n.stacks, tanh, tuple(spread(stack, None, None, "devices") for stack in tanh.stacks))

one, two = flowsim.integrate(tanh, data, t1=5.0), flowsim.integrate(columns, rows, t1=5.0)
devices = {len(stack.sharding.device_set) for stack in two.network.stacks}
assert devices == {2}, devices
assert one.outcome == two.outcome and one.steps == two.steps, (one.steps, two.steps)
np.testing.assert_allclose(one.times, two.times, rtol=1e-6)
np.testing.assert_allclose(one.risk, two.risk, rtol=1e-8)
for ours, theirs in zip(one.network.weights, two.network.weights):
    np.testing.assert_allclose(ours, theirs, atol=1e-9)
assert columns.stacks[0].sharding.spec == P(None, None, "devices")
print("same")
"""


@pytest.mark.slow
def test_sharded_weights_and_data_give_the_same_trajectory():
    flags = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=2"
    environment = os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    run = subprocess.run([sys.executable, "-c", _SHARDED], env=environment, capture_output=True, text=True, check=False)
    assert run.stdout == "same\n", run.stderr[-2000:]


@pytest.mark.slow
def test_a_flow_that_rounding_has_stopped_says_so(mlp, problem):
    never = flowsim.Stopping(gradient_norm=None)
    flow = flowsim.integrate(mlp, problem, stopping=never, max_steps=5000)
    # Whether the last gradient is a rounding error or exactly zero is left to the compiler.
    still = float(flow.gradient_norm[-1]) == 0
    assert flow.outcome is (flowsim.Outcome.CONVERGED if still else flowsim.Outcome.FIXED_POINT)
    assert flow.gradient_norm[-1] < 1e-12
    assert flow.steps < 1500
