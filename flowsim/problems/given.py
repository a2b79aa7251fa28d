"""What a user gives as samples: that they are real numbers, finite, and such as the loss takes."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

from ..losses import Loss
from .sample import reason_of


def real(name: str, given: ArrayLike) -> np.ndarray | jax.Array:
    """Return data as an array; `ValueError` for rows of different lengths, and what are no real numbers."""
    try:
        array = given if isinstance(given, jax.Array) else np.asarray(given)
    except ValueError as error:  # NumPy's, of lists that make no array
        raise ValueError(f"{name} makes no array ({reason_of(error)}): expected rows of equal length") from None
    if not (jnp.issubdtype(array.dtype, jnp.floating) or array.dtype.kind in "iub"):
        raise ValueError(f"{name} holds {array.dtype}: expected real numbers, such as float64")
    return array


def checked_classes(loss: Loss, y: np.ndarray | jax.Array) -> int:
    """Return the number of outputs that targets ask for; `ValueError` for targets that the loss does not take."""
    if isinstance(y, Tracer):
        return 1
    targets = np.asarray(y)
    loss.check_targets(targets)
    return loss.classes(targets)


def check_bound(minimal_risk: float, lower_bound: Float[Array, ""]) -> None:
    """Raise `ValueError` for a minimal risk that is less than any risk can be, unless targets are traced."""
    if isinstance(lower_bound, Tracer):
        return
    if minimal_risk < float(lower_bound) - 1e-6 * (1 + abs(float(lower_bound))):
        raise ValueError(
            f"minimal_risk is {float(minimal_risk):g}, but no risk of these targets is below {float(lower_bound):g}: "
            "give the least risk of all networks, or leave it out where that is not known"
        )


def check_finite(name: str, array: np.ndarray | jax.Array, dtype: jnp.dtype) -> None:
    """Raise `ValueError` for an entry that is not finite in `dtype`, with its place, unless the array is traced."""
    if isinstance(array, Tracer) or not jnp.issubdtype(array.dtype, jnp.floating):
        return
    largest = min(float(jnp.finfo(kind).max) for kind in (dtype, array.dtype))
    finite = np.abs(array) <= largest  # not so of NaN
    if bool(finite.all()):
        return
    bad = tuple(int(number) for number in np.argwhere(~finite)[0])
    raise ValueError(
        f"{name}[{', '.join(map(str, bad))}] is {float(array[bad])}: expected finite numbers of {dtype}; fill it in, "
        "rescale, or drop the sample"
    )


def check_whole(name: str, array: np.ndarray | jax.Array) -> None:
    """Raise `ValueError` for whole numbers beyond those of JAX, which would come out as others."""
    if isinstance(array, jax.Array) or array.dtype.kind not in "iu":
        return
    kind = jax.dtypes.canonicalize_dtype(array.dtype)
    least, most = int(array.min()), int(array.max())
    if least < jnp.iinfo(kind).min or most > jnp.iinfo(kind).max:
        raise ValueError(
            f"{name} holds whole numbers from {least} to {most}, beyond {kind}: write {name}.astype(float), or switch "
            "on 64 bits with jax.config.update('jax_enable_x64', True)"
        )


def number(name: str, given: ArrayLike, dtype: jnp.dtype) -> Float[Array, ""]:
    """Return one number below infinity, or NaN, as an array; `ValueError` for anything else."""
    known = given if isinstance(given, jax.Array) else np.asarray(given)
    if known.ndim or known.dtype.kind not in "iuf" or (not isinstance(known, Tracer) and float(known) == np.inf):
        raise ValueError(f"{name} must be a number, or NaN where it is not known, got {given!r}")
    return jnp.asarray(given, dtype)
