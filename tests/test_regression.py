import jax
import jax.numpy as jnp
import numpy as np
import pytest

import flowsim


def data(n, d, m=None, seed=0):
    generator = np.random.default_rng(seed)
    return generator.standard_normal((n, d)), generator.standard_normal(n if m is None else (n, m))


def plain_risk(X, y, regressor):
    return np.sum((y - X @ regressor) ** 2) / len(X)


@pytest.mark.parametrize(("n", "d", "m"), [(50, 5, None), (50, 5, 3), (4, 9, 2), (1, 3, None)])
def test_reduction_equals_numpy_least_squares(n, d, m):
    X, y = data(n, d, m)
    problem = flowsim.LinearRegression(X, y)
    optimum = np.linalg.pinv(X) @ y
    np.testing.assert_allclose(problem.optimum, optimum, atol=1e-13)
    if m is None:  # one column of targets is the same as none
        assert flowsim.LinearRegression(X, y[:, None]).optimum.shape == (d,)
    np.testing.assert_allclose(problem.minimal_risk, plain_risk(X, y, optimum), atol=1e-14)
    np.testing.assert_allclose(problem.covariance, X.T @ X / n, atol=1e-13)
    regressor = np.random.default_rng(1).standard_normal(optimum.shape)
    np.testing.assert_allclose(jax.jit(lambda w: problem(w))(regressor), plain_risk(X, y, regressor), rtol=1e-13)


def test_a_bottleneck_leaves_the_singular_values_beyond_its_rank():
    X, y = data(50, 5, 3)
    fitted = X @ np.linalg.pinv(X) @ y / 50**0.5
    network = flowsim.DeepLinear([np.ones((2, 5)), np.ones((3, 2))])
    least = flowsim.LinearRegression(X, y).least_excess_risk(network)
    np.testing.assert_allclose(least, np.linalg.svd(fitted, compute_uv=False)[2] ** 2, rtol=1e-12)


def test_excess_risk_keeps_all_its_digits_next_to_the_minimum():
    X, y = data(50, 5)
    problem = flowsim.LinearRegression(X, y)
    step = 1e-12 * np.ones(5)
    offset = np.asarray(problem.optimum + step) - np.asarray(problem.optimum)  # the step as rounding left it
    excess = problem.excess_risk(problem.optimum + step)
    np.testing.assert_allclose(excess, offset @ (X.T @ X / 50) @ offset, rtol=1e-10)


def test_collinear_constant_and_zero_columns_give_the_regressor_of_minimal_norm():
    X, y = data(30, 3)
    wide = np.hstack([X, X[:, :1], np.ones((30, 2)), np.zeros((30, 1))])
    problem = flowsim.LinearRegression(wide, y)
    np.testing.assert_allclose(problem.optimum, np.linalg.pinv(wide) @ y, atol=1e-12)
    assert int((problem.eigenvalues > 0).sum()) == 4
    eigenvalues = np.linalg.eigvalsh(wide.T @ wide / 30)
    np.testing.assert_allclose(problem.smallest_eigenvalue, eigenvalues[3], rtol=1e-12)
    np.testing.assert_allclose(problem.largest_eigenvalue, eigenvalues[-1], rtol=1e-12)
    nothing = flowsim.LinearRegression(np.zeros((4, 2)), np.ones(4))
    assert float(nothing.minimal_risk) == 1.0
    assert float(nothing.smallest_eigenvalue) == float(nothing.largest_eigenvalue) == 0.0


def test_an_ill_conditioned_design_keeps_half_the_digits_that_normal_equations_lose():
    generator = np.random.default_rng(3)
    left, _ = np.linalg.qr(generator.standard_normal((60, 6)))
    right, _ = np.linalg.qr(generator.standard_normal((6, 6)))
    X = left @ np.diag(np.logspace(0, -7, 6)) @ right.T
    w = generator.standard_normal(6)
    # The condition number is 1e7, so least squares loses 7 of 16 digits, and normal equations 14.
    np.testing.assert_allclose(flowsim.LinearRegression(X, X @ w).optimum, w, rtol=1e-8)


def test_lemma_8_bounds_the_regressor_gradient_by_the_excess_risk():
    @jax.jit
    def looked_at(problem, regressor):
        squared = jnp.sum(problem.regressor_gradient(regressor) ** 2)
        return squared, problem.excess_risk(regressor), problem.smallest_eigenvalue, problem.largest_eigenvalue

    for seed in range(25):
        X, y = data(20, 4, seed=seed)
        regressor = np.random.default_rng(seed + 1).standard_normal(4)
        squared, excess, smallest, largest = map(float, looked_at(flowsim.LinearRegression(X, y), regressor))
        assert 4 * smallest * excess <= squared * (1 + 1e-12)
        assert squared <= 4 * largest * excess * (1 + 1e-12)
        expected = 2 * X.T @ (X @ regressor - y) / 20
        assert squared == pytest.approx(expected @ expected, rel=1e-12)


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        (np.ones((3, 2)), np.ones(4), "rows"),
        (np.ones(3), np.ones(3), "shape"),
        (np.array([[1.0, np.nan], [1, 1]]), np.ones(2), "row 1, column 2"),
        (np.ones((2, 2)), np.array([1.0, np.inf]), "infinite"),
        (np.ones((2, 2)) * 1j, np.ones(2), "complex"),
    ],
)
def test_data_that_cannot_be_right_are_refused(X, y, message):
    with pytest.raises(ValueError, match=message):
        flowsim.LinearRegression(X, y)


def test_a_network_that_does_not_fit_is_refused(problem):
    with pytest.raises(ValueError, match="5 features"):
        problem(flowsim.DeepLinear([np.ones((1, 4))]))
    with pytest.raises(TypeError, match="EmpiricalRisk"):
        problem(flowsim.Perceptron([np.ones((1, 5))]))


def test_empirical_risk_of_a_linear_network_equals_linear_regression():
    pairs = []
    for m in (None, 2):
        X, y = data(20, 4, m)
        network = flowsim.DeepLinear([np.linspace(-1, 1, 12).reshape(3, 4), np.ones((m or 1, 3)) / 3])
        pairs.append((network, flowsim.EmpiricalRisk(X, y), flowsim.LinearRegression(X, y)))
    for empirical, reduced in jax.jit(lambda: [(one(network), other(network)) for network, one, other in pairs])():
        np.testing.assert_allclose(empirical, reduced, rtol=1e-13)


def test_empirical_risk_takes_another_loss_and_whole_numbers_and_knows_its_excess_where_the_minimum_is_given():
    X, _ = data(8, 3)
    labels = np.arange(8) % 2

    def logistic(prediction, label):
        return jax.nn.softplus(prediction) - label * prediction

    weights = np.array([0.5, -1.0, 2.0])
    expected = np.mean(np.log1p(np.exp(X @ weights)) - labels * (X @ weights))
    network, risk = jax.tree_util.Partial(jnp.dot, weights), flowsim.EmpiricalRisk(X, labels, logistic)
    np.testing.assert_allclose(risk(network), expected, rtol=1e-13)
    assert np.isnan(risk.excess_risk(network))
    known = flowsim.EmpiricalRisk(X, labels, logistic, minimal_risk=0.25)
    assert float(known.excess_risk(network)) == float(known(network)) - 0.25
