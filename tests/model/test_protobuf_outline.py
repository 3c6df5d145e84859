"""The outline of protobuf messages, beside what protobuf itself writes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto

from autoopt.model.protobuf_outline import (
    DEEPEST,
    Search,
    encode_varint,
    fields_in,
    header,
    messages_at,
    read_varint,
    rewritten,
)
from autoopt.model.weight_files import NotSplit

NAME = 8
"""Number of the field of TensorProto."""
INITIALIZERS = Search({"model": {7: "graph"}, "graph": {5: "tensor"}}, "model")


def model(names: list[str]) -> bytes:
    made = ModelProto(ir_version=10, producer_name="test")
    made.graph.name = "graph"
    made.graph.initializer.extend(TensorProto(name=name, dims=[1], float_data=[0.5]) for name in names)
    return made.SerializeToString()


@given(st.integers(0, 2**64 - 1))
def test_numbers_are_read_as_they_were_written(value: int) -> None:
    encoded = encode_varint(value)
    assert read_varint(b"\x80" + encoded, 1) == (value, 1 + len(encoded))


@given(st.lists(st.text(), max_size=5))
def test_messages_looked_for_are_found(names: list[str]) -> None:
    data = model(names)
    tensors = [
        TensorProto.FromString(data[start:stop]) for start, stop in messages_at(data, 0, len(data), INITIALIZERS)
    ]
    assert [tensor.name for tensor in tensors] == names


@given(st.lists(st.text(max_size=300), max_size=5))
def test_other_content_changes_the_lengths_around_it(names: list[str]) -> None:
    data = model(names)

    def renamed(start: int, stop: int) -> list[bytes | memoryview]:
        return [header(NAME, len(b"renamed")) + b"renamed"]

    pieces = rewritten(data, 0, len(data), INITIALIZERS, renamed)
    changed = ModelProto.FromString(b"".join(piece for piece in pieces if isinstance(piece, bytes)))
    assert [tensor.name for tensor in changed.graph.initializer] == ["renamed"] * len(names)
    assert (changed.graph.name, changed.producer_name, changed.ir_version) == ("graph", "test", 10)


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
