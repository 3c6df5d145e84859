"""The outline of protobuf messages, beside what protobuf itself writes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoopt.model.protobuf_outline import (
    DEEPEST,
    Search,
    fields_in,
    header,
    messages_at,
    rewritten,
)
from autoopt.model.weight_files import NotSplit

"""Number of the field of TensorProto."""
INITIALIZERS = Search({"model": {7: "graph"}, "graph": {5: "tensor"}}, "model")


@given(st.binary(max_size=40))
def test_any_bytes_are_fields_or_refused(data: bytes) -> None:
    try:
        fields = list(fields_in(data, 0, len(data)))
    except NotSplit:
        return
    assert b"".join(data[each.start : each.stop] for each in fields) == data


@pytest.mark.parametrize("data", [b"\x0a", b"\x0a\x05ab", b"\x0b", b"\x80" * 11, b"\x09abc"])
def test_broken_messages_are_refused(data: bytes) -> None:
    with pytest.raises(NotSplit):
        list(fields_in(data, 0, len(data)))


def test_lengths_that_could_not_be_restored_are_refused() -> None:
    with pytest.raises(NotSplit, match="shortest"):
        rewritten(b"\x3a\x80\x00", 0, 3, INITIALIZERS, lambda start, stop: [])


@pytest.mark.parametrize(("levels", "found"), [(DEEPEST - 1, True), (DEEPEST + 1, False)])
def test_messages_within_their_own_kind_are_found_unless_they_are_too_deep(levels: int, found: bool) -> None:
    data = header(2, 1) + b"x"
    for _ in range(levels):
        data = header(1, len(data)) + data
    search = Search({"list": {1: "list", 2: "item"}}, "list")
    if found:
        assert [data[start:stop] for start, stop in messages_at(data, 0, len(data), search)] == [b"x"]
    else:
        with pytest.raises(NotSplit, match="deeply"):
            list(messages_at(data, 0, len(data), search))
