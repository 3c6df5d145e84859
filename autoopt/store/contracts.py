"""The contracts of the store: one small abstract class for each kind of thing it keeps, put together in `Store`.

Promises that all of them make:

- A result is stored completely or not at all, and only after the artifacts it names are durable on disk. Killing a
  process at any instant loses at most the work that this process was doing.
- A result is written once. The first good result for a key stays and later ones are refused. An outcome that is
  `retryable` may be replaced by a later result.
- One owner at a time holds a claim, until the owner finishes or releases it or its lease ends on the database's clock.
  The claim of a process that has ended on this machine is free at once. An owner that lost a claim can no longer
  finish the work.
- All methods are thread-safe and each is one transaction. They wait for other writers and reconnect to a database that
  restarts. A failure that persists raises `SystemFailure` with one line that shows no password.

`get` takes an id or the unique beginning of one, and raises `InputError` if nothing or several things match.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TypeAlias

from autoopt.model.candidate import Candidate
from autoopt.results import Trial
from autoopt.store.records import (
    ArtifactRecord,
    ChainRecord,
    ClaimKind,
    ClaimState,
    DeathRecord,
    EvaluationRecord,
    Json,
    Lineage,
    ModelRecord,
    PassRunRecord,
    ReleaseRecord,
    RunRecord,
    RunStatus,
    SweepRecord,
)

Restorer: TypeAlias = Callable[[str], Path]
"""Makes a lost artifact again: takes its digest, returns a folder with its files."""

LEASE_SECONDS = 60.0
"""Seconds after which others may take over a claim that its owner has not renewed."""


@dataclass(frozen=True)
class Claim:
    """The answer to a claim; true if the work is the caller's.

    `mine`: do the work. `held`: `owner` is doing it. `done`: the result exists, look it up.
    """

    state: ClaimState
    owner: str | None = None

    def __bool__(self) -> bool:
        return self.state == "mine"


class ArtifactStore(ABC):
    """Model files, named by the digest of their bytes."""

    restorer: Restorer | None = None
    """If set, `path` uses it to make lost artifacts again."""

    @abstractmethod
    def put(self, folder: Path, digest: str | None = None, *, consume: bool = False) -> str:
        """Store the model in `folder` (`model.onnx` and its external data) and return its digest.

        Equal bytes are one artifact.

        Args:
            folder: Contains only the files of the model. Or the graph of a split model in `split_folder`.
            digest: The digest that the files are expected to have.
            consume: Allow moving the files instead of copying them.

        Raises:
            InputError: The folder is empty or contains something other than regular files.
            SystemFailure: The files do not have the expected digest.
        """

    @abstractmethod
    def put_set(self, description: bytes, models: Mapping[str, str]) -> str:
        """Store a model set of stored models, with whose weights it shares its own; return its digest.

        Args:
            description: The content of its `model_set.json`.
            models: The digest of each model by the folder in which the description names it.

        Raises:
            ArtifactLost: As `path`, of a model.
        """

    @property
    @abstractmethod
    def split_folder(self) -> Path:
        """Folder in which workers on this machine may store large models split, see `autoopt.model.split`."""

    @abstractmethod
    def path(self, digest: str) -> Path:
        """The model file of an artifact, in a folder with only its files. For a split model, that is a copy.

        The bytes are verified once per process and again whenever the files look different.

        Raises:
            ArtifactLost: The files are missing or damaged, and no `restorer` made the same bytes again.
        """

    @abstractmethod
    def exists(self, prefix: str) -> bool:
        """True if the digest of any artifact begins with `prefix`."""

    @abstractmethod
    def readable(self, digest: str) -> Path:
        """Like `path`, but of a split artifact the graph or the description, which share weights with others.

        For all who only read the model.
        """

    @abstractmethod
    def write_files(self, digest: str, folder: Path) -> Path:
        """Copy the files of an artifact into a folder; returns the model file there.

        Raises:
            ArtifactLost: As `path`.
        """

    @abstractmethod
    def get(self, digest: str) -> ArtifactRecord:
        """The artifact with this digest."""

    @abstractmethod
    def all(self) -> tuple[ArtifactRecord, ...]:
        """All artifacts, oldest first."""


class ModelStore(ABC):
    """Source models: the artifacts that runs start from."""

    @abstractmethod
    def add(self, record: ModelRecord) -> None:
        """Add a source model. Adding it again replaces its name and inspection."""

    @abstractmethod
    def get(self, artifact: str) -> ModelRecord | None:
        """The model with exactly this digest."""

    @abstractmethod
    def all(self) -> tuple[ModelRecord, ...]:
        """All source models, oldest first."""


class ResultStore(ABC):
    """Finished pass runs and evaluations: work that is done once for everyone."""

    def pass_run(self, key: str) -> PassRunRecord | None:
        """The finished pass run with this key, whatever its outcome."""
        return self.pass_runs([key]).get(key)

    @abstractmethod
    def pass_runs(self, keys: Iterable[str]) -> dict[str, PassRunRecord]:
        """The finished pass runs among `keys`."""

    def evaluation(self, key: str) -> EvaluationRecord | None:
        """The finished evaluation with this key, whatever its outcome."""
        return self.evaluations([key]).get(key)

    @abstractmethod
    def evaluations(self, keys: Iterable[str]) -> dict[str, EvaluationRecord]:
        """The finished evaluations among `keys`."""

    @abstractmethod
    def evaluations_of(self, candidate: Candidate) -> tuple[EvaluationRecord, ...]:
        """All finished evaluations of a candidate, oldest first."""

    @abstractmethod
    def evaluation_of_graph(self, graph: str) -> EvaluationRecord | None:
        """The newest good evaluation with this `graph`."""

    @abstractmethod
    def finish_pass_run(self, record: PassRunRecord) -> bool:
        """Store a result, claimed before or not.

        Returns:
            False if the store refused it, because another result exists or is under way.
        """

    @abstractmethod
    def finish_evaluation(self, record: EvaluationRecord) -> bool:
        """Store a result like `finish_pass_run`."""


class ClaimStore(ABC):
    """Claims with leases on pass runs, evaluations, trials, runs, sweeps and the releases of models.

    The key of a claim is that of the pass run or evaluation, the id of the run or sweep, `Trial.claim`, or
    `zoo/model`.
    """

    @abstractmethod
    def acquire(self, kind: ClaimKind, key: str, seconds: float = LEASE_SECONDS, *, redo: bool = False) -> Claim:
        """Claim a piece of work. Claiming again what this owner already holds renews the lease.

        With `redo`, a finished result with a retryable outcome can be claimed too, and a run or sweep that has ended.
        """

    @abstractmethod
    def renew(self, kind: ClaimKind, key: str, seconds: float = LEASE_SECONDS) -> bool:
        """Extend the lease; False if this owner no longer holds the claim."""

    @abstractmethod
    def release(self, kind: ClaimKind, key: str) -> None:
        """Give a claim back unfinished. Does nothing if this owner does not hold it."""


class RunStore(ABC):
    """Runs with the chains of their plans."""

    @abstractmethod
    def create(self, record: RunRecord, chains: Sequence[ChainRecord] = ()) -> RunRecord:
        """Store a new run and the chains of its plan. Its model must have been added before.

        Returns:
            The run as stored: an empty id is filled in, and the default owner is this process with a lease.
        """

    @abstractmethod
    def update(self, run: str, result: Json) -> bool:
        """Store the interim result of a run; False if it has ended or belongs to another owner."""

    @abstractmethod
    def set_seconds(self, run: str, seconds: float) -> None:
        """Store the time that a run has taken so far; does nothing if it has ended or belongs to another owner."""

    @abstractmethod
    def finish(self, run: str, status: RunStatus = "finished", result: Json | None = None) -> bool:
        """End a run; False if it has already ended or belongs to another owner."""

    @abstractmethod
    def get(self, name: str) -> RunRecord:
        """The run with this id; `latest` is the newest that is not part of another."""

    @abstractmethod
    def all(
        self,
        *,
        status: RunStatus | None = None,
        identity: str | None = None,
        sweep: str | None = None,
        parent: str | None = None,
    ) -> tuple[RunRecord, ...]:
        """The runs that match, newest first. The parts of a run over several targets are runs of their own."""

    @abstractmethod
    def newest(self, limit: int) -> tuple[RunRecord, ...]:
        """The newest runs that are no parts of others, newest first."""

    @abstractmethod
    def finished_ids(self) -> tuple[str, ...]:
        """The ids of all finished runs, newest first, without reading their results."""

    @abstractmethod
    def exists(self, prefix: str) -> bool:
        """True if the id of any run begins with `prefix`."""

    def latest_finished(self, identity: str) -> RunRecord | None:
        """The newest finished run with this identity key."""
        return next(iter(self.all(status="finished", identity=identity)), None)

    @abstractmethod
    def chains(self, run: str) -> tuple[ChainRecord, ...]:
        """The chains stored with a run, in the plan's order."""


