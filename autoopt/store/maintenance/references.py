"""Which artifacts must stay."""

from __future__ import annotations

import re
from collections.abc import Set

from sqlalchemy import Connection, select

from autoopt.store.leases import is_run_abandoned
from autoopt.store.sql import tables
from autoopt.store.sql.database import Database

_DIGEST = re.compile(r"\b[0-9a-f]{64}\b")


def referenced(connection: Connection) -> set[str]:
    """Artifacts that rows point to: of runs, their trials, pass runs and evaluations."""
    run, trial, work, judged = tables.run.c, tables.trial.c, tables.pass_run.c, tables.evaluation.c
    columns = (run.model, trial.artifact, work.input_artifact, work.output_artifact, judged.artifact)
    found: set[str] = set()
    for column in columns:
        found |= set(connection.execute(select(column).where(column.is_not(None)).distinct()).scalars())
    return found | chosen(connection)


def chosen(connection: Connection) -> set[str]:
    """Artifacts that users were given: whatever digest the result of a run or a sweep names."""
    texts = [t for c in (tables.run.c.result, tables.sweep.c.result) for t in connection.execute(select(c)).scalars()]
    return {digest for text in texts if text for digest in _DIGEST.findall(text)}


def sources(connection: Connection) -> set[str]:
    """Artifacts that cannot be made again: source models."""
    return {
        digest
        for column in (tables.model.c.artifact, tables.run.c.model)
        for digest in connection.execute(select(column)).scalars()
    }


def living_since(connection: Connection, db: Database) -> float:
    """For how many seconds the longest of the runs under way has been running; 0 where there is none."""
    run = tables.run.c
    query = select(run.created, run.lease, run.owner, db.now.label("now")).where(run.status == "running")
    ages = [r.now - r.created for r in connection.execute(query) if not is_run_abandoned(r.lease, r.owner, r.now)]
    return max(ages, default=0.0)


def recomputable(connection: Connection, source: Set[str]) -> set[str]:
    """Artifacts that pass runs lead to from a source that is present."""
    work, artifact = tables.pass_run.c, tables.artifact.c
    present = set(connection.execute(select(artifact.digest).where(artifact.present == 1)).scalars())
    edges: dict[str, set[str]] = {}
    query = select(work.input_artifact, work.output_artifact).where(work.outcome == "ok")
    for before, after in connection.execute(query.distinct()):
        edges.setdefault(before, set()).add(after)
    reached, ahead = set[str](), [digest for digest in source if digest in present]
    while ahead:
        new = edges.get(ahead.pop(), set()) - reached
        reached |= new
        ahead.extend(new)
    return reached - set(source)
