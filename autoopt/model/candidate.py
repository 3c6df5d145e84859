"""A candidate: an artifact with the session options it is to run with; and the one way to digest a JSON value."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any


def canonical_json(value: Any) -> str:
    """`value` as JSON text that is equal for equal values: sorted keys, no spaces, ASCII only.

    Raises:
        ValueError: NaN or an infinity, which JSON does not have.
        TypeError: not a JSON value.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def digest_json(value: Any) -> str:
    """The sha256 of the canonical JSON of `value`, in hexadecimal."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


@dataclass(frozen=True)
class Candidate:
    """What a pass takes and returns, what is measured, chosen and exported. `artifact` is the digest of a model."""

    artifact: str
    session_options: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def key(self) -> str:
        """sha256 over artifact and session options; equal candidates have equal keys."""
        return digest_json(self.to_json())

    def __hash__(self) -> int:
        return hash(self.key)

    def to_json(self) -> dict[str, Any]:
        return {"artifact": self.artifact, "session_options": dict(self.session_options)}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Candidate:
        return Candidate(data["artifact"], dict(data.get("session_options") or {}))
