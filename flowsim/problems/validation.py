"""Validation of what users give: samples, and the networks and losses that are applied to one of them."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

from ..data.arrays import numeric_array
from ..kinds import reason_of
from ..losses import Loss
from ..networks import Fixed, with_slices
from ..networks.weights import refuse_torch


def call(
    function: Callable[..., Any],
    *arguments: Any,
    fails: str,
    expected: str,
    remedy: Callable[[Exception], str] = lambda _: "",
) -> Any:
    """Return what a user's function returns; where it raises, `ValueError` with what `fails` and what is `expected`.

    What to write depends on the error: `remedy` names it for those that have nothing to do with tracing.
    """
    try:
        return function(*arguments)
    except jax.errors.JaxRuntimeError:
        raise
    except Exception as error:  # whatever the code of a user does
        write = remedy_of_traced(error) or remedy(error)
        raise ValueError(f"{fails} ({reason_of(error)}): expected {expected}{write and '; '}{write}") from error


def remedy_of_traced(error: Exception) -> str:
    """Return what to write in place of code that needs the number behind a traced value, else nothing."""
    # The first is a kind of the third.
    if isinstance(error, jax.errors.TracerBoolConversionError):
        return "write jnp.where(condition, one, other) in place of if"
    if isinstance(error, jax.errors.TracerArrayConversionError):
        return "write jnp in place of np"
    if isinstance(error, jax.errors.ConcretizationTypeError):
        return "leave out float(...), int(...) and .item(), and write jnp in place of np"
    return ""


def predicted(network: Callable[[Array], Array], x: Array) -> Array:
    """Return the prediction for one sample; `ValueError` for a network that does not map a sample to an array."""
    prediction = call(
        lambda: with_slices(network)(x),
        fails=f"the network, a {type(network).__name__}, fails on one sample of shape {x.shape}",
        expected="a model that maps one sample to its prediction, without state (as of batch normalization), key or "
        "randomness",
        remedy=lambda error: _remedy(network, error, x.shape),
    )
    if not isinstance(prediction, jax.Array | np.ndarray | float):
        raise ValueError(
            f"the network, a {type(network).__name__}, returns a {type(prediction).__name__} for one sample: expected "
            "an array of predicted numbers; write a model around it that returns the array alone"
        )
    return jnp.asarray(prediction)


def sample_loss(loss: Loss, prediction: Array, target: Array) -> Float[Array, ""]:
    """Return the loss of one sample; `ValueError` for a loss that is no real scalar."""
    expected = "a function (prediction, target) of JAX arrays that returns a scalar"
    fails = f"the loss fails on one sample, prediction {prediction.shape}, target {target.shape}"
    remedy = "write it for these shapes, without the axis of the samples"
    value = call(loss, prediction, target, fails=fails, expected=expected, remedy=lambda _: remedy)
    return jnp.asarray(real_scalar(value, "the loss", " for one sample"))


def real_scalar(value: Any, name: str, where: str = "") -> Any:
    """Return a value as it is; `ValueError` for anything but a real scalar."""
    kind = jnp.result_type(value) if eqx.is_array_like(value) else None
    if kind is None or not jnp.issubdtype(kind, jnp.floating) or jnp.shape(value) != ():
        found = type(value).__name__ if kind is None else f"shape {jnp.shape(value)} of {kind}"
        raise ValueError(
            f"{name} returns {found}{where}: expected a real scalar; write jnp.sum(...) or jnp.mean(...) around it"
        )
    return value


def check_model(network: object) -> None:
    """Raise `TypeError` for what maps no sample, and `ValueError` for a model with state or randomness.

    Nothing is traced.
    """
    refuse_torch(network)
    if not callable(network):
        found = "an array" if isinstance(network, jax.Array) else f"a {type(network).__name__}"
        raise TypeError(
            f"the network is {found}: expected an Equinox module that maps one sample, with a method __call__(self, "
            "x); for a function of any other pytree, write flowsim.Risk(function)"
        )
    for place, part in _parts(network, eqx.nn.Dropout, eqx.nn.State):
        if isinstance(part, eqx.nn.State):
            raise ValueError(
                f"the network holds an eqx.nn.State at {place}, which a flow would move as if it were weights: use "
                "eqx.nn.LayerNorm or eqx.nn.GroupNorm, which have none, or hold it as flowsim.Fixed(state)"
            )
        if isinstance(part, eqx.nn.Dropout) and not part.inference and part.p != 0:
            raise ValueError(
                f"the network holds an active eqx.nn.Dropout at {place or 'its top'}, so that its risk would be "
                "random: write eqx.nn.inference_mode(network)"
            )


def _remedy(network: object, error: Exception, shape: tuple[int, ...]) -> str:
    """Return what to write in place of a model that fails."""
    for place, _ in _parts(network, eqx.nn.StateIndex):
        return f"write eqx.nn.LayerNorm or eqx.nn.GroupNorm in place of the layer whose state is at {place}"
    if re.search("missing .* argument|requires a key", str(error)):
        return "write eqx.nn.inference_mode(network), or a model of your own around it that holds the rest"
    return f"write it for one sample of shape {shape}, without the axis of the samples"


def _parts(network: object, *kinds: type) -> Iterator[tuple[str, Any]]:
    """Yield the parts of these kinds with their places, those in `Fixed` apart."""
    leaves = jax.tree_util.tree_leaves_with_path(network, is_leaf=lambda part: isinstance(part, (Fixed, *kinds)))
    yield from ((jax.tree_util.keystr(path), leaf) for path, leaf in leaves if isinstance(leaf, kinds))


def real_array(name: str, given: ArrayLike) -> np.ndarray | jax.Array:
    """Return data as an array. Raises `ValueError` as `numeric_array` does, and for numbers that are not real."""
    array = given if isinstance(given, jax.Array) else numeric_array(given, place=name)
    if not (jnp.issubdtype(array.dtype, jnp.floating) or array.dtype.kind in "iub"):
        raise ValueError(f"{name} holds {array.dtype}: expected real numbers, such as float64")
    return array


def count_classes(loss: Loss, y: np.ndarray | jax.Array) -> int:
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
            "give the minimum risk of all networks, or leave it out where that is not known"
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


def real_number(name: str, given: ArrayLike, dtype: jnp.dtype) -> Float[Array, ""]:
    """Return one number below infinity, or NaN, as an array; `ValueError` for anything else."""
    known = given if isinstance(given, jax.Array) else np.asarray(given)
    if known.ndim or known.dtype.kind not in "iuf" or (not isinstance(known, Tracer) and float(known) == np.inf):
        raise ValueError(f"{name} must be a number, or NaN where it is not known, got {given!r}")
    return jnp.asarray(given, dtype)
