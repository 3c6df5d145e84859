"""Events, in every kind of store."""

from __future__ import annotations

from store_helpers import start_run

from autoopt.store import EventRecord, Store


def test_events_are_found_by_run_kind_and_subject(store: Store) -> None:
    run = start_run(store).id
    store.events.add(EventRecord("death", run, "abc", {"signal": 6}))
    store.events.add(EventRecord("death", None, "def"))
    store.events.add(EventRecord("note", run))
    for subject in ("ab_/x", "abc/x", "abc/y"):
        store.events.add(EventRecord("model", None, subject))
    assert [e.subject for e in store.events.all(under="abc")] == ["abc/x", "abc/y"]
    assert [e.subject for e in store.events.all(under="ab_")] == ["ab_/x"]
    assert [e.subject for e in store.events.all(kind="death")] == ["abc", "def"]
    assert [e.kind for e in store.events.all(run=run)] == ["death", "note"]
    (only,) = store.events.all(kind="death", subject="abc")
    assert only.data == {"signal": 6}
    assert only.time > 0
