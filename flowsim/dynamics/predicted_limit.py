"""Where the flow from weights of small gradient ends, as two Newton steps predict it."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from ..curvature import LocalQuadraticModel, local_quadratic_model
from ..curvature.vectors import scattered_like, where
from ..solvers.field import GradientField, norm


class PredictedLimit(eqx.Module):
    """The limit of a run by local quadratic models: at `limit`, two Newton `steps` past the `floor` of the valley.

    `slope` is the gradient at the floor in the directions `around` it, `drift` that at the limit in those that do not
    curve upwards; both are zero where they may be rounding. `objective` is that at the floor.
    """

    floor: PyTree
    limit: PyTree
    around: LocalQuadraticModel
    slope: Float[Array, " k"]
    drift: Float[Array, " k"]
    steps: Float[Array, "2 k"]
    objective: Float[Array, ""]

    def is_certain(self) -> Bool[Array, ""]:
        """Tell whether the limit is where it is predicted.

        Of two Newton steps with the same matrix the second is a quarter of the first at most, so that those to follow
        add up to less than another third (Kantorovich). Down e^{−x} it is e^{−1} of it, and there is no limit.
        """
        first, second = jnp.linalg.norm(self.steps, axis=1)
        return second <= first / 4

    def leaves(self) -> Bool[Array, ""]:
        """Tell whether the gradient at the floor leads away from the predicted limit."""
        return jnp.any(~self.around.upwards & (self.slope != 0))


def predict_limit(field: GradientField, here: PyTree, precision: jnp.dtype) -> tuple[PredictedLimit, Float[Array, ""]]:
    """Return the predicted limit from weights that were found in this `precision`, and the objective at these.

    First to the floor of the valley, the third point looked at: how far off it a run is depends on its steps, and may
    be enough to tilt directions that are nearly flat by more than they curve. There gradients show their rounding,
    with all weights shaken, before the first of two Newton steps goes on.
    """
    approach, shakes = 2, 4
    last = approach + shakes  # behind this one the first of the two steps is taken

    @jax.jit  # so it is traced once
    def model(at: PyTree, slope: PyTree) -> LocalQuadraticModel:
        return local_quadratic_model(field.objective, at, slope)

    def look(
        found: tuple[PyTree, PyTree, LocalQuadraticModel, Array], turn: Array
    ) -> tuple[tuple[PyTree, PyTree, LocalQuadraticModel, Array], tuple[Array, Array, Array]]:
        floor, there, around, slopes = found
        seed = turn - approach
        at = where((seed > 0) & (turn <= last), shaken(there, precision, seed), there)
        objective, slope = jax.value_and_grad(field.objective)(at)
        floor = where(turn <= approach, at, floor)
        around = jax.lax.cond(turn <= approach, lambda: model(at, slope), lambda: around)
        slopes = slopes.at[turn].set(around.coordinates(slope))
        slope = slopes[jnp.where(turn == last, approach, turn)]
        flat, fast = ~around.upwards, around.values > jnp.finfo(around.values.dtype).eps ** 0.5 * around.radius
        size = jnp.where(flat, norm(jnp.where(flat, slope, 0)), jnp.abs(slope))
        rounding = _rounding_of_slope(slopes[approach : last + 1], floor, around, precision)
        known = jnp.where((turn < approach) | (size > rounding), slope, 0)
        taken = jnp.where(turn < approach, fast, ~flat & ((turn == last) | (turn == last + 1)))
        step = jnp.where(taken, -known / around.values, 0)
        return (floor, jax.tree.map(jnp.add, there, around.vector(step)), around, slopes), (known, step, objective)

    unseen = jax.tree.map(lambda like: jnp.zeros(like.shape, like.dtype), jax.eval_shape(model, here, here))
    unknown = jnp.zeros((last + 3, len(unseen.values)), unseen.values.dtype)
    begin = (here, here, unseen, unknown)
    (floor, limit, around, _), (slopes, steps, objectives) = jax.lax.scan(look, begin, jnp.arange(last + 3))
    drift = jnp.where(around.upwards, 0, slopes[-1])
    end = PredictedLimit(floor, limit, around, slopes[last], drift, steps[last : last + 2], objectives[approach])
    return end, objectives[0]


def _rounding_of_slope(
    slopes: Float[Array, "points k"], weights: PyTree, around: LocalQuadraticModel, precision: jnp.dtype
) -> Float[Array, " k"]:
    """Return the size up to which components of the gradient may be rounding.

    It is seen where every weight is moved by its own rounding, up or down: `slopes` are those at the weights, first,
    and where they are moved. In a direction that curves upwards it is ten times what that changes, and no less than
    where all weights are moved by the rounding of ‖W‖. The others are no directions of their own: the gradient in all
    of them together counts as one vector, and its size up to four times that of the largest change of it. Along a
    valley that bends a flow may creep on for long by less than any component would show.
    """
    changes = jnp.abs(slopes[1:] - slopes[:1])
    together = jnp.max(jax.vmap(norm)(jnp.where(around.upwards[None], 0, changes)))
    least = jnp.abs(around.values) * float(jnp.finfo(precision).eps) * norm(weights)
    return jnp.where(around.upwards, 10 * jnp.maximum(least, jnp.max(changes, axis=0)), 4 * together)


def shaken(weights: PyTree, precision: jnp.dtype, seed: int | Int[Array, ""]) -> PyTree:
    """Return weights each of which is moved by one rounding."""
    eps = float(jnp.finfo(precision).eps)
    return jax.tree.map(lambda w, sign: w * (1 + eps * jnp.sign(sign)), weights, scattered_like(weights, seed))
