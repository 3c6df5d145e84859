"""A run under way: the problem, the resources of this process, and this attempt at it."""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias, TypeVar

from autoopt.dag import pass_infos
from autoopt.dag.compiler.chain import Chain
from autoopt.errors import InputError, TimeUp
from autoopt.model.candidate import Candidate
from autoopt.observer import SILENT, Observer
from autoopt.outcome import Outcome
from autoopt.problem.problem import Problem
from autoopt.problem.resources import Resources
from autoopt.results import Trial, WorkCounts
from autoopt.results.run import TimeLimit
from autoopt.store import EvaluationRecord, PassRunRecord, Store
from autoopt.store.records import MEMORY, ClaimKind

GRACE_SHARE = 0.25
"""Largest share of the time that a part of the run leaves to the next one, which its last calls may use up."""
POLL_SECONDS = 0.2
"""Time between two looks at work that another process executes."""
LEASE_MARGIN_SECONDS = 60.0
"""Time beyond a call's own limit that a lease covers: waiting at the gate, storing the result."""
GRACE_SECONDS = 10.0
"""Longest time after the deadline that a worker call which started before it may still take."""
Work: TypeAlias = Literal["pass_runs", "evaluations"]
Record = TypeVar("Record", EvaluationRecord, PassRunRecord)


@dataclass(frozen=True)
class RunContext:
    """The three parts that the work of a run depends on."""

    problem: Problem
    resources: Resources
    attempt: Attempt

    @property
    def store(self) -> Store:
        return self.resources.store

    @property
    def chains(self) -> Mapping[str, Chain]:
        """The chains that are searched, by id."""
        return self.problem.plan.searched

    def is_lossy(self, trial: Trial) -> bool:
        """True if a pass of the trial's chain changes results on purpose."""
        chain = self.chains.get(trial.chain_id)
        if chain is not None:
            return chain.lossy
        # The trial is that of another run, whose plan had chains that this one lacks.
        plan = self.problem.plan
        own = {info.name: info for info in map(plan.pass_info, plan.spec.passes)}
        infos = pass_infos(self.problem.accelerator, own)
        runs = self.store.results.pass_runs(trial.pass_runs).values()
        return any(infos(run.pass_name).tolerance == "lossy" for run in runs)

    @property
    def run(self) -> str:
        """Id of the run."""
        return self.attempt.run

    def until(self, deadline: float) -> RunContext:
        """The same run with another deadline.

        Of the time between an earlier deadline and the run's own, calls that are under way may use up a quarter.
        """
        grace = self.attempt.grace
        if deadline < self.attempt.deadline:
            grace = min(grace, GRACE_SHARE * (self.attempt.deadline - deadline))
        return replace(self, attempt=replace(self.attempt, deadline=deadline, grace=grace))

    def model_path(self, candidate: Candidate) -> str:
        """Model file of a candidate, verified, for reading."""
        return str(self.store.artifacts.path(candidate.artifact))


class Counts:
    """Number of executed and reused pieces of work, and seconds spent in each phase. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._executed: Counter[Work] = Counter()
        self._reused: Counter[Work] = Counter()
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def add_executed(self, work: Work) -> None:
        with self._lock:
            self._executed[work] += 1

    def add_reused(self, work: Work) -> None:
        with self._lock:
            self._reused[work] += 1

    def add_seconds(self, phase: str, seconds: float) -> None:
        with self._lock:
            self._seconds[phase] += seconds

    def of(self, work: Work) -> WorkCounts:
        """The counts of one kind of work."""
        with self._lock:
            return WorkCounts(executed=self._executed[work], reused=self._reused[work])

    def seconds(self) -> dict[str, float]:
        """Seconds by phase. Phases overlap if trials run in parallel."""
        with self._lock:
            return {phase: round(seconds, 3) for phase, seconds in self._seconds.items()}

    @contextmanager
    def timing(self, phase: str) -> Iterator[None]:
        """Add the duration of the block to a phase."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.add_seconds(phase, time.monotonic() - began)


