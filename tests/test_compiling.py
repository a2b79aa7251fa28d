"""Small programs compile quickly: with the same results, and not where JAX traces or there is much to compute."""

import gc
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import flowsim
from flowsim.networks import cast
from flowsim.networks.weights import standard_normal
from flowsim.runtime.compiling import QUICK_OPTIONS, compiled, is_traced


@pytest.fixture
def options_of(monkeypatch):
    """Return what a compiled function is compiled with for some arguments."""
    noted, jit = [], jax.jit

    def noting(function, **choices):
        noted.append(choices.get("compiler_options") or {})
        return jit(function, **choices)

    monkeypatch.setattr("jax.jit", noting)
    monkeypatch.setitem(QUICK_OPTIONS, "xla_backend_optimization_level", 1)  # as it is, but in fast tests

    def options(*args, **choices):
        compiled(lambda *args: args, **choices)(*args)
        return noted.pop()

    return options


def test_only_few_numbers_on_a_cpu_are_compiled_quickly(options_of):
    on_cpu = jax.default_backend() == "cpu"
    assert bool(options_of(np.ones(100), {"data": np.ones((50, 5))})) == on_cpu
    assert not options_of(np.ones(10), np.ones(2**14))
    inside = []
    jax.jit(lambda: inside.append(options_of(jnp.ones(3))))()
    jax.vmap(lambda x: inside.append(options_of(x)))(np.ones(3))
    assert inside == [{}, {}]
    assert jax.jit(lambda: jnp.asarray(is_traced(())))()  # there a constant is traced as well
    # Only the arguments that count make a program large.
    few, many = np.ones(10), np.ones(2**15)
    assert options_of(few, many, sized_by=[0]) == options_of(few, few)
    assert not options_of(few, many, sized_by=[0, 1])
    if on_cpu:
        assert options_of(few, few_calls=True) != options_of(few)


def test_what_is_compiled_quickly_computes_the_same():
    def function(x, np=jnp):
        return np.sum(np.tanh(x) @ x.T) / np.linalg.norm(x)

    x = np.random.default_rng(0).standard_normal((20, 7))
    for few_calls in (False, True):
        np.testing.assert_allclose(compiled(function, few_calls=few_calls)(x), function(x, np), rtol=1e-13)


def products_in_full_precision(function, *arguments):
    """Return how many products of matrices there are in a function's program, and how many say that they are exact."""
    program = str(jax.make_jaxpr(function)(*arguments))
    return program.count("dot_general["), program.count("precision=(Precision.HIGHEST, Precision.HIGHEST)")


def test_products_are_in_full_precision_unless_the_user_chose_another():
    x = np.ones((2, 2), np.float32)
    assert products_in_full_precision(jnp.matmul, x, x) == (1, 0)
    assert products_in_full_precision(compiled(jnp.matmul), x, x) == (1, 1)
    with jax.default_matmul_precision("tensorfloat32"):
        assert products_in_full_precision(compiled(jnp.matmul), x, x) == (1, 0)


@pytest.mark.parametrize("run", [flowsim.integrate, partial(flowsim.descend, learning_rate=0.1, steps=3)])
@pytest.mark.slow
def test_every_product_of_a_run_inside_a_transformation_is_in_full_precision(run, problem):
    network = cast(flowsim.DeepLinear.gaussian(widths=[5, 2, 1], scale=0.5, key=jax.random.key(3)), jnp.float32)
    products, exact = products_in_full_precision(lambda network: run(network, problem).risk, network)
    assert products == exact > 0


def test_options_that_this_xla_does_not_know_are_left_out():
    assert float(compiled(jnp.negative, options={"xla_cpu_no_such_option": True})(1.0)) == -1.0


@pytest.mark.parametrize(("shape", "dtype"), [((3, 7), "float64"), ((41, 40), "float32")])
def test_draws_are_those_of_jax_whatever_their_shape(shape, dtype):
    key = jax.random.key(3)
    expected = jax.jit(lambda keys: [jax.random.normal(key, shape, dtype) for key in keys])
    for count, indices in ((2, (0, 1)), (9, (2, 8))):
        chosen = expected(jax.random.split(key, count)[np.array(indices)])
        for index, numbers in zip(indices, chosen, strict=True):
            np.testing.assert_array_equal(standard_normal(key, index, shape, jnp.dtype(dtype)), numbers)


