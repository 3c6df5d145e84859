"""Everything that an exported package holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from autoopt.json_codec import JsonObject, from_json
from autoopt.measure.settings import MeasurementSettings
from autoopt.model.model_set import ModelSet
from autoopt.model.session import session_document
from autoopt.results import ModelResult, RunResult
from autoopt.store import RunRecord, Store
from autoopt.target import Target
from autoopt.workers.gate import FOREVER


@dataclass(frozen=True)
class Package:
    """Everything that an exported package holds, as the run's record and its result say."""

    run: RunRecord
    result: RunResult
    model: ModelResult
    """One of the run's models, or a model with its figures on this run's target."""

    scripts_may_run: bool = False
    """True if the run itself exports: the script that its data name is the one that it has just run."""
    patience: float = FOREVER
    """Maximum time in seconds to wait for measurements of other runs before writing beside them."""

    @property
    def replay_environment(self) -> Mapping[str, object]:
        """Calibration data, user script and accelerator that the passes ran with."""
        return self.settings.get("replay_environment") or {}

    @property
    def settings(self) -> Mapping[str, Any]:
        """The settings in the run's record."""
        return self.run.settings

    @property
    def target(self) -> Target:
        """The target of the run."""
        return from_json(Target, self.settings.get("target") or {})

    @property
    def measurement(self) -> MeasurementSettings:
        """The settings of the meters."""
        return MeasurementSettings.parse(self.settings.get("measurement") or {})

    @property
    def source_path(self) -> str:
        """The source model as the user named it; empty if the record does not say."""
        return str((self.settings.get("request") or {}).get("model") or "")

    @property
    def source_session(self) -> dict[str, Any]:
        """`session.json` of the source model that the figures compare with: of several targets, on the first one."""
        if self.result.choice is None:
            return self.session({})
        first = from_json(Target, self.result.targets[0].target)
        return session_document({}, first.execution_provider, first.threads, list(self.measurement.affinity))

    def session(self, options: JsonObject) -> dict[str, Any]:
        """`session.json` of a model with these session options."""
        return session_document(
            options, self.target.execution_provider, self.target.threads, list(self.measurement.affinity)
        )


@dataclass(frozen=True)
class SetPackage:
    """Everything that the exported package of a model set holds."""

    whole: Package
    description: ModelSet
    """The set, with its models below the folders of the parts."""
    parts: Mapping[str, Package]

    @staticmethod
    def of(store: Store, whole: Package) -> SetPackage:
        """Package a set that is in the store."""
        parts = {}
        for part in whole.result.parts:
            package = Package(store.runs.get(part.result.run), part.result, part.model)
            parts[part.name] = replace(package, scripts_may_run=whole.scripts_may_run, patience=whole.patience)
        return SetPackage(whole, ModelSet.read(store.artifacts.path(whole.model.artifact)), parts)