class MeterStatistics:
    """The time that each meter took in this process, and how many candidates it rejected. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._calls: Counter[str] = Counter()
        self._judged: Counter[str] = Counter()
        self._rejected: Counter[str] = Counter()

    def add_time(self, meter: str, seconds: float) -> None:
        """Add a call of a meter."""
        with self._lock:
            self._seconds[meter] += seconds
            self._calls[meter] += 1

    def add_decision(self, meter: str, *, rejected: bool) -> None:
        """Add what a meter said about a candidate."""
        with self._lock:
            self._judged[meter] += 1
            self._rejected[meter] += rejected

    def seconds_per_rejection(self, meter: str) -> float | None:
        """Estimate the time that a meter takes for each candidate that it rejects; None if it was never called.

        Measuring in the order of this figure takes the least time until a candidate is rejected, if the meters do not
        depend on each other (W. E. Smith, "Various optimizers for single-stage production", 1956). The share of
        rejected candidates is estimated by Laplace's rule of succession.
        """
        with self._lock:
            if not self._calls[meter]:
                return None
            share = (self._rejected[meter] + 1) / (self._judged[meter] + 2)
            return self._seconds[meter] / self._calls[meter] / share


@dataclass(frozen=True)
class RetryPolicy:
    """Decides which stored failures are executed again."""

    earlier_runs: bool = False
    """Retry failures that other runs stored."""
    before: float = 0.0
    """Retry failures stored before this time, on the database's clock."""
    memory: int = 0
    """Bytes of memory of a call: retry what ran out of less in earlier runs."""

    @property
    def active(self) -> bool:
        return self.earlier_runs or self.before > 0

    def retries(self, record: EvaluationRecord | PassRunRecord, run: str) -> bool:
        """True if `run` executes again what this record stores."""
        if record.transient and record.run != run:
            return True  # also a refusal for want of memory
        if not record.outcome.retryable:
            return False
        is_short = record.outcome is Outcome.OUT_OF_MEMORY and int(record.environment.get(MEMORY, 0)) < self.memory
        if record.run != run and is_short:
            return True
        return (self.earlier_runs and record.run != run) or record.finished < self.before


@dataclass(frozen=True)
class ExecutedGraphs:
    """Digests of what the runtime executes; empty if it is not known."""

    candidate: str = ""
    source: str = ""
    work: str = ""
    """Digest of the candidate's executed graph without the values of its weights."""


@dataclass(frozen=True)
class Attempt:
    """One execution of a run by one process."""

    run: str
    """Id of the run."""
    observer: Observer = SILENT
    workers: int = 1
    """Trials that run in parallel."""
    began: float = 0.0
    """Start of the run on `clock`, earlier by what interrupted attempts took."""
    deadline: float = float("inf")
    """End of the run's time on `clock`."""
    limit: TimeLimit = TimeLimit.RUN
    """The limit that sets the deadline."""
    grace: float = GRACE_SECONDS
    """Time after the deadline that a call may still take."""
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    clock: Callable[[], float] = time.monotonic
    counts: Counts = field(default_factory=Counts)
    source_latencies: list[float] = field(default_factory=list)
    """The source model's p50 in each latency measurement of this process, in ms."""
    meter_statistics: MeterStatistics = field(default_factory=MeterStatistics)
    executed_graphs: dict[str, ExecutedGraphs] = field(default_factory=dict)
    """By key of the candidate."""

    def remaining(self) -> float:
        """Seconds until the deadline; negative after it."""
        return self.deadline - self.clock()

    def elapsed(self) -> float:
        """Seconds since the start of the run."""
        return self.clock() - self.began

    def usual_source_ms(self) -> float | None:
        """The source model's latency on an undisturbed machine, to recognize slow spells by; None if it is not known.

        The lower quartile, because the fastest of many measurements is a lucky one.
        """
        values = sorted(self.source_latencies)
        return values[len(values) // 4] if values else None

    def reusable(self, record: Record | None) -> Record | None:
        """The record; None without one, or if the retry policy executes its work again."""
        if record is None or self.retry.retries(record, self.run):
            return None
        return record

    def call_seconds(self, limit: float) -> float:
        """Time limit of a call: `limit`, or less shortly before the deadline."""
        return max(1.0, min(limit, self.remaining() + self.grace))


@contextmanager
def released_on_error(store: Store, kind: ClaimKind, key: str) -> Iterator[None]:
    """Release a claim if the run ends before the claimed work is done: its time is over, or an input has changed."""
    try:
        yield
    except (TimeUp, InputError):
        store.claims.release(kind, key)
        raise


def claim_or_wait(
    store: Store, attempt: Attempt, kind: ClaimKind, key: str, limit: float, *, redo: bool = False
) -> bool:
    """Claim a piece of work that may take `limit` seconds, or wait until another process has finished it.

    With `redo`, a stored failure is no result.

    Returns:
        True if the claim is ours, False if another process has finished the work.

    Raises:
        TimeUp: Another process is still working on it after the run's deadline.
    """
    while True:
        seconds = attempt.call_seconds(limit) + LEASE_MARGIN_SECONDS
        claim = store.claims.acquire(kind, key, seconds=seconds, redo=redo or attempt.retry.active)
        if claim.state != "held":
            return claim.state == "mine"
        if attempt.remaining() < -LEASE_MARGIN_SECONDS:
            raise TimeUp
        # The other process may be on another machine, so the database is all there is to ask.
        time.sleep(POLL_SECONDS)
