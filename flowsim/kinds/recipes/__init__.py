"""What YAML says of one kind of something: sections, recipes, and the choice among kinds."""

from .chosen import (
    UNKNOWN_KIND as UNKNOWN_KIND,
    Chosen as Chosen,
    Named as Named,
    named_in as named_in,
)
from .options import Made as Made, recipe_of as recipe_of, refusal as refusal
from .values import (
    KeyPath as KeyPath,
    Recipe as Recipe,
    Section as Section,
    too_large as too_large,
    validation_error as validation_error,
    within as within,
)
