"""A loss of one's own.

How much less does an outlier move the regressor, where errors beyond one count less?

python examples/own_loss.py
"""

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

import flowsim

jax.config.update("jax_enable_x64", True)


class Cauchy(flowsim.losses.Loss):
    """log(1 + r²) with r = prediction − target."""

    infimum: ClassVar[float] = 0.0
    attained: ClassVar[bool] = True

    def __call__(self, prediction, target):
        """Return the loss of one sample."""
        return jnp.sum(jnp.log1p((prediction - target) ** 2))

    def curvature(self, prediction, target):
        """Return its second derivative in the prediction."""
        return flowsim.losses.differentiated_curvature(self, prediction, target)


X = np.random.default_rng(0).standard_normal((30, 2))
y = X @ np.array([0.5, -0.5]) + 20 * (np.arange(30) == 0)  # with one outlier
start = flowsim.DeepLinear.gaussian(widths=[2, 4, 1], scale=0.3, key=jax.random.key(0))
for loss in (flowsim.losses.SquaredError(), Cauchy()):
    flow = flowsim.integrate(start, flowsim.EmpiricalRisk(X, y, loss), ts=[])
    found = f"{flow.network.regressor().round(3)} S = {flow.final_sharpness:.2f}"
    print(type(loss).__name__, flow.outcome, found)
