"""The parameters of any class are its options in YAML: strict, documented by their types, and refused by place."""

from collections.abc import Callable
from typing import Annotated, Literal

import equinox as eqx
import jax
import numpy as np
import pytest
from pydantic import Field, ValidationError

from flowsim.kinds import Chosen, Made, Registry, Section, UnknownKindError, recipe_of


class Cost(eqx.Module):
    pass


COSTS = Registry("a cost", accepts=lambda kind: issubclass(kind, Cost), expected="a subclass of Cost")


@COSTS.register("plain")
class Plain(Cost):
    pass


@COSTS.register("huber")
class Huber(Cost):
    """Quadratic near zero, linear far away."""

    delta: float = 1.0
    power: int = 2
    side: Literal["left", "right"] | None = None
    knots: tuple[float, ...] = (1.0, 2.0)
    activation: Callable = np.tanh
    scale: jax.Array = eqx.field(default_factory=lambda: np.ones(2))

    def __check_init__(self):
        if self.delta <= 0:
            raise ValueError(f"delta is {self.delta}: expected more than 0")


class Needy(Cost):
    function: Callable


class Holder(Section):
    cost: Annotated[Made, Chosen(COSTS, recipe=recipe_of, word=True)] = Field(examples=["huber"])


def test_a_kind_may_be_written_as_its_name_or_with_its_options_and_is_dumped_with_all_of_them():
    assert Holder.model_validate({"cost": "plain"}).cost.make() == Plain()
    cost = Holder.model_validate({"cost": {"kind": "huber", "delta": 3, "power": 3.0, "knots": [4]}}).cost.make()
    assert (cost.delta, cost.power, cost.side, cost.knots) == (3.0, 3, None, (4.0,))
    assert cost.activation is np.tanh  # which YAML cannot write
    assert Holder(cost=recipe_of(Huber)(delta=2.0)).cost.delta == 2.0
    holder = Holder.model_validate({"cost": "huber"})
    dumped = holder.model_dump()["cost"]
    assert dumped == {"kind": "huber", "delta": 1.0, "power": 2, "side": None, "knots": (1.0, 2.0)}
    assert Holder.model_validate({"cost": dumped}) == holder


@pytest.mark.parametrize(
    ("value", "place", "kind"),
    [
        ({"kind": "huber", "detla": 1}, ("cost", "detla"), "extra_forbidden"),
        ({"kind": "huber", "delta": "1"}, ("cost", "delta"), "float_type"),
        ({"kind": "huber", "knots": [1, "x"]}, ("cost", "knots", 1), "float_type"),
        ({"kind": "huber", "delta": -1}, ("cost",), "refused"),
        ({"kind": "hubr"}, ("cost", "kind"), "unknown_kind"),
        ("hubr", ("cost",), "unknown_kind"),
        ({}, ("cost", "kind"), "unknown_kind"),
        (3, ("cost",), "dict_type"),
    ],
)
def test_a_wrong_option_is_refused_at_its_place(value, place, kind):
    with pytest.raises(ValidationError) as caught:
        Holder.model_validate({"cost": value})
    (error,) = caught.value.errors()
    assert (error["loc"], error["type"]) == (place, kind)


def test_a_parameter_that_yaml_cannot_write_needs_a_default():
    with pytest.raises(UnknownKindError, match=r"'Needy', whose parameter function YAML cannot write; .* a class of"):
        recipe_of(Needy)


def test_the_json_schema_holds_every_kind_with_its_options():
    plain, huber, outside, word = Holder.model_json_schema()["properties"]["cost"]["oneOf"]
    assert plain["properties"]["kind"]["const"] == "plain"
    assert set(huber["properties"]) == {"kind", "delta", "power", "side", "knots"}
    assert huber["description"] == "Quadratic near zero, linear far away."
    assert outside["required"] == ["kind"]
    assert word["anyOf"][0] == {"enum": ["plain", "huber"]}
