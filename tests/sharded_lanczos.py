"""Run by test_curvature in a process with two devices: eigenpairs of a Hessian whose weights lie on both of them."""

import equinox as eqx
import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

import flowsim
from flowsim.curvature import eigenpairs_lanczos, spectral_bounds, top_eigenpairs
from flowsim.curvature.vectors import scattered_like
from flowsim.data import gaussian_teacher

jax.config.update("jax_enable_x64", True)


def main():
    assert len(jax.devices()) == 2
    problem = flowsim.LinearRegression(*gaussian_teacher(np.random.default_rng(0), 80, 8))
    network = flowsim.DeepLinear.residual(width=8, depth=10, scale=0.5, key=jax.random.key(0))
    network = eqx.tree_at(lambda n: n.fixed, network, flowsim.networks.Fixed(np.ones(8)), is_leaf=lambda x: x is None)
    mesh = jax.make_mesh((2,), ("rows",), axis_types=(jax.sharding.AxisType.Auto,))
    sharding = NamedSharding(mesh, PartitionSpec(None, "rows", None))
    sharded = eqx.tree_at(lambda n: n.stacks, network, (jax.device_put(network.stacks[0], sharding),))
    alone, both = (top_eigenpairs(n, problem, count=2, dense=False) for n in (network, sharded))
    assert bool(both.converged.all())
    np.testing.assert_allclose(both.values, alone.values, rtol=1e-12)
    (vectors,) = both.vectors.stacks
    assert vectors.addressable_shards[0].data.shape == (2, 10, 4, 8), vectors.sharding
    np.testing.assert_allclose(spectral_bounds(sharded, problem).smallest, spectral_bounds(network, problem).smallest)
    scattered_entries_lie_where_the_vector_does(sharding)
    nothing_is_gathered(sharding)


def scattered_entries_lie_where_the_vector_does(sharding):
    """Operation by operation and compiled: each device makes its own part, and the parts are what one would make."""
    alone = np.zeros((10, 8, 8))
    vector = jax.device_put(alone, sharding)
    compiled = jax.jit(scattered_like).lower(vector, 1).compile()
    assert "all-" not in compiled.as_text()
    for drawn in (scattered_like(vector, 1), compiled(vector, 1)):
        assert drawn.sharding.is_equivalent_to(sharding, 3), drawn.sharding
        np.testing.assert_array_equal(drawn, scattered_like(jax.numpy.asarray(alone), 1))


def nothing_is_gathered(sharding):
    """An operator that acts entry by entry needs sums over the devices, and nothing else of them."""
    shape = (1, 10, 8, 8)
    diagonal = jax.device_put(np.linspace(0.0, 1.0, 640).reshape(shape[1:]), sharding)
    start = jax.device_put(
        np.random.default_rng(0).standard_normal(shape),
        NamedSharding(sharding.mesh, PartitionSpec(None, *sharding.spec)),
    )
    run = jax.jit(lambda d, s: eigenpairs_lanczos(lambda v: d * v, s))
    program = run.lower(diagonal, start).compile().as_text()
    assert "all-gather" not in program
    assert "all-reduce" in program
    np.testing.assert_allclose(run(diagonal, start).values, [1.0], rtol=1e-12)


if __name__ == "__main__":
    main()
