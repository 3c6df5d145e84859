import io
import json
import subprocess
import sys
import textwrap

from autoopt.cli.output import print_json


def test_numbers_that_json_cannot_hold_become_null() -> None:
    stream = io.StringIO()
    print_json({"a": [float("nan"), float("inf"), 1.5], "b": {"c": (1, 2)}}, stream)
    assert json.loads(stream.getvalue()) == {"a": [None, None, 1.5], "b": {"c": [1, 2]}}


def in_a_process(body: str) -> subprocess.CompletedProcess[str]:
    code = "import os\nfrom autoopt.cli.output import stdout_kept\n" + textwrap.dedent(body)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)


def test_what_others_print_goes_to_stderr() -> None:
    done = in_a_process("""
        with stdout_kept() as stream:
            print("a library speaks")
            os.write(1, b"native code too\\n")
            stream.write("{}\\n")
        print("after")
    """)
    assert done.stdout == "{}\nafter\n"
    assert sorted(done.stderr.splitlines()) == ["a library speaks", "native code too"]


def test_stdout_is_back_after_an_error() -> None:
    done = in_a_process("""
        try:
            with stdout_kept():
                raise ValueError
        except ValueError:
            print("here")
    """)
    assert (done.stdout, done.stderr) == ("here\n", "")
