"""What a worker function is asked for, and what it answers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

from autoopt.data.config import DataConfig
from autoopt.errors import InputError
from autoopt.metrics import Estimate
from autoopt.model.candidate import digest_json
from autoopt.model.storage import content_digest

Json: TypeAlias = dict[str, Any]


class Unmeasurable(InputError):
    """Data, settings or metric do not fit the model; the runtime has refused nothing."""

    outcome: ClassVar[str] = "refused"


@dataclass(frozen=True)
class Model:
    """A model file with the session options it is to run with."""

    path: str
    session_options: Mapping[str, Any] = field(default_factory=dict)

    def same_as(self, other: Model) -> bool:
        """Whether both have the same bytes and the same session options."""
        if dict(self.session_options) != dict(other.session_options):
            return False
        return Path(self.path) == Path(other.path) or content_digest(self.path) == content_digest(other.path)

    @property
    def digest(self) -> str:
        """Identity by content and options."""
        return digest_json([content_digest(self.path), dict(self.session_options)])


@dataclass(frozen=True)
class Request:
    """A parsed payload."""

    candidate: Model
    source: Model | None
    metrics: tuple[str, ...]
    data: DataConfig | None
    execution_provider: str = "CPUExecutionProvider"
    threads: int = 1
    settings: Mapping[str, Any] = field(default_factory=dict)
    user_script: str | None = None

    @staticmethod
    def parse(payload: Mapping[str, Any]) -> Request:
        """The request in a payload.

        Raises:
            InputError: a data config that is none.
        """
        target = payload.get("target") or {}
        data = payload.get("data")
        return Request(
            _model(payload["candidate"]),
            _model(payload["source"]) if payload.get("source") else None,
            tuple(payload.get("metrics", ())),
            None if data is None else DataConfig.parse(data),
            target.get("execution_provider", "CPUExecutionProvider"),
            int(target.get("threads", 1)),
            payload.get("settings") or {},
            payload.get("user_script") or None,
        )

    @property
    def is_source(self) -> bool:
        """Whether the candidate is the source model itself: the baseline is being taken."""
        return self.source is not None and self.candidate.same_as(self.source)


def _model(value: Any) -> Model:
    return Model(value["path"], dict(value.get("session_options") or {}))


def answer(
    metrics: Mapping[str, Estimate],
    source: Mapping[str, Estimate] | None = None,
    ratios: Mapping[str, Estimate] | None = None,
    details: Mapping[str, Any] | None = None,
) -> Json:
    """The JSON that a worker function returns. Ratios that are not given follow from the point values where both
    are positive, with an interval from both intervals."""
    source = source or {}
    found = dict(ratios or {})
    for name in metrics:
        if name not in found and name in source and (made := ratio(metrics[name], source[name])) is not None:
            found[name] = made
    return {
        "metrics": {n: asdict(e) for n, e in metrics.items()},
        "source_metrics": {n: asdict(e) for n, e in source.items()},
        "ratios": {n: asdict(e) for n, e in found.items()},
        "details": dict(details or {}),
    }


def ratio(candidate: Estimate, source: Estimate) -> Estimate | None:
    """candidate / source for positive, unpaired values; None where a ratio has no meaning."""
    if not (source.low > 0 and candidate.low >= 0 and math.isfinite(candidate.high) and math.isfinite(source.high)):
        return None
    value = candidate.value / source.value
    if source.low == source.high and candidate.low == candidate.high:
        return Estimate.exact(value)
    down = math.hypot((candidate.value - candidate.low) / source.value, value * (source.high / source.value - 1))
    up = math.hypot((candidate.high - candidate.value) / source.value, value * (1 - source.low / source.value))
    return Estimate(value, max(0.0, value - down), value + up)
