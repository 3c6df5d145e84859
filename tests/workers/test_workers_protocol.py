from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoopt.errors import InputError
from autoopt.outcome import Outcome
from autoopt.workers import protocol

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), JSON))
def test_a_message_is_one_line(message: dict[str, object]) -> None:
    line = protocol.encode(message)
    assert line.count(b"\n") == 1
    assert json.loads(line) == message


@given(st.text())
def test_short_is_printable_and_bounded(text: str) -> None:
    line = protocol.shorten(text * 50)
    assert line.isprintable()
    assert len(line) <= protocol.MAX_MESSAGE_CHARS


class _Owned(Exception):
    outcome = "refused"


@pytest.mark.parametrize(
    ("error", "outcome", "message"),
    [
        (_Owned("no"), Outcome.REFUSED, "no"),
        (MemoryError(), Outcome.OUT_OF_MEMORY, "MemoryError"),
        (RuntimeError("std::bad_alloc"), Outcome.OUT_OF_MEMORY, "RuntimeError: std::bad_alloc"),
        (InputError("bad", where="m.onnx"), Outcome.FAILED, "m.onnx: bad"),
        (KeyError("x"), Outcome.FAILED, "KeyError: 'x'"),
    ],
)
def test_judge(error: Exception, outcome: Outcome, message: str) -> None:
    assert protocol.judge(error) == (outcome, message)


def test_judge_looks_at_causes() -> None:
    error = ValueError("conversion failed")
    error.__cause__ = MemoryError()
    assert protocol.judge(error) == (Outcome.OUT_OF_MEMORY, "ValueError: conversion failed")


def test_resolve() -> None:
    assert protocol.resolve("json:dumps") is json.dumps  # type: ignore[comparison-overlap]
    with pytest.raises(ModuleNotFoundError):
        protocol.resolve("no_such_module:f")
