"""Networks that are no paper's: with biases, residual blocks and convolutions, and modules of a user by name."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import flowsim
from flowsim.kinds import UnknownKindError
from flowsim.networks import NETWORKS, network_recipe, shape_errors, split
from flowsim.networks.convolution import average_pooling


def key():
    return jax.random.key(0)


def recipe(name, **options):
    return network_recipe(NETWORKS[name])(kind=name, **options)


def built(chosen, inputs, outputs):
    return chosen.build(inputs, outputs, key=key(), shared=lambda name: key())


def counted(network):
    return sum(leaf.size for leaf in jax.tree.leaves(split(network)[0]))


class Reading(eqx.Module):
    """An image through a convolution of Equinox's, of which it reads what a convolution says of itself."""

    layer: eqx.nn.Conv

    def __call__(self, x):
        return jnp.sum(jnp.tanh(self.layer(x)).reshape(self.layer.out_channels, -1), axis=1)


def through(images, layer):
    return flowsim.EmpiricalRisk(images, jnp.zeros((images.shape[0], 4))), Reading(layer)


def convolves(problem, network):
    return "conv_general_dilated" in str(jax.make_jaxpr(problem)(network))


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"padding": "SAME", "use_bias": False},
        {"stride": 2, "padding": "VALID"},
        {"padding": ((2, 2), (2, 2)), "stride": (3, 3)},
    ],
)
def test_a_convolution_of_equinox_is_computed_by_slices_on_a_cpu_with_its_gradient(options):
    images = jax.random.normal(key(), (3, 2, 6, 5))
    problem, network = through(images, eqx.nn.Conv2d(2, 4, 3, key=key(), **options))
    assert convolves(lambda model: jax.vmap(model)(images), network)
    assert convolves(problem, network) is (jax.default_backend() != "cpu")

    def plain(model):
        return jnp.mean(jnp.sum(jax.vmap(model)(images) ** 2, axis=1))

    ours, theirs = (eqx.filter_jit(eqx.filter_value_and_grad(risk))(network) for risk in (problem.__call__, plain))
    for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize(
    ("size", "options"),
    [
        (3, {"padding": "SAME", "stride": 2}),
        (2, {"padding": "SAME"}),
        ((3, 2), {}),
        (3, {"stride": (1, 2)}),
        (3, {"padding": ((1, 0), (1, 1))}),
        (2, {"dilation": 2}),
        (3, {"groups": 2}),
        (3, {"padding": 1, "padding_mode": "REFLECT"}),
    ],
)
def test_a_convolution_that_slices_do_not_stand_for_is_left_as_it_is(size, options):
    assert convolves(*through(np.ones((3, 2, 6, 5)), eqx.nn.Conv2d(2, 4, size, key=key(), **options)))


