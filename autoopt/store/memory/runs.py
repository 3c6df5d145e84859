"""Runs, their trials, and sweeps."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import replace

from autoopt.errors import InputError
from autoopt.store import codec
from autoopt.store.contracts import LEASE_SECONDS, RunStore, SweepStore, TrialStore
from autoopt.store.leases import is_abandoned, is_run_abandoned
from autoopt.store.memory.state import Lease, Part, as_json, as_stored, atomic, find, matches, require
from autoopt.store.records import ChainRecord, ClaimKind, Json, RunRecord, RunStatus, SweepRecord, TrialRecord, new_id


class MemoryRuns(Part, RunStore):
    """See `RunStore`."""

    @atomic
    def create(self, record: RunRecord, chains: Sequence[ChainRecord] = ()) -> RunRecord:
        state, run = self._state, record.id or new_id()
        require(state.artifacts, record.model)
        require(state.sweeps, record.sweep)
        if run not in state.runs:
            owner, now = record.owner or state.owner, state.now()
            state.runs[run] = replace(as_stored(record), id=run, owner=owner, created=now)
            state.leases["run", run] = Lease(owner, now + LEASE_SECONDS)
            state.chains[run] = tuple(as_stored(chain) for chain in chains)
        if state.runs[run].identity != record.identity:
            raise InputError(f"there is a run {run!r} already")
        return self.get(run)

    @atomic
    def finish(
        self, run: str, status: RunStatus = "finished", result: Json | None = None, owner: str | None = None
    ) -> bool:
        claimant, lease, before = owner or self._state.owner, self._state.lease("run", run), self._state.runs.get(run)
        if before is None:
            return False
        if before.status != "running":
            same = (before.status, before.result) == (status, as_json(result))
            return same and lease.owner == claimant
        if lease.owner not in (claimant, None):
            return False
        self._state.runs[run] = replace(before, status=status, result=as_json(result), finished=self._state.now())
        self._state.leases["run", run] = Lease(claimant)
        return True

    @atomic
    def get(self, name: str) -> RunRecord:
        if name == "latest":
            name = next((run.id for run in self.all() if run.parent is None), name)
        run = find(self._state.runs, name, "run")
        return replace(run, owner=self._state.lease("run", run.id).owner)

    @atomic
    def all(
        self,
        *,
        status: RunStatus | None = None,
        identity: str | None = None,
        sweep: str | None = None,
        parent: str | None = None,
    ) -> tuple[RunRecord, ...]:
        runs = [
            run
            for run in reversed(self._state.runs.values())
            if matches(run, status=status, identity=identity, sweep=sweep, parent=parent)
        ]
        return tuple(replace(run, owner=self._state.lease("run", run.id).owner) for run in runs)

    @atomic
    def chains(self, run: str) -> tuple[ChainRecord, ...]:
        return self._state.chains.get(run, ())

    @atomic
    def delete(self, run: str) -> None:
        lease, record = self._state.lease("run", run), self._state.runs.get(run)
        is_running = record is not None and record.status == "running"
        if is_running and not is_run_abandoned(lease.end, lease.owner, self._state.now()):
            raise InputError(f"run {run!r} is still running", remedy="wait for it, or stop it first")
        self._delete(run)

    def _delete(self, run: str) -> None:
        for part in self.all(parent=run):
            self._delete(part.id)
        self._delete_results(run)
        state = self._state
        state.trials = {key: trial for key, trial in state.trials.items() if trial.run != run}
        state.events = [event for event in state.events if event.run != run]
        state.chains.pop(run, None)
        state.runs.pop(run, None)

    def _delete_results(self, run: str) -> None:
        """Delete the results of a run that no other run's trials use; the others no longer name the run."""
        own, used = set[str](), set[str]()
        for trial in self._state.trials.values():
            (own if trial.run == run else used).update(trial.pass_runs, trial.evaluations)
        kinds: tuple[ClaimKind, ...] = ("pass_run", "evaluation")
        for kind in kinds:
            records = self._state.records(kind)
            for key in own | {key for key, record in records.items() if record.run == run}:
                if key not in used:
                    records.pop(key, None)
                    self._state.leases.pop((kind, key), None)
                elif key in records and records[key].run == run:
                    records[key] = replace(records[key], run=None)


