"""YAML with line numbers."""

from __future__ import annotations

from typing import Any

import pytest

from autoopt.errors import ConfigError
from autoopt.spec.document import MAX_DEPTH
from autoopt.spec.yaml_reader import read_yaml


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("NO", "NO"),
        ("yes", "yes"),
        ("on", "on"),
        ("True", True),
        ("FALSE", False),
        ("~", None),
        ("", None),
        ("Null", None),
        ("010", 10),
        ("0o17", 15),
        ("0x1F", 31),
        ("-12", -12),
        ("1_000", "1_000"),
        ("12:30:45", "12:30:45"),
        ("2001-01-01", "2001-01-01"),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("1.", 1.0),
        ("1.2.3", "1.2.3"),
        ("'12'", "12"),
        ('"true"', "true"),
    ],
)
def test_plain_scalars_follow_the_core_schema(text: str, value: Any) -> None:
    found, _ = read_yaml(f"a: {text}\n", "f.yaml")
    assert found == {"a": value}
    assert type(found["a"]) is type(value)


def test_every_field_has_the_line_it_is_written_on() -> None:
    text = "a: 1\nb:\n  - x\n  -\n    c: 2\n"
    value, lines = read_yaml(text, "f.yaml")
    assert value == {"a": 1, "b": ["x", {"c": 2}]}
    assert lines[("a",)] == 1
    assert lines[("b",)] == 2
    assert lines[("b", 0)] == 3
    assert lines[("b", 1, "c")] == 5


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("a: 1\na: 2\n", 2, "duplicate key 'a' (first in line 1)"),
        ("a: &x 1\nb: 2\n", 1, "anchors are not allowed"),
        ("a: 1\nb: *x\n", 2, "aliases are not allowed"),
        ("a: 1\nb: !!python/object:os.system x\n", 2, "tags are not allowed"),
        ("a: !!str 1\n", 1, "tags are not allowed"),
        ("a: 1\n---\nb: 2\n", 2, "second document"),
        ("a: 1\n<<: {b: 2}\n", 2, "merge keys are not allowed"),
        ("%YAML 1.1\n---\na: 1\n", 1, "must be YAML 1.2"),
        ("? [a, b]\n: 1\n", 1, "a key must be text"),
        ("a: 1\n b: 2\n", 2, "is not YAML"),
        ("a: [1, 2\n", 2, "is not YAML"),
        ("a: .inf\n", 1, "finite"),
        ("a: .nan\n", 1, "finite"),
        ("a: 1e999\n", 1, "finite"),
        (f"a: {'9' * 31}\n", 1, "more than 30 digits"),
        ("a: " + "[" * 40 + "]" * 40, 1, f"nested deeper than {MAX_DEPTH}"),
        ('a: "\\e[31m"\n', 1, "U+001B"),
        ('"a\\0": 1\n', 1, "U+0000"),
        ("", 1, "is empty"),
        ("a: \x00\n", 1, "is not YAML"),
        ("\ta: 1\n", 1, "is not YAML"),
    ],
)
def test_yaml_that_is_refused(text: str, line: int, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_yaml(text, "f.yaml")
    assert reason in str(caught.value)
    assert caught.value.line >= line
    assert "\n" not in str(caught.value)


def test_an_alias_bomb_is_refused_at_its_first_anchor() -> None:
    bomb = "a: &a [x,x]\n" + "".join(f"{c}: &{c} [*{p},*{p}]\n" for p, c in zip("abcdefgh", "bcdefghi", strict=True))
    with pytest.raises(ConfigError, match=r"f\.yaml:1: a: anchors are not allowed|f\.yaml:1: anchors are not allowed"):
        read_yaml(bomb, "f.yaml")
