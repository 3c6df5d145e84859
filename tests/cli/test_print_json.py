"""The documents that commands print."""

from __future__ import annotations

import io
import json
from enum import IntEnum, StrEnum
from pathlib import Path

import pytest

from autoopt.cli.output import print_json
from autoopt.metrics import Estimate


def written(value: object) -> str:
    stream = io.StringIO()
    print_json(value, stream)
    return stream.getvalue()


def test_records_paths_and_enums_have_a_json_form_at_any_depth() -> None:
    word, number = StrEnum("Word", {"A": "a"}), IntEnum("Number", {"ONE": 1})
    values = {"estimate": Estimate(1.0, 0.5, 2.0), "path": Path("a/b"), "set": {2, 1}, "enums": [word("a"), number(1)]}
    estimate = {"value": 1.0, "low": 0.5, "high": 2.0}
    expected = {"estimate": estimate, "path": "a/b", "set": [1, 2], "enums": ["a", 1]}
    assert json.loads(written(values)) == expected
    assert json.loads(written({"deep": [[[values]]]})) == {"deep": [[[expected]]]}
    assert written({"a": float("inf"), "b": []}) == '{\n  "a": null,\n  "b": []\n}\n'


def test_a_value_without_a_json_form_is_refused() -> None:
    with pytest.raises(TypeError, match="object has no JSON form"):
        written({"a": [object()]})


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_characters_that_the_stream_lacks_are_escaped(encoding: str) -> None:
    text = 'ö "модель" \U0001f600 \udce9'
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    print_json({"name": text, "names": {"deep": [text]}}, stream)
    stream.seek(0)
    assert json.loads(stream.read()) == {"name": text, "names": {"deep": [text]}}