@pytest.mark.slow
def test_draws_under_a_transformation_and_of_another_generator_are_those_of_jax_too():
    key, double = jax.random.key(3), jnp.dtype("float64")
    keys = jax.random.split(key, 3)
    together = jax.vmap(lambda key: standard_normal(key, 1, (4, 2), double))(keys)
    np.testing.assert_allclose(together, [standard_normal(key, 1, (4, 2), double) for key in keys], rtol=1e-14)
    other = jax.random.key(3, impl="rbg")
    expected = jax.random.normal(jax.random.split(other, 8)[1], (4, 2), double)
    np.testing.assert_array_equal(standard_normal(other, 1, (4, 2), double), expected)
    assert standard_normal(key, 0, (2, 2), jnp.dtype(jnp.bfloat16)).dtype == jnp.bfloat16
    constant = jax.jit(lambda: jnp.asarray(standard_normal(key, 0, (4, 2), double)))()
    np.testing.assert_array_equal(constant, jax.random.normal(jax.random.split(key, 1)[0], (4, 2), double))


def test_what_is_no_array_goes_in_and_comes_out_as_it_is():
    program = compiled(lambda tree, *, name: (jax.tree.map(jnp.negative, tree["x"]), tree["word"] + name, None, 3))
    arrays, *others = program({"x": (np.ones(2), jnp.ones(3)), "word": "a "}, name="word")
    assert others == ["a word", None, 3]
    assert [leaf.tolist() for leaf in arrays] == [[-1.0] * 2, [-1.0] * 3]


def test_the_arrays_of_all_arguments_but_the_first_are_used_again():
    program = compiled(lambda kept, state, count: (state + kept) * count, donate="all-except-first")
    kept, state = jnp.ones(3), jnp.ones(3)
    assert program(kept, state, np.asarray(2)).tolist() == [4.0] * 3
    assert state.is_deleted()
    assert not kept.is_deleted()


def test_a_program_is_traced_once_for_other_numbers():
    traced = []
    program = compiled(lambda x, power: traced.append(power) or x**power)
    assert program(np.ones(3), 2).tolist() == program(-np.ones(3), 2).tolist() == [1.0] * 3
    assert program(2 * np.ones(3), 3).tolist() == [8.0] * 3
    assert traced == [2, 3]


def test_programs_of_many_shapes_are_let_go(monkeypatch):
    monkeypatch.setattr("flowsim.runtime.compiling.MOST_PROGRAMS", 3)
    traced = []
    doubled = compiled(lambda x: traced.append(x.size) or 2 * x)
    client = jax.devices()[0].client
    before = len(client.live_executables())
    for size in (*range(1, 11), 8, 7, 8):
        doubled(np.zeros(size))
        doubled(np.zeros(size))  # found, also where another has just been let go
        gc.collect()
        assert len(client.live_executables()) <= before + 3
    assert traced == [*range(1, 11), 7]  # and the last used are found


OPTIONS = {
    "jax_debug_nans": True,
    "jax_debug_infs": True,
    "jax_numpy_dtype_promotion": "strict",
    "jax_transfer_guard": "disallow",
    "jax_check_tracer_leaks": True,
    "jax_disable_jit": True,
}


@pytest.mark.parametrize("option", OPTIONS)
def test_runs_are_the_same_with_options_of_jax_for_debugging(option):
    start = jnp.array([0.5, -1.0])
    shift = jnp.array(1.0)

    def ends():
        risk = flowsim.RegularizedRisk(flowsim.Risk(lambda w: jnp.sum((w - shift) ** 2)), 0.1)
        flow = flowsim.integrate(start, risk)
        descent = flowsim.descend(start, risk, learning_rate=0.1, steps=3)
        return str(flow), str(descent), flow.final_risk, descent.final_risk, flowsim.sharpness(start, risk)

    expected, before = ends(), getattr(jax.config, option)
    jax.config.update(option, OPTIONS[option])
    try:
        assert ends() == expected
        assert getattr(jax.config, option) == OPTIONS[option]
    finally:
        jax.config.update(option, before)
