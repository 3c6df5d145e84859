"""Earlier sweeps of the same zoo: their good entries, models that vanished, the sweep to resume."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from autoopt.errors import InputError
from autoopt.owner import is_known_alive, process_text
from autoopt.problem.environment import environment
from autoopt.results import SweepEntry, SweepResult
from autoopt.results.sweep import MISSING
from autoopt.spec.zoo import ZooSpec
from autoopt.store import Store, SweepRecord
from autoopt.tuning import CHANGES
from autoopt.zoo.nights import finished_sweeps
from autoopt.zoo.releases import release_histories
from autoopt.zoo.sweep_comparison import EarlierEntry
from autoopt.zoo.sweep_request import SweepRequest
from autoopt.zoo.zoo_models import ZooItem, free_name, listed

Key: TypeAlias = tuple[str, str]
"""Line of the zoo file and name below it; for a line that is no longer in the file, `""` and the name in the sweep.

The name in the sweep depends on the other models, so it serves only as a fallback.
"""


class SweepHistory:
    """The sweeps of one zoo in the store, newest first.

    The zoo is known by its name, so that a file that was moved or checked out elsewhere keeps its history.
    """

    def __init__(self, zoo: ZooSpec, store: Store) -> None:
        self._zoo, self._store = zoo, store
        self._lines = set(map(listed, zoo.models))
        self.identity = {"zoo": str(Path(zoo.source.folder, Path(zoo.source.file).name))}
        """The place of the zoo file, for people."""
        self._results: dict[str, SweepResult] = {}

    def interrupted(self, request: SweepRequest) -> SweepRecord | None:
        """Return the sweep to resume; None to start a new one.

        Raises:
            InputError: there is no interrupted sweep.
        """
        if not request.resume:
            return None
        records = list(self._store.sweeps.all(self._zoo.name))
        if request.flow_run:
            records = [record for record in records if record.settings.get("flow_run") == request.flow_run]
        if not records or records[0].status == "finished":
            if request.or_begin:
                return None
            raise InputError(f"no sweep of {self._zoo.name} was interrupted", where=self._zoo.source.file)
        return records[0]

    def claim(self, record: SweepRecord) -> None:
        """Claim an interrupted sweep for this process.

        Raises:
            InputError: Another process is executing it.
        """
        owner = record.owner or ""
        if record.status != "running" or not is_known_alive(owner):
            claim = self._store.claims.acquire("sweep", record.id, redo=record.status != "running")
            owner = "" if claim else str(claim.owner)
        if owner:
            reason = f"sweep {record.id} of {self._zoo.name} is running ({process_text(owner)})"
            raise InputError(reason, where=self._zoo.source.file, remedy="wait until it has ended, or end it first")

    def references(self, sweep: str, models: Sequence[ZooItem | SweepEntry]) -> dict[str, list[EarlierEntry]]:
        """The entries to compare with by the model's name: the release, if there is one, then the latest good sweeps.

        A sweep that was accepted after the release takes its place.
        """
        good = self._good_entries(sweep, models)
        releases = release_histories(self._store, self._zoo.name)
        in_use = {name: history for name, history in releases.items() if history.current is not None and name in good}
        accepted = self._accepted(sweep, min((history.since for history in in_use.values()), default=math.inf))
        for name, history in in_use.items():
            release = history.current
            if release is not None and history.since > accepted.get(name, 0.0):
                good[name].insert(0, EarlierEntry(release.sweep, release.entry, release.number))
        return good

    def _accepted(self, sweep: str, since: float) -> dict[str, float]:
        """The time of the newest sweep after `since` that was accepted as a baseline, by the names of its models."""
        accepted: dict[str, float] = {}
        for record in self._finished(sweep):
            if record.created <= since:
                break
            if record.settings.get("accept"):
                for entry in self._result(record).models:
                    accepted.setdefault(entry.name, record.created)
        return accepted

    def _good_entries(self, sweep: str, models: Sequence[ZooItem | SweepEntry]) -> dict[str, list[EarlierEntry]]:
        """The latest good entries of earlier sweeps by the model's name, newest first; at most some of each."""
        good: dict[Key, list[EarlierEntry]] = {}
        latest: dict[str, list[EarlierEntry]] = {model.name: [] for model in models}
        for record in self._finished(sweep):
            for entry in self._result(record).models:
                if record.settings.get("accept") or not entry.compared.regressed:
                    good.setdefault(self._key(entry), []).append(EarlierEntry(record.id, entry))
            for model in models:
                entries = good.get((model.listed, model.called)) or good.get(("", model.name), [])
                latest[model.name] = entries[: CHANGES.usual_nights]
            if all(len(entries) == CHANGES.usual_nights for entries in latest.values()):
                break
        return latest

    def _key(self, entry: SweepEntry) -> Key:
        """The line of the zoo that listed a model, and its name there; only its name if the line is gone."""
        if entry.listed in self._lines:
            return entry.listed, entry.called
        return "", entry.name

    def missing_models(self, sweep: str, only: str | None, items: Sequence[ZooItem]) -> list[SweepEntry]:
        """Entries for models of the last finished sweep with the same tag that their line no longer yields.

        Models that this sweep had no time for are looked up in those before it.
        They are listed until the sweep that lists them is accepted, or the line is removed.
        """
        lines = {listed(model) for _, model in self._zoo.lines(only)}
        reasons = {item.listed: item.reason for item in items if item.reason}
        names = {item.name for item in items}
        vanished: dict[Key, SweepEntry] = {}
        for record in self._until_all_ran(sweep, only):
            for entry in self._vanished(record, items):
                if entry.listed in lines:
                    vanished.setdefault((entry.listed, entry.called), entry)
        return [_missing(entry, reasons, names) for entry in vanished.values()]

    def _until_all_ran(self, sweep: str, only: str | None) -> Iterator[SweepRecord]:
        """The last sweep with the tag, and those before it back to an accepted one, or until all its models ran."""
        left_out: set[str] | None = None
        for record in self._with_tag(sweep, only):
            result = self._result(record)
            if left_out is None:
                left_out = set(result.not_run)
            else:
                left_out = left_out.difference(entry.name for entry in result.models)
            yield record
            if record.settings.get("accept") or not left_out:
                return

    def nights_left_out(self, sweep: str, only: str | None) -> Counter[str]:
        """The number of newest sweeps with this tag, one after the other, that had no time for a model, by its name."""
        counts: Counter[str] = Counter()
        left_out: set[str] | None = None
        for record in self._with_tag(sweep, only):
            names = set(self._result(record).not_run)
            left_out = names if left_out is None else left_out & names
            if not left_out:
                break
            counts.update(left_out)
        return counts

    def last_entries(self, sweep: str) -> dict[str, SweepEntry]:
        """The newest entry of each model by its name, in the sweeps before this one back to one that ran all models."""
        last: dict[str, SweepEntry] = {}
        for record in self._finished(sweep):
            result = self._result(record)
            for entry in result.models:
                last.setdefault(entry.name, entry)
            if record.settings.get("only") is None and not result.not_run:
                break
        return last

    def _finished(self, sweep: str) -> Iterator[SweepRecord]:
        """The finished sweeps other than `sweep`, newest first."""
        return (record for record in finished_sweeps(self._store, self._zoo.name) if record.id != sweep)

    def _with_tag(self, sweep: str, only: str | None) -> Iterator[SweepRecord]:
        """The finished sweeps other than `sweep` that were restricted to this tag, newest first."""
        return (record for record in self._finished(sweep) if record.settings.get("only") == only)

    def _vanished(self, record: SweepRecord, items: Sequence[ZooItem]) -> Iterator[SweepEntry]:
        """The entries of an earlier sweep whose models are no longer among the items."""
        lines_and_names = {(item.listed, item.called) for item in items}
        paths = {item.shown_path for item in items if not item.reason}
        for entry in self._result(record).models:
            accepted = entry.status == MISSING and record.settings.get("accept")
            present = (entry.listed, entry.called) in lines_and_names or entry.path in paths
            if entry.found and not accepted and not present:
                yield entry

    def _result(self, record: SweepRecord) -> SweepResult:
        if record.id not in self._results:
            self._results[record.id] = SweepResult.from_json(record.result)
        return self._results[record.id]


def _missing(entry: SweepEntry, reasons: Mapping[str, str], names: set[str]) -> SweepEntry:
    """The entry of a model that is missing now; its name is added to `names`."""
    return SweepEntry(
        name=free_name(entry.name, names),
        status=MISSING,
        path=entry.path,
        tags=entry.tags,
        listed=entry.listed,
        called=entry.called,
        reason=reasons.get(entry.listed) or f"no longer in {entry.listed}",
        environment=environment(),
    )