class MemoryTrials(Part, TrialStore):
    """See `TrialStore`."""

    @atomic
    def add(self, records: Sequence[TrialRecord]) -> None:
        state, now = self._state, self._state.now()
        for record in records:
            require(state.runs, record.run)
            if record.key in state.trials and not self._may_be_replaced(record.key, record.owner):
                continue
            state.trials[record.key] = as_stored(record)
            end = now + LEASE_SECONDS if record.status == "running" else None
            state.leases["trial", record.key] = Lease(record.owner, end)

    def _may_be_replaced(self, key: str, owner: str | None) -> bool:
        status, lease = self._state.trials[key].status, self._state.lease("trial", key)
        if status == "running":
            is_mine = owner is not None and lease.owner == owner
            return is_mine or is_abandoned(lease.end, lease.owner, self._state.now())
        return status == "pending"

    @atomic
    def claim_next(
        self, run: str, chain: str | None = None, owner: str | None = None, seconds: float = LEASE_SECONDS
    ) -> TrialRecord | None:
        now = self._state.now()
        trials = [trial for trial in self.all(run) if chain in (None, trial.chain)]
        free = [t for t in trials if t.status == "running" and is_abandoned(t.lease, t.owner, now)]
        free += [t for t in trials if t.status == "pending"]
        if not free:
            return None
        key = free[0].key
        self._state.trials[key] = replace(self._state.trials[key], status="running")
        self._state.leases["trial", key] = Lease(owner or self._state.owner, now + seconds)
        return self.get(run, free[0].number)

    @atomic
    def finish_all(self, records: Sequence[TrialRecord], owner: str | None = None) -> list[bool]:
        return [self._finish(record, owner or record.owner or self._state.owner) for record in records]

    def _finish(self, record: TrialRecord, owner: str) -> bool:
        require(self._state.runs, record.run)
        require(self._state.artifacts, record.candidate.artifact if record.candidate else None)
        before, lease = self._state.trials.get(record.key), self._state.lease("trial", record.key)
        after = replace(as_stored(record), status="done")
        if before is not None and before.status == "done":
            return lease.owner == owner and (before.outcome, before.point) == (after.outcome, after.point)
        if before is not None and before.status == "running" and lease.owner not in (owner, None):
            return False
        self._state.trials[record.key] = after
        self._state.leases["trial", record.key] = Lease(owner)
        return True

    @atomic
    def get(self, run: str, number: int) -> TrialRecord:
        for trial in self.all(run):
            if trial.number == number:
                return trial
        raise InputError(f"run {run!r} has no trial {number}")

    @atomic
    def all(self, run: str) -> tuple[TrialRecord, ...]:
        trials = []
        for key, trial in self._state.trials.items():
            if trial.run == run:
                lease = self._state.lease("trial", key)
                trials.append(replace(trial, owner=lease.owner, lease=lease.end))
        return tuple(sorted(trials, key=lambda trial: trial.number))


class MemorySweeps(Part, SweepStore):
    """See `SweepStore`."""

    @atomic
    def create(self, record: SweepRecord) -> SweepRecord:
        sweep = record.id or new_id()
        self._state.sweeps.setdefault(sweep, replace(as_stored(record), id=sweep, created=self._state.now()))
        return self._state.sweeps[sweep]

    @atomic
    def finish(self, sweep: str, status: RunStatus = "finished", result: Json | None = None) -> None:
        if sweep in self._state.sweeps:
            ended = {"status": status, "result": as_json(result), "finished": self._state.now()}
            self._state.sweeps[sweep] = replace(self._state.sweeps[sweep], **ended)

    @atomic
    def get(self, name: str) -> SweepRecord:
        if name == "latest":
            name = next(reversed(self._state.sweeps), name)
        return find(self._state.sweeps, name, "sweep")

    def all(self, name: str | None = None) -> Iterator[SweepRecord]:
        with self._state.lock:
            sweeps = copy.deepcopy(list(reversed(self._state.sweeps.values())))
        for sweep in sweeps:
            if name is None or sweep.name == codec.text(name):
                yield sweep
