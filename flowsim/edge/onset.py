"""The amplitude with which descent's oscillation begins: what its own iterates alternate by as they come to the edge.

Below 2/η an oscillation decays, and past it grows from what is left. In exact arithmetic that is what a smooth path
cannot have: the faster the sharpness rises through 1/η, where descent would end an oscillation within a step, the more;
of a path that takes hundreds of steps for it, rounding alone is left. No local quantity tells which: descent does.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from ..curvature import eigenpairs_lanczos, hessian_product, vectors
from ..dynamics.learning_rates import Scalar, rate_at
from ..solvers import Work
from ..solvers.field import GradientField, norm

_ORDERS = (2, 4, 8)
_REACH = max(_ORDERS) // 2


class Onset(eqx.Module):
    """The `amplitude` with which descent comes to the edge, zero where rounding alone is left.

    To find out took a gradient and a product with the Hessian in each of so many `steps`.
    """

    amplitude: Float[Array, ""]
    steps: Int[Array, ""]

    @property
    def work(self) -> Work:
        """The work that it took."""
        return Work(self.steps, self.steps)


def onset(
    field: GradientField,
    weights: PyTree,
    direction: PyTree,
    rate: Scalar,
    *,
    known: Bool[Array, ""],
    most: int = 1000,
) -> Onset:
    """Descend from `weights` up to where the sharpness passes 2/η, at most so many steps, and return what alternates.

    `direction` is an eigenvector of the largest eigenvalue of the Hessian there, which each step brings up to date. The
    alternating part along it is the least of the central differences of three orders: in those of order n the smooth
    part has become n derivatives in the number of the step, divided by 2ⁿ. Where the amplitude is `known`, or none has
    been found, the result is zero.
    """
    zero = jnp.zeros((), vectors.dtype_of(weights))

    def goes_on(search: _Search) -> Array:
        # A descent that diverges before it comes to an edge is not followed.
        finite = jnp.isfinite(norm(vectors.row(search.recent, -1)))
        return ~known & finite & (search.steps < jnp.minimum(search.passed + _REACH, most))

    def step(search: _Search) -> _Search:
        here, eta = vectors.row(search.recent, -1), rate_at(rate, search.time)
        gradient, image = jax.jvp(jax.grad(field.objective), (here,), (search.direction,))
        past = eta * vectors.inner_product(search.direction, image) > 2
        after = jax.tree.map(lambda w, g: w - eta * g, here, gradient)
        length = norm(image)
        return _Search(
            jax.tree.map(lambda old, new: jnp.concatenate([old[1:], new[None]]), search.recent, after),
            vectors.where(length > 0, vectors.divided(image, jnp.where(length > 0, length, 1)), search.direction),
            search.steps + 1,
            jnp.where(past & (search.passed == most), search.steps, search.passed),
            search.time + eta,
        )

    still = jax.tree.map(lambda leaf: jnp.stack([leaf] * (2 * _REACH + 1)), weights)
    search = jax.lax.while_loop(goes_on, step, _Search(still, direction, jnp.array(0), jnp.array(most), zero))
    path = jax.vmap(vectors.inner_product, in_axes=(0, None))(search.recent, search.direction)
    found = jnp.full_like(zero, jnp.inf)
    for order in _ORDERS:
        weighting = jnp.asarray(np.poly([1.0] * order) / 2**order, path.dtype)
        part = jnp.abs(path[_REACH - order // 2 : _REACH + order // 2 + 1] @ weighting)
        found = jnp.where(search.passed >= order // 2, jnp.minimum(found, part), found)
    complete = search.steps == search.passed + _REACH
    return Onset(jnp.where(complete & jnp.isfinite(found), found, 0), search.steps)


def least_amplitude(weights: PyTree, direction: PyTree) -> Float[Array, ""]:
    """Return the length along `direction` of what a step loses as it rounds the weights, and above zero.

    The error of a rounding is spread evenly over the last bit, so that its root mean square is a quarter of the ε|wᵢ|
    which is about that bit.
    """
    known = jnp.finfo(vectors.dtype_of(weights))
    return known.eps / 4 * norm(jax.tree.map(jnp.multiply, weights, direction)) + known.tiny


class Beginning(eqx.Module):
    """Where a flow with an oscillation begins: the `centre`, the `direction`, and the `amplitude`, `least` at least.

    `least` is what rounding leaves.
    """

    centre: PyTree
    direction: PyTree
    amplitude: Float[Array, ""]
    least: Float[Array, ""]

    @classmethod
    def at(cls, field: GradientField, weights: PyTree, rate: Scalar) -> "Beginning":
        """Return the weights as the centre of an oscillation as small as rounding.

        Where ηS > 1 already, descent oscillates about the floor of the valley: the distance to it along the eigenvector
        is the amplitude, and the floor is the centre.
        """
        start = jax.tree.map(lambda leaf: leaf[None], vectors.scattered_like(weights, 0))
        # A direction turns towards the eigenvector by itself.
        rtol = max(1e-4, float(jnp.finfo(vectors.dtype_of(weights)).eps) ** 0.5)
        top = eigenpairs_lanczos(hessian_product(field.objective, weights), start, rtol=rtol).pair(0)
        tilt = vectors.inner_product(top.vector, jax.grad(field.objective)(weights))
        distance = jnp.where(jnp.asarray(rate_at(rate, 0.0)) * top.value > 1, tilt / top.value, 0)
        centre = jax.tree.map(lambda w, u: w - distance * u, weights, top.vector)
        least = least_amplitude(weights, top.vector)
        return cls(centre, top.vector, jnp.maximum(jnp.abs(distance), least), least)

    def onset(self, field: GradientField, rate: Scalar) -> Onset:
        """Return with which amplitude descent comes to the edge from here, zero where it oscillates already."""
        return onset(field, self.centre, self.direction, rate, known=self.amplitude > self.least)


class _Search(eqx.Module):
    """The last nine iterates, the direction, the steps, those to where the sharpness passed 2/η, and the time."""

    recent: PyTree
    direction: PyTree
    steps: Int[Array, ""]
    passed: Int[Array, ""]
    time: Float[Array, ""]
