"""Descents beside exact recursions: quadratic modes, and the catapult of two layers on one sample."""

import itertools
from fractions import Fraction

import jax.numpy as jnp
import numpy as np
import pytest

import flowsim
from flowsim import DeepLinear, LinearRegression, Outcome, Stopping

NEVER = Stopping(gradient_norm=None)
EPS = np.finfo(float).eps


def test_quadratic_modes_under_descent_have_the_rates_of_their_logarithms():
    """After k steps they are (1 − ηS)ᵏ: they fall by e^{−rt} in time t = ηk with r = −ln|1 − ηS|/η, not S."""
    eta, steps, products = 0.4, 40, np.array([0.3, 0.999, 1.7, 1.99, 2.01])
    problem = LinearRegression(np.diag(np.sqrt(5 * products / eta / 2)), np.zeros(5))
    options = {"learning_rate": eta, "steps": steps, "stopping": NEVER, "weights": True}
    run = flowsim.descend(DeepLinear([np.ones((1, 5))]), problem, **options)
    modes, times = np.asarray(run.weights.weights[0])[:, 0], np.asarray(run.times)[:, None]
    # S is off by some ε of itself, as it passes through a singular value; 1 − ηS then by 8ε at most, in every step.
    error = 8 * EPS * steps / np.abs(1 - products)
    exact = (1 - products) ** np.arange(steps + 1)[:, None]
    assert (np.abs(modes - exact) <= error * np.abs(exact)).all()
    rates = -np.log(np.abs(modes[1:])) / times[1:]
    assert (np.abs(rates + np.log(np.abs(1 - products)) / eta) <= 2 * error / times[1:]).all()
    np.testing.assert_array_equal((rates < 0).all(axis=0), products > 2)


# R = ½f², f = vᵀu/√n: one sample with label zero (Lewkowycz et al. 2020).
CATAPULT = flowsim.Risk(lambda w: (w["v"] @ w["u"] / w["u"].size ** 0.5) ** 2 / 2, infimum=0.0)


def catapult_run(layers, eta, steps):
    """The layers u and v along descent, after 0, …, `steps` steps: two arrays (steps + 1, n)."""
    start = {name: jnp.asarray(layer) for name, layer in zip("uv", layers, strict=True)}
    run = flowsim.descend(start, CATAPULT, learning_rate=eta, steps=steps, stopping=NEVER, weights=True)
    return np.asarray(run.weights["u"]), np.asarray(run.weights["v"]), run


def state(u, v):
    """The prediction f and the kernel λ = (‖u‖² + ‖v‖²)/n of weights, in fractions."""
    u, v, root = [Fraction(x) for x in u], [Fraction(x) for x in v], Fraction(len(u) ** 0.5)
    f = sum(a * b for a, b in zip(u, v, strict=True)) / root
    return f, sum(a * a for a in (*u, *v)) / (root * root)


def recursion(f, kernel, eta, width):
    """f' = f(1 − ηλ + η²f²/n), λ' = λ + (ηf²/n)(ηλ − 4)."""
    return f * (1 - eta * kernel + (eta * f) ** 2 / width), kernel + eta * f**2 / width * (eta * kernel - 4)


@pytest.mark.parametrize(("width", "eta"), [(4, 0.25), (4, 0.5)])
def test_descent_obeys_the_catapult_recursion_bit_for_bit(width, eta):
    # With √n a power of two and numbers of few bits no product is rounded: bits grow threefold, so for three steps.
    layers = 2.0 * np.random.default_rng(width).integers(-1, 2, (2, width))
    u, v, _ = catapult_run(layers, eta, 3)
    known = [state(*weights) for weights in zip(u, v, strict=True)]
    assert known[0][0] != 0
    for now, after in itertools.pairwise(known):
        assert after == recursion(*now, Fraction(eta), width)


def test_at_the_boundary_of_divergence_descent_goes_to_and_fro_for_ever():
    """ηλ = 4 keeps λ, and η²f²/n = 4 keeps f: u = v changes its sign at every step, with no rounding at all."""
    u, v, run = catapult_run([[2.0] * 4] * 2, 0.5, 100)
    signs = (-1.0) ** np.arange(101)
    np.testing.assert_array_equal(u, 2 * np.tile(signs[:, None], (1, 4)))
    np.testing.assert_array_equal(u, v)
    assert run.outcome is Outcome.STEP_LIMIT
