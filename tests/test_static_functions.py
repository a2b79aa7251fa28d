"""A function defined again with the same code compiles nothing again, and one that reads something else is another."""

import dataclasses
import functools
import pickle
import threading
import types

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import flowsim
from flowsim.runtime.identity import StaticFunction, identity_of, static_function

RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((10, 3)), RNG.standard_normal(10)
scale = 3.0


def scaled(x):
    return scale * x


def start():
    return eqx.nn.Linear(3, "scalar", key=jax.random.key(0))


def made(factor, offset=(0.0, 1.0, 2.0)):
    """Return functions that are defined at each call."""
    offset = jnp.asarray(np.array(offset))
    return {
        "of its argument alone": lambda x: x**2,
        "of a number around it": lambda x: factor * x,
        "of an array of JAX's": lambda x: offset + x,
        "of an array of NumPy's": (lambda array: lambda x: array + x)(np.asarray(offset)),
        "of a global number": lambda x: scale * x,
        "through a function": lambda x: scaled(x),
        "compiled": jax.jit(lambda x: factor * x),
        "a derivative": jax.grad(lambda x: jnp.sum(factor * x)),
        "partial": functools.partial(lambda f, x: f * x, factor),
    }


def test_a_function_defined_again_is_the_same_and_another_number_makes_another():
    same, again, other = ([*map(static_function, made(factor).values())] for factor in (2.0, 2.0, 2.5))
    assert same == again
    assert list(map(hash, same)) == list(map(hash, again))
    apart = {name for name, one, two in zip(made(2.0), same, other, strict=True) if one != two}
    assert apart == {"of a number around it", "compiled", "a derivative", "partial"}
    for name in ("of an array of JAX's", "of an array of NumPy's"):
        assert static_function(made(2.0)[name]) != static_function(made(2.0, (0.0, 1.0 + 1e-12, 2.0))[name])


def test_another_global_makes_another_function(monkeypatch):
    def found():
        return [static_function(made(2.0)[name]) for name in ("of a global number", "through a function")]

    before = found()
    assert before[0] != before[1]
    monkeypatch.setitem(globals(), "scale", 4.0)
    assert not any(one == other for one, other in zip(before, found(), strict=True))


def with_attribute(factor):
    def times(x):
        return times.factor * x

    times.factor = factor
    return lambda x: times(x)


def that_calls(itself):
    """Return a function around another, which calls itself or the one around it."""

    def outer(x, depth=1):
        return inner(2 * x, 1) if depth else x

    def inner(x, depth=1):
        return again(x, depth - 1) if depth else x + 1

    again = inner if itself else outer
    return outer


def around_another(factor):
    inner = static_function(lambda x: factor * x)
    return static_function(lambda x: inner(x) + 1)


@pytest.mark.parametrize("make", [with_attribute, that_calls, around_another])
def test_a_function_defined_again_around_others_is_the_same_and_what_they_read_makes_another(make):
    one, same, other = (static_function(make(value)) for value in (True, True, False))
    assert one == same != other


def test_what_a_frozen_class_holds_beyond_its_fields_counts_as_what_may_change():
    @dataclasses.dataclass(frozen=True)
    class Scale:
        name: str

    def make(factor):
        scale = Scale("one")
        object.__setattr__(scale, "factor", factor)
        return lambda x: scale.factor * x

    assert static_function(make(1.0)) != static_function(make(2.0))


def doubtful(entries):
    """Return functions, defined at each call, of which a look at the code does not say all."""

    class Holder:
        value = 2.0

    holder = Holder()

    return {
        "of a list": lambda x: entries[0] * x,
        "of an object": lambda x: holder.value * x,
        "that is evaluated": lambda x: eval("x"),
        "of the globals": lambda x: globals()["scale"] * x,
    }


def test_in_doubt_a_function_is_equal_to_itself_alone():
    entries = [1.0]
    for one, other in zip(doubtful(entries).values(), doubtful(entries).values(), strict=True):
        assert static_function(one) == static_function(one) != static_function(other)


