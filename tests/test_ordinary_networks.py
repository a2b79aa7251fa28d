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


@pytest.mark.slow
def test_a_convolution_is_that_of_equinox_with_its_gradient():
    ours = flowsim.Convolution.gaussian(2, 4, 2, stride=3, padding=2, key=key())
    ours = eqx.tree_at(lambda m: m.bias, ours, jnp.arange(4.0))
    theirs = eqx.nn.Conv2d(2, 4, 2, stride=3, padding=2, key=key())
    theirs = eqx.tree_at(lambda m: (m.weight, m.bias), theirs, (ours.weight, ours.bias[:, None, None]))
    image = jax.random.normal(jax.random.key(1), (2, 6, 7))
    np.testing.assert_allclose(ours(image), theirs(image), rtol=1e-12, atol=1e-13)

    def energy(weight, model):
        return jnp.sum(jnp.sin(eqx.tree_at(lambda m: m.weight, model, weight)(image)))

    found, expected = (jax.jit(jax.grad(energy))(ours.weight, model) for model in (ours, theirs))
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-12)


class Seen(eqx.Module):
    """An image through a convolution of Equinox's, of which it reads what a convolution says of itself."""

    layer: eqx.nn.Conv

    def __call__(self, x):
        return jnp.sum(jnp.tanh(self.layer(x)).reshape(self.layer.out_channels, -1), axis=1)


def through(images, layer):
    return flowsim.EmpiricalRisk(images, jnp.zeros((images.shape[0], 4))), Seen(layer)


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
def test_a_convolution_of_equinox_is_computed_by_slices_on_a_cpu(options):
    images = jax.random.normal(key(), (3, 2, 6, 5))
    problem, network = through(images, eqx.nn.Conv2d(2, 4, 3, key=key(), **options))
    assert convolves(lambda model: jax.vmap(model)(images), network)
    assert convolves(problem, network) is (jax.default_backend() != "cpu")

    def plain(model):
        return jnp.mean(jnp.sum(jax.vmap(model)(images) ** 2, axis=1))

    both = (eqx.filter_value_and_grad(lambda model, of=of: of(model)) for of in (problem, plain))
    found, expected = (eqx.filter_jit(one)(network) for one in both)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize(
    ("channels", "size", "options"),
    [
        (4, 3, {"padding": "SAME", "stride": 2}),
        (4, 2, {"padding": "SAME"}),
        (4, (3, 2), {}),
        (4, 3, {"stride": (1, 2)}),
        (4, 3, {"padding": ((1, 0), (1, 1))}),
        (4, 2, {"dilation": 2}),
        (4, 3, {"groups": 2}),
        (4, 3, {"padding": 1, "padding_mode": "REFLECT"}),
    ],
)
def test_a_convolution_that_slices_do_not_stand_for_is_left_as_it_is(channels, size, options):
    layer = eqx.nn.Conv2d(2, channels, size, key=key(), **options)
    problem, network = through(np.ones((3, 2, 6, 5)), layer)
    assert convolves(problem, network)


