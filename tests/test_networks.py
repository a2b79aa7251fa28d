import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import TypeCheckError

import flowsim
from flowsim.networks import cast, split, weight_dtype

KEY = jax.random.key(0)


def product(matrices):
    return np.linalg.multi_dot(matrices[::-1]) if len(matrices) > 1 else matrices[0]


@pytest.mark.parametrize("widths", [[3, 1], [3, 3, 3, 1], [4, 4, 2, 2, 5, 1], [3, 3, 3, 2], [1, 1, 1]])
def test_regressor_is_the_transposed_product_of_the_weights(widths):
    network = flowsim.DeepLinear.gaussian(widths=widths, scale=0.8, key=KEY)
    expected = product([np.asarray(weight) for weight in network.weights]).T
    np.testing.assert_allclose(network.regressor(), expected[:, 0] if widths[-1] == 1 else expected, atol=1e-14)


def test_output_is_the_regressor_applied_to_the_sample(residual):
    x = np.arange(5.0)
    np.testing.assert_allclose(residual(x), x @ residual.regressor(), rtol=1e-13)
    assert residual(x).shape == ()


def test_weights_go_in_and_come_out_as_the_same_list():
    matrices = [np.full(shape, float(k)) for k, shape in enumerate([(4, 3), (4, 4), (4, 4), (1, 4)])]
    network = flowsim.DeepLinear(matrices)
    assert network.depth == 4
    for given, kept in zip(matrices, network.weights, strict=True):
        np.testing.assert_array_equal(given, kept)
    stacked = flowsim.DeepLinear([matrices[0], np.stack(matrices[1:3]), matrices[3]])
    assert eqx.tree_equal(stacked, network)


def test_gradient_is_the_outer_product_of_two_chains(residual, problem):
    """∇_{W_k} R = (W_{k+1}ᵀ ⋯ W_Lᵀ p) (W_{k−1} ⋯ W_1 ∇R¹(π))ᵀ, Marion and Chizat (2024), equation 5."""
    gradient = eqx.filter_grad(problem.objective)(residual)
    W = [np.asarray(weight) for weight in residual.weights]
    below = np.asarray(problem.regressor_gradient(residual))
    for k, computed in enumerate(gradient.weights):
        above = np.asarray(residual.projection)
        for weight in reversed(W[k + 1 :]):
            above = weight.T @ above
        np.testing.assert_allclose(computed, np.outer(above, below), rtol=1e-11, atol=1e-14)
        below = W[k] @ below


def test_gaussian_entries_have_the_scale_as_standard_deviation():
    network = flowsim.DeepLinear.gaussian(widths=[60] * 5 + [1], scale=0.3, key=KEY)
    entries = np.concatenate([np.ravel(weight) for weight in network.weights])
    # The sample deviation of N entries has standard error scale/√(2N).
    assert abs(entries.std() - 0.3) < 4 * 0.3 / np.sqrt(2 * entries.size)


def test_residual_noise_has_variance_s_squared_over_depth_and_width():
    network = flowsim.DeepLinear.residual(width=40, depth=8, scale=0.5, key=KEY)
    noise = np.stack(network.weights) - np.eye(40)
    expected = 0.5 / np.sqrt(8 * 40)
    assert abs(noise.std() - expected) < 4 * expected / np.sqrt(2 * noise.size)


def test_projection_is_no_weight(residual):
    weights, rest = split(residual)
    assert sum(leaf.size for leaf in jax.tree.leaves(weights)) == 10 * 25
    assert eqx.tree_equal(eqx.combine(weights, rest), residual)


def test_depth_1000_compiles_to_the_program_of_depth_10(problem):
    def size(depth):
        network = flowsim.DeepLinear.gaussian(widths=[5] * depth + [1], scale=0.3, key=KEY)
        return len(jax.jit(lambda n: eqx.filter_grad(problem.objective)(n)).lower(network).as_text())

    assert abs(size(1000) / size(10) - 1) < 0.05


@pytest.mark.parametrize("activation", ["gelu", "tanh", "softplus", jnp.sin])
@pytest.mark.parametrize("biases", [False, True])
def test_perceptron_equals_a_plain_loop(activation, biases):
    network = flowsim.Perceptron.gaussian(widths=[3, 4, 4, 2], scale=0.7, activation=activation, biases=biases, key=KEY)
    if biases:
        shifted = tuple(jnp.full_like(stack, 0.3) for stack in network.bias_stacks)
        network = eqx.tree_at(lambda n: n.bias_stacks, network, shifted)
    shift = 0.3 if biases else 0.0
    hidden = np.array([0.5, -1.0, 2.0])
    for number, weight in enumerate(network.weights):
        hidden = np.asarray(weight) @ hidden + shift
        if number < 2:
            hidden = np.asarray(network.activation(hidden))
    np.testing.assert_allclose(network(jnp.array([0.5, -1.0, 2.0])), hidden, rtol=1e-13)


def test_perceptron_with_one_output_returns_a_scalar():
    network = flowsim.Perceptron.gaussian(widths=[3, 3, 1], scale=1.0, key=KEY)
    assert network(jnp.ones(3)).shape == ()


def test_cast_changes_the_precision_of_every_array(residual):
    assert weight_dtype(cast(residual, jnp.float32)) == jnp.float32


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: flowsim.DeepLinear([]), "at least one weight"),
        (lambda: flowsim.DeepLinear([np.ones((2, 3)), np.ones((1, 3))]), "2 outputs"),
        (lambda: flowsim.DeepLinear([np.ones(3)]), "matrix"),
        (lambda: flowsim.DeepLinear([np.ones((2, 2), int)]), "int64"),
        (lambda: flowsim.DeepLinear([np.ones((2, 1, 3))]), "square"),
        (lambda: flowsim.DeepLinear([np.ones((2, 3))], projection=np.ones(3)), "2 outputs"),
        (lambda: flowsim.DeepLinear.gaussian(widths=[3], scale=1.0, key=KEY), "at least one layer"),
        (lambda: flowsim.DeepLinear.gaussian(widths=[3, -1], scale=1.0, key=KEY), "positive whole"),
        (lambda: flowsim.DeepLinear.gaussian(widths=[3, 1], scale=-1.0, key=KEY), "standard deviation"),
        (lambda: flowsim.DeepLinear.residual(width=0, depth=3, scale=1.0, key=KEY), "positive whole"),
        (
            lambda: flowsim.Perceptron.gaussian(widths=[3, 1], scale=1.0, activation="swish", key=KEY),
            "softplus",
        ),
        (lambda: flowsim.Perceptron([np.ones((2, 3))], [np.ones(3)]), "biases"),
    ],
)
def test_networks_that_cannot_be_right_are_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()


@pytest.mark.slow
def test_the_shapes_that_annotations_promise_are_checked_in_slow_tests():
    network = flowsim.DeepLinear.gaussian(widths=[3, 2, 1], scale=1.0, key=KEY)
    with pytest.raises(TypeCheckError, match="parameter 'x'"):
        network(jnp.zeros((3, 1)))


def test_an_activation_is_a_function_or_a_name():
    with pytest.raises(TypeError, match="activation must be a smooth function on arrays, or the name of one, got None"):
        flowsim.Perceptron.gaussian(widths=[3, 2, 1], scale=1.0, activation=None, key=KEY)
