"""The whole spectrum of the Hessian: every eigenvalue of a small one, and an estimate by stochastic Lanczos."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, PyTree

from ..networks import warn_of_single_precision, weight_dtype
from ..problems import Problem, check_weights
from ..runtime.compiling import compiled, with_standard_options
from . import krylov, vectors
from .eigenpair import decomposition, default_rtol, eigenvalues
from .finiteness import check_result
from .hessian import dense_hessian, hessian_product, is_decomposed, objective_of
from .line import numbers_of, shape_of

ROWS_AT_ONCE = 64
"""How many rows of the Hessian are computed at a time, each in the memory of a pass over all samples."""
EXACT_UP_TO = 2000
"""Of how many weights the Hessian is decomposed as a whole, unless something else is asked for."""


class Spectrum(eqx.Module):
    """The eigenvalues of the Hessian of p weights, or what random vectors tell of them.

    Row i of `nodes` and `weights` stands for the measure Σ_j w_ij δ(λ − θ_ij) of mass one, by which ∫f dμ is vᵢᵀf(H)vᵢ
    / vᵢᵀvᵢ for a random vector vᵢ: exact for polynomials of a degree below twice the number of nodes (Golub and Meurant
    2010, theorem 6.2; Ubaru, Chen and Saad 2017). The mean over vectors is the spectral density. Where all eigenvalues
    were computed there is one row, of weights 1/p.
    """

    nodes: Float[Array, "vectors nodes"]
    """θ_ij, or all eigenvalues in increasing order."""
    weights: Float[Array, "vectors nodes"]
    """w_ij."""
    residuals: Float[Array, "vectors nodes"]
    """An eigenvalue lies within each of its node: a node with a large one stands for many."""
    size: int = eqx.field(static=True)
    """p."""
    exact: bool = eqx.field(static=True)
    """Whether all eigenvalues were computed."""

    def __repr__(self) -> str:
        nodes = numbers_of(self.nodes)
        if nodes is None or nodes.ndim != 2:
            return f"Spectrum({shape_of(self.nodes)})"
        if self.exact:
            return f"Spectrum({self.size} eigenvalues from {nodes.min():.6g} to {nodes.max():.6g})"
        return (
            f"Spectrum(of {self.size} eigenvalues, from {nodes.min():.6g} to {nodes.max():.6g}, by {nodes.shape[1]} "
            f"products with each of {nodes.shape[0]} vectors)"
        )

    @property
    def resolution(self) -> Float[Array, ""]:
        """The size below which an eigenvalue counts as zero: 1e-6 of the largest |λ|, in float32 2e-5 of it.

        That is above the rounding of the Hessian, and above what the residuals that a run ends with make of zeros.
        """
        return max(default_rtol(self.nodes.dtype), 1e-6) * jnp.max(jnp.abs(self.nodes))

    @property
    def trace(self) -> Float[Array, ""]:
        """The trace of the Hessian, exact or the mean of Hutchinson's estimates (1990)."""
        return jnp.mean(self._traces)

    @property
    def trace_error(self) -> Float[Array, ""]:
        """The standard error of `trace` over the random vectors, 0 where it is exact, NaN of a single vector."""
        return _standard_error(self._traces, self.exact)

    @property
    def negative(self) -> Float[Array, ""]:
        """The number of eigenvalues below −`resolution`, estimated by mass: no whole number where it is not exact.

        NaN where the Hessian is not finite.
        """
        return jnp.where(self._is_finite, jnp.mean(self._negatives), jnp.nan)

    @property
    def negative_error(self) -> Float[Array, ""]:
        """How far off `negative` may be: the standard error over the vectors, and what the nodes leave open.

        A measure with these nodes may have up to the weight of the last node below −`resolution` above it, or up to
        that of the first node above it below (Chebyshev, Markov and Stieltjes: Szegő 1975, section 3.41). Where many
        eigenvalues lie at zero, which a node there stands for, that is large, and the number known only when it is
        computed exactly.
        """
        if self.exact:
            return jnp.where(self._is_finite, jnp.zeros_like(self.trace), jnp.nan)
        below = self.nodes < -self.resolution
        last = jnp.max(jnp.where(below, self.nodes, -jnp.inf), axis=1, keepdims=True)
        first = jnp.min(jnp.where(below, jnp.inf, self.nodes), axis=1, keepdims=True)
        open_masses = [jnp.sum(jnp.where(self.nodes == node, self.weights, 0), axis=1) for node in (last, first)]
        open_mass = jnp.maximum(*map(jnp.mean, open_masses))
        error = _standard_error(self._negatives, exact=False) + self.size * open_mass
        return jnp.where(self._is_finite, error, jnp.nan)

    def largest(self, count: int, *, rtol: float = 1e-3) -> Float[Array, " count"]:
        """Return the `count` largest eigenvalues, from the largest on, or as many as there are nodes of a vector.

        Of an estimate the i-th is the largest of the i-th largest nodes of all vectors, none of which is above the i-th
        largest eigenvalue (Cauchy's interlacing); NaN where its residual is more than the part `rtol` of the largest
        |λ|. There an eigenvalue is counted once, however often it occurs: vectors alone do not tell.
        """
        count = min(count, self.nodes.shape[1])
        order = jnp.argsort(self.nodes, axis=1, descending=True)[:, :count]
        values, residuals = (jnp.take_along_axis(part, order, axis=1) for part in (self.nodes, self.residuals))
        best = jnp.argmax(values, axis=0)[None]
        value, residual = (jnp.take_along_axis(part, best, axis=0)[0] for part in (values, residuals))
        known = residual <= rtol * jnp.max(jnp.abs(self.nodes))
        return jnp.where(known, value, jnp.nan)

    def density(
        self, at: ArrayLike, *, width: ArrayLike | None = None
    ) -> tuple[Float[Array, " points"], Float[Array, " points"]]:
        """Return the density of eigenvalues at the points `at`, of integral one, and its standard error.

        Every node is a Gaussian of standard deviation `width`, by default a hundredth of the range of the nodes. The
        error is that of the mean over the vectors, 0 where the spectrum is exact.
        """
        points = jnp.asarray(at, self.nodes.dtype)
        if width is None:
            reach = jnp.max(self.nodes) - jnp.min(self.nodes)
            width = jnp.where(reach > 0, reach, jnp.max(jnp.abs(self.nodes)) + 1) / 100

        def at_point(point: Array) -> tuple[Array, Array]:
            rows = jnp.sum(self.weights * jax.scipy.stats.norm.pdf(self.nodes, point, width), axis=1)
            return jnp.mean(rows), _standard_error(rows, self.exact)

        return jax.lax.map(at_point, points)

    @property
    def _is_finite(self) -> Bool[Array, ""]:
        return jnp.all(jnp.isfinite(self.nodes))

    @property
    def _traces(self) -> Float[Array, " vectors"]:
        return self.size * jnp.sum(self.weights * self.nodes, axis=1)

    @property
    def _negatives(self) -> Float[Array, " vectors"]:
        return self.size * jnp.sum(jnp.where(self.nodes < -self.resolution, self.weights, 0), axis=1)


