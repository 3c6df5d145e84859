"""The records of a store in memory, and transactions on them."""

from __future__ import annotations

import copy
import dataclasses
import functools
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from typing import Any, Concatenate, Final, ParamSpec, TypeAlias, TypeVar, cast

from autoopt.store import codec
from autoopt.store.lookup import require_single_match
from autoopt.store.records import (
    ArtifactRecord,
    ChainRecord,
    ClaimKind,
    EvaluationRecord,
    EventRecord,
    ModelRecord,
    PassRunRecord,
    RunRecord,
    SweepRecord,
    TrialRecord,
)

Value = TypeVar("Value")
Parameters = ParamSpec("Parameters")
Claimable: TypeAlias = PassRunRecord | EvaluationRecord | RunRecord | TrialRecord
WHERE: Final = "memory:"
"""The address of every store in memory."""


@dataclass
class Lease:
    """The owner of a claimed or finished piece of work; without an `end`, nobody is working on it."""

    owner: str | None = None
    end: float | None = None


@dataclass
class State:
    """Everything that a store in memory holds. Whoever reads or changes it holds the lock."""

    now: Callable[[], float]
    owner: str
    lock: threading.RLock = field(default_factory=threading.RLock)
    artifacts: dict[str, ArtifactRecord] = field(default_factory=dict)
    models: dict[str, ModelRecord] = field(default_factory=dict)
    pass_runs: dict[str, PassRunRecord] = field(default_factory=dict)
    evaluations: dict[str, EvaluationRecord] = field(default_factory=dict)
    runs: dict[str, RunRecord] = field(default_factory=dict)
    chains: dict[str, tuple[ChainRecord, ...]] = field(default_factory=dict)
    trials: dict[str, TrialRecord] = field(default_factory=dict)
    sweeps: dict[str, SweepRecord] = field(default_factory=dict)
    events: list[EventRecord] = field(default_factory=list)
    leases: dict[tuple[ClaimKind, str], Lease] = field(default_factory=dict)

    def records(self, kind: ClaimKind) -> dict[str, Any]:
        """The records of a kind by key, of type `Claimable`."""
        records: dict[str, Any] = getattr(self, f"{kind}s")
        return records

    def lease(self, kind: ClaimKind, key: str) -> Lease:
        """The lease of a piece of work."""
        return self.leases.get((kind, key), Lease())


class Part:
    """The implementation of one contract on the common state."""

    def __init__(self, state: State) -> None:
        self._state = state


PartType = TypeVar("PartType", bound=Part)
Method: TypeAlias = Callable[Concatenate[PartType, Parameters], Value]


def atomic(method: Method[PartType, Parameters, Value]) -> Method[PartType, Parameters, Value]:
    """Make a method of a part one transaction, whose result shares nothing with the state."""

    @functools.wraps(method)
    def locked(self: PartType, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Value:
        with self._state.lock:
            return copy.deepcopy(method(self, *args, **kwargs))

    return cast("Method[PartType, Parameters, Value]", locked)


def require(records: Mapping[str, object], key: str | None) -> None:
    """Refuse a reference to something that is not stored, as a foreign key does.

    Raises:
        LookupError: It is not stored.
    """
    if key is not None and key not in records:
        raise LookupError(f"{key!r} is not stored")


def matches(record: object, **conditions: str | None) -> bool:
    """True if the attributes of a record have these values; None stands for any value."""
    return all(value in (None, getattr(record, name)) for name, value in conditions.items())


def find(records: Mapping[str, Value], name: str, what: str) -> Value:
    """The record whose key is `name` or begins with it.

    Raises:
        InputError: No record matches, or several do.
    """
    keys = [name] if name in records else [key for key in records if name and key.startswith(name)]
    require_single_match(what, name, keys, WHERE)
    return records[keys[0]]


def as_stored(record: Value) -> Value:
    """A record as a database would return it: text on one line, mappings and lists as their JSON."""
    assert is_dataclass(record)
    changes: dict[str, object] = {}
    for item in fields(record):
        value = getattr(record, item.name)
        if isinstance(value, str) and not isinstance(value, Enum):
            changes[item.name] = codec.text(value)
        elif isinstance(value, tuple):
            changes[item.name] = tuple(as_json(list(value)))
        elif isinstance(value, Mapping) and not any(is_dataclass(entry) for entry in value.values()):
            changes[item.name] = as_json(value)
    copied: Value = dataclasses.replace(record, **changes)  # type: ignore[type-var]  # the assertion narrows it
    return copied


def as_json(value: object) -> Any:  # noqa: ANN401  the JSON form of a value has the type of the value
    """A JSON value as it is after writing and reading it."""
    return codec.loads(codec.dumps_optional(value))
