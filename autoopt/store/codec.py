"""Values of records as the store keeps them, and back: JSON text, one-line text, numbers."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Final

from autoopt.errors import SystemFailure, one_line
from autoopt.metrics import Estimate
from autoopt.model.candidate import Candidate


def dumps(value: object) -> str:
    """JSON text in ASCII, equal for equal values, which may hold mappings and dataclasses of any kind.

    Unlike `canonical_json` it allows infinities and NaN, which metrics may be.
    """
    return _ENCODER.encode(value)


def dumps_optional(value: object) -> str | None:
    """Like `dumps`, with NULL for None."""
    return None if value is None else dumps(value)


def _as_dict(value: object) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    raise TypeError(f"{type(value).__name__} is not a JSON value")


_ENCODER: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"), default=_as_dict)


def loads(text: str | None) -> Any:  # noqa: ANN401  the caller knows the form of what it stored
    """The value of a JSON column; None for NULL.

    Raises:
        SystemFailure: Something else has written to the database, or its file is damaged.
    """
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError:
        remedy = "bring back a backup with 'autoopt store restore FOLDER'"
        raise SystemFailure(f"a value in the database is damaged: {text[:40]!r}", remedy=remedy) from None


def text(value: str) -> str:
    """`value` fit for a text column of either database: one line without control characters."""
    return one_line(value)


def estimates(stored: str) -> dict[str, Estimate]:
    """The estimates in a column, by metric."""
    return {name: Estimate(**estimate) for name, estimate in loads(stored).items()}


def number(value: float) -> float | None:
    """A float as a column: NULL for NaN, because SQLite turns NaN into NULL anyway."""
    return None if math.isnan(value) else value


def from_number(value: float | None) -> float:
    """The float in a column written by `number`."""
    return math.nan if value is None else value


def candidate(artifact: str | None, options: str | None) -> Candidate | None:
    """The candidate in a pair of columns; None if the first is NULL."""
    if artifact is None:
        return None
    return Candidate(artifact, loads(options) or {})


def candidate_columns(candidate: Candidate | None) -> tuple[str | None, str | None]:
    """The pair of columns that `candidate` reads."""
    if candidate is None:
        return None, None
    return candidate.artifact, dumps(candidate.session_options)
