"""A sweep: how sharp are flow and descent where the risk has fallen to 0.01, over the width of a network?

python examples/sweep_over_width.py     # kill it, start it again: it goes on
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import flowsim

jax.config.update("jax_enable_x64", True)


def network(key, width):
    """Return a tanh network whose parameters have variance 1/3 over the width of the layer before."""
    return eqx.nn.MLP(2, "scalar", width, depth=1, activation=jnp.tanh, key=key)


if __name__ == "__main__":  # processes that share the work (jobs=2) import this file
    X = np.random.default_rng(0).standard_normal((15, 2))
    problem = flowsim.EmpiricalRisk(X, np.sin(2 * X[:, 0]), flowsim.losses.SquaredError())
    enough = flowsim.Stopping(risk=0.01)  # where a risk of zero may take for ever
    over = {"width": [4, 8, 16], "learning_rate": [0.1]}
    swept = flowsim.sweep(network, problem, over, repetitions=4, steps=4000, stopping=enough, folder="results/widths")
    print(swept)
    found = flowsim.open_results("results/widths").sweep["final_sharpness"]
    for width, values in zip(found["width"].values, found.median("repetition").values, strict=True):
        print(f"width {width}: S = {values[0]:.2f} (flow), {values[1]:.2f} (descent)")
