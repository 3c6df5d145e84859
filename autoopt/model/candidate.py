"""A candidate: an artifact with the session options that it runs with; and the one way to digest a JSON value."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from autoopt.json_codec import JsonObject, JsonValue, from_json, to_json, without_nulls


def canonical_json(value: object) -> str:
    """Format JSON so that equal values give equal text: sorted keys, no spaces, ASCII only.

    Raises:
        ValueError: NaN or an infinity, which JSON does not have.
        TypeError: not a JSON value.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def digest_json(value: object) -> str:
    """Compute the sha256 of the canonical JSON of `value`, in hexadecimal."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


@dataclass(frozen=True)
class Candidate:
    """The input and output of passes, and the unit that is measured, selected and exported."""

    artifact: str
    """Digest of the model."""
    session_options: Mapping[str, JsonValue] = field(default_factory=dict)

    @cached_property
    def key(self) -> str:
        """The sha256 over artifact and session options; equal candidates have equal keys."""
        return digest_json(self.to_json())

    def __hash__(self) -> int:
        return hash(self.key)

    def to_json(self) -> dict[str, JsonValue]:
        return to_json(self)

    @staticmethod
    def from_json(document: JsonObject) -> Candidate:
        fields = without_nulls(document)
        return from_json(Candidate, fields)
