"""The edge of stability: descent leaves the gradient flow at 2/η, and two other flows follow it.

python examples/edge_of_stability.py
"""

import jax
import numpy as np

import flowsim

jax.config.update("jax_enable_x64", True)

problem = flowsim.LinearRegression(*flowsim.data.gaussian_teacher(np.random.default_rng(0), 50, 5))
network = flowsim.DeepLinear.gaussian(widths=[5] * 10 + [1], scale=0.35, key=jax.random.key(0))
both = flowsim.compare(network, problem, [0.08], t1=30, models=["gradient", "central", "edge"])
print(both)
both.save("results/edge_of_stability", overwrite=True)
