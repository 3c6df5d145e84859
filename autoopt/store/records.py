"""The records that go into the store and come out: frozen, with JSON values.

Times are seconds since 1970 on the database's clock. The store sets `created`, `finished` and `time`.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from autoopt.metrics import Estimate
from autoopt.model.candidate import Candidate
from autoopt.outcome import Outcome
from autoopt.owner import is_known_alive, is_known_dead
from autoopt.results.sweep import Release

Json: TypeAlias = Mapping[str, Any]
"""A JSON document whose form its writer and its readers know."""
Restorer: TypeAlias = Callable[[str], Path]
"""Makes a lost artifact again: takes its digest, returns a folder with its files."""
RunStatus: TypeAlias = Literal["running", "finished", "failed", "cancelled"]
ClaimKind: TypeAlias = Literal["pass_run", "evaluation", "trial", "run", "sweep", "release"]
ClaimState: TypeAlias = Literal["mine", "held", "done"]
LEASE_SECONDS: Final = 60.0
"""Seconds after which others may take over a claim that its owner has not renewed."""
IMPLEMENTATION: Final = "implementation"
"""Entry of a pass run's environment: version, libraries and source of the pass."""
MEMORY: Final = "memory"
"""Entry of the environment of what ran out of memory: the bytes that the call could use."""
TRANSIENT: Final = "transient"
"""Entry of a pass run's reports and of an evaluation's details; see `PassRunRecord.transient`."""


@dataclass(frozen=True)
class Claim:
    """The answer to a claim; true if the work is the caller's.

    `mine`: do the work. `held`: `owner` is doing it. `done`: the result exists, look it up.
    """

    state: ClaimState
    owner: str | None = None

    def __bool__(self) -> bool:
        return self.state == "mine"


def is_abandoned(lease: float | None, owner: str | None, now: float) -> bool:
    """True if nobody works any more on a claim of `owner` that lasts until `lease`."""
    return lease is None or owner is None or lease <= now or is_known_dead(owner)


def is_run_abandoned(lease: float | None, owner: str | None, now: float) -> bool:
    """Like `is_abandoned`, for decisions that cannot be undone: a living owner counts even if its lease has ended."""
    return is_abandoned(lease, owner, now) and not (owner is not None and is_known_alive(owner))


def new_id() -> str:
    """An id for a run or a sweep: twelve hexadecimal digits."""
    return uuid.uuid4().hex[:12]


def part_documents(result: Json) -> tuple[Json, ...]:
    """The documents of the parts in a run's result, one for each target or model; each names its run."""
    return (*(result.get("targets") or ()), *(result.get("parts") or ()))


@dataclass(frozen=True)
class ArtifactRecord:
    """A model in the artifact store."""

    digest: str
    bytes: int
    """The size of all files."""
    files: Mapping[str, int]
    """The size of each file by name."""
    created: float = 0.0


@dataclass(frozen=True)
class ModelRecord:
    """A source model, which runs start from."""

    artifact: str
    name: str
    inspection: Json = field(default_factory=dict)
    """The result of a worker's inspection of the model."""
    created: float = 0.0


@dataclass(frozen=True)
class PassRunRecord:
    """One pass run: its input, its output and its outcome."""

    key: str
    pass_name: str
    params: Json
    input: Candidate
    outcome: Outcome
    output: Candidate | None = None
    """Present whenever the outcome is good."""
    seconds: float = 0.0
    message: str = ""
    environment: Json = field(default_factory=dict)
    """Versions, CPU and host that the result was made with, and the implementation of the pass."""
    attempts: tuple[Any, ...] = ()
    """Parameters that the pass gave up before those it ended with, each with its reason."""
    reports: Json = field(default_factory=dict)
    run: str | None = None
    node: str | None = None
    finished: float = 0.0

    @property
    def transient(self) -> bool:
        """True for a failure that other runs do not take over, because its cause may lie outside the work."""
        return bool(self.reports.get(TRANSIENT))

    def to_json(self) -> dict[str, Any]:
        """The pass run as users see it in JSON, as a step of a lineage."""
        output = self.output or self.input
        document = {
            "pass": self.pass_name,
            "params": dict(self.params),
            "input": self.input.artifact,
            "output": output.artifact,
            "session_options": dict(output.session_options),
            "outcome": str(self.outcome),
            "seconds": self.seconds,
            "environment": {name: value for name, value in self.environment.items() if name != IMPLEMENTATION},
        }
        if IMPLEMENTATION in self.environment:
            document[IMPLEMENTATION] = self.environment[IMPLEMENTATION]
        if self.attempts:
            document["attempts"] = list(self.attempts)
        if self.reports:
            document["reports"] = dict(self.reports)
        return document


