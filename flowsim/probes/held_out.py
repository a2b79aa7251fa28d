"""Test risk and test accuracy, on held-out samples."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..networks import cast, weight_dtype
from ..problems import Problem
from .probe import PROBES, Label, Moment, Probe

HELD_OUT = frozenset({"test_problem", "test_samples"})
"""The fields of a probe that a scenario fills in from the samples that its data hold out."""


@PROBES.register("test_risk")
class TestRisk(Probe):
    """The risk on samples that training does not see: that of another problem, such as `EmpiricalRisk(X_test, y_test)`.

    In a scenario it is the problem of the samples that `test_samples` of the data holds out.
    """

    test_problem: Problem
    """The risk on these samples."""
    label: Label = eqx.field(
        static=True,
        default=Label("test_risk", "risk on samples that training does not see", r"test risk $R_\mathrm{test}$"),
    )
    """What it is called in tables and figures."""

    def measure(self, moment: Moment) -> Float[Array, ""]:
        """Return the risk of the network on the other problem."""
        return cast(self.test_problem, weight_dtype(moment.network))(moment.network)


@PROBES.register("test_accuracy")
class TestAccuracy(Probe):
    """The share of samples that training does not see whose class is the one that the network predicts.

    In a scenario they are those that `test_samples` of the data holds out.
    """

    test_samples: tuple[Array, Array]
    """The samples (X, y): y holds the numbers of classes (n,), or ones and zeros (n, K), where the largest of K
    predictions decides; or ±1, where the sign of the one prediction does, NaN where labels are 0."""
    label: Label = eqx.field(
        static=True,
        default=Label(
            "test_accuracy",
            "share of the samples that training does not see whose class is predicted",
            "test accuracy",
            logarithmic=False,
        ),
    )
    """What it is called in tables and figures."""

    def measure(self, moment: Moment) -> Float[Array, ""]:
        """Return the share of the samples that are classified as they are labelled."""
        dtype = weight_dtype(moment.network)
        X, y = cast(jax.tree.map(jnp.asarray, self.test_samples), dtype)
        network: Any = moment.network
        if not callable(network):
            raise TypeError(
                f"a {type(network).__name__} maps no sample, so it has no accuracy: leave test_accuracy out"
            )
        predictions: Any = jax.vmap(network)(X)
        share = jnp.mean(right(predictions, y), dtype=dtype)
        # Beside one prediction, zero has no sign, and so is the label of no class.
        without_class = jnp.any(y == 0) if predictions.size == len(y) else jnp.array(False)
        return jnp.where(without_class, jnp.nan, share)


def right(predictions: Float[Array, "n ..."], labels: Array) -> Bool[Array, " n"]:
    """Tell which of the samples are predicted to be of the class of their label: see `TestAccuracy`.

    Raises `ValueError` for rows of another length than the predictions.
    """
    count = len(labels)
    predictions = predictions.reshape(count, -1)
    labels = labels.reshape(count, -1)
    if labels.shape[1] not in (1, predictions.shape[1]):
        raise ValueError(
            f"test_samples hold {labels.shape[1]} numbers for each sample, and the network predicts "
            f"{predictions.shape[1]}: expected as many, or the number of a class"
        )
    if predictions.shape[1] == 1:
        return jnp.sign(predictions[:, 0]) == jnp.sign(labels[:, 0].astype(predictions.dtype))
    numbers = labels[:, 0] if labels.shape[1] == 1 else jnp.argmax(labels, axis=1)
    return jnp.argmax(predictions, axis=1) == numbers
