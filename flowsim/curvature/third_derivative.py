"""The third derivative of the risk on a few directions, and with it the gradient of the sharpness over the weights."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from ..formatting import encodable
from ..networks import split
from ..problems import Problem
from ..runtime.compiling import compiled, with_standard_options
from . import vectors
from .eigenpair import Eigenpairs, resolve_rtol
from .hessian import Objective, end_pairs, objective_of
from .line import after, certified, is_no_number, scalar_of


class Contractions(eqx.Module):
    """What k directions u_1, …, u_k have of the third derivative: T_ij = ∇_W(u_iᵀH(W)u_j) = D³R[u_i, u_j, ·].

    `gram` and `sharpening` are those of the central flow (Cohen, Damian, Talwalkar, Kolter and Lee 2024).
    """

    gradients: PyTree
    """T_ij for i ≤ j, in the order of `numpy.triu_indices(k)`: the weights with a leading axis of k(k + 1)/2."""
    gram: Float[Array, "k k k k"]
    """B_ijkl = ½⟨T_ij, T_kl⟩."""
    sharpening: Float[Array, "k k"]
    """A_ij = −⟨T_ij, ∇R⟩, the rate at which u_iᵀHu_j changes along the gradient flow."""
    hessian: Float[Array, "k k"]
    """u_iᵀHu_j itself."""

    def gradient(self, one: int, other: int) -> PyTree:
        """Return T_ij as the weights; T_ij = T_ji."""
        return vectors.row(self.gradients, int(_pair_indices(self.hessian.shape[0])[one, other]))


def contraction(objective: Objective, weights: PyTree, one: PyTree, other: PyTree) -> tuple[PyTree, PyTree]:
    """Return Hu, and D³R[u, v, ·] = ∇(uᵀHv), for directions u and v as the weights.

    The derivative of a Hessian–vector product along v, forward over forward over reverse: as D³R is symmetric it is the
    gradient of uᵀHv, without the memory of one more backward pass.
    """

    def product(moved: PyTree) -> PyTree:
        return jax.jvp(jax.grad(objective), (moved,), (one,))[1]

    return jax.jvp(product, (weights,), (other,))


@partial(compiled, few_calls=True)
@with_standard_options
def contractions(network: PyTree, problem: Problem, directions: PyTree) -> Contractions:
    """Return the third derivative of the risk on a few directions, such as the `vectors` of `top_eigenpairs`.

    T_ij takes one Hessian–vector product and its derivative for each of the k(k + 1)/2 pairs, one after the other; ∇R
    one gradient. Works under `jax.jit` and `jax.vmap`.

    Args:
        network: The weights W: any pytree of arrays, such as an Equinox module.
        problem: The risk R.
        directions: The k directions as rows: the weights, as the network holds them, with a leading axis of k.

    Returns:
        T_ij = ∇_W(u_iᵀH(W)u_j) for all pairs, with its products with itself and with ∇R.

    Raises:
        ValueError: For directions that are no rows of weights.
    """
    objective, weights = objective_of(network, problem)
    directions, _ = split(directions)
    count = _check_directions(weights, directions)

    def of_pair(pair: Int[Array, " two"]) -> tuple[PyTree, Array]:
        one, other = (vectors.row(directions, index) for index in pair)
        image, gradient = contraction(objective, weights, one, other)
        return gradient, vectors.inner_product(image, other)

    gradients, hessian = jax.lax.map(of_pair, jnp.stack(jnp.triu_indices(count), axis=1))
    gram = vectors.gram(gradients, gradients) / 2
    sharpening = -vectors.inner_products(gradients, jax.grad(objective)(weights))
    indices = _pair_indices(count)
    return Contractions(gradients, gram[indices][:, :, indices], sharpening[indices], hessian[indices])


def _pair_indices(count: int) -> Int[np.ndarray, "k k"]:
    """Return the index of the pair (i, j) among those with i ≤ j."""
    indices = np.zeros((count, count), int)
    upper = np.triu_indices(count)
    indices[upper] = np.arange(len(upper[0]))
    return np.maximum(indices, indices.T)


def _check_directions(weights: PyTree, directions: PyTree) -> int:
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


class SharpnessGradient(eqx.Module):
    """The sharpness S = λ_max(H), its gradient ∇S = ∇_W(uᵀH(W)u) at fixed u, and how well both are known.

    To first order ∇S is off by 2 sin θ ‖Mw‖, for M = D³R[u, ·, ·] and some unit w at right angles to u. `repr` is a
    line.
    """

    value: Float[Array, ""]
    """S."""
    gradient: PyTree
    """∇S, as the weights."""
    vector: PyTree
    """u, of length one, as the weights."""
    residual: Float[Array, ""]
    """As in `Eigenpair`."""
    gap: Float[Array, ""]
    """The least distance of S to the second eigenvalue, whose own residual is taken off; infinite for one weight."""
    angle: Float[Array, ""]
    """A bound, in radians, on the angle θ between `vector` and the eigenvector: sin θ ≤ residual/gap (Davis and Kahan
    1970; Parlett 1998, theorem 11.7.1). It is π/2 where nothing is known."""
    relative_error: Float[Array, ""]
    """The estimate 2 sin θ ‖M‖/‖∇S‖ of the error of ∇S, rounding apart: an estimate, not a bound, as ‖M‖ is approached
    from below by ‖Mg‖, g = ∇S/‖∇S‖. NaN where ∇S = 0."""
    converged: Bool[Array, ""]
    """Whether both eigenvalues are certified, and the angle is at most √rtol: half of the digits. Otherwise the largest
    eigenvalue is not simple to the precision asked for, and S may have no derivative here."""
    products: Int[Array, ""]
    """The Hessian–vector products of the search."""

    def __repr__(self) -> str:
        error = (
            "" if is_no_number(self.relative_error) else f", ∇S to {scalar_of(self.relative_error, '.1g')} of itself"
        )
        sure = certified(self.value, self.residual, self.converged)
        return encodable(f"SharpnessGradient(S = {sure}{error}{after(self.products)})")


@partial(compiled, few_calls=True)
@with_standard_options
def sharpness_gradient(
    network: PyTree,
    problem: Problem,
    *,
    dense: bool | None = None,
    dimension: int | None = None,
    rtol: float | None = None,
    max_restarts: int = 500,
) -> SharpnessGradient:
    """Return the sharpness and its gradient over the weights, a third derivative of the risk.

    Lanczos finds the two largest eigenpairs, from a block of two vectors, which sees an eigenvalue that is there twice.
    Then ∇S = d²/ds² ∇R(W + su) at s = 0, forward over forward over reverse, at the price of some two products, and as
    much for the estimate of its error. Memory: that of `top_eigenpairs` for two, some 57 times the weights. Works under
    `jax.jit` and `jax.vmap`.

    Args:
        network: The weights W: any pytree of arrays, such as an Equinox module.
        problem: The risk R.
        dense: Whether the whole Hessian is decomposed, or Lanczos searches; by default, dense up to 256 weights.
        dimension: That of the Krylov spaces; by default as in `top_eigenpairs`.
        rtol: A bound on the residuals, relative to the largest |λ|; by default 4e-11, in float32 2e-5.
        max_restarts: How often Lanczos may begin anew.

    Returns:
        S, ∇S as the weights, the eigenvector, and how well they are known.

    Raises:
        ValueError: For options that cannot be right, as `top_eigenpairs`.

    Examples:
        >>> import flowsim, jax.numpy as jnp
        >>> bowl = flowsim.Risk(lambda w: w[0] ** 2 + 3 * w[1] ** 2 + w[0] * w[1] ** 2)
        >>> found = flowsim.sharpness_gradient(jnp.array([1.0, 0.0]), bowl)
        >>> print(found.value.round(3), found.gradient.round(3))
        8.0 [2. 0.]
    """
    objective, weights = objective_of(network, problem)
    count = min(2, vectors.size_of(weights))
    options = {"dense": dense, "dimension": dimension, "rtol": rtol, "max_restarts": max_restarts}
    pairs = end_pairs(network, problem, largest=count, block=count, **options)
    vector, gap = vectors.row(pairs.vectors, 0), _gap(pairs)
    sine = jnp.where(gap > 0, jnp.minimum(1, pairs.residuals[0] / gap), 1)
    half = jnp.sqrt(jnp.asarray(resolve_rtol(rtol, sine.dtype), sine.dtype))
    gradient, reach = _gradient(objective, weights, vector)
    return SharpnessGradient(
        value=pairs.values[0],
        gradient=gradient,
        vector=vector,
        residual=pairs.residuals[0],
        gap=gap,
        angle=jnp.arcsin(sine),
        relative_error=2 * sine * reach,
        converged=jnp.all(pairs.converged) & (sine <= half),
        products=pairs.products,
    )


def _gap(pairs: Eigenpairs) -> Float[Array, ""]:
    """Return the least distance of the first value to all eigenvalues from the second on."""
    if len(pairs.values) == 1:
        return jnp.full_like(pairs.values[0], jnp.inf)
    return jnp.maximum(pairs.values[0] - pairs.values[1] - pairs.residuals[1], 0)


def _gradient(objective: Objective, weights: PyTree, vector: PyTree) -> tuple[PyTree, Float[Array, ""]]:
    """Return ∇S, and ‖Mg‖/‖∇S‖ for its direction g, of which M = D³R[u, ·, ·] makes ∇S from u."""
    _, gradient = contraction(objective, weights, vector, vector)
    size = vectors.norm(gradient)
    direction = vectors.divided(gradient, jnp.where(size > 0, size, 1))
    _, further = contraction(objective, weights, vector, direction)
    return gradient, jnp.where(size > 0, vectors.norm(further) / size, jnp.nan)