@dataclass(frozen=True)
class EvaluationRecord:
    """One meter's measurement of one candidate, with a comparison to the source if there was one."""

    key: str
    candidate: Candidate
    meter: str
    outcome: Outcome
    metrics: Mapping[str, Estimate] = field(default_factory=dict)
    source_metrics: Mapping[str, Estimate] = field(default_factory=dict)
    ratios: Mapping[str, Estimate] = field(default_factory=dict)
    details: Json = field(default_factory=dict)
    seconds: float = 0.0
    message: str = ""
    environment: Json = field(default_factory=dict)
    graph: str | None = None
    """Key of the executed graph whose figures these are, for other candidates with the same graph."""
    run: str | None = None
    finished: float = 0.0

    @property
    def transient(self) -> bool:
        """True for a failure that other runs do not take over, because its cause may lie outside the work."""
        return bool(self.details.get(TRANSIENT))

    @property
    def disturbed(self) -> bool:
        """True if another process used the machine while a latency was measured, or its speed changed."""
        return bool(self.details.get("disturbed") or self.details.get("busy"))


@dataclass(frozen=True)
class SweepRecord:
    """Plans executed over a zoo of models."""

    id: str
    name: str
    settings: Json = field(default_factory=dict)
    status: RunStatus = "running"
    result: Json = field(default_factory=dict)
    """Empty until it ends."""
    owner: str | None = None
    created: float = 0.0
    finished: float | None = None


@dataclass(frozen=True)
class RunRecord:
    """A plan executed for one model."""

    id: str
    name: str
    identity: str
    """The content key that identical runs share."""
    model: str
    """Digest of the source model's artifact."""
    plan: Json = field(default_factory=dict)
    settings: Json = field(default_factory=dict)
    status: RunStatus = "running"
    result: Json = field(default_factory=dict)
    """Empty until a trial has completed, or the run ends."""
    sweep: str | None = None
    parent: str | None = None
    """Id of the run over several targets whose part for one target this run is."""
    is_check: bool = False
    """True if it only measured again what another run had found: lists of runs leave it out, and it is no `latest`."""
    owner: str | None = None
    seconds: float = 0.0
    """The time that it has taken up to its last completed trial, so that its time limit survives a kill."""
    created: float = 0.0
    finished: float | None = None

    @property
    def shown_status(self) -> str:
        """The status for people: `interrupted` for a running one whose process is known to have ended."""
        if self.status == "running" and self.owner is not None and is_known_dead(self.owner):
            return "interrupted"
        return self.status


@dataclass(frozen=True)
class DeathRecord:
    """The death of a worker that the work itself caused."""

    subject: str
    """Key of the work, see `autoopt.problem.quarantine`."""
    name: str
    """The work, for people."""
    message: str
    libraries: tuple[str, ...]
    """Versions of the libraries that ran it."""
    time: float = 0.0


@dataclass(frozen=True)
class ReleaseRecord:
    """A promotion of a model of a zoo, or a rollback to an earlier release."""

    release: Release
    """The release that is in use from now on."""
    run: str | None
    """Its run, which stays in the store."""
    rolled_back: bool
    by: str
    """User and host: `ann@forge`."""
    time: float = 0.0


@dataclass(frozen=True)
class Lineage:
    """The way from a source model to a candidate."""

    candidate: Candidate
    source: str
    """Digest of the source model."""
    steps: tuple[PassRunRecord, ...]
    converted: PassRunRecord | None = None
    """The pass run that made the source from a model in another format; None for a model that was ONNX already."""
    analyses: tuple[PassRunRecord, ...] = ()
    """Passes that reported on the source or on a model on the way, and changed nothing."""

    def to_json(self) -> dict[str, Any]:
        """The lineage as users see it in JSON."""
        document = {
            "artifact": self.candidate.artifact,
            "session_options": dict(self.candidate.session_options),
            "source": self.source,
            "steps": [step.to_json() for step in self.steps],
        }
        if self.converted is not None:
            document["converted"] = self.converted.to_json()
        if self.analyses:
            document["analyses"] = [step.to_json() for step in self.analyses]
        return document
