"""Which models of gradient descent a comparison runs, beside the descents that they model."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp

from ..dynamics import Descent
from ..edge import MODELS, DescentModel
from ..kinds import got, is_kind_of

GRADIENT = "gradient"
ModelOfDescent = type[DescentModel] | DescentModel
"""A kind of model with its default options, or a model with options and no learning rate, which each descent sets."""


def check_models(
    entries: object, descents: Sequence[Descent], dtype: jnp.dtype, **tolerances: float | None
) -> dict[str, ModelOfDescent]:
    """Return the models of descent by their names in results, without the gradient flow, which runs in any case.

    `tolerances` are the `rtol` and `atol` of a model that has none. Raises `ValueError` for what is no list of names
    and models, or has one twice, for a model that has a learning rate, or is no model of one of the `descents`, and
    `UnknownKindError`, a `ValueError`, for the name of no model.
    """
    if isinstance(entries, str) or not isinstance(entries, Sequence):
        raise ValueError(f'models must be a list of names, as ["gradient", "edge"], got {entries!r}')
    models: dict[str, Any] = {}
    for entry in entries:
        if isinstance(entry, str):
            name, model = entry, None if entry == GRADIENT else MODELS[entry]
        elif is_kind_of(DescentModel)(entry):
            name, model = MODELS.name_of(entry), entry
        elif isinstance(entry, DescentModel):
            name, model = entry.kind(), entry
            if entry.learning_rate is not None:
                raise ValueError(
                    f"models: {type(entry).__name__} has the learning rate {entry.learning_rate}, but in a comparison "
                    "each descent sets that of its models: leave it out, or write None for it"
                )
        else:
            raise ValueError(
                'models must be a list of names, as ["gradient", "edge"], or of models of descent, as '
                f"[flowsim.EdgeFlow(rtol=1e-9)], got {got(entry, DescentModel)}"
            )
        if name in models:
            raise ValueError(f"models: found {name} twice, which results could not tell apart: write each once")
        models[name] = model
        if model is not None:
            for descent in descents:
                model_of(model, descent, **tolerances).checked(dtype)
    models.pop(GRADIENT, None)
    return models


def model_of(model: ModelOfDescent, descent: Descent, **tolerances: float | None) -> DescentModel:
    """Return the model of one descent, with `rtol` and `atol` where it has none."""
    made = model if isinstance(model, DescentModel) else model.of(descent)
    return made.following(descent, **tolerances)