def _standard_error(values: Float[Array, " vectors"], exact: bool) -> Float[Array, ""]:
    if exact:
        return jnp.zeros((), values.dtype)
    known = len(values) > 1
    return jnp.std(values, ddof=1) / len(values) ** 0.5 if known else jnp.full((), jnp.nan, values.dtype)


@with_standard_options
def spectrum(
    network: PyTree,
    problem: Problem,
    *,
    exact: bool | None = None,
    vectors: int = 10,
    products: int = 80,
    seed: int = 0,
) -> Spectrum:
    """Return the spectrum of the Hessian of the risk, with what its trace and negative part are.

    All eigenvalues take p products and a full decomposition. An estimate takes `products` steps of Lanczos, with full
    orthogonalization, from each of the random vectors: the memory of products + 1 vectors as the weights at a time.

    Args:
        network: The weights W: any pytree of arrays, such as an Equinox module.
        problem: The risk R.
        exact: Whether all eigenvalues are computed; by default up to 2000 weights.
        vectors: How many random vectors of signs an estimate averages over.
        products: How many products it makes with each of them.
        seed: What they are drawn by.

    Returns:
        The eigenvalues, or for each vector a measure that stands for them.

    Raises:
        ValueError: For numbers that are not whole or too small, and as `flowsim.sharpness` for weights at which the
            gradient is not finite.

    Examples:
        >>> import flowsim, jax.numpy as jnp
        >>> bowl = flowsim.Risk(lambda w: w[0] ** 2 + 3 * w[1] ** 2)
        >>> print(flowsim.curvature.spectrum(jnp.array([1.0, 1.0]), bowl).nodes.round(3))
        [[2. 6.]]
    """
    check_spectrum(vectors, products, seed)
    warn_of_single_precision(network)
    network = check_weights(network, problem)
    first = (_FIRST_SEED + seed * vectors) % 2**31
    found = _spectrum(network, problem, exact, vectors, products, np.asarray(first, np.int32))
    check_result(found.nodes, network, problem)
    return found


def check_spectrum(vectors: int, products: int, seed: int) -> None:
    """Raise `ValueError` for options of `spectrum` that cannot be right.

    Args:
        vectors: How many random vectors, one or more.
        products: How many products with each, two or more.
        seed: What the vectors are drawn by, zero or more.
    """
    least = {"vectors": (vectors, 1), "products": (products, 2), "seed": (seed, 0)}
    for name, (found, bound) in least.items():
        if not isinstance(found, int | np.integer) or isinstance(found, bool) or not bound <= found < 2**31:
            raise ValueError(f"{name} is {found!r}: expected a whole number from {bound} on")


@compiled
def _spectrum(
    network: PyTree, problem: Problem, exact: bool | None, count: int, products: int, first: Array
) -> Spectrum:
    objective, weights = objective_of(network, problem)
    size, dtype = vectors.size_of(weights), weight_dtype(network)
    if is_decomposed(weights, exact, up_to=EXACT_UP_TO):
        values = eigenvalues(dense_hessian(objective, weights, batch_size=ROWS_AT_ONCE))
        return Spectrum(values[None], jnp.full((1, size), 1 / size, dtype), jnp.zeros((1, size), dtype), size, True)
    product, steps = hessian_product(objective, weights), min(products, size)

    def quadrature(number: Array) -> tuple[Array, Array, Array]:
        drawn = vectors.scattered_like(weights, number)
        start = jax.tree.map(lambda leaf: jnp.where(leaf >= 0, 1, -1).astype(leaf.dtype)[None], drawn)
        space = krylov.krylov_space(product, start, steps)
        values, columns = decomposition(space.projection())
        rounding = 10 * jnp.finfo(dtype).eps * jnp.max(jnp.abs(values))
        return values, columns[0] ** 2, jnp.linalg.norm(space.remainders(columns), axis=0) + rounding

    nodes, shares, residuals = jax.lax.map(quadrature, first + jnp.arange(count, dtype=jnp.int32))
    return Spectrum(nodes, shares, residuals, size, False)


_FIRST_SEED = 2**21
"""The first seed of the random vectors: Krylov spaces use small ones, and the starts of searches those from 2²⁰ on."""
