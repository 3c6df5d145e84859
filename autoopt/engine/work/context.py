"""What every part of a run shares: the plan, the source, the store, the workers, limits and counts."""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from autoopt.dag import Plan
from autoopt.engine.work.hosts import Hosts
from autoopt.json_codec import to_json
from autoopt.metrics import Constraint, Metric, Objective
from autoopt.model.candidate import Candidate
from autoopt.model.inspection import Inspection
from autoopt.observer import SILENT, Observer
from autoopt.spec.targets import HostSpec
from autoopt.store import EvaluationRecord, PassRunRecord, Store
from autoopt.target import Accelerator, Target
from autoopt.workers import Gate, WorkerPool
from autoopt.workers.quarantine import Deaths

BEYOND_SECONDS = 30.0
"""How long a worker call that was begun in time may go on after the run's time."""


Stored = TypeVar("Stored", EvaluationRecord, PassRunRecord)


@dataclass(frozen=True)
class Limits:
    """What one call in a worker may take: seconds and bytes."""

    pass_seconds: float = 600.0
    measure_seconds: float = 60.0
    memory: int | None = None


@dataclass(frozen=True)
class DataSource:
    """A data set as configured, and the digest of its content; both empty where there is none."""

    config: Any = None
    digest: str = ""

    def __bool__(self) -> bool:
        return self.config is not None


@dataclass(frozen=True)
class Goal:
    """What the run is after: objectives by priority, constraints, and every metric to be measured."""

    objectives: tuple[Objective, ...]
    constraints: tuple[Constraint, ...]
    metrics: tuple[Metric, ...]
    front: tuple[Objective, ...] = ()
    """The axes of the Pareto front: the objectives, and size and quality beside them."""
    custom: Mapping[str, Metric] = field(default_factory=dict)
    """Metrics that the user script defines."""


@dataclass
class Counts:
    """How much was executed and how much reused; thread-safe."""

    _lock: threading.Lock = field(default_factory=threading.Lock)
    _counts: Counter[str] = field(default_factory=Counter)
    _seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))

    def add(self, kind: str, executed: bool) -> None:
        with self._lock:
            self._counts[f"{kind}.{'executed' if executed else 'reused'}"] += 1

    def took(self, phase: str, seconds: float) -> None:
        with self._lock:
            self._seconds[phase] += seconds

    def of(self, kind: str) -> dict[str, int]:
        with self._lock:
            return {which: self._counts[f"{kind}.{which}"] for which in ("executed", "reused")}

    def seconds(self) -> dict[str, float]:
        with self._lock:
            return {phase: round(value, 3) for phase, value in self._seconds.items()}

    @contextmanager
    def timing(self, phase: str) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            self.took(phase, time.monotonic() - began)


class Locks:
    """One lock per key, so that the same work is not begun twice in this process."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._locks: dict[str, tuple[threading.Lock, int]] = {}

    @contextmanager
    def holding(self, key: str) -> Iterator[None]:
        with self._guard:
            lock, users = self._locks.get(key, (threading.Lock(), 0))
            self._locks[key] = (lock, users + 1)
        try:
            with lock:
                yield
        finally:
            with self._guard:
                lock, users = self._locks[key]
                if users == 1:
                    del self._locks[key]
                else:
                    self._locks[key] = (lock, users - 1)


@dataclass
class RunContext:
    """One run under way."""

    run: str
    store: Store
    pool: WorkerPool
    gate: Gate
    plan: Plan
    source: Candidate
    inspection: Inspection
    goal: Goal
    target: Target
    target_host: HostSpec
    """Where the target's measurements are made."""
    accelerator: Accelerator
    quarantine: Deaths
    evaluation: DataSource
    calibration: DataSource
    latency_data: DataSource
    limits: Limits
    measurement: Mapping[str, Any]
    """The user's measurement settings, as the meters take them."""
    scratch: Path
    hosts: Hosts
    """Other interpreters that passes run in or that measure."""
    user_script: str | None = None
    script_digest: str = ""
    owner: str = ""
    """This process, as the store names owners of work."""
    workers: int = 1
    retry_failed: bool = False
    """Whether stored failures of earlier runs count as retryable."""
    redo_before: float = 0.0
    """Stored failures from before this time, on the database's clock, count as retryable: when a retry began."""
    deadline: float = float("inf")
    """On `time.monotonic`; no worker call goes on for more than BEYOND_SECONDS after it."""
    began: float = 0.0
    """When the run began, on `time.monotonic`; earlier by what interrupted parts of it took."""
    source_times: list[float] = field(default_factory=list)
    """p50 of the source in each measurement that this process has made, in ms."""
    observer: Observer = SILENT
    data_root: str = ""
    """What relative paths in parameters of category `data` start from."""
    counts: Counts = field(default_factory=Counts)
    locks: Locks = field(default_factory=Locks)
    tick: Callable[[], float] = time.monotonic

    def path(self, candidate: Candidate) -> str:
        """The model file of a candidate, verified."""
        return str(self.store.artifacts.path(candidate.artifact))

    def payload(self, candidate: Candidate) -> dict[str, Any]:
        """A candidate as workers take it."""
        return {"path": self.path(candidate), "session_options": dict(candidate.session_options)}

    def measuring_runtime(self) -> tuple[str, ...] | None:
        """Versions of onnxruntime and numpy that measure, and the CPU where it is another machine's; None where this
        interpreter measures."""
        found = self.hosts.runtime_of(self.target_host)
        if not found:
            return None
        machine = found.get("cpu") or {}
        there = (str(machine["model"]), str(machine["cores"])) if machine else ()
        return (str(found["onnxruntime"]), str(found["numpy"]), *there)

    def replay_environment_json(self) -> dict[str, Any]:
        """What the passes ran with besides the model, as recipes keep it."""
        return {
            "calibration": self.calibration.config,
            "user_script": self.user_script,
            "accelerator": to_json(self.accelerator),
            "data_root": self.data_root,
        }

    def stop(self) -> None:
        """End the calls under way, and let no further ones begin."""
        self.pool.close()
        self.hosts.close()

    @property
    def source_ms(self) -> float | None:
        """What the source takes when the machine is free, in ms: slow spells are known by it. The lower quartile of the
        measurements so far, as the fastest of many is a lucky one; None before there is one."""
        return sorted(self.source_times)[len(self.source_times) // 4] if self.source_times else None

    def lasting(self, record: Stored | None) -> Stored | None:
        """What the store holds of a piece of work, or None where this run is to do it anew."""
        if record is not None and record.outcome.retryable:
            again = self.retry_failed and record.run != self.run
            return None if again or record.finished < self.redo_before else record
        return record

    def seconds_for(self, limit: float) -> float:
        """`limit`, or less where the run's time is nearly up."""
        return max(1.0, min(limit, self.deadline - self.tick() + BEYOND_SECONDS))
