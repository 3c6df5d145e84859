import io
import json
import subprocess
import sys
import textwrap

import pytest
from children import HANG_SECONDS

from autoopt.cli.output import document_stream, print_json, print_result


def test_numbers_that_json_cannot_express_become_null() -> None:
    stream = io.StringIO()
    print_json({"a": [float("nan"), float("inf"), 1.5], "b": {"c": (1, 2)}}, stream)
    assert json.loads(stream.getvalue()) == {"a": [None, None, 1.5], "b": {"c": [1, 2]}}


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_json_is_json_in_any_encoding(encoding: str) -> None:
    for text in ("ö", "модель", "\udce9"):
        stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
        print_json({"name": text}, stream)
        stream.seek(0)
        assert json.loads(stream.read()) == {"name": text}


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
