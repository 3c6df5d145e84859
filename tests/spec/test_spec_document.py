"""Documents: values with the line of every field."""

from __future__ import annotations

import pytest

from autoopt.errors import ConfigError
from autoopt.spec.document import MAX_DEPTH, MAX_ITEMS, Builder, check_number, check_text, parse_integer
from autoopt.spec.source import FieldError


def test_a_builder_puts_events_together_with_their_lines() -> None:
    build = Builder("f.yaml")
    build.begin({}, 1)
    assert build.wants_key
    build.key("a", 2)
    assert not build.wants_key
    build.begin([], 2)
    build.scalar(int, "1", 3)
    build.scalar(str, "x", 4)
    build.end()
    build.key("b", 5)
    build.scalar(float, "2", 5)
    build.end()
    assert build.root == {"a": [1, "x"], "b": 2.0}
    assert build.lines == {(): 1, ("a",): 2, ("a", 0): 3, ("a", 1): 4, ("b",): 5}


def test_a_key_twice_names_both_lines() -> None:
    build = Builder("f.yaml")
    build.begin({}, 1)
    build.key("a", 2)
    build.scalar(str, "x", 2)
    with pytest.raises(ConfigError, match=r"f\.yaml:7: duplicate key 'a' \(first in line 2\); keep one of them"):
        build.key("a", 7)


def test_a_mapping_is_no_key() -> None:
    build = Builder("f.yaml")
    build.begin({}, 1)
    with pytest.raises(ConfigError, match="a key must be text"):
        build.begin([], 2)


def test_depth_and_size_are_bounded() -> None:
    build = Builder("f.yaml")
    for _ in range(MAX_DEPTH):
        build.begin([], 1)
    with pytest.raises(ConfigError, match="nested deeper"):
        build.begin([], 1)
    wide = Builder("f.yaml")
    wide.begin([], 1)
    for _ in range(MAX_ITEMS - 1):
        wide.scalar(int, "1", 1)
    with pytest.raises(ConfigError, match="has more than"):
        wide.scalar(int, "1", 1)


def test_a_wrong_value_is_reported_at_its_place() -> None:
    build = Builder("f.yaml")
    build.begin({}, 1)
    build.key("a", 3)
    with pytest.raises(ConfigError, match=r"f\.yaml:3: a: has more than 30 digits"):
        build.scalar(parse_integer, "9" * 31, 3)


@pytest.mark.parametrize("text", ["\x00", "a\x1bb", "\x7f", "\ud800"])
def test_text_that_no_terminal_shows_is_refused(text: str) -> None:
    with pytest.raises(FieldError, match=r"holds the character U\+"):
        check_text(text)


def test_lines_and_tabs_are_text() -> None:
    assert check_text("a\n\tü漢") == "a\n\tü漢"


@pytest.mark.parametrize("number", [float("inf"), float("-inf"), float("nan")])
def test_numbers_are_finite(number: float) -> None:
    with pytest.raises(FieldError, match="finite"):
        check_number(number)
