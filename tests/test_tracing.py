"""What traces of a risk tell before a run: weights without a derivative, numbers left out, random numbers."""

import random
import time
import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import flowsim
from flowsim.problems import check_weights

X = np.random.default_rng(0).standard_normal((6, 3))
DATA = flowsim.EmpiricalRisk(X, np.cos(X[:, 0]))
START = jnp.ones(3)


class Shifted(eqx.Module):
    """A line behind a shift that is not trained, with a part that it does not read."""

    shift: object
    w: jax.Array
    spare: object = None

    def __call__(self, x):
        shift = self.shift.value if isinstance(self.shift, flowsim.Fixed) else jax.lax.stop_gradient(self.shift)
        return self.w @ (x - shift)


class Quadratic(flowsim.Problem):
    """A problem of a user's own, which reads one of two weights behind a comparison."""

    def __call__(self, network):
        return jnp.sum(jnp.where(network["at"] > 0, 1.0, 2.0) * network["w"] ** 2)


STOPPED = Shifted(jnp.array([1.0, 2.0, 3.0]), START)
SPARE = Shifted(flowsim.Fixed(jnp.array([1.0, 2.0, 3.0])), START, {"head": jnp.ones(2)})
DECAYING = flowsim.RegularizedRisk(DATA, 0.1)
RUNS = {
    "integrate": flowsim.integrate,
    "descend": lambda *both: flowsim.descend(*both, learning_rate=0.1, steps=2),
    "compare": lambda *both: flowsim.compare(*both, [0.1], steps=2),
    "sharpness": flowsim.sharpness,
    "spectrum": flowsim.curvature.spectrum,
    "layer_sharpness": flowsim.curvature.layer_sharpness,
}


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_weights_that_the_risk_has_no_derivative_in_are_refused_by_name(run):
    for problem in (DATA, DECAYING):
        with pytest.raises(ValueError, match=r"weights \.shift and has no derivative.*flowsim\.Fixed\(array\)"):
            run(STOPPED, problem)
    with pytest.raises(ValueError, match=r"weights \.spare\['head'\], and weight decay would move them"):
        run(SPARE, DECAYING)
    with pytest.raises(ValueError, match=r"weights \['at'\] and has no derivative"):
        run({"at": START, "w": START}, Quadratic())


def test_decoupled_decay_refuses_weights_that_the_risk_does_not_depend_on():
    decaying = flowsim.DecoupledDecay(flowsim.GradientDescent(0.1), 0.1)
    with pytest.raises(ValueError, match=r"\.spare\['head'\], and weight decay would move them"):
        flowsim.descend(SPARE, DATA, optimizer=decaying, steps=2)


def test_what_is_held_as_the_refusal_proposes_stays_and_a_spare_part_stays_without_decay():
    held = Shifted(flowsim.Fixed(STOPPED.shift), START)
    run = flowsim.integrate(held, DECAYING, ts=[])
    assert run.outcome is flowsim.Outcome.CONVERGED
    np.testing.assert_array_equal(run.network.shift.value, STOPPED.shift)
    alone = flowsim.descend(SPARE, flowsim.RegularizedRisk(DATA, 0.0), learning_rate=0.1, steps=2)
    np.testing.assert_array_equal(alone.network.spare["head"], SPARE.spare["head"])


def test_a_gradient_that_is_zero_by_its_value_alone_is_one():
    off = flowsim.Risk(lambda p: jnp.sum(jax.nn.relu(p["a"])) + 0 * jnp.sum(p["b"]))
    check_weights({"a": -START, "b": START}, flowsim.RegularizedRisk(off, 0.1))


def affine(p):
    return jnp.mean((X @ p["w"] + p["b"] - 1) ** 2)


