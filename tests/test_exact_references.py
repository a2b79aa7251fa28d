"""Flows beside solutions in closed form: scalar networks, two whitened layers, one logistic sample."""

import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

import flowsim
from flowsim import DeepLinear, LinearRegression, Outcome, Stopping
from flowsim.losses import Logistic

NEVER = Stopping(gradient_norm=None)
# A limit so close that with S ≤ 100 and weights of size 1 the sharpness is off by 1e-10 of itself at most.
AT_THE_LIMIT = Stopping(gradient_norm=1e-12, remaining=1e-11)
RTOL = 1e-10
# Some 100 steps, each of which may be off by rtol, and the sharpness is of degree 2(L − 1) = 2 to 6 in the weights.
BY_TOLERANCE = 1e-8


def test_two_balanced_scalar_layers_follow_their_closed_form_in_time():
    """u = w₁w₂ obeys u' = 4λu(s − u)."""
    strength, target, start, times = 0.7, 1.3, 0.1, np.array([0.2, 0.5, 1.0, 2.0])
    risk = flowsim.Risk(lambda w: strength * (jnp.prod(w) - target) ** 2, infimum=0.0)
    options = {"rtol": RTOL, "ts": times, "t1": 2.0, "weights": True, "stopping": NEVER}
    flow = flowsim.integrate(np.full(2, start**0.5), risk, **options)
    grown = np.exp(4 * strength * target * times)
    assert flow.outcome is Outcome.TIME_LIMIT
    np.testing.assert_array_equal(flow.times, times)
    products = np.prod(flow.weights, axis=1)
    assert_allclose(products, target * grown / (grown - 1 + target / start), rtol=BY_TOLERANCE)
    assert_allclose(flow.risk, strength * (products - target) ** 2, rtol=1e-12)
    assert_allclose(flow.excess_risk, flow.risk, rtol=1e-15)


@pytest.mark.slow
def test_four_scalar_layers_of_zhu_have_the_flow_beyond_the_edge_and_descent_in_its_window_below():
    """½(1 − xyzw)² from x = z, y = w (Zhu et al. 2022, Theorem 3.1): S of descent in (2/η − 20η/3, 2/η).

    The minimizer (x̌, y̌) whose sharpness is 2/η has x̌² = ½(√(η⁻² − 4) + 1/η) and y̌ = 1/x̌.
    """
    risk, eta = flowsim.Risk(lambda w: (1 - jnp.prod(w)) ** 2 / 2, infimum=0.0), 0.2
    x = np.sqrt((np.sqrt(eta**-2 - 4) + 1 / eta) / 2)
    assert 2 * (x**2 + x**-2) == pytest.approx(2 / eta, rel=1e-12)
    x, y = x + 0.2, 1.02 / (x + 0.2)
    start = jnp.array([x, y, x, y])
    flow = flowsim.integrate(start, risk, rtol=RTOL, stopping=AT_THE_LIMIT, ts=[])
    assert_allclose(flow.final_sharpness, 2 * np.sqrt((x**2 - y**2) ** 2 + 4), rtol=BY_TOLERANCE)
    assert flow.final_sharpness > 2 / eta
    descent = flowsim.descend(start, risk, learning_rate=eta, steps=40_000, record_steps=[0])
    assert descent.outcome is Outcome.CONVERGED
    assert 2 / eta - 20 * eta / 3 < descent.final_sharpness < 2 / eta


def whitened(layers, target):
    """The risk ‖W₂W₁ − M‖² as that of samples with XᵀX/n = I and labels Mx, and the network W₂W₁."""
    X = np.linalg.qr(np.random.default_rng(2).standard_normal((30, target.shape[1])))[0] * 30**0.5
    return DeepLinear(layers), LinearRegression(X, X @ target.T)


DIFFERENCE = -0.6


def unequal_layers(inputs, hidden, outputs):
    """W₁ and W₂ with W₂ᵀW₂ − W₁W₁ᵀ = ℓI, ℓ = −0.6: W₂ is drawn, and W₁ has its rotated square root."""
    rng = np.random.default_rng(3)
    drawn = 0.4 * rng.standard_normal((outputs, hidden))
    values, vectors = np.linalg.eigh(drawn.T @ drawn - DIFFERENCE * np.eye(hidden))
    frame = np.linalg.qr(rng.standard_normal((inputs, hidden)))[0]
    return (frame @ (vectors * np.sqrt(values)) @ vectors.T).T, drawn


