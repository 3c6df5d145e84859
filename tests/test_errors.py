"""Errors are one line: where, what, what to do."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import autoopt
from autoopt.errors import (
    MAX_FIELD_CHARS,
    AutooptError,
    ConfigError,
    ErrorRecord,
    InputError,
    Mistakes,
    SystemFailure,
    did_you_mean,
    joined,
    one_line,
    writing,
)
from autoopt.json_codec import from_json, to_json


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
    assert did_you_mean("embeddings", ["embedding_bits", "head_bits"]) == "did you mean 'embedding_bits'?"


ROOT = Path(autoopt.__file__).parents[1]
FAMILY = [
    AutooptError("odd"),
    InputError("no such file", where="model.onnx", remedy="check the path"),
    SystemFailure("cannot make the lock file", where="/tmp/lock"),
    ConfigError("unknown pass 'x'", file="dag.yaml", line=7, field="passes.a", remedy="did you mean 'y'?"),
    ConfigError("is empty", file="dag.yaml"),
]


@pytest.mark.parametrize("error", FAMILY, ids=repr)
def test_an_error_survives_the_way_through_json(error: AutooptError) -> None:
    record = from_json(ErrorRecord, to_json(ErrorRecord.of(error)))
    copy = record.to_exception()
    assert type(copy) is type(error)
    assert vars(copy) == vars(error)
    assert str(copy) == str(record) == str(error)
    assert copy.exit_code == error.exit_code


def test_a_subclass_is_recorded_as_its_nearest_class_of_the_family() -> None:
    class NotAdmitted(InputError):
        pass

    record = ErrorRecord.of(NotAdmitted("too large", where="m.onnx"))
    assert (record.type, str(record)) == ("InputError", "m.onnx: too large")


def test_another_exception_is_recorded_with_its_class_name_and_becomes_the_class_that_the_caller_chooses() -> None:
    record = ErrorRecord.of(ValueError("bad\nshape"))
    assert (record.type, record.what, record.expected) == ("ValueError", "bad shape", False)
    assert str(record) == "ValueError: bad shape"
    assert type(record.to_exception()) is AutooptError
    copy = record.to_exception(otherwise=InputError)
    assert (type(copy), str(copy)) == (InputError, "ValueError: bad shape")
    assert str(ErrorRecord.of(KeyboardInterrupt())) == "KeyboardInterrupt"


def test_the_fields_of_a_record_have_one_line_and_a_bounded_length() -> None:
    record = ErrorRecord.of(InputError("x" * 100_000, where="a\x1b[31m"))
    assert len(record.what) == MAX_FIELD_CHARS
    assert record.what.endswith("…")
    assert record.where == "a\\x1b[31m"


def test_this_module_needs_only_the_standard_library() -> None:
    check = "import sys, autoopt.errors; print(*{m.partition('.')[0] for m in sys.modules} - sys.stdlib_module_names)"
    shown = subprocess.run([sys.executable, "-S", "-c", check], capture_output=True, text=True, check=True, cwd=ROOT)
    assert set(shown.stdout.split()) <= {"autoopt", "__main__"}


def test_an_error_of_the_system_while_writing_names_the_place(tmp_path: Path) -> None:
    file = tmp_path / "missing" / "report.html"
    with pytest.raises(InputError) as refused, writing(file, "cannot write the report"):
        file.write_text("")
    assert str(refused.value) == f"{file}: cannot write the report (No such file or directory)"


def test_a_full_disk_is_no_wrong_input(tmp_path: Path) -> None:
    with pytest.raises(SystemFailure, match="No space left on device") as failed, writing(tmp_path):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert failed.value.exit_code == 3


def test_mistakes_of_several_files_are_raised_together_in_the_order_of_files_and_lines() -> None:
    mistakes = Mistakes()
    for file, line in (("zoo.yaml", 5), ("dag.yaml", 1), ("zoo.yaml", 2)):
        with mistakes:
            raise ConfigError("wrong", file=file, line=line)
    with mistakes:
        raise joined([ConfigError("wrong", file="dag.yaml", line=line) for line in (3, 1)])
    with pytest.raises(ValueError, match="no mistake of the file"), mistakes:
        raise ValueError("no mistake of the file")
    with pytest.raises(ConfigError) as caught:
        mistakes.raise_all()
    lines = [(error.file, error.line) for error in (caught.value, *caught.value.others)]
    assert lines == [("zoo.yaml", 2), ("zoo.yaml", 5), ("dag.yaml", 1), ("dag.yaml", 3)]


def test_without_mistakes_nothing_is_raised() -> None:
    Mistakes().raise_all()


@given(st.text(min_size=1), st.text(), st.text())
def test_any_error_is_one_line_here_and_in_another_process(what: str, where: str, remedy: str) -> None:
    error = InputError(what, where=where, remedy=remedy)
    assert len(str(error).splitlines()) <= 1
    record = from_json(ErrorRecord, to_json(ErrorRecord.of(error)))
    assert str(record.to_exception()) == str(record)
    assert type(record.to_exception()) is InputError


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 9), st.sampled_from("xyz")), min_size=1, max_size=8))
def test_joined_mistakes_come_once_file_by_file_line_by_line(places: list[tuple[str, int, str]]) -> None:
    errors = [ConfigError(what, file=file, line=line) for file, line, what in places]
    first = joined(errors)
    every = [first, *first.others]
    assert {str(error) for error in every} == {str(error) for error in errors}
    assert len(every) == len({str(error) for error in errors})
    files = list(dict.fromkeys(error.file for error in errors))
    order = [(files.index(error.file), error.line) for error in every]
    assert order == sorted(order)
