"""The problem that a run solves: plan, model, data, goal, search and target. Frozen.

The record of a run holds the request and the `Sources`, from which `resolve.stored_problem` compiles the problem again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from autoopt.dag import Facts
from autoopt.dag.compiler.plan import Plan
from autoopt.data import DataConfig
from autoopt.data.description import DataDescription
from autoopt.data.digest import InputChanged, check_unchanged
from autoopt.json_codec import JsonObject, JsonValue, from_json, to_json
from autoopt.measure.settings import MeasurementSettings
from autoopt.metrics import Constraint, Metric, Objective, get_metric
from autoopt.model.candidate import Candidate
from autoopt.model.fetch import shown_source
from autoopt.model.files import digest_file
from autoopt.problem.content_keys import run_identity
from autoopt.registry import DescribeReply
from autoopt.results import Note
from autoopt.settings import root_to_store
from autoopt.spec import DagSpec
from autoopt.spec.search import SearchConfig
from autoopt.spec.targets import HostSpec
from autoopt.target import Accelerator, Target

if TYPE_CHECKING:
    from autoopt.dag.proposal.propose import Proposal

GIBIBYTE: Final = 1 << 30
Runtime: TypeAlias = Mapping[str, Any]
"""Versions and execution providers of a host; empty for this interpreter."""


@dataclass(frozen=True)
class Limits:
    """Limits of one call in a worker: seconds, and bytes of memory."""

    pass_seconds: float = 600.0
    measure_seconds: float = 60.0
    memory: int | None = None

    def grown(self, size: int, fixed: Collection[str] = ()) -> Limits:
        """The limits for a model of `size` bytes: each GiB adds the times once more, but not the `fixed` ones."""
        factor = 1 + size // GIBIBYTE
        pass_seconds = self.pass_seconds * (1 if "pass_seconds" in fixed else factor)
        measure_seconds = self.measure_seconds * (1 if "measure_seconds" in fixed else factor)
        return replace(self, pass_seconds=pass_seconds, measure_seconds=measure_seconds)


@dataclass(frozen=True)
class DataSource:
    """A data set as configured, and the digest of its content. False if there is no data."""

    config: Mapping[str, object] | None = None
    digest: str = ""

    def __bool__(self) -> bool:
        return self.config is not None

    @property
    def place(self) -> str:
        """The path of the data, to name them in errors."""
        return str((self.config or {}).get("path") or "data")

    def check_unchanged(self) -> None:
        """Check, after a worker has read the data, that they are what was digested: results are stored by the digest.

        Raises:
            InputChanged: They are not.
        """
        if self.config is not None:
            check_unchanged(DataConfig.parse(self.config), self.digest)


@dataclass(frozen=True)
class DataSets:
    """The data sets of a run."""

    evaluation: DataSource = field(default_factory=DataSource)
    calibration: DataSource = field(default_factory=DataSource)
    """The evaluation data if the user named no other."""
    latency: DataSource = field(default_factory=DataSource)
    """Inputs for latencies; empty to use the evaluation data."""


@dataclass(frozen=True)
class UserScript:
    """The user's script with passes and metrics; empty without a script."""

    path: str | None = None
    digest: str = ""
    """sha256 of its file."""
    content: str = ""
    """sha256 of its file, and of the modules of the user that it imports, if any."""
    imports: Mapping[str, str] = field(default_factory=dict)
    """sha256 of the files of these modules, by path."""

    def check_unchanged(self) -> None:
        """Check, after a worker has executed the script, that it and what it imports are what was digested.

        Raises:
            InputChanged: One of them is not.
        """
        files = dict(self.imports)
        if self.path is not None:
            files[self.path] = self.digest
        for path, digest in files.items():
            if not Path(path).is_file() or digest_file(path) != digest:
                raise InputChanged(path)


@dataclass(frozen=True)
class Sources:
    """The model, the data and the script that a request names, and what workers read of them."""

    facts: Facts
    model: Candidate = field(default_factory=lambda: Candidate(""))
    path: str = ""
    """The model as the user named it."""
    script: UserScript = field(default_factory=UserScript)
    definitions: DescribeReply = field(default_factory=lambda: DescribeReply(()))
    """The passes and metrics that the script defines."""
    data: DataSets = field(default_factory=DataSets)
    descriptions: Mapping[str, DataDescription] = field(default_factory=dict)
    """By the use of the data: `evaluation`, and `calibration` and `latency` if they are others."""
    fed_back: tuple[str, ...] = ()
    """Inputs that take the recurrent state."""
    batch_size: int = 0
    """Items per inference that the data or the measurement name; 0 if none do."""
    is_generated: bool = False
    """True if the evaluation data was generated: it says nothing about the use of the model."""
    is_unread: bool = False
    """True if there may be evaluation data that a plan has not read."""
    unverified: bool = False
    """As in `Problem`."""
    repairs: tuple[str, ...] = ()
    """Notes on faults of the model that were mended."""
    unmended: str = ""
    """SHA-256 of the file of a model that was mended; empty for other models."""
    notes: tuple[Note, ...] = ()
    """Notes on the data."""
    plugin: str = ""
    """The plug-in that has the target's execution provider."""
    runtimes: Mapping[str, Runtime] = field(default_factory=dict)
    """As in `Problem`."""

    @property
    def evaluation(self) -> DataDescription | None:
        """The description of the evaluation data; None without data and for generated data."""
        return None if self.is_generated else self.descriptions.get("evaluation")

    def to_json(self) -> dict[str, JsonValue]:
        """The document that the record of a run keeps; the store has the inspection of the model."""
        document = to_json(replace(self, facts=replace(self.facts, inspection=None), definitions=DescribeReply(())))
        return {**document, "path": shown_source(self.path), "definitions": self.definitions.to_json()}

    @staticmethod
    def from_json(document: JsonObject) -> Sources:
        """Reverse `to_json`."""
        definitions = DescribeReply.from_json(cast("JsonObject", document["definitions"]))
        return replace(from_json(Sources, {**document, "definitions": {"passes": []}}), definitions=definitions)


