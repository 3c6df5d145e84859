"""Records and transactions of a store in memory."""

from __future__ import annotations

import math
import threading

import pytest

from autoopt.errors import InputError
from autoopt.metrics import Estimate
from autoopt.model.candidate import Candidate
from autoopt.outcome import Outcome
from autoopt.store import EvaluationRecord, EventRecord, RunRecord
from autoopt.store.memory.state import Lease, Part, State, as_json, as_stored, atomic, find, matches, require


class Counter(Part):
    """Adds to an event in two steps that only a transaction keeps together."""

    @atomic
    def add(self) -> dict[str, int]:
        (event,) = self._state.events
        count = event.data["count"] + 1
        self._state.events = [EventRecord("count", data={"count": count})]
        return self._state.events[0].data  # type: ignore[return-value]


def state() -> State:
    return State(now=lambda: 1.0, owner="me", events=[EventRecord("count", data={"count": 0})])


def test_transactions_of_threads_exclude_each_other() -> None:
    shared = state()
    threads = [threading.Thread(target=lambda: [Counter(shared).add() for _ in range(200)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert shared.events[0].data == {"count": 800}


def test_results_share_nothing_with_the_state() -> None:
    shared = state()
    Counter(shared).add()["count"] = 99
    assert shared.events[0].data == {"count": 1}


def test_records_are_stored_as_a_database_would() -> None:
    candidate = Candidate("a", {"threads": 2})
    record = EvaluationRecord(
        "k",
        candidate,
        "size",
        Outcome.OK,
        {"size": Estimate(math.nan, 0.0, 1.0)},
        message="two\nlines",
        details={"t": (1, 2)},
    )
    stored = as_stored(record)
    assert stored.message == "two lines"
    assert stored.details == {"t": [1, 2]}
    assert stored.outcome is Outcome.OK
    assert math.isnan(stored.metrics["size"].value)
    assert stored.candidate == candidate


@pytest.mark.parametrize("value", [None, 1, "x", [1, [2]], {"a": {"b": None}}, math.inf])
def test_json_values_stay_as_they_are(value: object) -> None:
    assert as_json(value) == value


def test_a_reference_to_something_missing_is_refused() -> None:
    require({"a": 1}, "a")
    require({}, None)
    with pytest.raises(LookupError, match="'b' is not stored"):
        require({"a": 1}, "b")


def test_a_record_is_found_by_its_key_or_a_beginning() -> None:
    records = {"abc": 1, "abd": 2, "ab": 3}
    assert find(records, "abc", "run") == 1
    assert find(records, "ab", "run") == 3, "an exact key is never ambiguous"
    with pytest.raises(InputError, match="ambiguous"):
        find(records, "a", "run")
    with pytest.raises(InputError, match="no run ''"):
        find(records, "", "run")


def test_conditions_that_are_none_match_everything() -> None:
    run = RunRecord("r", "net", "i", "m", status="failed")
    assert matches(run, status=None, identity="i")
    assert not matches(run, status="finished")


def test_unclaimed_work_has_an_empty_lease() -> None:
    assert state().lease("run", "r") == Lease(None, None)
