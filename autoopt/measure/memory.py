"""Peak memory of a model, in a process of its own: a warm worker's memory says nothing of one model."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autoopt.errors import SystemFailure, one_line
from autoopt.measure.request import Request
from autoopt.metrics import Estimate

RUNS = 5
"""Inferences after which the memory is read; the arena has grown by then."""
PROCESSES = 2


def measure(payload: Mapping[str, Any], which: str) -> dict[str, Estimate]:
    """`peak_memory` and `arena_memory` in bytes of the payload's `candidate` or `source`; over two fresh processes,
    their mean, with the smallest and the largest as interval.

    Raises:
        SystemFailure: the process failed; with its last line.
    """
    found = [_in_fresh_process({**payload, "candidate": payload[which]}) for _ in range(PROCESSES)]
    values = {name: [f[name] for f in found if f.get(name) is not None] for name in ("peak_memory", "arena_memory")}
    return {n: Estimate(sum(v) / len(v), min(v), max(v)) for n, v in values.items() if v}


def _in_fresh_process(payload: Mapping[str, Any]) -> dict[str, Any]:
    command = [sys.executable, "-m", "autoopt.measure.memory"]
    done = subprocess.run(command, input=json.dumps(payload), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = next((line for line in reversed(done.stderr.splitlines()) if line.strip()), "")
        raise SystemFailure(f"the memory of a model could not be read (exit {done.returncode}): {one_line(last)}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def child(payload: Mapping[str, Any]) -> dict[str, Any]:
    """What this process grows by when it makes a session and runs it. Must be a fresh process."""
    import onnxruntime

    from autoopt.measure.inputs import evaluation_data
    from autoopt.measure.running import Running

    request = Request.parse(payload)
    data = evaluation_data(request)
    feeds = [feed for feed, _ in data.feeds(1, RUNS)]
    onnxruntime.set_default_logger_severity(1)
    Path("/proc/self/clear_refs").write_text("5")
    before = _status("VmRSS")
    with tempfile.TemporaryFile() as log, _stderr_to(log):
        running = Running.start(request.candidate, request)
        for number in range(RUNS):
            running.run(feeds[number % len(feeds)])
        after = _status("VmHWM")
        log.seek(0)
        text = log.read().decode(errors="replace")
    return {"peak_memory": max(0, after - before), "arena_memory": arena_bytes(text)}


def arena_bytes(log: str) -> int | None:
    """What onnxruntime's log (severity INFO) says its arenas hold; 0 where it made none; None where the log does not
    tell."""
    if "onnxruntime" not in log and "Arena" not in log:
        return None
    totals = [int(n) for n in re.findall(r"Total allocated bytes: (\d+)", log)]
    reserved = [int(n) for n in re.findall(r"Reserving memory in BFCArena for \S+ size: (\d+)", log)]
    return totals[-1] if totals else sum(reserved)


def _status(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise SystemFailure(f"this system does not tell {field}")


class _stderr_to:
    """File descriptor 2 goes to `file` for the while: native code writes there."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def __enter__(self) -> None:
        import os

        sys.stderr.flush()
        self._kept = os.dup(2)
        os.dup2(self._file.fileno(), 2)

    def __exit__(self, *_: object) -> None:
        import os

        os.dup2(self._kept, 2)
        os.close(self._kept)


if __name__ == "__main__":
    print(json.dumps(child(json.load(sys.stdin))))
