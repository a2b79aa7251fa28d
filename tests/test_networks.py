import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import TypeCheckError

import flowsim
from flowsim.networks import cast, records, split, weight_dtype


def drawn(*shapes):
    generator = np.random.default_rng(0)
    return [generator.standard_normal(shape) for shape in shapes]


@pytest.mark.parametrize("widths", [[4, 4, 2, 2, 5, 1], [3, 3, 3, 2]])
def test_regressor_is_the_transposed_product_of_the_weights(widths):
    weights = drawn(*zip(widths[1:], widths[:-1], strict=True))
    expected = np.linalg.multi_dot(weights[::-1]).T
    regressor = jax.jit(flowsim.DeepLinear.regressor)(flowsim.DeepLinear(weights))
    np.testing.assert_allclose(regressor, expected[:, 0] if widths[-1] == 1 else expected, atol=1e-13)


def test_output_is_the_regressor_applied_to_the_sample(residual):
    x = np.arange(5.0)
    output, regressor = jax.jit(lambda network: (network(x), network.regressor()))(residual)
    np.testing.assert_allclose(output, x @ regressor, rtol=1e-13)
    assert output.shape == jax.eval_shape(flowsim.Perceptron(drawn((3, 3), (1, 3))), np.ones(3)).shape == ()


def test_weights_go_in_and_come_out_as_the_same_list():
    matrices = [np.full(shape, float(k)) for k, shape in enumerate([(4, 3), (4, 4), (4, 4), (1, 4)])]
    network = flowsim.DeepLinear(matrices)
    assert network.depth == 4
    for given, weight in zip(matrices, network.weights, strict=True):
        np.testing.assert_array_equal(given, weight)
    stacked = flowsim.DeepLinear([matrices[0], np.stack(matrices[1:3]), matrices[3]])
    assert eqx.tree_equal(stacked, network)


def test_gradient_is_the_outer_product_of_two_chains(residual, problem):
    """∇_{W_k} R = (W_{k+1}ᵀ ⋯ W_Lᵀ p) (W_{k−1} ⋯ W_1 ∇R¹(π))ᵀ, Marion and Chizat (2024), equation 5."""
    gradient, below = eqx.filter_jit(
        lambda network: (eqx.filter_grad(problem.objective)(network), problem.regressor_gradient(network))
    )(residual)
    W = [np.asarray(weight) for weight in residual.weights]
    for k, computed in enumerate(gradient.weights):
        above = np.asarray(residual.projection)
        for weight in reversed(W[k + 1 :]):
            above = weight.T @ above
        np.testing.assert_allclose(computed, np.outer(above, below), rtol=1e-11, atol=1e-14)
        below = W[k] @ below


def test_entries_are_drawn_with_their_standard_deviations(key):
    gaussian = flowsim.DeepLinear.gaussian(widths=[60] * 5 + [1], scale=0.3, key=key)
    residual = flowsim.DeepLinear.residual(width=40, depth=8, scale=0.5, key=key)
    noise = np.stack(residual.weights) - np.eye(40)
    entries = np.concatenate([np.ravel(weight) for weight in gaussian.weights])
    for numbers, deviation in ((entries, 0.3), (noise, 0.5 / np.sqrt(8 * 40))):
        # The sample deviation of N entries has standard error scale/√(2N).
        assert abs(numbers.std() - deviation) < 4 * deviation / np.sqrt(2 * numbers.size)


def test_projection_is_no_weight_and_a_cast_changes_all_of_them(residual):
    weights, rest = split(residual)
    assert sum(leaf.size for leaf in jax.tree.leaves(weights)) == 10 * 25
    assert eqx.tree_equal(eqx.combine(weights, rest), residual)
    assert weight_dtype(cast(residual, jnp.float32)) == jnp.float32


def test_depth_1000_compiles_to_the_program_of_depth_10(problem):
    def size(depth):
        network = flowsim.DeepLinear([np.ones((depth - 1, 5, 5)), np.ones((1, 5))])
        return len(jax.jit(lambda n: eqx.filter_grad(problem.objective)(n)).lower(network).as_text())

    assert abs(size(1000) / size(10) - 1) < 0.05


ACTIVATIONS = {
    "gelu": lambda x: x / 2 * (1 + np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3))),
    "tanh": np.tanh,
    "softplus": lambda x: np.logaddexp(0, x),
}


def test_a_perceptron_is_its_formula():
    weights, x = drawn((4, 3), (4, 4), (2, 4)), np.array([0.5, -1.0, 2.0])
    shifts = [np.full(4, 0.3), np.full(4, -0.2), np.full(2, 0.1)]
    cases = [(name, given, function) for name, function in ACTIVATIONS.items() for given in (shifts, None)]
    cases.append((jnp.sin, None, np.sin))
    networks = [flowsim.Perceptron(weights, given, activation=name) for name, given, _ in cases]
    for output, (_, given, function) in zip(jax.jit(lambda: [n(x) for n in networks])(), cases, strict=True):
        hidden = x
        for number, weight in enumerate(weights):
            hidden = weight @ hidden + (0 if given is None else given[number])
            hidden = function(hidden) if number < 2 else hidden
        np.testing.assert_allclose(output, hidden, rtol=1e-12)


@pytest.fixture
def key():
    return jax.random.key(0)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda key: flowsim.DeepLinear([]), "at least one weight"),
        (lambda key: flowsim.DeepLinear([np.ones((2, 3)), np.ones((1, 3))]), "2 outputs"),
        (lambda key: flowsim.DeepLinear([np.ones((2, 2), int)]), "int64"),
        (lambda key: flowsim.DeepLinear([np.ones((2, 1, 3))]), "square"),
        (lambda key: flowsim.DeepLinear([np.ones((2, 3))], projection=np.ones(3)), "2 outputs"),
        (lambda key: flowsim.DeepLinear.gaussian(widths=[3], scale=1.0, key=key), "at least one layer"),
        (lambda key: flowsim.DeepLinear.gaussian(widths=[3, 1], scale=-1.0, key=key), "standard deviation"),
        (lambda key: flowsim.DeepLinear.residual(width=0, depth=3, scale=1.0, key=key), "positive whole"),
        (lambda key: flowsim.Perceptron([np.ones((2, 3))], activation="swish"), "softplus"),
        (lambda key: flowsim.Perceptron([np.ones((2, 3))], activation=None), "a smooth function .*, got None"),
        (lambda key: flowsim.Perceptron([np.ones((2, 3))], [np.ones(3)]), "biases"),
    ],
)
def test_networks_that_cannot_be_right_are_refused(build, message, key):
    with pytest.raises((ValueError, TypeError), match=message):
        build(key)


@pytest.mark.slow
def test_the_shapes_that_annotations_promise_are_checked_in_slow_tests(key):
    network = flowsim.DeepLinear.gaussian(widths=[3, 2, 1], scale=1.0, key=key)
    with pytest.raises(TypeCheckError, match="parameter 'x'"):
        network(jnp.zeros((3, 1)))


def test_a_record_of_a_network_keeps_its_activation_functions():
    path = {"weight": jnp.arange(6.0).reshape(3, 2), "activation": jax.nn.relu}
    assert records(path, np.array(1))["weight"].tolist() == [2.0, 3.0]
    assert records(path, np.array(1))["activation"] is jax.nn.relu
