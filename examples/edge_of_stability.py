"""The edge of stability in Python.

Which flows follow descent where it leaves the gradient flow, at 2/η?

python examples/edge_of_stability.py
"""

import jax
import numpy as np

import flowsim

jax.config.update("jax_enable_x64", True)

X, y = flowsim.data.gaussian_teacher(np.random.default_rng(0), 50, 5)
problem = flowsim.LinearRegression(X, y)
key = jax.random.key(0)
network = flowsim.DeepLinear.gaussian(widths=[5] * 10 + [1], scale=0.35, key=key)
models = ["gradient", "central", "edge"]
both = flowsim.compare(network, problem, [0.08], t1=30, models=models)
print(both)
both.save("results/edge_of_stability", overwrite=True)
