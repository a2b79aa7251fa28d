"""Networks and problems of a user's own, in a module that other processes can import."""

import jax.numpy as jnp
import numpy as np

import flowsim
from flowsim.data import gaussian_teacher


def make(key, scale):
    return flowsim.DeepLinear.gaussian(widths=[3, 3, 1], scale=scale, key=key)


def regression(noise=0.5):
    return flowsim.LinearRegression(*gaussian_teacher(np.random.default_rng(0), 20, 3, noise=noise))


def first_weight(network):
    return jnp.linalg.norm(network.weights[0])