def test_a_convolution_and_pooling_are_their_formulas():
    rng = np.random.default_rng(0)
    weight, bias, image = rng.standard_normal((4, 2, 3, 3)), np.arange(4.0), rng.standard_normal((2, 5, 6))
    convolution = flowsim.Convolution(weight, bias, stride=2, padding=1)
    pixels = np.arange(15.0).reshape(1, 3, 5)
    output, mean = jax.jit(lambda: (convolution(image), average_pooling(pixels, 2)))()
    padded = np.pad(image, ((0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))[:, ::2, ::2]
    np.testing.assert_allclose(output, np.einsum("ockl,cijkl->oij", weight, windows) + bias[:, None, None], rtol=1e-12)
    np.testing.assert_array_equal(mean, [[[3.0, 5.0]]])  # what is left over is dropped


@pytest.mark.slow
def test_the_weights_of_a_convolutional_network_are_counted_as_they_are():
    chosen = recipe("convolutional", channels=(4, 6), dense=(5,), activation="tanh")
    network = built(chosen, (1, 8, 8), 3)
    assert network(jnp.ones((1, 8, 8))).shape == (3,)
    by_hand = (4 * 9 + 4) + (6 * 4 * 9 + 6) + (6 * 2 * 2 + 1) * 5 + (5 + 1) * 3
    assert counted(network) == chosen.count_weights((1, 8, 8), 3) == by_hand
    assert built(recipe("convolutional", channels=(2,)), (1, 8, 8), 1)(jnp.ones((1, 8, 8))).shape == ()


def test_a_residual_perceptron_is_its_formula():
    chosen = recipe("residual_mlp", depth=2, scale=0.3, width=4, hidden=5, activation="tanh")
    network = built(chosen, 3, 2)
    network = eqx.tree_at(lambda n: n.biases, network, np.linspace(-1, 1, 10).reshape(2, 5))
    x = np.array([1.0, -2.0, 0.5])
    state = np.asarray(network.first) @ x
    for inner, bias, outer in zip(network.inner, network.biases, network.outer, strict=True):
        state = state + 0.3 * np.asarray(outer) @ np.tanh(np.asarray(inner) @ state + np.asarray(bias))
    np.testing.assert_allclose(network(x), np.asarray(network.last) @ state, rtol=1e-13)
    assert counted(network) == chosen.count_weights(3, 2)
    weights, rest = split(network)
    assert jax.tree.leaves(weights.scale) == []  # it is not moved
    np.testing.assert_array_equal(eqx.combine(weights, rest)(x), network(x))


def test_a_perceptron_of_listed_widths_with_biases_is_its_formula():
    chosen = recipe("mlp", depth=3, scale=2.0, widths=(4, 6), activation="relu", biases=True, fan_in=True)
    network = built(chosen, 3, 2)
    network = eqx.tree_at(lambda n: n.bias_stacks, network, tuple(np.asarray(b) + 0.5 for b in network.bias_stacks))
    state = x = np.array([1.0, -2.0, 0.5])
    for number, weight in enumerate(network.weights):
        state = np.asarray(weight) @ state + 0.5
        state = np.maximum(state, 0) if number < 2 else state
    np.testing.assert_allclose(network(x), state, rtol=1e-13)
    assert counted(network) == chosen.count_weights(3, 2) == 3 * 4 + 4 + 4 * 6 + 6 + 6 * 2 + 2


def test_fan_in_divides_the_deviation_and_changes_no_draw():
    plain, scaled = (built(recipe("mlp", depth=2, scale=0.5, width=4, fan_in=fan_in), 9, 1) for fan_in in (False, True))
    for weight, other, inputs in zip(plain.weights, scaled.weights, (9, 4), strict=True):
        np.testing.assert_allclose(other, weight / inputs**0.5, rtol=1e-15)


class Flat(eqx.Module):
    weight: jax.Array

    def __init__(self, in_size, out_size, size: float = 1.0, *, key):
        self.weight = size * jax.random.normal(key, (out_size, in_size))

    def __call__(self, x):
        return self.weight @ x


class Whole(eqx.Module):
    weight: jax.Array

    def __init__(self, in_shape, *, key):
        self.weight = jax.random.normal(key, in_shape)

    def __call__(self, x):
        return jnp.sum(self.weight * x)


def made_by_a_function(in_size, out_size, width: int, *, key):
    return eqx.nn.MLP(in_size, out_size, width, 1, key=key)


def no_module():
    return 3


NUMBER = 3


def test_a_module_or_function_of_a_user_is_given_sizes_and_key_and_all_else_is_an_option():
    chosen = recipe(f"{__name__}:Flat", size=0.5)
    assert set(type(chosen).model_fields) == {"kind", "size"}
    network = built(chosen, 3, 2)
    np.testing.assert_allclose(network.weight, 0.5 * jax.random.normal(key(), (2, 3)), rtol=1e-15)
    assert chosen.inputs_for((1, 8, 8)) == 64
    assert chosen.count_weights(3, 2) == 6
    chosen = recipe(f"{__name__}:Whole")  # it does not ask for the number of inputs
    assert chosen.inputs_for((1, 8, 8)) == (1, 8, 8)
    assert built(chosen, (1, 8, 8), 1).weight.shape == (1, 8, 8)
    network = eqx.filter_eval_shape(lambda: built(recipe(f"{__name__}:made_by_a_function", width=5), 3, 2))
    assert network.layers[0].weight.shape == (5, 3)


def convolution(shape):
    return flowsim.Convolution(np.ones((1, 2, 3, 3)), np.zeros(1))(np.ones(shape))


def perceptron(**options):
    return recipe("mlp", depth=3, scale=1.0, **options)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: recipe(f"{__name__}:NUMBER"), "which is not a network; expected a class of Equinox modules"),
        (lambda: convolution((3, 5, 5)), "2 channels"),
        (lambda: convolution((2, 2, 5)), "no side shorter than 3"),
        (lambda: flowsim.Convolutional.gaussian((1, 8, 8), [2], 1, size=9, key=key()), "expected 8 at most"),
        (lambda: perceptron(widths=(4,)), "1 of them beside depth 3"),
        (lambda: perceptron(widths=(4, 4), width=4), "beside width 4"),
        (lambda: perceptron(biases=True), "false for a linear network"),
    ],
)
def test_what_cannot_be_made_is_refused(make, message):
    with pytest.raises((ValueError, UnknownKindError)) as refused:
        make()
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("name", "options", "shape", "message"),
    [
        ("convolutional", {"channels": (4,)}, (64,), "found samples have shape (64,)"),
        ("convolutional", {"channels": (4, 4, 4)}, (1, 4, 4), "found convolution 3 makes nothing of"),
        (f"{__name__}:no_module", {}, (3,), "no_module returns a int: expected an Equinox module"),
    ],
)
def test_what_does_not_fit_the_samples_is_refused_before_the_run(name, options, shape, message):
    (error,) = shape_errors(recipe(name, **options), shape, 2)
    assert message in error.message()
