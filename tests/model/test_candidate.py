from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoopt.model.candidate import Candidate, canonical_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), VALUES))
def test_order_of_keys_does_not_matter(value: dict[str, object]) -> None:
    turned = dict(reversed(value.items()))
    assert canonical_json(value) == canonical_json(turned)
    assert json.loads(canonical_json(value)) == value
    assert canonical_json(value).isascii()


def test_not_a_number_is_no_json() -> None:
    with pytest.raises(ValueError):
        canonical_json(float("nan"))


def test_candidates_are_values() -> None:
    one = Candidate("d" * 64, {"threads": 1, "level": "all"})
    same = Candidate("d" * 64, {"level": "all", "threads": 1})
    assert one == same
    assert one.key == same.key
    assert len({one, same, Candidate("d" * 64), Candidate("e" * 64)}) == 3
    assert Candidate.from_json(json.loads(json.dumps(one.to_json()))) == one
    assert Candidate.from_json({"artifact": "d"}) == Candidate("d")
