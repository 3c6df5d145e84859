"""Values as rows keep them, keys of equal and unequal values, and finding rows."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from store_helpers import evaluation, key, pass_run, put

from autoopt.errors import InputError
from autoopt.metrics import Estimate
from autoopt.model.candidate import Candidate, digest_json
from autoopt.store import Store, SweepRecord
from autoopt.store.sql import tables
from autoopt.store.sql.rows import Lookup, dumps, insert_if_absent, loads

TEXT = st.text(st.characters(codec=None), max_size=20)  # surrogates and NUL too
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3))
OBJECTS = st.dictionaries(TEXT, VALUES, max_size=4)
FINITE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
)
QUICK = settings(max_examples=60)


@given(VALUES)
def test_json_comes_back(value: Any) -> None:
    text = dumps(value)
    assert loads(text) == value
    assert text.isascii()
    assert "\x00" not in text


@given(st.dictionaries(TEXT, FINITE, min_size=2, max_size=5))
def test_keys_do_not_depend_on_order(value: dict[str, Any]) -> None:
    turned = dict(reversed(value.items()))
    assert digest_json(value) == digest_json(turned)
    assert Candidate("a", value).key == Candidate("a", turned).key
    assert dumps(value) == dumps(turned)


@given(FINITE, FINITE)
def test_keys_are_equal_exactly_for_equal_json(one: Any, two: Any) -> None:
    same = json.dumps(one, sort_keys=True) == json.dumps(two, sort_keys=True)
    assert (digest_json(one) == digest_json(two)) is same
    assert (Candidate("a", {"x": one}) == Candidate("a", {"x": two})) >= same


@pytest.mark.parametrize(
    ("one", "two"), [(1, True), (1, 1.0), ("1", 1), ({}, []), (None, "null"), ({"a": 1}, {"a": [1]})]
)
def test_keys_distinguish_types(one: Any, two: Any) -> None:
    assert digest_json(one) != digest_json(two)


@given(params=OBJECTS, message=TEXT, name=TEXT)
@QUICK
def test_any_text_can_be_stored(store: Store, params: dict[str, Any], message: str, name: str) -> None:
    source = put(store, b"source")
    record = pass_run(source, None, name, key=key(dumps(params), repr(message), repr(name)), params=params)
    record = type(record)(**{**vars(record), "message": message})
    assert store.results.finish_pass_run(record)
    found = store.results.pass_run(record.key)
    assert found.params == params
    assert found.message.isprintable()
    assert store.sweeps.create(SweepRecord("", message, params)).settings == params


@given(st.floats(), st.floats(), st.floats())
@QUICK
def test_any_number_can_be_stored(store: Store, value: float, low: float, high: float) -> None:
    artifact = put(store, b"model")
    estimate = Estimate(value, low, high)
    record = evaluation(artifact, key=key(repr(estimate)), ratios={"x": estimate})
    store.results.finish_evaluation(record)
    found = store.results.evaluation(record.key)
    assert found is not None
    for part in ("value", "low", "high"):
        stored, given = getattr(found.ratios["x"], part), getattr(estimate, part)
        assert stored == given or (math.isnan(stored) and math.isnan(given))


DIGESTS = Lookup(tables.artifact, "digest", "artifact", newest_by="created")


def test_a_row_is_found_by_its_id_or_a_beginning(database_store: Store) -> None:
    digest = put(database_store, b"model")
    for name in (digest, digest[:12]):
        assert DIGESTS.find(database_store.database, name)["digest"] == digest
    assert DIGESTS.find(database_store.database, "latest")["digest"] == digest


@pytest.mark.parametrize("name", ["", "%", "_", "\\", "zz", 100_000 * "z"])
def test_wildcards_of_sql_match_nothing(database_store: Store, name: str) -> None:
    put(database_store, b"model")
    with pytest.raises(InputError, match="no artifact"):
        DIGESTS.find(database_store.database, name)


def test_an_ambiguous_name_is_refused_with_longer_beginnings(database_store: Store) -> None:
    for digest in ("abc1" * 16, "abd2" * 16):
        row = {"digest": digest, "bytes": 0, "files": "{}", "created": 1.0}
        database_store.database.write(lambda c, row=row: insert_if_absent(c, tables.artifact, row))  # type: ignore[misc]
    with pytest.raises(InputError, match=r"artifact 'ab' is ambiguous; give more of it: abc1ab, abd2ab$"):
        DIGESTS.find(database_store.database, "ab")