def test_a_convolution_and_pooling_are_their_formulas():
    rng = np.random.default_rng(0)
    weight, bias, image = rng.standard_normal((4, 2, 3, 3)), np.arange(4.0), rng.standard_normal((2, 5, 6))
    found, mean = jax.jit(
        lambda: (
            flowsim.Convolution(weight, bias, stride=2, padding=1)(image),
            average_pooling(np.arange(15.0).reshape(1, 3, 5), 2),
        )
    )()
    padded = np.pad(image, ((0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))[:, ::2, ::2]
    np.testing.assert_allclose(found, np.einsum("ockl,cijkl->oij", weight, windows) + bias[:, None, None], rtol=1e-12)
    np.testing.assert_array_equal(mean, [[[3.0, 5.0]]])  # what is left over is dropped


@pytest.mark.parametrize(("shape", "message"), [((3, 5, 5), "2 channels"), ((2, 2, 5), "no side shorter than 3")])
def test_an_image_that_does_not_fit_is_refused(shape, message):
    convolution = flowsim.Convolution(np.ones((1, 2, 3, 3)), np.zeros(1))
    with pytest.raises(ValueError, match=message):
        convolution(np.ones(shape))


@pytest.mark.slow
def test_the_weights_of_a_convolutional_network_are_counted_as_they_are():
    chosen = recipe("convolutional", channels=(4, 6), dense=(5,), activation="tanh")
    network = built(chosen, (1, 8, 8), 3)
    assert network(jnp.ones((1, 8, 8))).shape == (3,)
    by_hand = (4 * 9 + 4) + (6 * 4 * 9 + 6) + (6 * 2 * 2 + 1) * 5 + (5 + 1) * 3
    assert counted(network) == chosen.count_weights((1, 8, 8), 3) == by_hand
    assert built(recipe("convolutional", channels=(2,)), (1, 8, 8), 1)(jnp.ones((1, 8, 8))).shape == ()


@pytest.mark.parametrize(
    ("shape", "channels", "message"),
    [((64,), (4,), "found samples have shape (64,)"), ((1, 4, 4), (4, 4, 4), "found convolution 3 makes nothing of")],
)
def test_samples_that_are_no_images_or_too_small_are_refused(shape, channels, message):
    (error,) = shape_errors(recipe("convolutional", channels=channels), shape, 2)
    assert message in error.message()


def test_a_residual_perceptron_is_its_formula():
    network = built(recipe("residual_mlp", depth=2, scale=0.3, width=4, hidden=5, activation="tanh"), 3, 2)
    network = eqx.tree_at(lambda n: n.biases, network, np.linspace(-1, 1, 10).reshape(2, 5))
    x = np.array([1.0, -2.0, 0.5])
    state = np.asarray(network.first) @ x
    for inner, bias, outer in zip(network.inner, network.biases, network.outer, strict=True):
        state = state + 0.3 * np.asarray(outer) @ np.tanh(np.asarray(inner) @ state + np.asarray(bias))
    np.testing.assert_allclose(network(x), np.asarray(network.last) @ state, rtol=1e-13)
    assert counted(network) == recipe("residual_mlp", depth=2, scale=0.3, width=4, hidden=5).count_weights(3, 2)


def test_the_scale_of_the_blocks_is_not_moved():
    network = built(recipe("residual_mlp", depth=2, scale=0.0, width=4), 3, 1)
    weights, rest = split(network)
    assert jax.tree.leaves(weights.scale) == []
    np.testing.assert_allclose(eqx.combine(weights, rest)(np.ones(3)), (network.last @ network.first @ np.ones(3))[0])


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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"widths": (4,)}, "1 of them beside depth 3"),
        ({"widths": (4, 4), "width": 4}, "beside width 4"),
        ({"biases": True}, "false for a linear network"),
    ],
)
def test_options_of_a_perceptron_that_do_not_go_together_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        recipe("mlp", depth=3, scale=1.0, **options)


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


class Written(eqx.Module):
    weight: jax.Array


def made_by_a_function(in_size, out_size, width: int, *, key):
    return eqx.nn.MLP(in_size, out_size, width, 1, key=key)


def no_module():
    return 3


NUMBER = 3


def test_a_module_is_given_sizes_and_key_and_all_else_is_an_option():
    chosen = recipe(f"{__name__}:Flat", size=0.5)
    assert set(type(chosen).model_fields) == {"kind", "size"}
    network = built(chosen, 3, 2)
    np.testing.assert_allclose(network.weight, 0.5 * jax.random.normal(key(), (2, 3)), rtol=1e-15)
    assert chosen.inputs_for((1, 8, 8)) == 64
    assert chosen.count_weights(3, 2) == 6


def test_a_module_that_does_not_ask_for_the_number_of_inputs_gets_samples_in_their_shape():
    chosen = recipe(f"{__name__}:Whole")
    assert chosen.inputs_for((1, 8, 8)) == (1, 8, 8)
    assert built(chosen, (1, 8, 8), 1).weight.shape == (1, 8, 8)


def test_a_function_and_a_class_of_an_installed_package_make_networks():
    own, installed = recipe(f"{__name__}:made_by_a_function", width=5), recipe("equinox.nn:MLP", width_size=5, depth=2)
    own = eqx.filter_eval_shape(lambda: built(own, 3, 2))
    assert own.layers[0].weight.shape == (5, 3)
    assert eqx.filter_eval_shape(lambda: built(installed, 3, 2)(np.ones(3))).shape == (2,)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Written", "'Written', whose parameter weight YAML cannot write"),
        ("NUMBER", "which is not a network; expected a class of Equinox modules, a function that returns one"),
    ],
)
def test_what_cannot_be_made_from_options_is_refused(name, message):
    with pytest.raises(UnknownKindError) as refused:
        recipe(f"{__name__}:{name}")
    assert message in str(refused.value)


def test_a_function_that_makes_something_else_is_refused_before_the_run():
    (error,) = shape_errors(recipe(f"{__name__}:no_module"), (3,), 1)
    assert "no_module returns a int: expected an Equinox module" in error.message()


def test_a_kernel_larger_than_the_images_is_refused():
    with pytest.raises(ValueError, match=r"the kernel 9 is larger than images of shape .* expected 8 at most"):
        flowsim.Convolutional.gaussian((1, 8, 8), [2], 1, size=9, key=key())
