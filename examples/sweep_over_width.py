"""A sweep in Python.

How sharp are flow and descent at a risk of 0.01, over the width of a network?

python examples/sweep_over_width.py     # kill it, start it again: it goes on
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import flowsim

jax.config.update("jax_enable_x64", True)


def network(key, width):
    """Return a tanh network of one hidden layer, as Equinox initializes it."""
    return eqx.nn.MLP(2, "scalar", width, depth=1, activation=jnp.tanh, key=key)


if __name__ == "__main__":  # processes that share the work (jobs=2) import this file
    X = np.random.default_rng(0).standard_normal((15, 2))
    y = np.sin(2 * X[:, 0])
    problem = flowsim.EmpiricalRisk(X, y, flowsim.losses.SquaredError())
    over = {"width": [4, 8, 16], "learning_rate": [0.1]}
    # A risk of zero may take for ever.
    kept = {"stopping": flowsim.Stopping(risk=0.01), "folder": "results/widths"}
    print(flowsim.sweep(network, problem, over, repetitions=4, steps=4000, **kept))
    sharpness = flowsim.open_results("results/widths").sweep["final_sharpness"]
    for width, found in sharpness.median("repetition").groupby("width"):
        flow, descent = found.values.ravel()
        print(f"width {width}: S = {flow:.2f} (flow), {descent:.2f} (descent)")
