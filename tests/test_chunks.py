"""Passes over samples in chunks: the same numbers, in the memory of one chunk, where they would not fit otherwise."""

from argparse import Namespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import flowsim
from flowsim.cli.jobs import read_jobs
from flowsim.problems.chunks import activation_bytes, fitting_chunk, over_samples

RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((37, 4)), RNG.standard_normal((37, 2))
MATRICES = [RNG.standard_normal(shape) / 2 for shape in ((5, 4), (5, 5), (2, 5))]
NETWORK = flowsim.Perceptron(MATRICES, activation="tanh")
ALL_AT_ONCE = flowsim.EmpiricalRisk(X, Y)


def predicted(samples):
    hidden = np.tanh(np.tanh(samples @ MATRICES[0].T) @ MATRICES[1].T)
    return hidden @ MATRICES[2].T


@pytest.fixture
def little_memory(monkeypatch):
    """Return a function that says how much memory there is."""
    return lambda most: monkeypatch.setattr("flowsim.problems.chunks.device_bytes", lambda: most)


def in_chunks_of(size):
    return flowsim.EmpiricalRisk(X, Y, chunk_size=size)


@jax.jit
def passes(problem):
    """Return risk, gradient, a Hessian–vector product and the risk of zero predictions."""
    weights, rest = flowsim.networks.split(NETWORK)
    gradient = jax.grad(lambda moved: problem(eqx.combine(moved, rest)))
    return problem(NETWORK), gradient(weights), jax.linearize(gradient, weights)[1](weights), problem.null_risk(NETWORK)


@pytest.mark.slow
def test_passes_in_chunks_give_what_one_pass_gives():
    expected = jax.tree.leaves(passes(ALL_AT_ONCE))
    for size in (36, 1000):
        for leaf, of_one_pass in zip(jax.tree.leaves(passes(in_chunks_of(size))), expected, strict=True):
            np.testing.assert_allclose(leaf, of_one_pass, rtol=1e-12, atol=1e-15)


def test_risk_and_gradient_in_chunks_are_those_of_the_mean_over_all_samples():
    risk, gradient = eqx.filter_jit(eqx.filter_value_and_grad(lambda network: in_chunks_of(5)(network)))(NETWORK)
    np.testing.assert_allclose(risk, np.mean(np.sum((predicted(X) - Y) ** 2, axis=1)), rtol=1e-13)
    hidden = np.tanh(np.tanh(X @ MATRICES[0].T) @ MATRICES[1].T)
    np.testing.assert_allclose(gradient.weights[2], 2 / 37 * (predicted(X) - Y).T @ hidden, rtol=1e-12)


def test_curved_outputs_in_chunks_are_predictions_times_roots_of_the_curvature():
    problem = flowsim.EmpiricalRisk(X[:7], Y[:7], lambda p, t: jnp.sum(jnp.cosh(p - t)), chunk_size=3)
    doubled = flowsim.Perceptron([*MATRICES[:2], 2 * MATRICES[2]], activation="tanh")
    curved = eqx.filter_jit(lambda network, other: problem.curved_outputs(network)(other))(NETWORK, doubled)
    outputs = predicted(X[:7])
    np.testing.assert_allclose(curved, (np.sqrt(np.cosh(outputs - Y[:7]) / 7) * 2 * outputs).ravel(), rtol=1e-12)


def test_gradient_and_linearized_gradient_keep_one_chunk():
    samples = np.ones((4000, 4))
    weights, rest = flowsim.networks.split(NETWORK)

    def planned(size):
        def risk(weights):
            network = eqx.combine(weights, rest)
            return jnp.mean(over_samples(lambda x: jnp.sum(network(x) ** 2), [samples], size))

        def products(weights):
            product = jax.linearize(jax.grad(risk), weights)[1]
            return jax.lax.fori_loop(0, 3, lambda _, vector: product(vector), weights)

        programs = (jax.jit(function).lower(weights).compile() for function in (jax.grad(risk), products))
        return [program.memory_analysis().temp_size_in_bytes for program in programs]

    # A sixteenth, the samples themselves aside, which are cut out of the whole once more.
    assert all(4 * chunked < whole for chunked, whole in zip(planned(251), planned(None), strict=True))


def test_what_a_sample_computes_is_counted_and_what_a_loop_keeps_for_every_layer():
    def of_a_sample(weight, x):  # an outer product, of the sample alone; its exponential; its sum with what is not
        fixed = jnp.sin(weight)
        return jnp.sum(jnp.exp(x[:, None] * x[None, :]) + fixed)

    count = activation_bytes(of_a_sample, jnp.ones((10, 10)), jax.ShapeDtypeStruct((10,), jnp.float32))
    # Twice the sample as a row or a column, the product, its exponential, the sum with float64 numbers, and the total.
    numbers = {4: 10 + 10 + 100 + 100 + 100, 8: 100 + 1}
    assert count == pytest.approx(sum(size * entries for size, entries in numbers.items()), rel=0.3)

    def loop(stack, x):
        return jax.lax.scan(lambda state, weight: (jnp.tanh(weight @ state), None), x, stack)[0]

    counts = [activation_bytes(loop, jnp.ones((depth, 8, 8)), jnp.ones(8)) for depth in (3, 30)]
    assert counts == [3 * 2 * 64, 30 * 2 * 64]


def test_chunks_are_chosen_where_a_pass_does_not_fit(little_memory):
    needed = ALL_AT_ONCE.pass_bytes(NETWORK)
    little_memory(2.1 * needed)
    assert ALL_AT_ONCE.samples_at_once(NETWORK) is None
    little_memory(1.9 * needed)
    chosen = ALL_AT_ONCE.samples_at_once(NETWORK)
    assert 1 <= chosen <= 37 / 4
    assert in_chunks_of(11).samples_at_once(NETWORK) == 11
    little_memory(1.0)
    assert ALL_AT_ONCE.samples_at_once(NETWORK) == 1
    little_memory(2.0**40)  # of which a chunk is a share, but no larger than pays
    sizes = [fitting_chunk(*given) for given in ((2.0**20, 2**18), (2.0**20, 2**19), (2.0**35, 2**19))]
    assert sizes == [None, 2**9, 1]


def test_a_chunk_is_a_number_of_samples():
    for size in (0, 2.5, True):
        with pytest.raises(ValueError, match="chunk_size must be a number of samples, one or more, or None, got"):
            in_chunks_of(size)


SCENARIO = """
data: {kind: gaussian, samples: 20, features: 2}
network: {kind: mlp, depth: 2, scale: 0.5, width: 3, activation: tanh}
flow: {max_steps: 3}
descent: {learning_rates: [0.1], steps: 2}
"""


def test_the_command_line_says_that_passes_are_made_in_chunks(tmp_path, capsys, little_memory):
    (tmp_path / "small.yaml").write_text(SCENARIO)
    options = Namespace(scenarios=[tmp_path / "small.yaml"], set=[], quick=False, out=tmp_path, overwrite=False)
    read_jobs(options)
    assert capsys.readouterr().err == ""
    little_memory(1000.0)
    read_jobs(options)
    assert "small.yaml: a pass over all samples takes about " in (said := capsys.readouterr().err)
    assert said.endswith(" kB of memory, so it is made in chunks of 1\n")
