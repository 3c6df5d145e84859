"""Verification: reading every artifact and comparing it with its digest."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Literal

from autoopt.errors import AutooptError, one_line
from autoopt.store.records import ArtifactRecord, Restorer
from autoopt.store.sql.tables import check_tables
from autoopt.store.store import Store


@dataclass(frozen=True)
class ArtifactProblem:
    """An artifact that is missing or damaged."""

    digest: str
    kind: Literal["missing", "damaged"]
    repaired: bool = False
    reason: str = ""
    """The reason why it could not be repaired."""


@dataclass(frozen=True)
class Verification:
    """The findings of a verification."""

    checked: int
    problems: tuple[ArtifactProblem, ...]
    orphans: tuple[str, ...]
    """Artifact folders without a row, and leftovers of killed writers: harmless, garbage collection removes them."""

    @property
    def ok(self) -> bool:
        """True if all artifacts that should exist do now."""
        return all(problem.repaired for problem in self.problems)

    def to_json(self) -> dict[str, object]:
        return {**asdict(self), "ok": self.ok}


def verify(store: Store, repair: Restorer | None = None) -> Verification:
    """Check the bytes of every artifact; what `repair` makes again counts only if it has the same digest.

    Raises:
        InputError: The database lacks a table.
    """
    check_tables(store.database)
    records = store.artifacts.all()
    problems = []
    for record in records:
        if not _is_whole(store, record):
            kind: Literal["missing", "damaged"] = "damaged" if store.files.exists(record.digest) else "missing"
            problems.append(ArtifactProblem(record.digest, kind))
    if repair is not None:
        problems = _repair_all(store, problems, repair)
    folders = store.files.digests() - {record.digest for record in records}
    leftovers = [path.name for path in store.files.leftovers()]
    return Verification(len(records), tuple(problems), (*sorted(folders), *sorted(leftovers)))


def _is_whole(store: Store, record: ArtifactRecord) -> bool:
    """True if the files are intact on this machine, or absent here and intact where machines share artifacts."""
    if store.files.is_intact(record.digest):
        return True
    if store.files.exists(record.digest):
        return False
    copy = store.artifacts.fetch(record.digest)
    if copy is None:
        return False
    shutil.rmtree(copy, ignore_errors=True)
    return True


def _repair_all(store: Store, problems: Sequence[ArtifactProblem], repair: Restorer) -> list[ArtifactProblem]:
    # The nearest to the source first: the others are made from them.
    nearest_first = sorted(problems, key=lambda problem: len(store.lineage.trace(problem.digest).steps))
    attempts = [_repaired(store, problem, repair) for problem in nearest_first]
    for index, problem in enumerate(attempts):
        if not problem.repaired and store.files.is_intact(problem.digest):  # by what another model shares with it
            attempts[index] = replace(problem, repaired=True, reason="")
    return attempts


def _repaired(store: Store, problem: ArtifactProblem, repair: Restorer) -> ArtifactProblem:
    try:
        if store.files.is_intact(problem.digest):  # another one has brought back their common weights
            return replace(problem, repaired=True)
        copy = store.artifacts.fetch(problem.digest)
        folder = copy or repair(problem.digest)
        store.artifacts.put_back(problem.digest, folder, replace_remote=copy is None)
    except (AutooptError, OSError) as error:
        return replace(problem, reason=one_line(str(error)))
    return replace(problem, repaired=True)
