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


def test_events_come_back_oldest_first_with_their_data(store: Store) -> None:
    for number in range(3):
        store.events.add(
            EventRecord("step", subject=str(number), data={"number": number, "nested": {"list": [1, None]}})
        )
    events = store.events.all(kind="step")
    assert [event.data["number"] for event in events] == [0, 1, 2]
    assert events[0].data["nested"] == {"list": [1, None]}
    assert events[0].time <= events[1].time <= events[2].time


def test_all_conditions_must_hold(store: Store) -> None:
    run = start_run(store).id
    store.events.add(EventRecord("note", run, "a"))
    store.events.add(EventRecord("note", None, "a"))
    store.events.add(EventRecord("other", run, "a"))
    assert len(store.events.all()) == 3
    assert len(store.events.all(run=run, kind="note", subject="a")) == 1
    assert store.events.all(run=run, subject="b") == ()


def test_the_subject_of_an_event_is_one_line(store: Store) -> None:
    store.events.add(EventRecord("note", subject="two\nlines"))
    assert store.events.all()[0].subject == "two lines"
