"""Errors of pydantic as one line: a place, a reason and a remedy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from autoopt.errors import ConfigError, InputError, did_you_mean, one_line
from autoopt.spec.source import FieldError, Place, Source, dotted

_UNKNOWN, _WRONG, _MISSING = range(3)
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


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with a document. `rank` orders problems: the lowest explains the others."""

    rank: int
    place: Place
    reason: str
    remedy: str = ""


def first_error(error: ValidationError, source: Source) -> ConfigError:
    """Pick the mistake to report: unknown fields first (they explain missing ones), then the topmost, missing last."""
    problems = [_problem(details) for details in error.errors(include_url=False)]
    first = min(problems, key=lambda problem: (problem.rank, source.line(problem.place)))
    return source.error(first.place, first.reason, first.remedy)


def input_error(error: ValidationError, *where: str) -> InputError:
    """Pick the mistake to report for values that come from no file; `where` names what they belong to."""
    problems = [_problem(details) for details in error.errors(include_url=False)]
    first = min(problems, key=lambda problem: problem.rank)
    return InputError(first.reason, where=dotted((*where, *first.place)), remedy=first.remedy)


def _problem(details: ErrorDetails) -> Problem:
    kind, value = details["type"], details.get("input")
    context = details.get("ctx", {})
    place: Place = tuple(part for part in details["loc"] if isinstance(part, int) or not _is_union_tag(part))
    cause = context.get("error")
    if isinstance(cause, FieldError):
        rank = _UNKNOWN if cause.reason == "unknown field" else _WRONG
        return Problem(rank, (*place, *cause.place), cause.reason, cause.remedy)
    if kind == "missing":
        return Problem(_MISSING, place, "is required")
    if kind == "literal_error":
        known = context["expected"].replace("'", "").replace(" or ", ", ").split(", ")
        reason = f"must be one of {', '.join(known)}, not {_show(value)}"
        return Problem(_WRONG, place, reason, did_you_mean(str(value), known))
    if kind in _BOUNDS:
        words, bound = _BOUNDS[kind]
        return Problem(_WRONG, place, f"{words} {context[bound]:g}, not {_show(value)}")
    words = _WORDS.get(kind) or one_line(details["msg"]).replace("Input should be", "must be")
    return Problem(_WRONG, place, f"{words}, not {_show(value)}")


def _show(value: object) -> str:
    text = one_line(repr(value))
    if len(text) <= _SHOWN_CHARS:
        return text
    return f"{text[: _SHOWN_CHARS - 3]}..."


def _is_union_tag(part: str) -> bool:
    """True for a part of pydantic's location that names a member of a union instead of a field."""
    return "[" in part or part in ("str", "none")
