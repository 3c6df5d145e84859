"""JSON with line numbers."""

from __future__ import annotations

import json

import pytest

from autoopt.errors import ConfigError
from autoopt.spec.json_reader import read_json


def test_json_gives_the_same_value_and_its_own_lines() -> None:
    text = '{\n "a": 1,\n "b": [\n  "x",\n  {"c": -2.5e0, "d": null, "e": [true, false]}\n ]\n}'
    value, lines = read_json(text, "f.json")
    assert value == json.loads(text)
    assert lines[("a",)] == 2
    assert lines[("b", 1, "c")] == 5


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ('{"a": 1,\n "a": 2}', 2, "duplicate key 'a'"),
        ('{"a": NaN}', 1, "NaN is not a JSON number"),
        ('{"a": Infinity}', 1, "not a JSON number"),
        ('{"a": 1e999}', 1, "finite"),
        ('{"a": ' + "9" * 5000 + "}", 1, "digits"),
        ("[" * 100_000, 1, "nested deeper"),
        ('{"a":\n}', 2, "is not JSON"),
        ("", 1, "is not JSON"),
        ('{"a": "\\ud800"}', 1, "U+D800"),
        ('{"a": "\\u0000"}', 1, "U+0000"),
    ],
)
def test_json_that_is_refused(text: str, line: int, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_json(text, "f.json")
    assert reason in str(caught.value)
    assert caught.value.line == line
