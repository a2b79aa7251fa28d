"""What every section of a scenario obeys."""

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """What every section obeys: no unknown key, no change after reading, no silent conversion, no NaN."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )
