"""Lineage, in every kind of store."""

from __future__ import annotations

import pytest
from store_helpers import ENVIRONMENT, finish_all, pass_run, put, start_run

from autoopt.errors import InputError
from autoopt.model.candidate import Candidate
from autoopt.outcome import Outcome
from autoopt.store import Store


def test_lineage_has_the_steps_from_the_source_in_order(store: Store) -> None:
    run = start_run(store)
    middle, last = put(store, b"middle"), put(store, b"last")
    tuned = Candidate(last, {"intra_op_num_threads": 1})
    first = pass_run(run.model, middle)
    second = pass_run(middle, last, "float16")
    third = pass_run(last, last, "session_tuning", output=tuned)
    finish_all(store, third, second, first)
    found = store.lineage.trace(tuned).to_json()
    assert (found["artifact"], found["session_options"], found["source"]) == (
        last,
        dict(tuned.session_options),
        run.model,
    )
    assert [s["pass"] for s in found["steps"]] == ["simplify", "float16", "session_tuning"]
    assert found["steps"][0] == {
        "pass": "simplify",
        "params": {"level": 2},
        "input": run.model,
        "output": middle,
        "session_options": {},
        "outcome": "ok",
        "seconds": 0.5,
        "environment": ENVIRONMENT,
    }
    assert found["steps"][2]["session_options"] == {"intra_op_num_threads": 1}
    assert [s.pass_name for s in store.lineage.trace(last[:12]).steps] == ["simplify", "float16"]
    assert store.lineage.trace(run.model).steps == ()


def test_lineage_takes_the_shortest_way_through_circles(store: Store) -> None:
    run = start_run(store)
    one, two = put(store, b"one"), put(store, b"two")
    there, back = pass_run(run.model, one), pass_run(one, run.model, "undo")
    on, direct = pass_run(one, two, "on"), pass_run(run.model, two, "direct")
    finish_all(store, there, back, on)
    assert [s.pass_name for s in store.lineage.trace(two).steps] == ["simplify", "on"]
    store.results.finish_pass_run(direct)
    assert [s.pass_name for s in store.lineage.trace(two).steps] == ["direct"]
    assert store.lineage.trace(run.model).steps == ()


def test_lineage_includes_the_conversion_and_analyses_of_the_source(store: Store) -> None:
    run = start_run(store)
    program, made = put(store, b"program"), put(store, b"made")
    attempts = ({"params": {"level": 3}, "reason": "too high"},)
    converted = pass_run(program, run.model, "torch_export")
    counted = pass_run(
        run.model, run.model, "operator_counts", outcome=Outcome.UNCHANGED, reports={"counts": {"Conv": 1}}
    )
    finish_all(store, converted, counted, pass_run(run.model, made, attempts=attempts))
    found = store.lineage.trace(made).to_json()
    assert (found["source"], found["converted"]["input"]) == (run.model, program)
    assert found["steps"][0]["attempts"] == list(attempts)
    assert [(a["pass"], a["reports"]) for a in found["analyses"]] == [("operator_counts", {"counts": {"Conv": 1}})]
    assert store.lineage.trace(run.model).converted is not None


def test_an_unknown_artifact_has_no_lineage(store: Store) -> None:
    with pytest.raises(InputError, match="no artifact 'feed'"):
        store.lineage.trace("feed")


def test_an_artifact_exists_by_the_beginning_of_its_digest(store: Store) -> None:
    digest = put(store, b"model")
    assert store.artifacts.exists(digest)
    assert store.artifacts.exists(digest[:8])
    assert not store.artifacts.exists(f"{digest[:8]}x")
    assert not store.artifacts.exists("%")
