"""Records to columns and back."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from autoopt.errors import one_line
from autoopt.metrics import Estimate
from autoopt.model.candidate import Candidate


def dumps(value: Any) -> str:
    """JSON text in ASCII, equal for equal values. Unlike `canonical_json` it keeps infinities and NaN, which metrics
    may be."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=_plain)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not a JSON value")


def loads(text: str | None) -> Any:
    return None if text is None else json.loads(text)


def text(value: str) -> str:
    """`value` fit for a text column of either database: one line without control characters."""
    return one_line(value)


def estimates_to_text(estimates: Mapping[str, Estimate]) -> str:
    return dumps({name: asdict(e) for name, e in estimates.items()})


def estimates_from_text(stored: str) -> dict[str, Estimate]:
    return {name: Estimate(**e) for name, e in json.loads(stored).items()}


def number(value: float) -> float | None:
    """A float as a column: NULL for NaN, as SQLite would make of it anyway."""
    return None if math.isnan(value) else value


def from_number(value: float | None) -> float:
    return math.nan if value is None else value


def candidate_columns(
    candidate: Candidate | None, artifact: str, options: str, key: str | None = None
) -> dict[str, Any]:
    """The columns of a candidate under the given names."""
    if candidate is None:
        return {name: None for name in (artifact, options, key) if name}
    columns = {artifact: candidate.artifact, options: dumps(candidate.session_options)}
    return {**columns, key: candidate.key} if key else columns


def candidate_from(artifact: str | None, options: str | None) -> Candidate | None:
    return None if artifact is None else Candidate(artifact, loads(options) or {})
