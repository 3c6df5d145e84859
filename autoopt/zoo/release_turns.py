"""One promotion or rollback of a model at a time, across processes and machines.

Each takes a numbered turn, which is an event that can be added only once, and ends it with another event.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from autoopt.errors import InputError
from autoopt.owner import is_known_dead
from autoopt.store import EventRecord, Store

TURN_EVENT: Final = "release turn"
END_EVENT: Final = "release turn ended"
LONGEST_SECONDS: Final = 600.0
"""Time after which a turn is over, if its process is on another machine and may have died there."""


@contextmanager
def release_turn(store: Store, model: str, by: str) -> Iterator[None]:
    """Keep other promotions and rollbacks of a model away during the block.

    `model` is `zoo/model`; `by` names user and host to the others.

    Raises:
        InputError: Another process has the turn.
    """
    turns = store.events.all(kind=TURN_EVENT, subject=model)
    if turns and not _is_over(store, turns[-1]):
        raise _taken(turns[-1])
    number = len(turns) + 1
    turn = EventRecord(TURN_EVENT, subject=model, data={"number": number, "owner": store.owner, "by": by})
    if not store.events.add(turn, once=f"{TURN_EVENT} {number} of {model}"):
        raise _taken(store.events.all(kind=TURN_EVENT, subject=model)[-1])
    try:
        yield
    finally:
        store.events.add(EventRecord(END_EVENT, subject=model, data={"number": number}))


def _is_over(store: Store, turn: EventRecord) -> bool:
    number = turn.data["number"]
    if any(end.data["number"] == number for end in store.events.all(kind=END_EVENT, subject=turn.subject)):
        return True
    return is_known_dead(turn.data["owner"]) or store.clock() - turn.time > LONGEST_SECONDS


def _taken(turn: EventRecord) -> InputError:
    reason = f"{turn.data['by']} is promoting or rolling back this model now"
    return InputError(reason, where=turn.subject, remedy="try again when that has ended")