def riccati(layers, target, time):
    """QQᵀ at `time`, Q = (W₁ᵀ; W₂), by the matrix Riccati equation (Fukumizu 1998, for any ℓ).

    W₁W₁ᵀ and W₂ᵀW₂ are (QᵀQ ∓ ℓI)/2, so the flow is dQ/dt = FQ − QQᵀQ with F = [−ℓI, 2Mᵀ; 2M, ℓI], and
    QQᵀ = e^{Ft}Q₀ (I + Q₀ᵀ (∫₀ᵗ 2e^{2Fs} ds) Q₀)⁻¹ Q₀ᵀe^{Ft}.
    """
    start, (outputs, inputs) = np.vstack([layers[0].T, layers[1]]), target.shape
    field = np.block([[-DIFFERENCE * np.eye(inputs), 2 * target.T], [2 * target, DIFFERENCE * np.eye(outputs)]])
    rates, vectors = np.linalg.eigh(field)
    grown = (vectors * np.exp(rates * time)) @ vectors.T @ start
    held = np.expm1(2 * rates * time) / rates
    inner = np.eye(start.shape[1]) + start.T @ (vectors * held) @ vectors.T @ start
    return grown @ np.linalg.solve(inner, grown.T)


@pytest.mark.slow
def test_two_whitened_layers_follow_the_matrix_riccati_equation():
    target = np.random.default_rng(4).standard_normal((5, 4)) / 2
    layers, times = unequal_layers(4, 3, 5), np.array([0.1, 0.5, 2.0])
    assert_allclose(layers[1].T @ layers[1] - layers[0] @ layers[0].T, DIFFERENCE * np.eye(3), atol=1e-14)
    network, problem = whitened(layers, target)
    options = {"rtol": RTOL, "ts": times, "t1": 2.0, "stopping": NEVER, "weights": True}
    path = flowsim.integrate(network, problem, **options).weights.weights
    for first, second, time in zip(*path, times, strict=True):
        stacked = np.vstack([np.asarray(first).T, np.asarray(second)])
        assert_allclose(stacked @ stacked.T, riccati(layers, target, time), atol=BY_TOLERANCE)


@pytest.mark.slow
def test_the_limit_of_two_whitened_layers_has_a_sharpness_known_beforehand():
    """S = 2(‖W₁‖² + ‖W₂‖²), where a²b² = σ₁² and b² − a² = ℓ in the direction of the largest singular value σ₁."""
    target = np.random.default_rng(4).standard_normal((4, 4)) / 2
    network, problem = whitened(unequal_layers(4, 4, 4), target)
    flow = flowsim.integrate(network, problem, rtol=RTOL, stopping=AT_THE_LIMIT, ts=[])
    largest = np.linalg.svd(target, compute_uv=False)[0]
    assert flow.outcome is Outcome.CONVERGED
    assert_allclose(flow.final_sharpness, 2 * np.hypot(DIFFERENCE, 2 * largest), rtol=BY_TOLERANCE)


@pytest.mark.parametrize("start", [-6.0, 3.0])
@pytest.mark.slow
def test_the_weight_of_one_logistic_sample_grows_as_lamberts_function(start):
    from scipy.special import lambertw

    # dw/dt = 1/(1 + eʷ), so w + eʷ = t + w₀ + e^{w₀} = c and w = c − W₀(eᶜ), while eᶜ is a float; e^{−w} is the odds.
    problem = flowsim.EmpiricalRisk(np.ones((1, 1)), [1], Logistic())
    times = np.array([0.5, 5.0, 50.0, 500.0, 1e6])
    options = {"rtol": RTOL, "ts": times, "t1": 1e6, "stopping": NEVER, "weights": True}
    flow = flowsim.integrate(DeepLinear([np.full((1, 1), start)]), problem, **options)
    weights, known = np.asarray(flow.weights.weights[0]).ravel(), times + start + np.exp(start)
    assert_allclose(weights + np.exp(weights), known, rtol=BY_TOLERANCE)
    exact = known[:4] - lambertw(np.exp(known[:4])).real
    # c − W cancels up to eʷ, which is t: an absolute error of t ε.
    assert_allclose(weights[:4], exact, rtol=BY_TOLERANCE, atol=500 * np.finfo(float).eps)
    # R = ln(1 + e^{−w}), and e^{−w} is 1/t up to (w₀ + e^{w₀} − ln t)/t².
    assert float(flow.risk[-1]) * times[-1] == pytest.approx(1, abs=40 / times[-1])
