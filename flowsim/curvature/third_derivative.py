"""The third derivative of the risk, contracted with a few directions: how curvature changes with the weights."""

from collections.abc import Callable
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from ..networks import cast, split, weight_dtype
from ..problems import Problem, check_problem
from ..runtime.compiling import compiled
from . import vectors

Objective = Callable[[PyTree], Float[Array, ""]]


class Contractions(eqx.Module):
    """What k directions u_1, …, u_k have of the third derivative: T_ij = ∇_W(u_iᵀH(W)u_j) = D³R[u_i, u_j, ·].

    `gradients` holds T_ij for i ≤ j, in the order of `numpy.triu_indices(k)`: the weights with a leading axis of
    k(k + 1)/2. Of the central flow (Cohen, Damian, Talwalkar, Kolter and Lee 2024) are `gram`, B_ijkl = ½⟨T_ij, T_kl⟩,
    (k, k, k, k), and `sharpening`, A_ij = −⟨T_ij, ∇R⟩, (k, k): the rate at which u_iᵀHu_j changes along the gradient
    flow. `hessian` is u_iᵀHu_j itself, (k, k).
    """

    gradients: PyTree
    gram: Float[Array, "k k k k"]
    sharpening: Float[Array, "k k"]
    hessian: Float[Array, "k k"]

    def gradient(self, one: int, other: int) -> PyTree:
        """Return T_ij as the weights; T_ij = T_ji."""
        return vectors.row(self.gradients, int(_places(self.hessian.shape[0])[one, other]))


def contraction(objective: Objective, weights: PyTree, one: PyTree, other: PyTree) -> tuple[PyTree, PyTree]:
    """Return Hu, and D³R[u, v, ·] = ∇(uᵀHv), for directions u and v as the weights.

    The derivative of a Hessian–vector product along v, forward over forward over reverse: as D³R is symmetric it is the
    gradient of uᵀHv, without the memory of one more backward pass.
    """

    def product(moved: PyTree) -> PyTree:
        return jax.jvp(jax.grad(objective), (moved,), (one,))[1]

    return jax.jvp(product, (weights,), (other,))


@partial(compiled, few_calls=True)
def contractions(network: PyTree, problem: Problem, directions: PyTree) -> Contractions:
    """Return the third derivative of the risk on a few directions, such as the `vectors` of `top_eigenpairs`.

    `directions` are k rows: the weights, as the network holds them, with a leading axis of k. T_ij takes one Hessian–
    vector product and its derivative for each of the k(k + 1)/2 pairs, one after the other; ∇R one gradient. Works
    under `jax.jit` and `jax.vmap`. Raises `ValueError` for directions that are no rows of weights.
    """
    check_problem(problem)
    weights, rest = split(network)
    problem = cast(problem, weight_dtype(network))
    directions, _ = split(directions)
    count = _checked_count(weights, directions)

    def objective(moved: PyTree) -> Float[Array, ""]:
        return problem.objective(eqx.combine(moved, rest))

    def of_pair(pair: Int[Array, " two"]) -> tuple[PyTree, Array]:
        one, other = (vectors.row(directions, index) for index in pair)
        image, gradient = contraction(objective, weights, one, other)
        return gradient, vectors.inner_product(image, other)

    gradients, hessian = jax.lax.map(of_pair, jnp.stack(jnp.triu_indices(count), axis=1))
    gram = vectors.gram(gradients, gradients) / 2
    sharpening = -vectors.inner_products(gradients, jax.grad(objective)(weights))
    places = _places(count)
    return Contractions(gradients, gram[places][:, :, places], sharpening[places], hessian[places])


def _places(count: int) -> Int[np.ndarray, "k k"]:
    """Return where the pair (i, j) stands among those with i ≤ j."""
    places = np.zeros((count, count), int)
    upper = np.triu_indices(count)
    places[upper] = np.arange(len(upper[0]))
    return np.maximum(places, places.T)


def _checked_count(weights: PyTree, directions: PyTree) -> int:
    """Return the number k of directions; `ValueError` where they are no rows of weights."""
    leaves, shapes = jax.tree.leaves(directions), [jnp.shape(leaf) for leaf in jax.tree.leaves(directions)]
    expected = [leaf.shape for leaf in jax.tree.leaves(weights)]
    counts = {shape[:1] for shape in shapes}
    alike = jax.tree.structure(directions) == jax.tree.structure(weights) and [s[1:] for s in shapes] == expected
    if not alike or len(counts) != 1 or counts <= {(), (0,)}:
        raise ValueError(
            f"the directions hold arrays of shapes {shapes} beside weights of shapes {expected}: expected the weights "
            "with one more axis in front, of one length k; write the vectors of flowsim.curvature.top_eigenpairs, or "
            "jax.tree.map(lambda leaf: leaf[None], direction) for one"
        )
    return leaves[0].shape[0]
