"""Records survive the way to JSON text and back; wrong values are refused with their place."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoopt.json_codec import JsonTypeError, JsonValue, from_json, read_object, to_json, without_nulls
from autoopt.outcome import Outcome


@dataclass(frozen=True)
class Part:
    name: str
    sizes: tuple[int, ...] = ()


@dataclass(frozen=True)
class Whole:
    part: Part
    ratio: float
    outcome: Outcome = Outcome.OK
    parts: Mapping[str, Part] = field(default_factory=dict)
    isa: frozenset[str] = frozenset()
    extra: Part | None = None
    kind: Literal["local", "remote"] = "local"
    where: Path | None = None
    pair: tuple[str, int] = ("", 0)
    anything: Any = None


parts = st.builds(Part, st.text(), st.tuples(st.integers(), st.integers()))
wholes = st.builds(
    Whole,
    part=parts,
    ratio=st.floats(allow_nan=False),
    outcome=st.sampled_from(Outcome),
    parts=st.dictionaries(st.text(), parts, max_size=3),
    isa=st.frozensets(st.text(), max_size=3),
    extra=st.none() | parts,
    kind=st.sampled_from(["local", "remote"]),
    where=st.none() | st.just(Path("a/b")),
    pair=st.tuples(st.text(), st.integers()),
    anything=st.none() | st.integers() | st.text(),
)


@given(wholes)
def test_every_record_survives_json_text(record: Whole) -> None:
    assert from_json(Whole, json.loads(json.dumps(to_json(record)))) == record


def test_sets_are_written_sorted() -> None:
    assert to_json(frozenset({"vnni", "amx"})) == ["amx", "vnni"]


def test_missing_fields_take_their_defaults_and_unknown_ones_are_ignored() -> None:
    assert from_json(Part, {"name": "a", "newer": 1}) == Part("a")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"ratio": 1.0}, "missing 1 required positional argument: 'part'"),
        ({"part": {"name": 3}, "ratio": 1.0}, "part.name: expected str"),
        ({"part": {"name": "a", "sizes": [1, "b"]}, "ratio": 1.0}, "part.sizes.1: expected int"),
        ({"part": {"name": "a"}, "ratio": True}, "ratio: expected a number"),
        ({"part": {"name": "a"}, "ratio": 1, "outcome": "odd"}, "outcome: expected Outcome"),
        ({"part": {"name": "a"}, "ratio": 1, "kind": "near"}, "kind: expected one of 'local', 'remote'"),
        ({"part": {"name": "a"}, "ratio": 1, "extra": {"name": 1}}, "extra.name: expected str"),
        ({"part": {"name": "a"}, "ratio": 1, "pair": ["a"]}, "pair: expected 2 items"),
        ({"part": {"name": "a"}, "ratio": 1, "parts": []}, "parts: expected an object"),
        ([], "expected an object (Whole)"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_its_place(value: Any, message: str) -> None:
    with pytest.raises(JsonTypeError) as caught:
        from_json(Whole, value)
    assert message in str(caught.value)


def test_what_has_no_json_form_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="bytes has no JSON form"):
        to_json({"a": b"x"})


@dataclass(frozen=True)
class Settings:
    values: Mapping[str, JsonValue]


def test_a_field_of_any_json_value_is_read_as_it_is() -> None:
    document: dict[str, Any] = {"values": {"a": [1, {"b": None}], "c": 0.5, "d": True}}
    assert from_json(Settings, document) == Settings(document["values"])


@dataclass(frozen=True)
class Step:
    pass_name: str = field(metadata={"json": "pass"})


def test_a_field_may_have_another_key() -> None:
    assert to_json(Step("fuse")) == {"pass": "fuse"}
    assert from_json(Step, {"pass": "fuse"}) == Step("fuse")
    with pytest.raises(JsonTypeError, match="pass: expected str"):
        from_json(Step, {"pass": 1})


def test_nulls_are_left_out_but_not_other_empty_values() -> None:
    assert without_nulls({"a": None, "b": 0, "c": ""}) == {"b": 0, "c": ""}


def test_an_object_is_read_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"a": [1]}')
    assert read_object(tmp_path / "a.json") == {"a": [1]}


@pytest.mark.parametrize("content", [b"[1]", b"{", b"\xff", b"[" * 100_000, b'{"a": 1}' + b" " * (17 << 20)])
def test_what_is_no_object_is_empty(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(content)
    assert read_object(tmp_path / "a.json") == {}


def test_what_is_no_file_is_empty(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", tmp_path / "missing"):
        assert read_object(path) == {}