class SweepStore(ABC):
    """Sweeps: plans executed over a zoo of models."""

    @abstractmethod
    def create(self, record: SweepRecord) -> SweepRecord:
        """Store a new sweep, claimed by its owner if it names one; an empty id is filled in."""

    @abstractmethod
    def finish(self, sweep: str, status: RunStatus = "finished", result: Json | None = None) -> None:
        """Set the status and the result of a sweep; does nothing if another owner has continued it."""

    @abstractmethod
    def add_entry(self, sweep: str, model: str, entry: Json) -> None:
        """Store the entry of a model that the sweep has finished, for a resumed sweep; replaces an earlier one."""

    @abstractmethod
    def entries(self, sweep: str) -> dict[str, Json]:
        """The entries stored by `add_entry`, by model."""

    @abstractmethod
    def get(self, name: str) -> SweepRecord:
        """The sweep with this id, or the `latest`."""

    @abstractmethod
    def names(self) -> list[str]:
        """The names of all sweeps, each once."""

    @abstractmethod
    def all(self, name: str | None = None) -> Iterator[SweepRecord]:
        """All sweeps, or those with this name, newest first.

        Each is read when the iterator reaches it: the results of many nights need not fit into memory.
        """


class TrialStore(ABC):
    """The trials of runs."""

    @abstractmethod
    def add(self, record: Trial) -> None:
        """Add a trial to do. An existing one stays if it is done or runs under a living owner, else it is replaced.

        One of another point is replaced when it is done: a search that asks differently after a resume does it anew.
        """

    @abstractmethod
    def claim_next(self, run: str, chain: str | None = None, seconds: float = LEASE_SECONDS) -> Trial | None:
        """Claim the next trial: an abandoned one, else the pending one with the lowest number.

        None without either, or if the trial has to wait for earlier ones (`Trial.parallel`).
        """

    @abstractmethod
    def finish(self, record: Trial) -> bool:
        """Store the end of a trial; False if it is already done or claimed by another owner."""

    @abstractmethod
    def get(self, run: str, number: int) -> Trial:
        """The trial of a run with this number."""

    @abstractmethod
    def all(self, run: str) -> tuple[Trial, ...]:
        """The trials of a run by number."""


