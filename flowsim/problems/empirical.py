"""The empirical risk of any model."""

from collections.abc import Callable
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree
from numpy.typing import ArrayLike

from ..losses import Loss, SquaredError
from ..losses.pointwise import as_loss
from ..runtime.compiling import with_standard_options
from .chunks import activation_bytes, check_chunk_size, fitting_chunk, over_samples, pass_bytes, shape_of
from .problem import Outputs, Problem
from .validation import (
    check_bound,
    check_finite,
    check_model,
    check_whole,
    count_classes,
    predicted,
    real_array,
    real_number,
    sample_loss,
)

_SQUARED_ERROR = SquaredError()


class EmpiricalRisk(Problem):
    """The risk R = (1/n) Σ_i loss(network(x_i), y_i) of any Equinox model that maps one sample.

    Data are neither centred nor rescaled, and integers, such as tokens, stay integers. The minimum is in general
    unknown: then excess risks are NaN, and only `lower_bound` is known. Results do not depend on how many samples are
    computed at a time, up to rounding. Traced values are not checked.

    Args:
        X: The samples, (n, …).
        y: Their targets, (n,) or (n, m).
        loss: One of `flowsim.losses`, or any function (prediction, target) that returns a scalar for one sample.
        minimal_risk: The minimum of the risk, where it is known.
        chunk_size: How many samples risk and derivatives are computed of at a time, which bounds the memory at the
            price of one more forward pass. By default all at once, unless a pass is predicted to take half of the
            memory (`pass_bytes`), or where the samples are spread over devices.

    Raises:
        ValueError: For shapes that do not fit, entries that are not finite, targets that the loss does not take, such
            as labels 0 and 1 with `Logistic`, and a `minimal_risk` below the lower bound; when it is called, for a
            network whose predictions do not fit the targets.
    """

    X: Array
    y: Array
    minimal_risk: Float[Array, ""]
    loss: Loss
    chunk_size: int | None = eqx.field(static=True)
    divisible: bool = eqx.field(static=True)
    classes: int = eqx.field(static=True)

    @with_standard_options
    def __init__(
        self,
        X: ArrayLike,
        y: ArrayLike,
        loss: Loss | Callable[[Array, Array], Array] = _SQUARED_ERROR,
        *,
        minimal_risk: float = float("nan"),
        chunk_size: int | None = None,
    ):
        X, y = real_array("X", X), real_array("y", y)
        if X.ndim < 2 or y.ndim < 1 or X.shape[0] != y.shape[0] or 0 in (*X.shape, *y.shape):
            one_feature = X.ndim == 1 and X.shape == y.shape[:1]
            write = "; write X[:, None] for samples of one feature" if one_feature else ""
            if X.ndim == 2 and X.shape[1:] == y.shape[:1]:
                write = "; write X.T, whose rows are the samples"
            raise ValueError(
                f"expected X of shape (n, …) and y of shape (n, …) with n ≥ 1 and no empty axis, got {X.shape} and "
                f"{y.shape}{write}"
            )
        dtype = jnp.result_type(float)
        check_finite("X", X, dtype)
        check_finite("y", y, dtype)
        check_whole("X", X)
        check_whole("y", y)
        # Copies: on a CPU JAX shares the memory of NumPy's arrays, and X *= 10 later would change the problem.
        self.X, self.y = (
            (jnp.array if isinstance(array, np.ndarray) else jnp.asarray)(
                array, dtype if jnp.issubdtype(array.dtype, jnp.floating) else None
            )
            for array in (X, y)
        )
        self.minimal_risk = real_number("minimal_risk", minimal_risk, dtype)
        self.loss = as_loss(loss)
        self.chunk_size = check_chunk_size(chunk_size)
        self.divisible = isinstance(X, Tracer | np.ndarray) or len(X.sharding.device_set) == 1
        self.classes = count_classes(self.loss, y)
        if not isinstance(self.minimal_risk, Tracer) and not np.isnan(self.minimal_risk):
            check_bound(float(self.minimal_risk), self.lower_bound)

    @property
    def infimum(self) -> Float[Array, ""]:
        """The `minimal_risk`: NaN unless it was given."""
        return self.minimal_risk

    @property
    def lower_bound(self) -> Float[Array, ""]:
        """The mean over the targets of the infimum of the loss, a lower bound of the risk; NaN where it is unknown."""
        return jnp.mean(jax.vmap(self.loss.least)(self.y))

    def __call__(self, network: Callable[[Array], Array]) -> Float[Array, ""]:
        """Return the risk R of a network."""
        return jnp.mean(self.sample_risks(network))

    def sample_risks(self, network: Callable[[Array], Array]) -> Float[Array, " n"]:
        """Return the loss of each sample."""
        check_model(network)
        return self._over_samples(network, partial(self._sample_loss, network))

    def pass_bytes(self, network: Callable[[Array], Array]) -> float:
        """Estimate the bytes that a derivative stores of a pass over all samples at once.

        These are the intermediate values of network and loss, traced for one sample, times the number of samples.
        """
        return pass_bytes(self._traced_bytes(network), self.X.shape[0])

    def samples_at_once(self, network: Callable[[Array], Array]) -> int | None:
        """Return the given `chunk_size`, or else one with which a pass fits into memory; `None` for all at once."""
        if self.chunk_size is not None or not self.divisible:
            return self.chunk_size
        return fitting_chunk(self._traced_bytes(network), self.X.shape[0])

    def curved_outputs(self, network: Callable[[Array], Array]) -> Outputs:
        """Return the predictions of all samples, each scaled by a root of its loss's second derivative at `network`.

        The Jacobian G of that function at `network` gives the Gauss–Newton matrix GᵀG, with one row for each
        predicted number. Where a loss is not convex its curvature counts as zero.
        """
        roots = self._over_samples(network, partial(self._loss_root, network))

        def outputs(other: Callable[[Array], Array]) -> Array:
            predictions = self._over_samples(other, lambda x, _: predicted(other, x)).reshape(*roots.shape[:2])
            return jnp.einsum("nab,na->nb", roots, predictions).ravel()

        return outputs

    def output_jacobian(self, as_network: Callable[[PyTree], Callable], weights: PyTree) -> PyTree:
        """Return G at `as_network(weights)`, sample by sample: the weights with a leading axis of rows."""
        network = as_network(weights)

        def rows(x: Array, target: Array) -> PyTree:
            root = self._loss_root(network, x, target)
            return jax.jacrev(lambda moved: root.T @ predicted(as_network(moved), x).ravel())(weights)

        by_sample = jax.vmap(rows)(self.X, self.y)
        return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), by_sample)

    def rank(self, network: Callable[[Array], Array]) -> int:
        """Return the number of predicted numbers, all samples together."""
        check_model(network)
        return self.X.shape[0] * self._prediction(network).size

    def jacobian_passes(self, network: Callable[[Array], Array]) -> int:
        """Return the number of outputs: the gradients of one of them, sample by sample, cost what that of R does."""
        return self.rank(network) // self.X.shape[0]

    def null_risk(self, network: Callable[[Array], Array]) -> Float[Array, ""]:
        """Return the risk of predicting zero everywhere."""
        prediction = self._prediction(network)
        zeros = jnp.zeros((len(self.y), *prediction.shape), prediction.dtype)
        return jnp.mean(jax.vmap(self._paired_loss)(zeros, self.y))

    def margins(self, network: Callable[[Array], Array]) -> Float[Array, " n"]:
        """Return the least margin of each sample, NaN for a loss or targets without classes."""
        check_model(network)

        def of_sample(x: Array, target: Array) -> Array:
            return self.loss.margins(self._paired(predicted(network, x), target), target)

        return jnp.min(self._over_samples(network, of_sample), axis=1)

    def zero_prediction(self) -> Float[Array, "*outputs"]:
        """Return zero as a network with no more outputs than the targets need predicts it for one sample."""
        numbered = self.y.ndim == 1 and self.classes > 1
        return jnp.zeros(self.classes if numbered else self.y.shape[1:], jnp.result_type(self.X.dtype, jnp.float32))

    def has_margins(self) -> bool:
        """Tell whether the loss knows margins of all targets, True where these are traced."""
        zero = self.zero_prediction()
        if not self.loss.compares(zero, self.y[0]):
            return False
        margins = jax.vmap(partial(self.loss.margins, zero))(self.y)
        return isinstance(margins, Tracer) or not bool(jnp.isnan(margins).any())

    def sample_count(self) -> int:
        """Return n."""
        return self.X.shape[0]

    def subsample(self, chosen: Int[Array, " batch"]) -> "EmpiricalRisk":
        """Return the risk on the samples of these numbers."""
        return eqx.tree_at(lambda problem: (problem.X, problem.y), self, (self.X[chosen], self.y[chosen]))

    def with_label_noise(self, key: PRNGKeyArray, deviation: Float[Array, ""] | float) -> "EmpiricalRisk | None":
        """Return the risk with independent noise N(0, deviation²) on all numbers of y; `None` where y holds classes."""
        if not self.loss.takes_numbers() or not jnp.issubdtype(self.y.dtype, jnp.floating):
            return None
        noise = jnp.asarray(deviation) * jax.random.normal(key, self.y.shape)  # the same in every precision under x64
        return eqx.tree_at(lambda problem: problem.y, self, self.y + noise.astype(self.y.dtype))

    @property
    def attained(self) -> bool:
        """Whether some prediction has the infimum of the loss."""
        return self.loss.attained

    def decreases_forever(self, network: Callable[[Array], Array]) -> Bool[Array, ""]:
        """Tell whether the loss of every sample decreases for ever as its prediction is scaled up."""

        def falls(x: Array, target: Array) -> Array:
            return self.loss.decreases_forever(self._paired(predicted(network, x), target), target)

        return jnp.all(self._over_samples(network, falls))

    def _prediction(self, network: Callable[[Array], Array]) -> jax.ShapeDtypeStruct:
        return shape_of(predicted, network, jax.ShapeDtypeStruct(self.X.shape[1:], self.X.dtype))

    def _loss_root(self, network: Callable[[Array], Array], x: Array, target: Array) -> Float[Array, "outputs outputs"]:
        """Return a matrix B with BBᵀ the second derivative of one sample's share of the risk in its prediction."""
        prediction = self._paired(predicted(network, x), target)
        return self.loss.curvature_root(prediction, target) / self.X.shape[0] ** 0.5

    def _over_samples(self, network: Callable[[Array], Array], function: Callable[[Array, Array], Array]) -> Array:
        """Return what a function of sample and target returns for all of them."""
        return over_samples(function, (self.X, self.y), self.samples_at_once(network))

    def _traced_bytes(self, network: Callable[[Array], Array]) -> float:
        """Return the bytes of the intermediate values of the loss of one sample."""
        stripped = eqx.tree_at(lambda problem: (problem.X, problem.y), self, (None, None))
        sample = tuple(jax.ShapeDtypeStruct(array.shape[1:], array.dtype) for array in (self.X, self.y))
        return activation_bytes(_loss_of_sample, (stripped, network), sample)

    def _sample_loss(self, network: Callable[[Array], Array], x: Array, target: Array) -> Array:
        return self._paired_loss(predicted(network, x), target)

    def _paired_loss(self, prediction: Array, target: Array) -> Array:
        return sample_loss(self.loss, self._paired(prediction, target), target)

    def _paired(self, prediction: Array, target: Array) -> Array:
        """Return the prediction in the shape in which the loss compares it: one number has that of its target."""
        if prediction.size == 1 and target.size == 1:
            prediction = prediction.reshape(target.shape)
        if not self.loss.compares(prediction, target):
            raise ValueError(
                f"for one sample the network predicts shape {prediction.shape} and y holds shape {target.shape} of "
                f"{target.dtype}, which {type(self.loss).__name__} does not compare: "
                f"{self.loss.remedy(prediction, target)}"
            )
        if prediction.size < self.classes:
            raise ValueError(
                f"y holds the class {self.classes - 1} and the network predicts {prediction.size} numbers, one for "
                f"each class from 0 on: give it {self.classes} outputs or more, or, of classes counted from 1, write "
                "y - 1"
            )
        return prediction


def _loss_of_sample(parts: tuple[EmpiricalRisk, Callable[[Array], Array]], sample: tuple[Array, Array]) -> Array:
    problem, network = parts
    return problem._sample_loss(network, *sample)
