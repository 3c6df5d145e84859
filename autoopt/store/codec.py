"""Values of records as the store keeps them, and back: JSON text, one-line text, numbers."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from autoopt.errors import one_line
from autoopt.metrics import Estimate
from autoopt.model.candidate import Candidate


def dumps(value: object) -> str:
    """JSON text in ASCII, equal for equal values.

    Unlike `canonical_json` it allows infinities and NaN, which metrics may be.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=_mapping)


def dumps_optional(value: object) -> str | None:
    """Like `dumps`, with NULL for None."""
    return None if value is None else dumps(value)


def _mapping(value: object) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not a JSON value")


def loads(text: str | None) -> Any:  # noqa: ANN401  the caller knows the form of what it stored
    """The value of a JSON column; None for NULL."""
    return None if text is None else json.loads(text)


def text(value: str) -> str:
    """`value` fit for a text column of either database: one line without control characters."""
    return one_line(value)


def estimates_to_text(estimates: Mapping[str, Estimate]) -> str:
    """Estimates by metric as JSON text."""
    return dumps({name: asdict(estimate) for name, estimate in estimates.items()})


def estimates_from_text(stored: str) -> dict[str, Estimate]:
    """The estimates in text from `estimates_to_text`."""
    return {name: Estimate(**estimate) for name, estimate in json.loads(stored).items()}


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
