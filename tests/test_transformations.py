"""Initializations and ends of runs under `jax.jit` and `jax.vmap`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import flowsim

SCALES = np.array([0.3, 0.5, 0.9])
FINAL = ("risk", "excess_risk", "squared_distance", "gradient_norm")


def deep(scale, **options):
    return flowsim.DeepLinear.gaussian(widths=[5, 5, 1], scale=scale, key=jax.random.key(4), **options)


def residual(scale, **options):
    return flowsim.DeepLinear.residual(width=5, depth=3, scale=scale, key=jax.random.key(4), **options)


def perceptron(scale, **options):
    return flowsim.Perceptron.gaussian(widths=[5, 4, 1], scale=scale, biases=True, key=jax.random.key(4), **options)


@pytest.mark.parametrize("draw", [residual, pytest.param(perceptron, marks=pytest.mark.slow)])
def test_a_scale_may_be_traced(draw):
    mapped, compiled = jax.vmap(draw)(SCALES), jax.jit(draw)(0.5)
    for lane, scale in enumerate(SCALES):
        alone = draw(float(scale))
        for many, one in zip(jax.tree.leaves(mapped), jax.tree.leaves(alone), strict=True):
            np.testing.assert_allclose(many[lane], one, rtol=1e-15)
    for one, other in zip(jax.tree.leaves(compiled), jax.tree.leaves(draw(0.5)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-15)
    slope = jax.jvp(lambda scale: draw(scale).stacks[0], (0.5,), (1.0,))[1]
    np.testing.assert_allclose(slope, (draw(1.5).stacks[0] - draw(0.5).stacks[0]), rtol=1e-12)


def test_a_scale_of_any_type_leaves_the_weights_theirs():
    expected = deep(0.5, dtype=jnp.float32).stacks[0]
    for scale in (np.float64(0.5), jnp.array(0.5)):
        found = deep(scale, dtype=jnp.float32).stacks[0]
        assert found.dtype == jnp.float32
        np.testing.assert_array_equal(found, expected)


def test_several_scales_at_once_and_a_complex_one_are_refused():
    for wrong in (SCALES, 0.5j * SCALES[0]):
        with pytest.raises(ValueError, match="scale must be a standard deviation, zero or more, got numbers of shape"):
            jax.eval_shape(deep, wrong)
        with pytest.raises(ValueError, match="scale must be a standard deviation, zero or more, got"):
            deep(wrong)


@pytest.fixture(scope="module")
def runs(problem):
    """Descents from three scales, each until it is slow, one by one and mapped."""

    def run(scale):
        stopping = flowsim.Stopping(gradient_norm=1e-3)
        return flowsim.descend(deep(scale), problem, learning_rate=0.05, steps=700, stopping=stopping)

    return [run(float(scale)) for scale in SCALES], jax.vmap(run)(SCALES), run


@pytest.mark.slow
def test_the_last_record_is_found_alone_mapped_and_compiled(runs):
    alone, mapped, _ = runs
    lengths = {len(one.times) for one in alone}
    assert len(lengths) == 3
    for name in FINAL:
        expected = [getattr(one, f"final_{name}") for one in alone]
        assert all(isinstance(last, float) for last in expected)
        assert expected == [float(getattr(one, name)[-1]) for one in alone]
        np.testing.assert_allclose(getattr(mapped, f"final_{name}"), expected, rtol=1e-9, atol=1e-15)


@pytest.mark.slow
def test_ends_are_known_inside_of_transformations(runs, problem):
    alone, mapped, run = runs

    def ends(scale):
        end = run(scale)
        finals = {name: getattr(end, f"final_{name}") for name in FINAL}
        return finals, end.outcome == flowsim.Outcome.CONVERGED, end.converged, end.final_sharpness

    finals, converged, arrived, sharpness = jax.jit(jax.vmap(ends))(SCALES)
    for name in FINAL:
        np.testing.assert_allclose(finals[name], getattr(mapped, f"final_{name}"), rtol=1e-9, atol=1e-15)
    outcomes = [one.outcome for one in alone]
    assert list(mapped.outcome) == outcomes
    assert converged.tolist() == arrived.tolist() == [outcome is flowsim.Outcome.CONVERGED for outcome in outcomes]
    np.testing.assert_allclose(sharpness, [one.final_sharpness for one in alone], rtol=1e-9)
    np.testing.assert_allclose(jax.vmap(flowsim.sharpness)(mapped.network, mapped.problem), sharpness, rtol=1e-9)
    with pytest.raises(ValueError, match=r"write jax.vmap\(flowsim.sharpness\)\(runs.network, runs.problem\)"):
        _ = mapped.final_sharpness
