"""Finished pass runs and evaluations, in every kind of store."""

from __future__ import annotations

import dataclasses
import math

import pytest
from sqlalchemy.exc import IntegrityError
from store_helpers import evaluation, finish_all, key, pass_run, put
from store_owners import by

from autoopt.metrics import Estimate
from autoopt.model.candidate import Candidate
from autoopt.outcome import Outcome
from autoopt.store import Store


def test_a_finished_result_comes_back_as_it_was(store: Store) -> None:
    source, made = put(store, b"source"), put(store, b"made")
    done = pass_run(source, made, message="two lines\nand \x00", attempts=({"params": {}, "reason": "x"},))
    judged = evaluation(made, details={"samples": [1.5, math.inf]}, ratios={"psnr": Estimate(math.inf, 1.0, math.inf)})
    assert store.results.finish_pass_run(done)
    assert store.results.finish_evaluation(judged)
    found, measured = store.results.pass_run(done.key), store.results.evaluation(judged.key)
    assert found is not None
    assert dataclasses.replace(found, finished=0.0, message="") == dataclasses.replace(done, message="")
    assert found.message == "two lines and \\x00"
    assert measured is not None
    assert dataclasses.replace(measured, finished=0.0) == judged


def test_a_lookup_of_many_keys_finds_only_finished_results(store: Store) -> None:
    source = put(store, b"source")
    records = [pass_run(source, None, f"pass{i}", outcome=Outcome.REFUSED) for i in range(600)]
    finish_all(store, *records)
    store.claims.acquire("pass_run", key("claimed"))
    found = store.results.pass_runs([r.key for r in records] + [key("claimed"), key("unknown")])
    assert set(found) == {r.key for r in records}
    assert store.results.pass_runs([]) == {}


def test_the_first_good_result_stays(store: Store) -> None:
    source, first, second = put(store, b"source"), put(store, b"1"), put(store, b"2")
    record = pass_run(source, first)
    assert by(store, "a").results.finish_pass_run(record)
    assert by(store, "a").results.finish_pass_run(record), "the answer to the first commit may be lost"
    assert not by(store, "a").results.finish_pass_run(dataclasses.replace(record, output=Candidate(second)))
    assert not by(store, "b").results.finish_pass_run(dataclasses.replace(record, outcome=Outcome.FAILED, output=None))
    kept = store.results.pass_run(record.key)
    assert kept.output == Candidate(first)


@pytest.mark.parametrize("outcome", list(Outcome))
def test_only_retryable_results_may_be_replaced(store: Store, outcome: Outcome) -> None:
    artifact = put(store, b"model")
    before = evaluation(artifact, outcome=outcome, metrics={}, source_metrics={}, ratios={})
    assert by(store, "a").results.finish_evaluation(before)
    assert by(store, "b").results.finish_evaluation(evaluation(artifact, 5.0)) is outcome.retryable
    found = store.results.evaluation(before.key)
    assert (found.outcome, bool(found.metrics)) == ((Outcome.OK, True) if outcome.retryable else (outcome, False))


def test_a_result_cannot_name_an_artifact_that_is_not_stored(store: Store) -> None:
    with pytest.raises((IntegrityError, LookupError)):
        store.results.finish_pass_run(pass_run(put(store, b"source"), key("never stored")))
