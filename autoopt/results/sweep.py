"""The result of a sweep: an entry for each model, compared with earlier sweeps; and the releases made from entries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from autoopt import json_codec
from autoopt.metrics import Estimate
from autoopt.results.model import SCHEMA, Json, ModelResult
from autoopt.results.run import RunResult

OK = "ok"
"""Status of an entry with a best model."""
MISSING = "missing"
"""Status of a model that an earlier sweep had and that its line in the zoo file no longer yields; also a verdict."""
BROKEN = "breaks a constraint"
"""Status of a model whose best, measured again on a nightly sweep, certainly breaks a constraint."""
REGRESSIONS = ("worse", "fails", MISSING)
IMPROVEMENTS = ("better", "works again")


@dataclass(frozen=True)
class MetricChange:
    """A metric that moved beyond its interval since an earlier sweep."""

    what: str
    """`best model`, `last best model`, `released model`, or `source model`; also since when it lasts."""
    metric: str
    before: Estimate | None
    after: Estimate | None
    as_ratio: bool
    """True if the values are ratios to the source model."""
    verdict: str
    """`better` or `worse`."""


@dataclass(frozen=True)
class EntryComparison:
    """One model of a sweep, compared with its release, or with the last good sweep if there is none."""

    verdict: str
    """`new`, `same`, `better`, `worse`, `fails`, `missing` or `works again`."""
    sweep: str = field(default="", metadata={"json": "with"})
    """Id of the earlier sweep; empty if there is none."""
    changes: tuple[MetricChange, ...] = ()
    causes: tuple[str, ...] = ()
    """Changes of the environment."""
    other_inputs: tuple[str, ...] = ()
    """Changes of the model, the DAG or the data."""
    release: int = 0
    """Number of the release that it is compared with; 0 for the last good sweep."""

    @property
    def regressed(self) -> bool:
        return self.verdict in REGRESSIONS

    @property
    def improved(self) -> bool:
        return self.verdict in IMPROVEMENTS


@dataclass(frozen=True)
class SweepEntry:
    """One model of a sweep."""

    name: str
    """Unique within the sweep."""
    status: str
    """`ok`, `refused`, `failed`, `missing`, `breaks a constraint`, or the status of a run without a best model."""
    path: str = ""
    tags: tuple[str, ...] = ()
    listed: str = ""
    """The path in the zoo file that this model comes from."""
    called: str = ""
    """Name among the models of the same line of the zoo file; other lines do not change it."""
    found: bool = True
    """False if the model could not be read from its path."""
    reason: str = ""
    """The reason why there is no model."""
    failed_run: str = ""
    """Id of a run that failed, whose trials and log tell why; empty if none began, or if there is a result."""
    result: RunResult | None = None
    """The run, with the figures of this sweep and without the Pareto front; None if it did not begin or failed."""
    last_best: ModelResult | None = None
    """The released model, else the best model of the last good sweep, measured again, if this sweep found another."""
    environment: Mapping[str, object] = field(default_factory=dict)
    inputs: Mapping[str, str] = field(default_factory=dict)
    """Short digests of the run's inputs, by name."""
    seconds: float = 0.0
    compared: EntryComparison = field(default_factory=lambda: EntryComparison("new"))

    @property
    def best(self) -> ModelResult | None:
        return None if self.result is None else self.result.best

    @property
    def run(self) -> str:
        """Id of the run with the result; empty without one."""
        return "" if self.result is None else self.result.run

    def to_json(self) -> dict[str, object]:
        """Convert to one flat object: the fields of the run, then the fields of the entry."""
        document: dict[str, object] = {
            "name": self.name,
            "path": self.path,
            "tags": list(self.tags),
            "run": self.failed_run,
            "listed": self.listed,
            "called": self.called,
            "found": self.found,
            "environment": json_codec.to_json(self.environment),
        }
        if self.result is not None:
            document |= self.result.to_json()
            del document["pareto"]
            document["inputs"] = dict(self.inputs)
        if self.last_best is not None:
            document["last_best"] = self.last_best.to_json()
        return document | {
            "schema": SCHEMA,
            "status": self.status,
            "reason": self.reason,
            "seconds": self.seconds,
            "compared": json_codec.to_json(self.compared),
        }

    @staticmethod
    def from_json(data: Json) -> SweepEntry:
        """Read an entry of a sweep's document."""
        document = dict(data)
        document["compared"] = document.get("compared") or {"verdict": "new"}
        if "baseline" not in document:
            document["failed_run"] = document.get("run", "")
        elif document.get("run"):
            document["result"] = RunResult.from_json({**document, "seconds": {}})
        return json_codec.from_json(SweepEntry, document)


@dataclass(frozen=True)
class SweepResult:
    """The result of a sweep."""

    sweep: str = ""
    """Id of the sweep."""
    name: str = ""
    """Name of the zoo."""
    zoo: str = ""
    """Path of the zoo file."""
    nightly: bool = False
    accepted: bool = False
    """True if this sweep is the new baseline, regressions included."""
    models: tuple[SweepEntry, ...] = ()
    regressions: tuple[str, ...] = ()
    improvements: tuple[str, ...] = ()
    environment_changes: tuple[str, ...] = ()
    not_run: tuple[str, ...] = ()
    """Models for which a night had no time, or that a cancelled sweep did not reach."""
    seconds: float = 0.0

    @property
    def failed(self) -> bool:
        """True if the sweep ends with exit code 1: an unaccepted regression, or no model with a result."""
        without_result = not any(entry.status == OK for entry in self.models)
        return without_result or (bool(self.regressions) and not self.accepted)

    def to_json(self) -> dict[str, object]:
        """Convert to the document that `autoopt sweep --json` prints."""
        document = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "models"}
        entries = [entry.to_json() for entry in self.models]
        return {"schema": SCHEMA, **json_codec.to_json(document), "models": entries}

    @staticmethod
    def from_json(data: Json) -> SweepResult:
        """Read a document."""
        entries = list(map(SweepEntry.from_json, data.get("models") or ()))
        return json_codec.from_json(SweepResult, {**data, "models": entries})


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
