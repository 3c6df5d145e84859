"""Lineage: the search for a way in the graph whose nodes are candidates and whose edges are pass runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, Select, func, literal, select

from autoopt.model.candidate import Candidate
from autoopt.outcome import Outcome
from autoopt.store.records import Lineage, PassRunRecord
from autoopt.store.sql import tables
from autoopt.store.sql.artifacts import SqlArtifacts, SqlModels
from autoopt.store.sql.database import Database
from autoopt.store.sql.results import read_pass_runs
from autoopt.store.sql.rows import batches, fetch_all, loads

MAX_STEPS: Final = 256
"""Longer ways are not followed, because passes can lead in circles."""
_T = tables.pass_run.c


@dataclass(frozen=True)
class _Ancestry:
    """All candidates that lead to one candidate."""

    distances: Mapping[str, int]
    """The number of pass runs from each candidate (by key) to the target, along the shortest way."""
    pass_runs: Sequence[PassRunRecord]
    """The pass runs between them that changed a candidate, oldest first."""


class SqlLineage:
    """The way from a source model to a candidate."""

    def __init__(self, artifacts: SqlArtifacts, models: SqlModels, database: Database) -> None:
        self._artifacts = artifacts
        self._models = models
        self._database = database

    def trace(self, target: Candidate | str) -> Lineage:
        """The steps from a source model to a candidate, or to an artifact given by (the beginning of) its digest.

        If several ways lead there, the shortest counts, and of equally short ones the one that was finished first.

        Raises:
            InputError: The store does not have that artifact.
        """
        if isinstance(target, Candidate):
            self._artifacts.get(target.artifact)
            return self._trace(target)
        artifact = self._artifacts.get(target).digest
        query = select(_T.output_options).where(_T.output_artifact == artifact).distinct()
        rows = fetch_all(self._database, query)
        candidates = {Candidate(artifact, loads(row["output_options"])) for row in rows}
        if not candidates or self._models.get(artifact) is not None:
            candidates.add(Candidate(artifact))
        ways = list(map(self._trace, candidates))
        return min(ways, key=lambda way: (len(way.steps), way.candidate.key))

    def _trace(self, candidate: Candidate) -> Lineage:
        """The shortest way, walked forwards from its source along falling distances to the candidate."""
        ancestry = self._database.read(lambda connection: _ancestry(connection, candidate.key))
        models = self._models_among({candidate.artifact, *(record.input.artifact for record in ancestry.pass_runs)})
        start = _start(ancestry, models)
        records = _walk(ancestry, start)
        source = records[0].input.artifact if records else candidate.artifact
        on_the_way = [start, *map(_output_key, records)]
        return Lineage(
            candidate=candidate,
            source=source,
            steps=tuple(records),
            converted=_conversion(ancestry, start, models),
            analyses=self._newest_analyses(on_the_way),
        )

    def _models_among(self, artifacts: Iterable[str]) -> set[str]:
        """The keys of the source models among these artifacts."""
        models: set[str] = set()
        column = tables.model.c.artifact
        for batch in batches(sorted(artifacts)):
            rows = fetch_all(self._database, select(column).where(column.in_(batch)))
            models.update(Candidate(row["artifact"]).key for row in rows)
        return models

    def _newest_analyses(self, keys: Sequence[str]) -> tuple[PassRunRecord, ...]:
        """The newest report of each pass that left one of these candidates unchanged, in their order."""
        unchanged = _T.outcome == str(Outcome.UNCHANGED)
        query = select(_T.key).where(_T.input_key.in_(keys), unchanged, _T.reports != "{}")
        newest = {}
        for record in self._database.read(lambda connection: _oldest_first(connection, query)):
            newest[keys.index(record.input.key), record.pass_name] = record
        return tuple(newest[place] for place in sorted(newest))


def _ancestry(connection: Connection, key: str) -> _Ancestry:
    """The ancestry of the candidate with this key, by one recursive query."""
    changed = _T.outcome == str(Outcome.OK)
    back = select(literal(key).label("key"), literal(0).label("distance")).cte("back", recursive=True)
    earlier = select(_T.input_key, back.c.distance + 1).where(
        _T.output_key == back.c.key, changed, _T.input_key != key, back.c.distance < MAX_STEPS
    )
    back = back.union(earlier)
    shortest = select(back.c.key, func.min(back.c.distance).label("distance")).group_by(back.c.key)
    distances: dict[str, int] = {row.key: row.distance for row in connection.execute(shortest)}
    between = select(_T.key).where(_T.output_key.in_(list(distances)), changed)
    return _Ancestry(distances, _oldest_first(connection, between))


def _oldest_first(connection: Connection, keys: Select[str]) -> list[PassRunRecord]:
    """The pass runs with the keys that a query returns."""
    records = read_pass_runs(connection, connection.execute(keys).scalars().all()).values()
    return sorted(records, key=lambda record: (record.finished, record.key))


def _start(ancestry: _Ancestry, models: set[str]) -> str:
    """The candidate that a way starts from: the nearest source model, else the nearest one that no pass run made."""
    distances = ancestry.distances
    starts = [key for key in distances if key in models]
    if not starts:
        outputs = set(map(_output_key, ancestry.pass_runs))
        starts = [key for key in distances if key not in outputs]
    # Candidates that only lead in circles have no start; the target has the distance 0 and stands for itself.
    return min(starts or distances, key=lambda key: (distances[key], key))


def _walk(ancestry: _Ancestry, start: str) -> list[PassRunRecord]:
    """The pass runs from `start` to the target; of several equally short ways, the one that was finished first."""
    distances, key, way = ancestry.distances, start, list[PassRunRecord]()
    while distances[key]:
        onwards = [record for record in ancestry.pass_runs if record.input.key == key]
        way.append(next(record for record in onwards if distances.get(_output_key(record)) == distances[key] - 1))
        key = _output_key(way[-1])
    return way


def _conversion(ancestry: _Ancestry, start: str, models: set[str]) -> PassRunRecord | None:
    """The first pass run that made the source from a model in another format."""
    outputs = set(map(_output_key, ancestry.pass_runs))
    for record in ancestry.pass_runs:
        if _output_key(record) == start and record.input.key not in models | outputs:
            return record
    return None


def _output_key(record: PassRunRecord) -> str:
    assert record.output is not None  # pass runs that changed a candidate have an output
    return record.output.key
