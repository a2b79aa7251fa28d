"""Initializations and ends of runs under `jax.jit` and `jax.vmap`."""

import equinox as eqx
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


def test_a_scale_may_be_traced():
    mapped, compiled = jax.vmap(residual)(SCALES), jax.jit(residual)(0.5)
    for lane, scale in enumerate(SCALES):
        alone = residual(float(scale))
        for many, one in zip(jax.tree.leaves(mapped), jax.tree.leaves(alone), strict=True):
            np.testing.assert_allclose(many[lane], one, rtol=1e-15)
    for one, other in zip(jax.tree.leaves(compiled), jax.tree.leaves(residual(0.5)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-15)
    slope = jax.jvp(lambda scale: residual(scale).stacks[0], (0.5,), (1.0,))[1]
    np.testing.assert_allclose(slope, (residual(1.5).stacks[0] - residual(0.5).stacks[0]), rtol=1e-12)


def test_a_scale_of_any_type_leaves_the_weights_theirs():
    expected = deep(0.5, dtype=jnp.float32).stacks[0]
    for scale in (np.float64(0.5), jnp.array(0.5)):
        np.testing.assert_array_equal(deep(scale, dtype=jnp.float32).stacks[0], expected, strict=True)
    assert expected.dtype == jnp.float32


def test_several_scales_at_once_and_a_complex_one_are_refused():
    for wrong in (SCALES, 0.5j * SCALES[0]):
        with pytest.raises(ValueError, match="scale must be a standard deviation, zero or more, got numbers of shape"):
            jax.eval_shape(deep, wrong)
        with pytest.raises(ValueError, match="scale must be a standard deviation, zero or more, got"):
            deep(wrong)


@pytest.mark.slow
def test_the_ends_of_descents_are_known_alone_mapped_and_compiled(problem):
    """Each is from another scale, with another learning rate, until it is slow."""

    def run(scale):
        stopping = flowsim.Stopping(gradient_norm=1e-3)
        return flowsim.descend(deep(scale), problem, learning_rate=0.04 + 0.02 * scale, steps=700, stopping=stopping)

    alone, mapped = [run(float(scale)) for scale in SCALES], jax.vmap(run)(SCALES)
    assert len({len(one.times) for one in alone}) == 3
    for name in FINAL:
        expected = [getattr(one, f"final_{name}") for one in alone]
        assert all(isinstance(last, float) for last in expected)
        assert expected == [float(getattr(one, name)[-1]) for one in alone]
        np.testing.assert_allclose(getattr(mapped, f"final_{name}"), expected, rtol=1e-9, atol=1e-15)

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


def springs(k):
    return flowsim.Risk(lambda w: jnp.sum(k * (w - 1) ** 2) / 2 + jnp.sum(w**4) / 10)


def springs_of_a_class(k):
    class Springs(flowsim.Problem):
        def __call__(self, w):
            return springs(k)(w)

    return Springs()


class Line(eqx.Module):
    w: jax.Array

    def __call__(self, x):
        return self.w @ x


def weighted(k):
    return flowsim.EmpiricalRisk(np.eye(2), np.ones(2), lambda prediction, y: k[0] * jnp.sum((prediction - y) ** 2))


STIFFNESSES = jnp.array([[1.0, 2.0], [1.0, 30.0]])
HALF = jnp.full(2, 0.5)
MAPPED = {
    "descend": lambda k: flowsim.descend(HALF, springs(k), learning_rate=0.01, steps=9).final_risk,
    "descend, a class": lambda k: flowsim.descend(HALF, springs_of_a_class(k), learning_rate=0.01, steps=9).final_risk,
    "sharpness": lambda k: flowsim.sharpness(HALF, springs(k)),
    "spectrum": lambda k: flowsim.curvature.spectrum(HALF, springs(k)).nodes,
}
LONGER = {
    "integrate": lambda k: flowsim.integrate(0 * k, springs(k), t1=3.0).final_risk,
    "integrate, a loss": lambda k: flowsim.integrate(Line(HALF), weighted(k), t1=3.0).final_risk,
}


@pytest.mark.parametrize(
    "run",
    [*(pytest.param(run, id=name) for name, run in MAPPED.items())]
    + [pytest.param(run, id=name, marks=pytest.mark.slow) for name, run in LONGER.items()],
)
def test_what_a_risk_closes_over_may_be_mapped(run):
    expected = [run(k) for k in STIFFNESSES]
    np.testing.assert_allclose(jax.vmap(run)(STIFFNESSES), expected, rtol=1e-9)


@pytest.mark.slow
def test_what_a_risk_closes_over_may_be_mapped_twice_and_compiled():
    def run(first, second):
        return MAPPED["descend"](jnp.stack([first, second]))

    expected = jnp.array([[run(first, second) for second in (2.0, 30.0)] for first in (1.0, 3.0)])
    first, second = jnp.array([1.0, 3.0]), jnp.array([2.0, 30.0])
    over_second = jax.vmap(run, in_axes=(None, 0))
    for mapped in (
        jax.vmap(over_second, in_axes=(0, None)),
        jax.jit(jax.vmap(jax.jit(over_second), in_axes=(0, None))),
    ):
        np.testing.assert_allclose(mapped(first, second), expected, rtol=1e-9)
