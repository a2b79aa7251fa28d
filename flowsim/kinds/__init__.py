"""How a kind of something is found by its name, and what YAML says of it."""

from .chosen import (
    UNKNOWN_KIND as UNKNOWN_KIND,
    Chosen as Chosen,
    Named as Named,
    named_in as named_in,
)
from .options import Made as Made, recipe_of as recipe_of, refusal as refusal
from .registry import (
    Registry as Registry,
    UnknownKindError as UnknownKindError,
    got as got,
    is_kind_of as is_kind_of,
    reason_of as reason_of,
)
from .values import (
    KeyPath as KeyPath,
    Recipe as Recipe,
    Section as Section,
    too_large as too_large,
    validation_error as validation_error,
    within as within,
)
