"""The store in memory: artifacts, models, events and lineage, and everything put together."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from autoopt.model.candidate import Candidate
from autoopt.outcome import Outcome
from autoopt.store.contracts import ArtifactStore, EventStore, ModelStore, Store
from autoopt.store.files.artifacts import ArtifactFiles, ArtifactLost
from autoopt.store.lineage import MAX_STEPS, Ancestry, LineageTracer
from autoopt.store.memory.results import MemoryClaims, MemoryResults
from autoopt.store.memory.runs import MemoryRuns, MemorySweeps, MemoryTrials
from autoopt.store.memory.state import WHERE, Part, State, as_stored, atomic, find, matches, require
from autoopt.store.owner import this_process
from autoopt.store.records import ArtifactRecord, EventRecord, ModelRecord, PassRunRecord


class MemoryStore(Store):
    """See `Store`. Nothing survives the process but the artifacts, which are files below `home` for workers to read."""

    def __init__(self, home: Path, clock: Callable[[], float] = time.time) -> None:
        """Make an empty store.

        Args:
            home: Folder for artifacts and temporary files.
            clock: The time, in seconds since 1970.
        """
        self.home = home
        self.owner = this_process()
        self.safe_url = WHERE
        self._clock = clock
        state = State(clock, self.owner)
        self.artifacts = MemoryArtifacts(state, ArtifactFiles(home / "artifacts"))
        self.models = MemoryModels(state)
        self.results = MemoryResults(state)
        self.claims = MemoryClaims(state)
        self.runs = MemoryRuns(state)
        self.sweeps = MemorySweeps(state)
        self.trials = MemoryTrials(state)
        self.events = MemoryEvents(state)
        self.lineage = MemoryLineage(self, state)

    def clock(self) -> float:
        return self._clock()

    def close(self) -> None:
        """Do nothing: there are no connections."""


class MemoryArtifacts(Part, ArtifactStore):
    """See `ArtifactStore`."""

    def __init__(self, state: State, files: ArtifactFiles) -> None:
        super().__init__(state)
        self._files = files

    def put(self, folder: Path, digest: str | None = None, *, consume: bool = False) -> str:
        record = self._files.put(Path(folder), digest, consume=consume)
        with self._state.lock:
            self._state.artifacts.setdefault(record.digest, replace(record, created=self._state.now()))
        return record.digest

    def path(self, digest: str) -> Path:
        try:
            return self._files.path(digest)
        except ArtifactLost:
            if self.restorer is None:
                raise
        self.put(self.restorer(digest), digest, consume=True)
        return self._files.path(digest)

    @atomic
    def get(self, digest: str) -> ArtifactRecord:
        return find(self._state.artifacts, digest, "artifact")

    @atomic
    def all(self) -> tuple[ArtifactRecord, ...]:
        return tuple(self._state.artifacts.values())


class MemoryModels(Part, ModelStore):
    """See `ModelStore`."""

    @atomic
    def add(self, record: ModelRecord) -> None:
        require(self._state.artifacts, record.artifact)
        before = self._state.models.get(record.artifact)
        created = self._state.now() if before is None else before.created
        self._state.models[record.artifact] = replace(as_stored(record), created=created)

    @atomic
    def get(self, artifact: str) -> ModelRecord | None:
        return self._state.models.get(artifact)

    @atomic
    def all(self) -> tuple[ModelRecord, ...]:
        return tuple(self._state.models.values())


class MemoryEvents(Part, EventStore):
    """See `EventStore`."""

    @atomic
    def add(self, record: EventRecord) -> None:
        require(self._state.runs, record.run)
        self._state.events.append(replace(as_stored(record), time=self._state.now()))

    @atomic
    def all(
        self, *, run: str | None = None, kind: str | None = None, subject: str | None = None, under: str | None = None
    ) -> tuple[EventRecord, ...]:
        events = [event for event in self._state.events if matches(event, run=run, kind=kind, subject=subject)]
        if under is not None:
            events = [event for event in events if event.subject.startswith(f"{under}/")]
        return tuple(events)


class MemoryLineage(LineageTracer):
    """See `LineageStore`."""

    def __init__(self, store: Store, state: State) -> None:
        super().__init__(store)
        self._state = state

    def _outputs(self, artifact: str) -> set[Candidate]:
        with self._state.lock:
            outputs = [record.output for record in self._state.pass_runs.values()]
        return {output for output in outputs if output is not None and output.artifact == artifact}

    def _ancestry(self, key: str) -> Ancestry:
        with self._state.lock:
            changes = [record for record in self._state.pass_runs.values() if record.outcome == Outcome.OK]
        distances, frontier = {key: 0}, [key]
        between = []
        for distance in range(1, MAX_STEPS + 1):
            last = [record for record in changes if record.output is not None and record.output.key in frontier]
            between += last
            frontier = [record.input.key for record in last if record.input.key not in distances]
            distances |= dict.fromkeys(frontier, distance)
        return Ancestry(distances, between)

    def _analyses(self, keys: Sequence[str]) -> list[PassRunRecord]:
        with self._state.lock:
            records = list(self._state.pass_runs.values())
        unchanged = [record for record in records if record.outcome == Outcome.UNCHANGED and record.reports]
        return [record for record in unchanged if record.input.key in keys]
