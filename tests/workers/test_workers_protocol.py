from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoopt.errors import ErrorRecord, InputError
from autoopt.json_codec import from_json
from autoopt.outcome import Cause, Outcome
from autoopt.workers import protocol

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.text())
def test_a_shortened_text_is_one_printable_bounded_line(text: str) -> None:
    line = protocol.shorten(text * 50)
    assert line.isprintable()
    assert len(line) <= protocol.MAX_MESSAGE_CHARS


def test_a_failed_allocation_is_found_among_the_causes() -> None:
    error = ValueError("conversion failed")
    error.__cause__ = MemoryError()
    assert protocol.judge(error) == (Outcome.OUT_OF_MEMORY, Cause.WORK, "ValueError: conversion failed")


@given(JSON)
def test_a_reply_survives_its_line_with_its_error_as_fields(value: object) -> None:
    error = ErrorRecord.of(InputError("bad", where="m.onnx", remedy="check it"))
    reply = protocol.Reply("token", Outcome.FAILED, value, "m.onnx: bad", Cause.WORK, error, "Traceback", 0.5, 42)
    line = reply.encode()
    assert line.count(b"\n") == 1
    copy = from_json(protocol.Reply, json.loads(line))
    assert copy == reply
    assert (copy.error.type, copy.error.where, copy.error.remedy) == ("InputError", "m.onnx", "check it")


@pytest.mark.parametrize(
    ("text", "failed"),
    [("std::bad_alloc", True), ("Unable to allocate 3 GiB", True), ("out of memory", True), ("no such file", False)],
)
def test_failed_allocations_are_recognized_by_the_words_of_libraries(text: str, failed: bool) -> None:
    assert protocol.reports_failed_allocation(text) is failed
