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

scale = 3.0


def scaled(x):
    return scale * x


def start():
    return eqx.nn.Linear(3, "scalar", key=jax.random.key(0))


def test_a_function_defined_again_is_the_same_and_another_number_array_or_global_makes_another(monkeypatch):
    def static(factor, offset=(0.0, 1.0, 2.0)):
        offset = jnp.asarray(np.array(offset))
        functions = {
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
        return {name: static_function(function) for name, function in functions.items()}

    def names_of_those_apart_from(other):
        return {name for name, function in same.items() if function != other[name]}

    same, again = static(2.0), static(2.0)
    assert same == again
    assert {name: hash(function) for name, function in same.items()} == {name: hash(again[name]) for name in same}
    assert same["of a global number"] != same["through a function"]
    assert names_of_those_apart_from(static(2.5)) == {"of a number around it", "compiled", "a derivative", "partial"}
    of_arrays = {"of an array of JAX's", "of an array of NumPy's"}
    assert names_of_those_apart_from(static(2.0, (0.0, 1.0 + 1e-12, 2.0))) == of_arrays
    monkeypatch.setitem(globals(), "scale", 4.0)
    assert names_of_those_apart_from(static(2.0)) == {"of a global number", "through a function"}


def test_a_function_defined_again_around_others_is_the_same_and_what_they_read_makes_another():
    def with_attribute(factor):
        def times(x):
            return times.factor * x

        times.factor = factor
        return lambda x: times(x)

    def that_calls(itself):  # or the one around it
        def outer(x, depth=1):
            return inner(2 * x, 1) if depth else x

        def inner(x, depth=1):
            return again(x, depth - 1) if depth else x + 1

        again = inner if itself else outer
        return outer

    def around_another(factor):
        inner = static_function(lambda x: factor * x)
        return lambda x: inner(x) + 1

    for make in (with_attribute, that_calls, around_another):
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


def test_in_doubt_a_function_is_equal_to_itself_alone():
    class Holder:
        value = 2.0

    entries, holder = [1.0], Holder()

    def doubtful(traced):  # a look at the code does not say all of these
        yield lambda x: entries[0] * x
        yield lambda x: holder.value * x
        yield lambda x: eval("x")
        yield lambda x: globals()["scale"] * x
        yield lambda x: traced * x

    @jax.jit
    def compare(traced):
        for one, other in zip(doubtful(traced), doubtful(traced), strict=True):
            assert static_function(one) == static_function(one) != static_function(other)

    compare(1.0)


def test_a_function_that_writes_to_what_it_reads_is_equal_to_itself_alone_once_it_was_traced():
    def counting():
        count = 0

        def counted(x):
            nonlocal count
            count += 1
            return count * x

        return static_function(counted)

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
        def size(network):
            return jnp.sum(network.weight**2)

        X, y = np.eye(3), np.arange(3.0)
        problem = flowsim.EmpiricalRisk(X, y, lambda prediction, target: jnp.abs(prediction - target) ** 3)
        diagnostics = {"bias": lambda network: network.bias}
        flow = flowsim.integrate(start(), problem, max_steps=3, probes=[size], diagnostics=diagnostics)
        flowsim.sharpness(flow.network, problem)
        return compiled()

    assert run() == run()
