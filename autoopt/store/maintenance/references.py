"""Artifacts that must stay, and artifacts that nobody has used for a while."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Set
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, select

from autoopt.store import codec
from autoopt.store.records import is_run_abandoned, part_documents
from autoopt.store.sql import tables
from autoopt.store.store import Store

GRACE: Final = 3600.0
"""Seconds since its last use during which an artifact is never removed."""
MARGIN: Final = 600.0
"""Seconds before the start of the oldest run under way that count as its own: it was being set up."""
_DIGEST: Final = re.compile(r"\b[0-9a-f]{64}\b")


def referenced(connection: Connection) -> set[str]:
    """Artifacts that runs, their trials, pass runs and evaluations point to."""
    run, trial, pass_run, evaluation = tables.run.c, tables.trial.c, tables.pass_run.c, tables.evaluation.c
    columns = (run.model, trial.artifact, pass_run.input_artifact, pass_run.output_artifact, evaluation.artifact)
    digests = chosen(connection)
    for column in columns:
        digests.update(connection.execute(select(column).where(column.is_not(None)).distinct()).scalars())
    return digests


def chosen(connection: Connection) -> set[str]:
    """Artifacts that users were given: all digests in the results of runs and sweeps."""
    digests: set[str] = set()
    for column in (tables.run.c.result, tables.sweep.c.result):
        for text in connection.execute(select(column).where(column.is_not(None))).scalars():
            digests.update(_DIGEST.findall(text))
    return digests


def released_runs(connection: Connection) -> set[str]:
    """The runs whose models were released, so that a rollback can publish each of them again."""
    run = tables.release_step.c.run
    return set(connection.execute(select(run).where(run.is_not(None)).distinct()).scalars())


def users_of_parts(connection: Connection) -> dict[str, list[str]]:
    """The runs whose results name a run as a part, newest first; they may have taken it over from another run."""
    run = tables.run.c
    users: dict[str, list[str]] = {}
    query = select(run.id, run.result).where(run.result.is_not(None)).order_by(run.number.desc())
    for row in connection.execute(query):
        for part in part_documents(codec.loads(row.result)):
            users.setdefault(part["run"], []).append(row.id)
    return users


def idle(store: Store, connection: Connection, digests: Set[str], shared: Mapping[str, float]) -> dict[str, float]:
    """The seconds since their last use of those artifacts that nobody may be about to use.

    An artifact is in use for `GRACE` seconds, and since the start of the oldest run under way. Its last use is that on
    this machine, or a request of another machine for it; the time of its row if its files are at neither place.
    `shared` holds `shared_copies`, listed before the transaction because that may take long.
    """
    artifact, now = tables.artifact.c, connection.execute(select(store.database.now)).scalar_one()
    uses: dict[str, list[float]] = {}
    places = {path: digest for digest in digests for path in store.files.places(digest)}
    for path, seconds in store.files.idle_seconds(places).items():
        uses.setdefault(places[path], []).append(seconds)
    for digest, time in shared.items():
        uses.setdefault(digest, []).append(now - time)
    for row in connection.execute(select(artifact.digest, artifact.created)):
        uses.setdefault(row.digest, [now - row.created])
    limit = max(GRACE, _age_of_oldest_run(store, connection))
    idle_seconds = {digest: min(uses.get(digest, [0.0])) for digest in digests}
    return {digest: seconds for digest, seconds in idle_seconds.items() if seconds >= limit}


def idle_weights(store: Store, removed: Collection[str]) -> list[Path]:
    """The weights that only `removed` artifacts have, and that nobody may be about to use."""
    seconds = store.files.idle_seconds(store.files.unused_weights(removed))
    return [path for path in seconds if seconds[path] >= GRACE]


def shared_copies(store: Store) -> Mapping[str, float]:
    """The artifacts that machines share, with the time at which one last wanted them."""
    return {} if store.remote is None else store.remote.written()


def _age_of_oldest_run(store: Store, connection: Connection) -> float:
    """Seconds since the oldest run under way was being set up; 0 without one."""
    run = tables.run.c
    query = select(run.created, run.lease, run.owner, store.database.now.label("now")).where(run.status == "running")
    oldest = 0.0
    for row in connection.execute(query):
        if not is_run_abandoned(row.lease, row.owner, row.now):
            oldest = max(oldest, row.now - row.created + MARGIN)
    return oldest
