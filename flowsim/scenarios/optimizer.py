"""The descents of a scenario: any kind of descent, made once for each learning rate."""

import inspect
from collections.abc import Callable, Mapping
from functools import cache
from typing import Annotated, Any

from ..dynamics import DESCENTS, Descent, GradientDescent
from ..kinds import Chosen, Made, recipe_of

_RATE = "learning_rate"
AtRate = Callable[[float], Descent]


@cache
def _recipe(kind: type[Descent]) -> type[Made]:
    """Return the recipe whose options are those of `kind` but its learning rate, and that makes an `AtRate`."""

    def at_rate(**options: Any) -> AtRate:
        kind(**{_RATE: 1.0, **options})  # a kind may refuse its options
        return lambda rate: kind(**{_RATE: rate, **options})

    parameters = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for name, parameter in inspect.signature(kind).parameters.items()
        if name != _RATE
    ]
    at_rate.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportFunctionMemberAccess]
    at_rate.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    at_rate.__name__, at_rate.__doc__ = kind.__name__, inspect.getdoc(kind)
    return recipe_of(at_rate, described_by=kind)


CHOSEN = Chosen(DESCENTS, recipe=_recipe, word=True)
Optimizer = Annotated[Made, CHOSEN]
"""What YAML says of a descent: `gradient_descent`, or {kind: adam, b1: 0.8}, or {kind: my_module:MyDescent}."""


def gradient_descent() -> Made:
    """Return what YAML says where it says nothing."""
    return _recipe(GradientDescent)(kind="gradient_descent")


def optimizer_of(content: Mapping[str, Any]) -> AtRate:
    """Return what makes the descent that a resolved scenario describes, at any learning rate."""
    made = CHOSEN.validate(dict(content))
    assert isinstance(made, Made)
    return made.make()
