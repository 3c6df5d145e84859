"""The contract of the store: everything that is kept, and the promises about it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from autoopt.model.candidate import Candidate
from autoopt.store.records import (
    ArtifactRecord,
    ChainRecord,
    ClaimKind,
    ClaimState,
    EvaluationRecord,
    EventRecord,
    Lineage,
    ModelRecord,
    PassRunRecord,
    RunRecord,
    RunStatus,
    SweepRecord,
    TrialRecord,
)

Restorer: TypeAlias = Callable[[str, Lineage], Path]
"""Makes an artifact again: takes its digest and how it came to be, returns a folder with its files."""

LEASE_SECONDS = 60.0


@dataclass(frozen=True)
class Claim:
    """The answer to a claim. `mine`: do it. `held`: `owner` is at it. `done`: the result is there, look it up."""

    state: ClaimState
    owner: str | None = None

    def __bool__(self) -> bool:
        return self.state == "mine"


class Store(ABC):
    """Results, artifacts and work of any number of threads, processes and machines.

    Promises:
        - A result is stored whole or not at all, and only after the artifacts it names are durable on disk. Killing a
          process at any instant loses at most the work that process was doing.
        - A result is written once: of several for one key the first good one stays, and every later one is refused.
          Outcomes that are `retryable` may be replaced, by a later result.
        - A claim is held by one owner at a time, until it is finished, released or its lease ends on the database's
          clock. The claim of a process that has ended on this machine is free at once. Who lost a claim can no longer
          finish it.
        - All methods are thread-safe, and each is one transaction. They wait for other writers and reconnect to a
          database that restarts; what then still fails raises `SystemFailure` in one line that shows no password.

    `owner` is what claims are made under where none is given: this process. Give threads that must exclude each other
    owners of their own, `f"{store.owner}/{name}"`.
    """

    home: Path
    owner: str
    safe_url: str
    """The database's address without its password."""
    restorer: Restorer | None = None
    """Where set, `artifact_path` uses it to make lost artifacts again."""

    @staticmethod
    def open(url: str | None = None, home: Path | None = None) -> Store:
        """The store at `home` (`AUTOOPT_HOME`), with its database at `url` (`AUTOOPT_DB_URL`, else a SQLite file in
        `home`); made where there is none, upgraded where it is older.

        Raises:
            InputError: the address is wrong, the database is newer than this autoopt or not autoopt's, or SQLite
                would lie on a network file system.
        """
        from autoopt.settings import settings
        from autoopt.store.sql import SqlStore

        home = (home or settings().home).absolute()
        url = url or settings().db_url or f"sqlite:///{home / 'autoopt.db'}"
        return SqlStore(url, home, artifacts_url=settings().artifacts_url)

    @abstractmethod
    def close(self) -> None:
        """Give back connections. The store can be used again afterwards."""

    @abstractmethod
    def clock(self) -> float:
        """The database's time, in seconds since 1970."""

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Artifacts and models

    @abstractmethod
    def put_artifact(self, folder: Path, digest: str | None = None, *, consume: bool = False) -> str:
        """Store the model in `folder` (`model.onnx` and its external data); returns its digest. Equal bytes are one
        artifact.

        Args:
            digest: what it should be.
            consume: whether its files may be moved away instead of copied.

        Raises:
            InputError: the folder is empty or holds something that is no regular file.
            SystemFailure: the digest is another one.
        """

    @abstractmethod
    def artifact_path(self, digest: str) -> Path:
        """The model file of an artifact, its bytes verified (by this process, once for as long as they look the same).

        Raises:
            ArtifactLost: its files are missing or damaged, and `restorer` is not set or did not make the same bytes.
        """

    @abstractmethod
    def artifact(self, digest: str) -> ArtifactRecord:
        """The artifact of that digest, or of the one digest that begins so.

        Raises:
            InputError: none, or several.
        """

    @abstractmethod
    def artifacts(self) -> tuple[ArtifactRecord, ...]:
        """All, oldest first, also evicted ones."""

    @abstractmethod
    def add_model(self, record: ModelRecord) -> None:
        """Note a source model; a later note replaces name and inspection."""

    @abstractmethod
    def model(self, artifact: str) -> ModelRecord | None: ...

    @abstractmethod
    def models(self) -> tuple[ModelRecord, ...]:
        """All, oldest first."""

    # Work that is done once

    def pass_run(self, key: str) -> PassRunRecord | None:
        """The finished pass run of that key, whatever its outcome."""
        return self.pass_runs([key]).get(key)

    @abstractmethod
    def pass_runs(self, keys: Iterable[str]) -> dict[str, PassRunRecord]:
        """The finished ones among `keys`."""

    def evaluation(self, key: str) -> EvaluationRecord | None:
        """The finished evaluation of that key, whatever its outcome."""
        return self.evaluations([key]).get(key)

    @abstractmethod
    def evaluations(self, keys: Iterable[str]) -> dict[str, EvaluationRecord]:
        """The finished ones among `keys`."""

    @abstractmethod
    def claim(
        self,
        kind: ClaimKind,
        key: str,
        owner: str | None = None,
        seconds: float = LEASE_SECONDS,
        *,
        redo: bool = False,
    ) -> Claim:
        """Ask to do a piece of work. Claiming again what is one's own renews it.

        Args:
            key: of the pass run or evaluation, the id of the run, or `TrialRecord.key`.
            redo: whether a finished one whose outcome is retryable (or a run that has ended) may be claimed.
        """

    @abstractmethod
    def renew(self, kind: ClaimKind, key: str, owner: str | None = None, seconds: float = LEASE_SECONDS) -> bool:
        """Put off the end of one's lease; False where the claim is no longer one's own."""

    @abstractmethod
    def release(self, kind: ClaimKind, key: str, owner: str | None = None) -> None:
        """Give a claim back unfinished; nothing where it is not one's own."""

    def finish_pass_run(self, record: PassRunRecord, owner: str | None = None) -> bool:
        """Store a result, claimed before or not; False where it was refused: another one is there or under way."""
        return self.finish_pass_runs([record], owner)[0]

    @abstractmethod
    def finish_pass_runs(self, records: Sequence[PassRunRecord], owner: str | None = None) -> list[bool]:
        """Several in one transaction."""

    def finish_evaluation(self, record: EvaluationRecord, owner: str | None = None) -> bool:
        """Like `finish_pass_run`."""
        return self.finish_evaluations([record], owner)[0]

    @abstractmethod
    def finish_evaluations(self, records: Sequence[EvaluationRecord], owner: str | None = None) -> list[bool]:
        """Several in one transaction."""

    # Runs and sweeps

    @abstractmethod
    def create_run(self, record: RunRecord, chains: Sequence[ChainRecord] = ()) -> RunRecord:
        """Store a new run and the chains of its plan; returns it as stored. An empty id is filled in; the owner is
        this process where none is given, with a lease. Its model has to be noted before."""

    @abstractmethod
    def finish_run(
        self, run: str, status: RunStatus = "finished", result: Any = None, owner: str | None = None
    ) -> bool:
        """End a run; False where it has ended already or is another owner's."""

    @abstractmethod
    def run(self, name: str) -> RunRecord:
        """The run with that id, or the one whose id begins so, or the `latest` that is no part of another.

        Raises:
            InputError: none, or several.
        """

    @abstractmethod
    def runs(
        self,
        *,
        status: RunStatus | None = None,
        identity: str | None = None,
        sweep: str | None = None,
        parent: str | None = None,
    ) -> tuple[RunRecord, ...]:
        """Runs, newest first; those over several targets and, as runs of their own, the parts of each."""

    def finished_run(self, identity: str) -> RunRecord | None:
        """The newest finished run with that identity key."""
        return next(iter(self.runs(status="finished", identity=identity)), None)

    @abstractmethod
    def chains(self, run: str) -> tuple[ChainRecord, ...]:
        """The chains stored with a run, in the plan's order."""

    @abstractmethod
    def delete_run(self, run: str) -> None:
        """Forget a run, its trials and events, and the pass runs and evaluations that no other run's trials use.

        Raises:
            InputError: it is still running under a living owner.
        """

    @abstractmethod
    def create_sweep(self, record: SweepRecord) -> SweepRecord:
        """Store a new sweep; an empty id is filled in."""

    @abstractmethod
    def finish_sweep(self, sweep: str, status: RunStatus = "finished", result: Any = None) -> None: ...

    @abstractmethod
    def sweep(self, name: str) -> SweepRecord:
        """By id, beginning of an id, or `latest`.

        Raises:
            InputError: none, or several.
        """

    @abstractmethod
    def sweeps(self, name: str | None = None) -> Iterator[SweepRecord]:
        """All, or those of a name, newest first. Each is read when it is come to: the results of many nights over a
        large zoo need not fit into memory."""

    # Trials

    @abstractmethod
    def add_trials(self, records: Sequence[TrialRecord]) -> None:
        """Add trials that are to be done. One that is there already stays when it is done or running under a living
        owner, else it is replaced."""

    @abstractmethod
    def claim_trial(
        self, run: str, chain: str | None = None, owner: str | None = None, seconds: float = LEASE_SECONDS
    ) -> TrialRecord | None:
        """The next trial to do, claimed: an abandoned one, else the pending one with the lowest number; None where
        there is none at the moment."""

    def finish_trial(self, record: TrialRecord, owner: str | None = None) -> bool:
        """Store the end of a trial; False where it is done already or claimed by another owner."""
        return self.finish_trials([record], owner)[0]

    @abstractmethod
    def finish_trials(self, records: Sequence[TrialRecord], owner: str | None = None) -> list[bool]:
        """Several in one transaction."""

    @abstractmethod
    def trials(self, run: str) -> tuple[TrialRecord, ...]:
        """The trials of a run by number."""

    # How things came to be

    @abstractmethod
    def lineage(self, what: Candidate | str) -> Lineage:
        """The steps from a source model to a candidate, or to an artifact given by its digest or the beginning of it.

        Where several ways lead there, the shortest, and of equally short ones the first that was found.

        Raises:
            InputError: nothing is known of it.
        """

    @abstractmethod
    def lineage_of_trial(self, run: str, number: int) -> Lineage:
        """The pass runs of a trial in order, `unchanged` and failed ones too.

        Raises:
            InputError: no such trial.
        """

    # Events

    @abstractmethod
    def add_event(self, record: EventRecord) -> None: ...

    @abstractmethod
    def events(
        self, *, run: str | None = None, kind: str | None = None, subject: str | None = None, under: str | None = None
    ) -> tuple[EventRecord, ...]:
        """Events, oldest first; `under`: those whose subject begins with this and a slash."""