@dataclass(frozen=True)
class Goal:
    """Objectives by priority, constraints, and every metric to measure."""

    objectives: tuple[Objective, ...]
    constraints: tuple[Constraint, ...]
    metrics: tuple[Metric, ...]
    front: tuple[Objective, ...] = ()
    """Axes of the Pareto front: the objectives, size and quality."""
    custom: Mapping[str, Metric] = field(default_factory=dict)
    """Metrics that the user script defines."""

    def metric(self, name: str) -> Metric:
        """The metric with this name, built in or from the user script."""
        return get_metric(name, self.custom)

    @property
    def kept_task_metrics(self) -> list[str]:
        """The metrics by labels that constraints or objectives keep."""
        names = [constraint.metric for constraint in self.constraints]
        names += [objective.metric for objective in self.objectives]
        return [name for name in names if self.metric(name).kind == "task"]


@dataclass(frozen=True)
class Problem:
    """One model to optimize on one target."""

    plan: Plan
    source: Candidate
    goal: Goal
    target: Target
    host: HostSpec
    """Host that measures."""
    accelerator: Accelerator
    data: DataSets = field(default_factory=DataSets)
    script: UserScript = field(default_factory=UserScript)
    data_root: str = ""
    """Folder that relative paths in parameters of category `data` start from."""
    limits: Limits = field(default_factory=Limits)
    measurement: Mapping[str, JsonValue] = field(default_factory=dict)
    """The user's settings for the meters."""
    unverified: bool = False
    """True if only generated inputs judge lossy candidates, which are then measured and shown, but never the best."""
    model: str = ""
    """The model as the user named it."""
    search: SearchConfig = field(default_factory=SearchConfig)
    runtimes: Mapping[str, Runtime] = field(default_factory=dict)
    """Versions of the hosts other than this interpreter, by name."""
    candidates: tuple[str, ...] = ()
    """Trials of other runs that are measured in place of a search."""
    notes: tuple[Note, ...] = ()
    """Messages for the user."""
    proposal: Proposal | None = None
    """The proposed DAG of a bare model; None for a DAG of the user."""
    sources: Sources = field(default_factory=lambda: Sources(Facts()), compare=False)
    """The sources that the problem was compiled from."""

    @property
    def spec(self) -> DagSpec:
        """The DAG, for one target."""
        return self.plan.spec

    @property
    def identity(self) -> str:
        """The content key of the run."""
        data = self.data
        parts: dict[str, object] = {
            "plan": self.plan.digest,
            "source": self.source.key,
            "data": [data.evaluation.digest, data.calibration.digest, data.latency.digest],
            "goal": [to_json(self.goal.objectives), to_json(self.goal.constraints)],
            "search": self.search.content,
            "target": self.target.content,
            "script": self.script.content,
            "evaluate": self.spec.evaluate,
            "node objectives": to_json(self.spec.node_objectives),
            "measurement": dict(self.measurement),
            "unverified": self.unverified,
            "runtimes": dict(self.runtimes),
        }
        if pool := self.spec.all_targets[0].work_pool:
            parts["work pool"] = pool
        if self.candidates:
            parts["candidates"] = self.candidates
        return run_identity(parts)

    @property
    def runtime(self) -> Runtime:
        """Versions and providers of the runtime that measures; empty for this interpreter."""
        return self.runtime_of(self.host)

    def runtime_of(self, host: HostSpec) -> Runtime:
        """Versions and providers of the runtime of a host of the DAG; empty for this interpreter."""
        return self.runtimes.get(host.elsewhere, {})

    @property
    def why_pruned(self) -> str:
        """Reasons why chains were pruned, in one line."""
        return "; ".join(dict.fromkeys(pruned.reason for pruned in self.plan.pruned(3)))

    @property
    def measurement_settings(self) -> MeasurementSettings:
        """The settings of the meters, with defaults."""
        return MeasurementSettings.parse(self.measurement)

    def replay_environment(self) -> dict[str, object]:
        """The environment of the passes besides the model, as recipes and run records keep it."""
        config = self.data.calibration.config or {}
        scripts = {}
        if self.script.path is not None:
            scripts[self.script.path] = self.script.digest
        loader = config.get("user_script")
        if loader and str(loader) not in scripts:
            scripts[str(loader)] = digest_file(Path(str(loader)))
        return {
            "calibration": self.data.calibration.config,
            "evaluation": self.data.evaluation.config,
            "user_script": self.script.path,
            "scripts": scripts,
            "accelerator": to_json(self.accelerator),
            "data_root": root_to_store(self.data_root),
        }
