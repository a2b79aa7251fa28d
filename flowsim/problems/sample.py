"""One sample through a network and a loss of anybody's: what they return, or a message that says what is wrong."""

from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..losses import Loss
from ..networks import Fixed, with_slices


def predicted(network: Callable[[Array], Array], x: Array) -> Array:
    """Return what a network predicts for one sample; `ValueError` for one that does not map a sample to an array."""
    try:
        prediction = with_slices(network)(x)
    except jax.errors.JaxRuntimeError:
        raise
    except Exception as error:  # whatever the code of a user does
        raise ValueError(
            f"the network, a {type(network).__name__}, fails on one sample of shape {x.shape} ({reason_of(error)}): "
            "expected a model that maps one sample to its prediction, without state (as of batch normalization), key "
            f"or randomness; {_remedy(network)}"
        ) from error
    if not isinstance(prediction, jax.Array | np.ndarray | float):
        raise ValueError(
            f"the network, a {type(network).__name__}, returns a {type(prediction).__name__} for one sample: expected "
            "an array of predicted numbers; write a model around it that returns the array alone"
        )
    return jnp.asarray(prediction)


def sample_loss(loss: Loss, prediction: Array, target: Array) -> Float[Array, ""]:
    """Return the loss of one sample; `ValueError` for a loss that is no real scalar."""
    try:
        value = loss(prediction, target)
    except jax.errors.JaxRuntimeError:
        raise
    except Exception as error:  # whatever the code of a user does
        raise ValueError(
            f"the loss fails on one sample, prediction {prediction.shape}, target {target.shape} ({reason_of(error)}): "
            "expected a function (prediction, target) of JAX arrays that returns a scalar; write jnp in place of np"
        ) from error
    kind = jnp.result_type(value) if isinstance(value, jax.Array | np.ndarray | np.generic | float) else None
    if kind is None or not jnp.issubdtype(kind, jnp.floating) or jnp.shape(value) != ():
        found = type(value).__name__ if kind is None else f"shape {jnp.shape(value)} of {kind}"
        raise ValueError(
            f"the loss returns {found} for one sample: expected a real scalar; write jnp.sum(...) or jnp.mean(...) "
            "around it"
        )
    return jnp.asarray(value)


def reason_of(error: Exception) -> str:
    """Return what kind of error this is, and the first line of what it says."""
    return f"{type(error).__name__}: {error}".splitlines()[0]


def check_model(network: object) -> None:
    """Raise `TypeError` for what maps no sample, `ValueError` for a model of which the risk would not stay the same.

    That is before anything is traced.
    """
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


def _remedy(network: object) -> str:
    """Return what to write in place of a model that fails."""
    for place, _ in _parts(network, eqx.nn.StateIndex):
        return f"write eqx.nn.LayerNorm or eqx.nn.GroupNorm in place of the layer whose state is at {place}"
    return "write eqx.nn.inference_mode(network), or a model of your own around it that holds the rest"


def _parts(network: object, *kinds: type) -> Iterator[tuple[str, Any]]:
    """Yield the parts of these kinds with their places, those in `Fixed` apart."""
    leaves = jax.tree_util.tree_leaves_with_path(network, is_leaf=lambda part: isinstance(part, (Fixed, *kinds)))
    yield from ((jax.tree_util.keystr(path), leaf) for path, leaf in leaves if isinstance(leaf, kinds))
