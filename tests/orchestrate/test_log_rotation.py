"""Logs of long-lived processes stay small, and the processes go on writing to them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from autoopt.orchestrate.server.log_rotation import GENERATIONS, rotate

WRITER = """
import sys
for line in sys.stdin:
    print(line.strip() * 100, flush=True)
    print("done", file=sys.stderr, flush=True)
"""


def test_a_process_goes_on_writing_to_a_rotated_log(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    with log.open("ab") as stream:
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER], stdin=subprocess.PIPE, stdout=stream, stderr=subprocess.PIPE, text=True
        )
    assert writer.stdin is not None
    assert writer.stderr is not None
    with writer:
        for letter in "abcdef":
            writer.stdin.write(f"{letter}\n")
            writer.stdin.flush()
            assert writer.stderr.readline() == "done\n"
            assert rotate(log, largest=99)
            assert not rotate(log, largest=99), "it is empty now"
        writer.stdin.close()
    generations = sorted(path.name for path in tmp_path.iterdir())
    assert generations == ["server.log", *(f"server.log.{number}" for number in range(1, GENERATIONS + 1))]
    contents = [(tmp_path / name).read_bytes()[:1] for name in generations]
    assert contents == [b"", b"f", b"e", b"d"]
    assert (tmp_path / "server.log.1").read_bytes() == b"f" * 100 + b"\n", "no zero bytes in front"


def test_a_log_that_does_not_exist_is_no_error(tmp_path: Path) -> None:
    assert not rotate(tmp_path / "absent.log")
