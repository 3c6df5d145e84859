"""Lineage: the search for a way in the graph whose nodes are candidates and whose edges are pass runs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from autoopt.model.candidate import Candidate
from autoopt.store.contracts import LineageStore, Store
from autoopt.store.records import Lineage, LineageStep, PassRunRecord

MAX_STEPS = 256
"""Longer ways are not followed, because passes can lead in circles."""


@dataclass(frozen=True)
class Ancestry:
    """All candidates that lead to one candidate."""

    distances: Mapping[str, int]
    """The number of pass runs from each candidate (by key) to the target, along the shortest way."""
    pass_runs: Sequence[PassRunRecord]
    """The pass runs between them that changed a candidate."""


class LineageTracer(LineageStore):
    """The search, over three queries that each kind of store answers in its own way."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @abstractmethod
    def _outputs(self, artifact: str) -> set[Candidate]:
        """The candidates with this artifact that pass runs returned."""

    @abstractmethod
    def _ancestry(self, key: str) -> Ancestry:
        """The ancestry of the candidate with this key, at most `MAX_STEPS` back."""

    @abstractmethod
    def _analyses(self, keys: Sequence[str]) -> list[PassRunRecord]:
        """The pass runs that reported on one of these candidates and left it unchanged."""

    def trace(self, target: Candidate | str) -> Lineage:
        if isinstance(target, Candidate):
            self._store.artifacts.get(target.artifact)
            return self._trace(target)
        artifact = self._store.artifacts.get(target).digest
        candidates = self._outputs(artifact)
        if not candidates or self._store.models.get(artifact) is not None:
            candidates.add(Candidate(artifact))
        ways = [self._trace(candidate) for candidate in candidates]
        return min(ways, key=lambda way: (len(way.steps), way.candidate.key))

    def trace_trial(self, run: str, number: int) -> Lineage:
        trial = self._store.trials.get(run, number)
        source = Candidate(self._store.runs.get(run).model)
        records = self._store.results.pass_runs(trial.pass_runs)
        steps = tuple(_step(records[key]) for key in trial.pass_runs if key in records)
        last = steps[-1].output if steps else source
        return Lineage(trial.candidate or last, source.artifact, steps)

    def _trace(self, candidate: Candidate) -> Lineage:
        """The shortest way, walked forwards from its source along falling distances to the candidate."""
        ancestry = self._ancestry(candidate.key)
        models = {Candidate(model.artifact).key for model in self._store.models.all()}
        start = _start(ancestry, models)
        records = _walk(ancestry, start)
        source = records[0].input.artifact if records else candidate.artifact
        on_the_way = [start, *(_output_key(record) for record in records)]
        return Lineage(
            candidate=candidate,
            source=source,
            steps=tuple(_step(record) for record in records),
            converted=_conversion(ancestry, start, models),
            analyses=self._newest_analyses(on_the_way),
        )

    def _newest_analyses(self, keys: Sequence[str]) -> tuple[LineageStep, ...]:
        """The newest report of each pass on each of these candidates, in their order."""
        newest = {}
        for record in sorted(self._analyses(keys), key=_age):
            newest[keys.index(record.input.key), record.pass_name] = record
        return tuple(_step(newest[place]) for place in sorted(newest))


def _start(ancestry: Ancestry, models: set[str]) -> str:
    """The candidate that a way starts from: the nearest source model, else the nearest one that no pass run made."""
    distances = ancestry.distances
    starts = [key for key in distances if key in models]
    if not starts:
        outputs = _output_keys(ancestry.pass_runs)
        starts = [key for key in distances if key not in outputs]
    # Candidates that only lead in circles have no start; the target has the distance 0 and stands for itself.
    return min(starts or distances, key=lambda key: (distances[key], key))


def _walk(ancestry: Ancestry, start: str) -> list[PassRunRecord]:
    """The pass runs from `start` to the target."""
    distances, key, way = ancestry.distances, start, list[PassRunRecord]()
    while distances[key]:
        onwards = [record for record in ancestry.pass_runs if record.input.key == key]
        nearer = [record for record in onwards if distances.get(_output_key(record)) == distances[key] - 1]
        way.append(min(nearer, key=_age))
        key = _output_key(way[-1])
    return way


def _conversion(ancestry: Ancestry, start: str, models: set[str]) -> LineageStep | None:
    """The pass run that made the source from a model in another format."""
    outputs = _output_keys(ancestry.pass_runs)
    conversions = []
    for record in ancestry.pass_runs:
        from_elsewhere = record.input.key not in models and record.input.key not in outputs
        if from_elsewhere and _output_key(record) == start:
            conversions.append(record)
    return _step(min(conversions, key=_age)) if conversions else None


def _output_key(record: PassRunRecord) -> str:
    assert record.output is not None  # pass runs that changed a candidate have an output
    return record.output.key


def _output_keys(records: Iterable[PassRunRecord]) -> set[str]:
    return {_output_key(record) for record in records}


def _age(record: PassRunRecord) -> tuple[float, str]:
    return record.finished, record.key


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
