"""Reading every artifact anew: is what the database promises there, and is it what it was?"""

from __future__ import annotations

import shutil
from dataclasses import asdict, dataclass
from typing import Any

from autoopt.errors import AutooptError, one_line
from autoopt.store.contracts import Restorer, Store
from autoopt.store.sql.store import SqlStore, require_sql


@dataclass(frozen=True)
class Problem:
    """An artifact that is not what it should be. `kind`: missing or damaged."""

    digest: str
    kind: str
    repaired: bool = False
    reason: str = ""
    """Why it could not be repaired."""


@dataclass(frozen=True)
class Verification:
    """What was found. Orphans are artifact folders that no row knows and what killed writers left: harmless, `gc`
    takes them away."""

    checked: int
    problems: tuple[Problem, ...]
    orphans: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether everything that is promised is there now."""
        return all(problem.repaired for problem in self.problems)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "ok": self.ok}


def verify(store: Store, repair: Restorer | None = None) -> Verification:
    """Check every artifact's bytes.

    Args:
        repair: makes a lost artifact again; what it makes counts only if its digest is the same.
    """
    sql = require_sql(store)
    known = sql.artifacts.all()
    lost = [a.digest for a in known if a.present and not sql.files.intact(a.digest) and not _elsewhere(sql, a.digest)]
    problems = [Problem(digest, "damaged" if sql.files.folder(digest).is_dir() else "missing") for digest in lost]
    if repair is not None:
        problems = [
            _repaired(sql, problem, repair) for problem in sorted(problems, key=lambda p: _steps(sql, p.digest))
        ]
    folders = sql.files.digests() - {a.digest for a in sql.artifacts.all()}
    orphans = [*sorted(folders), *sorted(path.name for path in sql.files.leftovers())]
    return Verification(sum(a.present for a in known), tuple(problems), tuple(orphans))


def _elsewhere(store: SqlStore, digest: str) -> bool:
    """Whether an artifact that is not on this machine is, whole, where machines share theirs."""
    folder = None if store.files.folder(digest).exists() else store.artifacts.fetch(digest)
    if folder is None:
        return False
    shutil.rmtree(folder, ignore_errors=True)
    return True


def _steps(store: SqlStore, digest: str) -> int:
    """Sources first: everything else is made from them."""
    return len(store.lineage.trace(digest).steps)


def _repaired(store: SqlStore, problem: Problem, repair: Restorer) -> Problem:
    try:
        folder = store.artifacts.fetch(problem.digest)
        made = folder or repair(problem.digest)
        store.artifacts.put_back(problem.digest, made, replace_remote=folder is None)
    except (AutooptError, OSError) as error:
        return Problem(problem.digest, problem.kind, False, one_line(str(error)))
    return Problem(problem.digest, problem.kind, True)