class DeathStore(ABC):
    """Deaths of workers, by which work is quarantined."""

    @abstractmethod
    def add(self, record: DeathRecord) -> None:
        """Add a death; the store sets its time."""

    @abstractmethod
    def all(self) -> tuple[DeathRecord, ...]:
        """All deaths, oldest first."""

    @abstractmethod
    def remove(self, subject: str) -> None:
        """Remove the deaths that a subject has caused."""


class ReleaseStore(ABC):
    """Promotions and rollbacks of the models of zoos."""

    @abstractmethod
    def add(self, record: ReleaseRecord) -> None:
        """Add a promotion or a rollback; the store sets its time."""

    @abstractmethod
    def all(self, zoo: str | None = None) -> tuple[ReleaseRecord, ...]:
        """All promotions and rollbacks, or those of a zoo, oldest first."""


class LineageStore(ABC):
    """The way from a source model to a candidate."""

    @abstractmethod
    def trace(self, target: Candidate | str) -> Lineage:
        """The steps from a source model to a candidate, or to an artifact given by (the beginning of) its digest.

        If several ways lead there, the shortest counts, and of equally short ones the one that was finished first.

        Raises:
            InputError: The store does not have that artifact.
        """


class Store(ABC):
    """Results, artifacts and work of any number of threads, processes and machines."""

    home: Path
    """The folder of the store on this machine."""
    owner: str
    """The owner of the claims that are made through this object: this process."""
    safe_url: str
    """The address of the database without its password."""

    artifacts: ArtifactStore
    models: ModelStore
    results: ResultStore
    claims: ClaimStore
    runs: RunStore
    sweeps: SweepStore
    trials: TrialStore
    deaths: DeathStore
    releases: ReleaseStore
    lineage: LineageStore

    @abstractmethod
    def clock(self) -> float:
        """The time of the database, in seconds since 1970."""

    @abstractmethod
    def close(self) -> None:
        """Close all connections. The store can be used again afterwards."""

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
