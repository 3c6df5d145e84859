"""A model on disk with the session options that it runs with, as requests to workers name it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from autoopt.json_codec import JsonValue
from autoopt.model.candidate import digest_json
from autoopt.model.storage import content_digest


@dataclass(frozen=True)
class ModelFile:
    """A model file with the session options that it runs with."""

    path: str
    session_options: Mapping[str, JsonValue] = field(default_factory=dict)

    def same_as(self, other: ModelFile) -> bool:
        """True if both have the same bytes and the same session options."""
        if dict(self.session_options) != dict(other.session_options):
            return False
        one, two = Path(self.path), Path(other.path)
        if one == two:
            return True
        if one.stat().st_size != two.stat().st_size:
            return False
        return content_digest(self.path) == content_digest(other.path)

    @property
    def digest(self) -> str:
        """Identity by content and options."""
        return digest_json([content_digest(self.path), dict(self.session_options)])
