"""The request and the reply of `autoopt.passes.runner:describe`: all passes, including those of a user script.

Both cross process borders as JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, cast

from autoopt.json_codec import JsonObject, JsonValue, from_json, to_json
from autoopt.metrics import Metric
from autoopt.registry.pass_info import PassInfo, info_from_json, info_to_json
from autoopt.registry.pass_registry import Failure
from autoopt.target import Accelerator

DESCRIBE: Final = "autoopt.passes.runner:describe"


@dataclass(frozen=True)
class DescribeRequest:
    """The script to read, if any, and the accelerator that parameters are adapted to."""

    user_script: str | None = None
    """Path."""
    accelerator: Accelerator = field(default_factory=Accelerator)


@dataclass(frozen=True)
class DescribeReply:
    """All passes, and what else the script defines."""

    passes: tuple[PassInfo, ...]
    metrics: tuple[Metric, ...] = ()
    """Metrics that the script defines."""
    source_digest: str = ""
    """sha256 of the script, and of the modules of the user that it imports, if any."""
    failures: tuple[Failure, ...] = ()
    """Plug-ins that could not be loaded."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Versions of the libraries that passes call, if they are installed."""
    imports: Mapping[str, str] = field(default_factory=dict)
    """sha256 of the files of the user's modules that the script imports, by path."""

    def added_passes(self) -> dict[str, PassInfo]:
        """The passes that are not built in, by name."""
        return {info.name: info for info in self.passes if info.origin != "built-in"}

    def metrics_by_name(self) -> dict[str, Metric]:
        return {metric.name: metric for metric in self.metrics}

    def to_json(self) -> dict[str, JsonValue]:
        return {
            "passes": list(map(info_to_json, self.passes)),
            "metrics": to_json(self.metrics),
            "source_digest": self.source_digest,
            "imports": dict(self.imports),
            "failures": to_json(self.failures),
            "versions": dict(self.versions),
        }

    @staticmethod
    def from_json(value: JsonObject) -> DescribeReply:
        """Read the value that the worker function returned.

        Raises:
            JsonTypeError: a field is missing or has the wrong type.
        """
        passes = map(info_from_json, cast("list[JsonObject]", value["passes"]))
        return from_json(DescribeReply, {**value, "passes": list(passes)})
