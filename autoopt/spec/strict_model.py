"""The base of all configuration models: frozen, strict, and exact about fields that it does not have."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, ClassVar, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from autoopt.errors import did_you_mean
from autoopt.spec.source import FieldError

MAX_NAME: Final = 128
_NAME: Final = re.compile(r"[A-Za-z0-9._-]+\Z")


class StrictModel(BaseModel):
    """Frozen; unknown fields are errors that name the nearest field; no silent conversions."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    short: ClassVar[str] = ""
    """The field that a bare text sets; empty if there is no short form."""

    @classmethod
    def expand(cls, value: object) -> object:
        """Convert a short form to the full one."""
        if cls.short and isinstance(value, str):
            return {cls.short: value}
        return value

    @model_validator(mode="before")
    @classmethod
    def _read(cls, value: object) -> object:
        value = cls.expand(value)
        if isinstance(value, Mapping):
            names = cls.keys()
            for key in value:
                if key not in names:
                    hint = did_you_mean(str(key), names) or f"known: {', '.join(names)}"
                    raise FieldError("unknown field", place=(str(key),), remedy=hint)
        return value

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        schema = handler(core_schema)
        if not cls.short:
            return schema
        full = handler.resolve_ref_schema(schema)
        full_copy = dict(full)
        full.clear()
        full["anyOf"] = [{"type": "string"}, full_copy]
        return schema

    @classmethod
    def keys(cls) -> tuple[str, ...]:
        """Return the names of the fields as users write them."""
        return tuple(info.alias or name for name, info in cls.model_fields.items())


def check_name(name: str) -> str:
    """Return `name` if it may be the name of a DAG, node, target or tag.

    Raises:
        FieldError: it has characters other than letters, digits, `.`, `_`, `-`, only dots, or is longer than 128.
    """
    if len(name) > MAX_NAME:
        raise FieldError(f"is longer than {MAX_NAME} characters")
    if not _NAME.match(name) or not name.strip("."):  # `.` and `..` are folders
        raise FieldError(f"{name!r} is not a valid name", remedy="use letters, digits, '.', '_', '-'")
    return name


def name_from(text: str, default: str) -> str:
    """Reduce a text to the characters and the length that a name may have; `default` if nothing is left."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-.")[:MAX_NAME] or default


Name = Annotated[str, AfterValidator(check_name)]
