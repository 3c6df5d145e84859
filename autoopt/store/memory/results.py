"""Claims, and the results of the work that they are for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from autoopt.errors import InputError
from autoopt.store.contracts import LEASE_SECONDS, Claim, ClaimStore, ResultStore
from autoopt.store.leases import is_abandoned
from autoopt.store.memory.state import WHERE, Claimable, Lease, Part, State, as_stored, atomic, require
from autoopt.store.records import ClaimKind, EvaluationRecord, PassRunRecord, RunRecord, TrialRecord

Record = TypeVar("Record", PassRunRecord, EvaluationRecord)


class MemoryClaims(Part, ClaimStore):
    """See `ClaimStore`."""

    @atomic
    def acquire(
        self,
        kind: ClaimKind,
        key: str,
        owner: str | None = None,
        seconds: float = LEASE_SECONDS,
        *,
        redo: bool = False,
    ) -> Claim:
        claimant, now = owner or self._state.owner, self._state.now()
        records, lease = self._state.records(kind), self._state.lease(kind, key)
        record = records.get(key)
        if record is None and kind in ("trial", "run"):
            raise InputError(f"there is no {kind} {key!r} to claim", where=WHERE)
        if record is not None and _is_done(record, lease, redo):
            return Claim("done", lease.owner)
        if lease.owner != claimant and not is_abandoned(lease.end, lease.owner, now):
            return Claim("held", lease.owner)
        self._state.leases[kind, key] = Lease(claimant, now + seconds)
        if isinstance(record, TrialRecord | RunRecord):
            records[key] = replace(record, status="running")
        return Claim("mine", claimant)

    @atomic
    def renew(self, kind: ClaimKind, key: str, owner: str | None = None, seconds: float = LEASE_SECONDS) -> bool:
        is_held = self._is_held(kind, key, owner)
        if is_held:
            self._state.lease(kind, key).end = self._state.now() + seconds
        return is_held

    @atomic
    def release(self, kind: ClaimKind, key: str, owner: str | None = None) -> None:
        if self._is_held(kind, key, owner):
            self._state.leases[kind, key] = Lease()
            if kind == "trial":
                self._state.trials[key] = replace(self._state.trials[key], status="pending")

    def _is_held(self, kind: ClaimKind, key: str, owner: str | None) -> bool:
        lease = self._state.lease(kind, key)
        return lease.end is not None and lease.owner == (owner or self._state.owner)


def _is_done(record: Claimable, lease: Lease, redo: bool) -> bool:
    """True if the work has ended; with `redo`, work that may be done again is not."""
    if redo and _may_be_redone(record):
        return False
    if isinstance(record, TrialRecord | RunRecord):
        return record.status not in ("pending", "running")
    return lease.end is None


def _may_be_redone(record: Claimable) -> bool:
    return isinstance(record, RunRecord) or (record.outcome is not None and record.outcome.retryable)


class MemoryResults(Part, ResultStore):
    """See `ResultStore`."""

    @atomic
    def pass_runs(self, keys: Iterable[str]) -> dict[str, PassRunRecord]:
        return _among(self._state.pass_runs, keys)

    @atomic
    def evaluations(self, keys: Iterable[str]) -> dict[str, EvaluationRecord]:
        return _among(self._state.evaluations, keys)

    @atomic
    def finish_pass_runs(self, records: Sequence[PassRunRecord], owner: str | None = None) -> list[bool]:
        for record in records:
            require(self._state.artifacts, record.input.artifact)
            require(self._state.artifacts, record.output.artifact if record.output else None)
            require(self._state.runs, record.run)
        return [
            _write_once(self._state, "pass_run", self._state.pass_runs, record, owner or self._state.owner)
            for record in records
        ]

    @atomic
    def finish_evaluations(self, records: Sequence[EvaluationRecord], owner: str | None = None) -> list[bool]:
        for record in records:
            require(self._state.artifacts, record.candidate.artifact)
            require(self._state.runs, record.run)
        return [
            _write_once(self._state, "evaluation", self._state.evaluations, record, owner or self._state.owner)
            for record in records
        ]


def _write_once(state: State, kind: ClaimKind, records: dict[str, Record], record: Record, owner: str) -> bool:
    lease, before = state.lease(kind, record.key), records.get(record.key)
    if before is None:
        accepted = lease.owner in (owner, None)
    elif before.outcome.retryable:
        accepted = lease.end is None or lease.owner == owner
    else:
        accepted = False
    if accepted:
        records[record.key] = replace(as_stored(record), finished=state.now())
        state.leases[kind, record.key] = Lease(owner)
        return True
    return before is not None and lease.owner == owner and _is_same_result(before, record)


def _is_same_result(before: PassRunRecord | EvaluationRecord, record: PassRunRecord | EvaluationRecord) -> bool:
    if isinstance(before, PassRunRecord) and isinstance(record, PassRunRecord) and record.output is not None:
        return before.output == record.output
    return before.outcome == record.outcome


def _among(records: Mapping[str, Record], keys: Iterable[str]) -> dict[str, Record]:
    return {key: records[key] for key in keys if key in records}
