"""Everything that an exported package holds, and its recipe: how the model was made, so that it can be made again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from autoopt.dag.proposal.narrowing import Narrowing
from autoopt.json_codec import JsonObject, JsonValue, from_json, to_json
from autoopt.measure.settings import MeasurementSettings
from autoopt.model.candidate import Candidate
from autoopt.model.files import digest_file
from autoopt.model.model_file import graph_digest
from autoopt.model.model_set import ModelSet
from autoopt.model.session import session_document
from autoopt.passes.request import PassStep
from autoopt.problem.environment import environment
from autoopt.results import ModelResult, RunResult
from autoopt.store import PassRunRecord, RunRecord, Store
from autoopt.store.records import IMPLEMENTATION
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
    def data(self) -> Mapping[str, object] | None:
        """The data that latencies were measured with; None if their inputs were generated."""
        config: Mapping[str, object] | None = self.settings.get("latency_data")
        return config

    @property
    def has_generated_inputs(self) -> bool:
        """True if there were no data."""
        return self.data is None or bool((self.settings.get("request") or {}).get("data_is_generated"))

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


SPECIALIZE: Final = "specialize_inputs"
"""The pass that narrows the inputs to what the data use."""
RECIPE: Final = 1
"""Version of the recipe's format."""
_STEP_FIELDS: Final = ("pass", "params", "output", IMPLEMENTATION)


def steps_of(store: Store, package: Package) -> tuple[PassRunRecord, ...]:
    """The pass runs from the source to the model; empty for the source itself."""
    if package.model.candidate.key == Candidate(package.run.model).key:
        return ()
    return store.lineage.trace(package.model.candidate).steps


def narrowing_by(steps: Sequence[PassRunRecord | PassStep]) -> Narrowing:
    """The inputs of the source that a model takes for granted; `steps` are its lineage, as in a recipe."""
    narrowing = Narrowing()
    for step in steps:
        if step.pass_name == SPECIALIZE:
            params: Mapping[str, Any] = step.params
            values, shapes = params.get("values", {}), params.get("shapes", {})
            narrowing = Narrowing({**narrowing.values, **values}, {**narrowing.shapes, **shapes})
    return narrowing


def narrowed_inputs(steps: Sequence[PassRunRecord | PassStep]) -> dict[str, JsonValue]:
    """The same as an entry of `session.json`; empty without any."""
    narrowing = narrowing_by(steps)
    return {"narrowed_inputs": to_json(narrowing)} if narrowing else {}


def with_digest(recipe: Mapping[str, object]) -> dict[str, object]:
    """A recipe with the SHA-256 of its other fields, so that an edit is noticed."""
    content = {name: value for name, value in recipe.items() if name != "digest"}
    plain = json.dumps(content, sort_keys=True)
    return {**content, "digest": hashlib.sha256(plain.encode()).hexdigest()}


def recipe_of(
    store: Store, package: Package, steps: Sequence[PassRunRecord], runtime: Mapping[str, str]
) -> dict[str, object]:
    """The recipe of a package, without its digest. `runtime` has the versions of onnxruntime and numpy."""
    model = package.model
    documents = [step.to_json() for step in steps]
    # The user's file, and the store's copy of it.
    copy = store.artifacts.path(package.run.model)
    source_files = [{"path": str(copy.absolute()), "sha256": digest_file(copy)}]
    if package.source_path.endswith((".onnx", ".ort")) and "://" not in package.source_path:
        unmended = (package.settings.get("sources") or {}).get("unmended")
        source_files.insert(0, {"path": package.source_path, "sha256": unmended or graph_digest(copy)})
    return {
        "recipe": RECIPE,
        "run": package.run.id,
        "source": package.run.model,
        "source_files": source_files,
        "source_session": package.source_session,
        "result": model.artifact,
        "chain": model.short_chain,
        "steps": [{name: document[name] for name in _STEP_FIELDS if name in document} for document in documents],
        **package.replay_environment,
        "session_options": dict(model.session_options),
        "target": package.target.content,
        "affinity": list(package.measurement.affinity),
        "objectives": to_json(package.result.objectives),
        **figures_of(model),
        "runtime": dict(runtime),
        "environment": dict(environment()),
    }


def figures_of(model: ModelResult) -> dict[str, object]:
    """The recorded measurement with which `run.py` compares its own."""
    round_ratios = to_json(model.measured.round_ratios)
    return {"metrics": dict(model.metrics), "ratios": to_json(model.ratios), "round_ratios": round_ratios}