@pytest.mark.parametrize(
    ("network", "risk", "named"),
    [
        ({"w": START, "b": 0.0}, affine, r"\['b'\] \(a float of Python\)"),
        ({"w": np.zeros(3, int), "b": jnp.array(0.0)}, affine, r"\['w'\] \(an array of int64\)"),
        ([START, True], lambda p: jnp.sum(p[0] ** 2) * p[1], r"\[1\] \(a bool of Python\)"),
        ((START, 2), lambda p: jnp.sum(p[0] ** 2) * p[1], r"\[1\] \(a int of Python\)"),
        (Shifted(np.arange(3), START), lambda n: jnp.sum((n.w - n.shift) ** 2), r"\.shift \(an array of int64\)"),
        (Shifted(0.5, START), lambda n: jnp.sum((n.w - n.shift) ** 2), r"\.shift \(a float of Python\)"),
    ],
)
def test_numbers_that_are_not_trained_although_the_risk_depends_on_them_are_named(network, risk, named):
    with pytest.warns(UserWarning, match=f"not trained.*: {named}; weights are arrays.*flowsim.Fixed"):
        check_weights(network, flowsim.Risk(risk))


@pytest.mark.parametrize(
    "network",
    [
        {"w": START, "b": jnp.array(0.0), "n": 3, "key": jax.random.key(0), "name": "first"},
        {"w": START, "b": flowsim.Fixed(0.0)},
        Shifted(2, START, (True, 3, jnp.tanh)),
        eqx.nn.MLP(3, "scalar", 3, 1, key=jax.random.key(0)),
        eqx.nn.Sequential([eqx.nn.Dropout(0.5, inference=True), eqx.nn.Linear(3, "scalar", key=jax.random.key(0))]),
    ],
)
def test_settings_indices_and_what_is_held_need_no_warning(network):
    def risk(net):
        if isinstance(net, dict):
            shift = net["b"].value if isinstance(net["b"], flowsim.Fixed) else net["b"]
            return jnp.sum(net["w"] ** 2) + shift**2
        if isinstance(net, Shifted):
            return jnp.sum((net.w * net.shift) ** 2) + net.w[net.spare[1] - 1]
        return jnp.mean(jax.vmap(net)(X) ** 2)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_weights(network, flowsim.Risk(risk))


GENERATOR = np.random.default_rng(0)
RANDOM = {
    "NumPy": lambda x: x * (np.random.rand(3) > 0.5),  # noqa: NPY002
    "one bit of NumPy": lambda x: x * np.random.randint(2),  # noqa: NPY002
    "a generator": lambda x: x + GENERATOR.standard_normal(3),
    "Python": lambda x: x * random.random(),
    "a position": lambda x: x.at[random.randrange(10**6) % 3].set(0.0),
    "a clock": lambda x: x + time.time(),
    "inside a loop": lambda x: jax.lax.fori_loop(0, 2, lambda i, y: y * np.random.rand(), x),  # noqa: NPY002
}


@pytest.mark.parametrize("draw", RANDOM.values(), ids=RANDOM)
def test_a_model_that_draws_random_numbers_is_refused(draw):
    np.random.seed(0)  # noqa: NPY002
    random.seed(0)
    risk = flowsim.Risk(lambda w: jnp.sum(draw(w) ** 2))
    for run in (flowsim.integrate, flowsim.sharpness):
        with pytest.raises(ValueError, match="two traces of the model differ: draw no random numbers in it"):
            run(START, risk)


def test_a_model_that_makes_the_same_constants_in_each_trace_is_let_through():
    def seeded(w):
        np.random.seed(1)  # noqa: NPY002
        mask = np.random.default_rng(0).standard_normal(3) * np.random.rand(3)  # noqa: NPY002
        return jnp.sum((w * mask + jnp.arange(3) + jnp.array([np.nan, 1.0, 2.0])[1]) ** 2)

    check_weights(START, flowsim.Risk(seeded))


def test_the_risk_is_traced_no_more_for_other_numbers_of_the_same_structure():
    traces = []

    def risk(w):
        traces.append(w)
        return jnp.sum(w**2)

    problem = flowsim.Risk(risk)
    check_weights(START, problem)
    made = len(traces)
    check_weights(2 * START, problem)
    assert made == len(traces) == 2
