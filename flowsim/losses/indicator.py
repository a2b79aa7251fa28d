"""By how much a prediction decides for the right class."""

import jax.numpy as jnp
from jaxtyping import Array, Float, Integer


def class_margins(prediction: Float[Array, " classes"], label: Integer[Array, ""]) -> Float[Array, " others"]:
    """Return the output of the class `label` less each of the others."""
    others = (label + 1 + jnp.arange(prediction.size - 1)) % prediction.size
    return prediction[label] - prediction[others]


def indicated_margins(prediction: Float[Array, "*outputs"], target: Array) -> Float[Array, " k"]:
    """Return the margins beside a target that indicates a class: ±1 for one number, a row of an identity for several.

    NaN beside any other target.
    """
    if prediction.ndim == 0:
        return jnp.where(jnp.abs(target) == 1, target * prediction, jnp.nan)[None].astype(prediction.dtype)
    if prediction.ndim != 1 or prediction.size < 2:
        return jnp.full(1, jnp.nan, prediction.dtype)
    label = jnp.argmax(target)
    indicates = jnp.all(target == (jnp.arange(target.size) == label))
    return jnp.where(indicates, class_margins(prediction, label), jnp.nan)
