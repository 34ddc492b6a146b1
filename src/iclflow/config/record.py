"""Frozen records of settings, whose complaints are one line: the field, its value, what is allowed."""

import difflib
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError, ValidationInfo, field_validator

from iclflow.errors import BadInput

__all__ = ["Record", "one_line", "shown", "unknown"]

ALLOWED = {
    "greater_than_equal": "must be at least {ge}",
    "greater_than": "must be greater than {gt}",
    "less_than_equal": "must be at most {le}",
    "less_than": "must be less than {lt}",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "int_type": "must be a whole number",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "literal_error": "must be one of {expected}",
    "dict_type": "must be a table",
    "list_type": "must be a list",
}


def one_line(error: ValidationError, names: tuple[str, ...] = ()) -> str:
    """The first complaint of pydantic as `field: value ... what is allowed`."""
    first = error.errors(include_url=False)[0]
    field = str(first["loc"][0]) if first["loc"] else ""
    if first["type"] == "extra_forbidden":
        return unknown(field, names)
    if first["type"] == "missing":
        return f"{field}: is missing"
    if first["type"] == "value_error":
        return str(first["ctx"]["error"])
    allowed = ALLOWED.get(first["type"], first["msg"][:1].lower() + first["msg"][1:])
    return f"{field}: {shown(first['input'])} {allowed.format(**first.get('ctx', {}))}"


def shown(value: Any) -> str:
    """A value as text of one line that is not long."""
    try:
        text = repr(value)
    except ValueError:  # a number of thousands of digits
        text = "a number of thousands of digits"
    return text if len(text) <= 200 else f"{text[:197]}..."


def unknown(field: str, names: tuple[str, ...]) -> str:
    near = difflib.get_close_matches(field, names, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"must be one of {', '.join(names)}"
    return f"{field}: unknown name; {hint}"


class Record(BaseModel):
    """A frozen record whose errors are one line."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            names = tuple(field.alias or name for name, field in type(self).model_fields.items())
            raise BadInput(one_line(error, names)) from None

    @field_validator("*", mode="before")
    @classmethod
    def true_is_no_number(cls, value: Any, info: ValidationInfo) -> Any:
        """Python counts True as 1; here it is the value of a switch alone."""
        kind = str(cls.model_fields[str(info.field_name)].annotation)
        if isinstance(value, bool) and "bool" not in kind and ("int" in kind or "float" in kind):
            raise ValueError(f"{info.field_name}: {value} must be a number")
        return value

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed, validated anew; the others keep whether they were given."""
        given = {name: getattr(self, name) for name in self.model_fields_set}
        return type(self)(**{**given, **changes})
