"""Data from a file of one's own.

How sharp is the minimum that flow and descent find, where data come from a table?

python examples/own_data.py [FILE TARGET]
"""

import sys
from pathlib import Path

import jax
import numpy as np

import flowsim

jax.config.update("jax_enable_x64", True)

diabetes = Path(__file__).parents[1] / "scenarios" / "data" / "diabetes.csv"
path, target = sys.argv[1:3] if len(sys.argv) > 2 else (diabetes, "progression")

X, y = flowsim.data.read_table(path, target)
X, y = flowsim.data.standardize(X), y - y.mean()  # linear networks have no intercept
y = flowsim.data.unit_regressor(X, y)  # ‖w*‖ = 1, as the theory has it
problem = flowsim.LinearRegression(X, y)

d = X.shape[1]
network = flowsim.DeepLinear.residual(
    width=d,
    depth=10,
    scale=0.5,
    projection=np.full(d, d**-0.5),  # one output, where the last layer has d
    key=jax.random.key(0),
)
print(f"{len(X)} samples of {X.shape[1]} features")
both = flowsim.compare(network, problem, [0.002], steps=5000)
print(both)
both.figures()["sharpness"].savefig("own_data.png", dpi=150)
