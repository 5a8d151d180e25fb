"""The immutable base of every setting and value."""

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """A pydantic model that is never edited and refuses keys it does not know.

    ``allow_inf_nan=False``: a setting that is not a finite number is a typing error in the recipe, caught at load.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)
