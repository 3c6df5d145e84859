"""A release: the model of a zoo that is in use, with which nights are compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autoopt import json_codec
from autoopt.results.model import ModelResult
from autoopt.results.sweep import SweepEntry


@dataclass(frozen=True)
class Release:
    """A model that was promoted, with its figures at that time."""

    zoo: str
    number: int
    """Counts from 1 for each model of a zoo."""
    entry: SweepEntry
    """The model's entry of a sweep; its `best` is what was released."""
    sweep: str = ""
    """Id of that sweep; empty for a run of its own."""
    trial: int | None = None
    """Number of the trial, if it is not the best model of its run."""
    target: str | None = None
    """The target whose best model it is, of a run over several."""
    places: tuple[str, ...] = ()
    """Places where it was published."""
    replaced: int = 0
    """Number of the release before; 0 for the first one."""
    by: str = ""
    """User and host: `ann@forge`."""
    time: float = 0.0
    """Seconds since 1970 on the database's clock."""

    @property
    def name(self) -> str:
        """`production/cnn 3`."""
        return f"{self.zoo}/{self.entry.name} {self.number}"

    @property
    def model(self) -> ModelResult:
        """The released model."""
        assert self.entry.best is not None, "a model without figures is not released"
        return self.entry.best

    def to_json(self) -> dict[str, object]:
        return {**json_codec.to_json(self), "entry": self.entry.to_json()}

    @staticmethod
    def from_json(data: Mapping[str, object]) -> Release:
        """Read a stored release."""
        entry = data["entry"]
        assert isinstance(entry, Mapping), "written by to_json"
        return json_codec.from_json(Release, {**data, "entry": SweepEntry.from_json(entry)})
