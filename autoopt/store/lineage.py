"""How a candidate came to be: a recursive query from it back to a source model."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, func, literal, select

from autoopt.errors import InputError
from autoopt.model.candidate import Candidate
from autoopt.outcome import Outcome
from autoopt.store import codec, tables
from autoopt.store.records import Lineage, LineageStep, PassRunRecord
from autoopt.store.results import Results, pass_run_from
from autoopt.store.trials import trial_from

MAX_STEPS = 256
"""Longer ways are not followed; passes can lead in circles."""
_P = tables.pass_run.c


class LineageQueries(Results):
    """Questions about the graph whose nodes are candidates and whose edges are pass runs."""

    def lineage(self, what: Candidate | str) -> Lineage:
        if isinstance(what, str):
            digest = self.artifact(what).digest
            ways = [self._way(candidate) for candidate in self._candidates(digest)]
            return min(ways, key=lambda way: (len(way.steps), way.candidate.key))
        self.artifact(what.artifact)
        return self._way(what)

    def lineage_of_trial(self, run: str, number: int) -> Lineage:
        table = tables.trial
        query = select(table).where(table.c.run == run, table.c.number == number)
        row = self.db.read(lambda connection: connection.execute(query).mappings().first())
        if row is None:
            raise InputError(f"run {run!r} has no trial {number}")
        trial, source = trial_from(row), Candidate(self.run(run).model)
        found = self.pass_runs(trial.pass_runs)
        steps = tuple(_step(found[key]) for key in trial.pass_runs if key in found)
        last = steps[-1].output if steps else source
        return Lineage(trial.candidate or last, source.artifact, steps)

    def _candidates(self, artifact: str) -> Sequence[Candidate]:
        query = select(_P.output_artifact, _P.output_options).where(_P.output_artifact == artifact).distinct()
        rows = self.db.read(lambda connection: connection.execute(query).all())
        found = {Candidate(row[0], codec.loads(row[1])) for row in rows}
        if not found or self.model(artifact) is not None:
            found.add(Candidate(artifact))
        return sorted(found, key=lambda candidate: candidate.key)

    def _way(self, candidate: Candidate) -> Lineage:
        """The shortest way, walked forward from its source along falling distances to the candidate."""
        distance, edges = self.db.read(lambda connection: self._back(connection, candidate.key))
        models = {Candidate(m.artifact).key for m in self.models()}
        starts = [key for key in distance if key in models]
        if not starts:
            made = {edge.output.key for edge in edges if edge.output}
            starts = [key for key in distance if key not in made] or [candidate.key]
        key = start = min(starts, key=lambda k: (distance[k], k))
        source = candidate.artifact if key == candidate.key else ""
        steps: list[LineageStep] = []
        while distance[key]:
            onwards = [
                e for e in edges if e.input.key == key and e.output and distance.get(e.output.key) == distance[key] - 1
            ]
            taken = min(onwards, key=lambda e: (e.finished, e.key))
            source = source or taken.input.artifact
            steps.append(_step(taken))
            key = steps[-1].output.key
        ends = {edge.output.key for edge in edges if edge.output}
        before = [e for e in edges if e.output and e.output.key == start and e.input.key not in models | ends]
        converted = _step(min(before, key=lambda e: (e.finished, e.key))) if before else None
        on_way = [start, *(step.output.key for step in steps)]
        return Lineage(candidate, source, tuple(steps), converted, self._analyses(on_way))

    def _analyses(self, candidates: Sequence[str]) -> tuple[LineageStep, ...]:
        """The reports on these candidates, of passes that left them as they were; the newest of each pass."""
        query = select(_P.key).where(
            _P.input_key.in_(list(candidates)), _P.outcome == str(Outcome.UNCHANGED), _P.reports != "{}"
        )

        def rows(connection: Connection) -> list[PassRunRecord]:
            keys = connection.execute(query).scalars().all()
            return [pass_run_from(row) for row in self._rows(connection, tables.pass_run, keys).values()]

        newest = {(r.input.key, r.pass_name): r for r in sorted(self.db.read(rows), key=lambda r: (r.finished, r.key))}
        order = sorted(newest.values(), key=lambda r: (candidates.index(r.input.key), r.pass_name))
        return tuple(_step(record) for record in order)

    def _back(self, connection: Connection, key: str) -> tuple[dict[str, int], list[PassRunRecord]]:
        """The candidates that lead to `key` with their distances, and the pass runs between them."""
        changed = _P.outcome == str(Outcome.OK)
        back = select(literal(key).label("key"), literal(0).label("distance")).cte("back", recursive=True)
        earlier = select(_P.input_key, back.c.distance + 1).where(
            _P.output_key == back.c.key, changed, _P.input_key != key, back.c.distance < MAX_STEPS
        )
        back = back.union(earlier)
        shortest = select(back.c.key, func.min(back.c.distance)).group_by(back.c.key)
        distance: dict[str, int] = {row[0]: row[1] for row in connection.execute(shortest)}
        edges = select(_P.key).where(_P.output_key.in_(list(distance)), changed)
        keys = connection.execute(edges).scalars().all()
        return distance, [pass_run_from(row) for row in self._rows(connection, tables.pass_run, keys).values()]


def _step(record: PassRunRecord) -> LineageStep:
    return LineageStep(
        pass_name=record.pass_name,
        params=record.params,
        input=record.input,
        output=record.output or record.input,
        outcome=record.outcome,
        seconds=record.seconds,
        environment=record.environment,
        key=record.key,
        node=record.node,
        reports=record.reports,
        attempts=record.attempts,
    )
