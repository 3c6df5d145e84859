"""Errors of pydantic as one line: a place, a reason and a remedy."""

from __future__ import annotations

from typing import Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from autoopt.errors import InputError, did_you_mean, one_line
from autoopt.spec.source import FieldError, FieldErrors, Place, dotted

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
