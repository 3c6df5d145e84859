"""Errors are one line: where, what, what to do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoopt.errors import AutooptError, ConfigError, InputError, SystemFailure, did_you_mean, one_line


@given(st.text())
def test_one_line_holds_nothing_that_a_terminal_acts_on(text: str) -> None:
    shown = one_line(text)
    assert "\n" not in shown
    assert all(c.isprintable() for c in shown)
    assert one_line(shown) == shown


def test_the_parts_of_an_error_are_in_its_text() -> None:
    error = ConfigError("unknown pass 'x'", file="dag.yaml", line=7, field="passes.a", remedy="did you mean 'y'?")
    assert str(error) == "dag.yaml:7: passes.a: unknown pass 'x'; did you mean 'y'?"
    assert (error.file, error.line, error.field, error.remedy) == ("dag.yaml", 7, "passes.a", "did you mean 'y'?")
    assert str(InputError("is\nbad", where="a\x1b[31m")) == "a\\x1b[31m: is bad"


@pytest.mark.parametrize(("kind", "code"), [(InputError, 2), (SystemFailure, 3), (AutooptError, 3)])
def test_exit_codes_go_with_the_class(kind: type[AutooptError], code: int) -> None:
    assert kind("x").exit_code == code


def test_the_nearest_known_word_is_named_or_none() -> None:
    assert did_you_mean("per_chanel", ["per_channel", "reduce_range"]) == "did you mean 'per_channel'?"
    assert did_you_mean("zzz", ["per_channel"]) == ""
