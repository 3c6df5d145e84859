"""The base of all configuration models: frozen, strict, and exact about fields that it does not have.

Its mistakes are one line each: a place, a reason and a remedy (`problems_of`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, ClassVar, Final

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    GetJsonSchemaHandler,
    ValidationError,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, ErrorDetails

from autoopt.errors import InputError, did_you_mean, one_line
from autoopt.spec.source import FieldError, FieldErrors, Place, dotted

MAX_NAME: Final = 128
_NAME: Final = re.compile(r"[A-Za-z0-9._-]+\Z")
_UNKNOWN: Final = "unknown field"
_MISSING: Final = "is required"
_CONSEQUENCES: Final = (
    _MISSING,
    "needs a bound",
    "is in no chain",
    "is empty",
    "has no graph",
    "has no passes",
    "must not be empty",
)
_SHOWN_CHARS: Final = 60
_WORDS: Final = {
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "string_type": "must be text",
    "dict_type": "must be a mapping",
    "model_type": "must be a mapping",
    "tuple_type": "must be a list",
    "list_type": "must be a list",
    "finite_number": "must be a finite number",
    "too_short": "must not be empty",
    "string_too_short": "must not be empty",
}
_BOUNDS: Final = {
    "greater_than": ("must be above", "gt"),
    "greater_than_equal": ("must be at least", "ge"),
    "less_than": ("must be below", "lt"),
    "less_than_equal": ("must be at most", "le"),
}


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
                    raise FieldError(_UNKNOWN, place=(str(key),), remedy=hint)
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


def problems_of(error: ValidationError) -> list[FieldError]:
    """All mistakes, without missing fields of a place that has unknown ones, which explain them."""
    problems: list[FieldError] = []
    for details in error.errors(include_url=False):
        cause = details.get("ctx", {}).get("error")
        if isinstance(cause, FieldErrors):
            place = _place(details)
            problems += [FieldError(e.reason, place=(*place, *e.place), remedy=e.remedy) for e in cause.errors]
        else:
            problems.append(_problem(details))
    if any(problem.reason == _UNKNOWN for problem in problems):
        problems = [problem for problem in problems if problem.reason != _MISSING]
    return problems


def is_consequence(problem: FieldError) -> bool:
    """True for a mistake that the removal of another one may have caused."""
    return problem.reason in _CONSEQUENCES


def input_error(error: ValidationError, *where: str) -> InputError:
    """Pick the mistake to report for values that come from no file; `where` names what they belong to."""
    rank = {_UNKNOWN: 0, _MISSING: 2}  # the lowest explains the others
    first = min(problems_of(error), key=lambda problem: rank.get(problem.reason, 1))
    return InputError(first.reason, where=dotted((*where, *first.place)), remedy=first.remedy)


def _problem(details: ErrorDetails) -> FieldError:
    kind, value = details["type"], details.get("input")
    context = details.get("ctx", {})
    place = _place(details)
    cause = context.get("error")
    if isinstance(cause, FieldError):
        return FieldError(cause.reason, place=(*place, *cause.place), remedy=cause.remedy)
    if kind == "missing":
        return FieldError(_MISSING, place=place)
    remedy = ""
    if kind == "literal_error":
        choices = context["expected"].replace("'", "").replace(" or ", ", ").split(", ")
        words = f"must be one of {', '.join(choices)}"
        remedy = did_you_mean(str(value), choices)
    elif kind in _BOUNDS:
        words, bound = _BOUNDS[kind]
        words += f" {context[bound]:g}"
    else:
        words = _WORDS.get(kind) or one_line(details["msg"]).replace("Input should be", "must be")
    return FieldError(f"{words}, not {_show(value)}", place=place, remedy=remedy)


def _place(details: ErrorDetails) -> Place:
    """Drop the parts of pydantic's location that name a member of a union instead of a field."""
    return tuple(
        part for part in details["loc"] if isinstance(part, int) or not ("[" in part or part in ("str", "none"))
    )


def _show(value: object) -> str:
    text = one_line(repr(value))
    if len(text) <= _SHOWN_CHARS:
        return text
    return f"{text[: _SHOWN_CHARS - 3]}..."
