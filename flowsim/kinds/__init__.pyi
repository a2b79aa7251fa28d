from . import seeds as seeds
from .recipes import (
    UNKNOWN_KIND as UNKNOWN_KIND,
    Chosen as Chosen,
    KeyPath as KeyPath,
    Made as Made,
    Named as Named,
    Recipe as Recipe,
    Section as Section,
    named_in as named_in,
    recipe_of as recipe_of,
    refusal as refusal,
    too_large as too_large,
    validation_error as validation_error,
    within as within,
)
from .registry import (
    Registry as Registry,
    UnknownKindError as UnknownKindError,
    got as got,
    is_kind_of as is_kind_of,
    reason_of as reason_of,
)
