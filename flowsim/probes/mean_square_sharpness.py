"""The mean-square sharpness: the curvature that decides whether SGD is stable in the mean square."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ..curvature import gauss_newton
from ..curvature.eigenpair import decomposition, eigenpair_lanczos
from ..networks import split
from ..problems import Problem, has_identity_curvature, on_samples
from .batches import BatchProbe
from .probe import PROBES, Label, Moment

# The products with covariances of so many numbers take seconds, and their Krylov space a gigabyte.
_MOST = 2048


@PROBES.register("mean_square_sharpness")
class MeanSquareSharpness(BatchProbe):
    """The number λ for which SGD on independent minibatches is linearly stable in the mean square iff λ < 2/η.

    About a minimum a covariance C goes to E_B[(I − ηH_B)C(I − ηH_B)], B of `batch` samples drawn anew in every step.
    It shrinks for all C that H does not annihilate iff 2/η is more than the largest ratio of two quadratic forms,
    ⟨C, (1 − p)HCH + p mean_i H_iCH_i⟩ and ⟨C, HC⟩, H_i the Hessian of sample i and p the variance factor of the mean
    over a batch: (n − B)/(B(n − 1)), with replacement 1/B (Mulayoff and Michaeli 2024, arXiv:2306.07850). That is at
    least the largest eigenvalue of H, and equal to it for a full batch. Where every epoch takes each sample once,
    batches are not independent, and SGD may be stable beyond.

    Here H_i are Gauss–Newton matrices, which Hessians are where every sample is fitted: so λ is known along the whole
    run, and exact where the run fits its data.

    It takes some thirty products of matrices of (n·outputs)² numbers, and the memory of as many. NaN where it could not
    be certified. `measure` raises `ValueError` for a problem that does not know its `curved_outputs`, or has more than
    2048 of them, and for one with weight decay.
    """

    label = Label(
        "mean_square_sharpness",
        "curvature up to which SGD is stable in the mean square if it is at most 2/η",
        r"mean-square sharpness",
        logarithmic=False,
    )

    def check(self, network: PyTree, problem: Problem) -> None:
        """Raise `ValueError` for a problem without samples or curved outputs, with too many, or with weight decay."""
        super().check(network, problem)
        rank, samples = _of_samples(problem).rank(network), problem.sample_count() or 1
        if rank is None or rank % samples:
            raise ValueError(
                f"{type(problem).__name__} has samples and no curved_outputs of each: record batch_sharpness"
            )
        if has_identity_curvature(problem):
            raise ValueError(
                f"{type(problem).__name__} has weight decay, which is in the Hessian of every sample: record "
                "batch_sharpness, or the probe on a problem without"
            )
        if rank > _MOST:
            raise ValueError(
                f"the samples predict {rank} numbers in all: expected at most {_MOST}; record batch_sharpness, or take "
                "fewer samples"
            )

    def measure(self, moment: Moment) -> Float[Array, ""]:
        """Return the mean-square sharpness."""
        self.check(moment.network, moment.problem)
        weights, rest = split(moment.network)
        gram = gauss_newton(weights, _of_samples(moment.problem), lambda moved: eqx.combine(moved, rest)).gram
        count, share = moment.problem.sample_count() or 1, self.sampler().variance_factor(moment.problem)
        values, vectors = decomposition(gram)
        values = jnp.maximum(values, 0)
        # In the basis in which H is diagonal, with one block of rows for each sample: H_i = n times its square.
        rows = (vectors * jnp.sqrt(values)[None]).reshape(count, -1, values.size)
        sums = (values[:, None] + values[None]) / 2
        scale = jnp.where(sums > jnp.finfo(sums.dtype).eps * values[-1], 1 / jnp.sqrt(sums), 0)

        def product(flat: Float[Array, " square"]) -> Float[Array, " square"]:
            covariance = scale * flat.reshape(gram.shape)
            along = jnp.einsum("iaj,jk->iak", rows, covariance)
            inner = count * jnp.einsum("iak,ibk->iab", along, rows)
            of_samples = jnp.einsum("iaj,iak->jk", rows, jnp.einsum("iab,ibk->iak", inner, rows))
            of_all = values[:, None] * covariance * values[None]
            return (scale * ((1 - share) * of_all + share * of_samples)).ravel()

        # The diagonal of the eigenvector is that of a covariance, scaled, so that the identity is not at right angles.
        pair = eigenpair_lanczos(
            product, jnp.eye(values.size, dtype=values.dtype).ravel(), dimension=min(24, gram.size)
        )
        return jnp.where(pair.converged, pair.value, jnp.nan)


def _of_samples(problem: Problem) -> Problem:
    """Return the same risk as that on all of its samples, for one that is reduced to fewer curved outputs."""
    return on_samples(problem, jnp.arange(problem.sample_count() or 0))
