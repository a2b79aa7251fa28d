"""A network of one's own.

How far apart are gradient flow and descent, from the same weights of any network?

python examples/own_network.py
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import flowsim

jax.config.update("jax_enable_x64", True)


class Gated(eqx.Module):
    """x ↦ wᵀ(tanh(Ax) ⊙ Bx): any function of one sample will do."""

    A: jax.Array
    B: jax.Array
    w: jax.Array

    def __init__(self, features, width, *, key):
        shapes = [(width, features), (width, features), (width,)]
        drawn = map(jax.random.normal, jax.random.split(key, 3), shapes)
        self.A, self.B, self.w = (0.7 * weights for weights in drawn)

    def __call__(self, x):
        """Return the prediction for one sample."""
        return self.w @ (jnp.tanh(self.A @ x) * (self.B @ x))


X = np.random.default_rng(0).standard_normal((20, 3))
problem = flowsim.EmpiricalRisk(X, X[:, 0] * X[:, 1], flowsim.losses.SquaredError())
network = Gated(3, 6, key=jax.random.key(0))
both = flowsim.compare(network, problem, [0.01, 0.05], t1=20)
print(both)
both.figures()["sharpness"].savefig("own_network.png", dpi=150)
