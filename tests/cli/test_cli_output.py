"""Output of commands, and log records."""

from __future__ import annotations

import io
import json
import logging
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from enum import IntEnum, StrEnum
from pathlib import Path
from typing import Any

import pytest
from builders import mlp, write
from children import HANG_SECONDS

from autoopt.cli.output import document_stream, print_json, print_result, show_logs
from autoopt.metrics import Estimate


def in_a_process(body: str) -> subprocess.CompletedProcess[str]:
    code = "import os\nfrom autoopt.cli.output import document_stream\n" + textwrap.dedent(body)
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=HANG_SECONDS, check=False
    )


def test_output_of_libraries_goes_to_stderr_beside_a_json_document() -> None:
    done = in_a_process("""
        with document_stream(True) as stream:
            print("a library speaks")
            os.write(1, b"native code too\\n")
            stream.write("{}\\n")
        print("after")
    """)
    assert done.stdout == "{}\nafter\n"
    assert sorted(done.stderr.splitlines()) == ["a library speaks", "native code too"]


def test_stdout_is_restored_after_an_error() -> None:
    done = in_a_process("""
        try:
            with document_stream(True):
                raise ValueError
        except ValueError:
            print("here")
    """)
    assert (done.stdout, done.stderr) == ("here\n", "")


def test_text_goes_to_stdout_as_it_is() -> None:
    with document_stream(False) as stream:
        assert stream is sys.stdout


def test_a_result_is_a_document_or_a_text(capsys: pytest.CaptureFixture[str]) -> None:
    print_result({"path": "a"}, "wrote a", as_json=True)
    print_result({"path": "a"}, "wrote a", as_json=False)
    assert capsys.readouterr().out == '{\n  "path": "a"\n}\nwrote a\n'


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


def test_verbose_shows_information_and_no_details(capsys: pytest.CaptureFixture[str]) -> None:
    show_logs(debug=False)
    logging.getLogger("autoopt.engine").info("a step")
    logging.getLogger("autoopt.engine").debug("a detail")
    err = capsys.readouterr().err
    assert re.fullmatch(r"\S+ \S+ INFO autoopt\.engine\[\d+\]: a step\n", err)


def test_debug_shows_details_and_repeated_calls_show_each_record_once(capsys: pytest.CaptureFixture[str]) -> None:
    show_logs(debug=True)
    logging.getLogger("autoopt.engine").debug("a detail")
    assert "DEBUG autoopt.engine" in capsys.readouterr().err
    show_logs(debug=False)
    logging.getLogger("autoopt").info("once")
    assert capsys.readouterr().err.count("once") == 1


@pytest.mark.parametrize(("option", "lines"), [((), 0), (("--debug",), 1)])
def test_commands_are_silent_unless_asked(
    call: Callable[..., Any], tmp_path: Path, option: tuple[str, ...], lines: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOOPT_DEBUG", "")
    model = str(write(mlp(), tmp_path / "in"))
    code, _, err = call(*option, "compare", model, model)
    assert code == 0
    assert len(re.findall(r"autoopt\.workers\.pool\[\d+\]: call autoopt\.measure\.layerwise", err)) == lines