def counting():
    """Return a function that writes to what it reads."""
    count = 0

    def counted(x):
        nonlocal count
        count += 1
        return count * x

    return static_function(counted)


def test_a_function_that_writes_to_what_it_reads_is_equal_to_itself_alone_once_it_was_traced():
    function, other = counting(), counting()
    assert function == other
    for count in (1.0, 2.0):
        assert float(jax.jit(lambda f, x: f(x))(function, 1.0)) == count
    assert function == function != other


def test_a_global_that_is_called_like_an_attribute_makes_no_other_function(monkeypatch):
    before = identity_of(lambda network: network.scale)
    monkeypatch.setitem(globals(), "scale", threading.Lock())
    assert identity_of(lambda network: network.scale) == before
    with pytest.raises(ValueError, match=r"cannot tell one _thread\.lock from another"):
        identity_of(lambda network: network * scale)


def test_what_is_read_of_a_module_makes_another_function(monkeypatch):
    outer, inner = types.ModuleType("outer"), types.ModuleType("inner")
    outer.inner, inner.factor, inner.outer = inner, 2.0, outer
    monkeypatch.setitem(globals(), "outer", outer)
    one, other = (static_function(lambda x: outer.inner.factor * x) for _ in range(2))
    assert one == other
    before = identity_of(one)
    inner.factor = 3.0
    assert one != static_function(lambda x: outer.inner.factor * x)
    assert identity_of(one) != before


def test_a_function_that_closes_over_what_is_traced_is_equal_to_itself_alone():
    def outer(x):
        one, other = ((lambda y: x * y), (lambda y: x * y))
        assert static_function(one) == static_function(one) != static_function(other)
        return x

    jax.jit(outer)(1.0)


def test_a_function_whose_surroundings_changed_is_not_traced_under_its_old_name(monkeypatch):
    function = static_function(lambda x: scale * x)
    assert float(jax.jit(lambda f, x: f(x))(function, 2.0)) == 6.0
    monkeypatch.setitem(globals(), "scale", 4.0)
    assert function(2.0) == 8.0
    with pytest.raises(ValueError, match=r"<lambda> reads, .* has changed since it was first used: define it anew"):
        jax.jit(lambda f, x: f(x) + 1)(function, 2.0)


def test_a_module_with_a_call_keeps_its_arrays_as_arguments():
    module = start()
    assert static_function(module) is module
    assert static_function(3) == 3
    assert isinstance(static_function(jnp.tanh), StaticFunction)


def test_a_copy_for_another_process_takes_no_name_along():
    function = static_function(scaled)
    assert function == function
    copy = pickle.loads(pickle.dumps(function))
    assert list(vars(copy)) == ["function"]
    assert copy == function


@pytest.mark.slow
def test_a_loss_a_probe_and_a_diagnostic_defined_again_compile_nothing(compiled):
    def run():
        problem = flowsim.EmpiricalRisk(X, Y, lambda prediction, target: jnp.abs(prediction - target) ** 3)
        flow = flowsim.integrate(
            start(), problem, max_steps=3, probes=[size], diagnostics={"bias": lambda network: network.bias}
        )
        return flow, flowsim.sharpness(flow.network, problem)

    def size(network):
        return jnp.sum(network.weight**2)

    run()
    before = compiled()

    def size(network):  # once more  # noqa: F811
        return jnp.sum(network.weight**2)

    run()
    assert compiled() == before


@pytest.mark.slow
def test_a_loss_of_another_closure_is_another_loss():
    def risk(power):
        problem = flowsim.EmpiricalRisk(X, Y, lambda prediction, target: jnp.abs(prediction - target) ** power)
        return float(flowsim.descend(start(), problem, learning_rate=0.01, steps=1).risk[0])

    residuals = np.abs(np.asarray(jax.vmap(start())(jnp.asarray(X))) - Y)
    np.testing.assert_allclose([risk(2), risk(3)], [np.mean(residuals**2), np.mean(residuals**3)], rtol=1e-12)
