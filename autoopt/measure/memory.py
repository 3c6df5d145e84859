"""Peak memory of a model, in a process of its own: a warm worker's memory says nothing of one model."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from autoopt.data.dataset import Feed
from autoopt.errors import SystemFailure, one_line
from autoopt.measure.inference.batches import batch_size, items, sized
from autoopt.measure.inference.inputs import evaluation_data
from autoopt.measure.latency.profiles import by_profile
from autoopt.measure.request import Json, Request, answer
from autoopt.metrics import Estimate

RUNS = 5
"""Inferences after which the memory is read; the arena has grown by then."""
PROCESSES = 2
METRICS = ("peak_memory", "arena_memory")
PROGRAM = Path(__file__).parents[1] / "workers" / "child.py"
"""What this runs in, and its fresh processes too; by its place, as workers know meters and not the other way round."""


def memory(payload: Mapping[str, Any]) -> Json:
    """`peak_memory` and `arena_memory` in bytes of candidate and source, each over two fresh processes: their mean,
    with the smallest and the largest as interval. With batches of the size that latency is measured with; with
    `profiles` one session runs them all, so that the largest counts.

    Raises:
        InputError: settings or data that do not fit the model.
        SystemFailure: the process failed; with its last line.
        Exception: onnxruntime's, where it refuses the candidate.
    """
    request = Request.parse(payload)
    profiles = bool(request.settings.get("profiles"))
    asked = {name: sized(one) for name, one in (by_profile(request) if profiles else {"": request}).items()}
    feeds = [[items(evaluation_data(one), n, batch_size(one)) for n in range(RUNS)] for one, _ in asked.values()]
    sizes = {name: {"batch_size": batch_size(one)} for name, (one, _) in asked.items()}
    details: Json = {"profiles": sizes} if profiles else sizes[""]
    details["source_refused"] = next((refused for _, refused in asked.values() if refused), "")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "feeds.npz")
        _keep(feeds, file)
        told = {**payload, "feeds": str(file), **({"data": None} if profiles else {})}
        metrics = _only(_measure(told, "candidate"), request)
        if request.is_source:
            return answer(metrics, metrics, details=details)
        source: dict[str, Estimate] = {}
        if request.source is not None and not details["source_refused"]:
            try:
                source = _only(_measure(told, "source"), request)
            except SystemFailure as error:  # a source that does not run: the candidate is measured without ratios
                details["source_refused"] = str(error)
    return answer(metrics, source, details=details)


def _only(found: Mapping[str, Estimate], request: Request) -> dict[str, Estimate]:
    return {name: estimate for name, estimate in found.items() if not request.metrics or name in request.metrics}


def _measure(payload: Mapping[str, Any], which: str) -> dict[str, Estimate]:
    found = [_in_fresh_process({**payload, "candidate": payload[which]}) for _ in range(PROCESSES)]
    values = {name: [f[name] for f in found if f.get(name) is not None] for name in METRICS}
    return {n: Estimate(sum(v) / len(v), min(v), max(v)) for n, v in values.items() if v}


def _in_fresh_process(payload: Mapping[str, Any]) -> dict[str, Any]:
    command = [sys.executable, "-P", str(PROGRAM), "autoopt.measure.memory:child"]
    done = subprocess.run(command, input=json.dumps(payload), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = next((line for line in reversed(done.stderr.splitlines()) if line.strip()), "")
        raise SystemFailure(f"the memory of a model could not be read (exit {done.returncode}): {one_line(last)}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def child(payload: Mapping[str, Any]) -> dict[str, Any]:
    """What this process grows by when it makes a session of the payload's `candidate` and runs the items in the file
    `feeds`, those of one profile after the other. Must be a fresh process."""
    import onnxruntime

    from autoopt.measure.inference.runner import Running

    request = Request.parse(payload)
    feeds = _kept(Path(payload["feeds"]))
    onnxruntime.set_default_logger_severity(1)
    Path("/proc/self/clear_refs").write_text("5")
    before = _status("VmRSS")
    with tempfile.TemporaryFile() as log, _stderr_to(log):
        running = Running.start(request.candidate, request)
        for profile in feeds:
            running.reset()
            for feed in profile:
                running.run(feed)
        after = _status("VmHWM")
        log.seek(0)
        text = log.read().decode(errors="replace")
    return {"peak_memory": max(0, after - before), "arena_memory": arena_bytes(text)}


def _keep(feeds: list[list[Feed]], file: Path) -> None:
    """Write the items of each profile; texts as such, since objects could only be pickled."""
    names = [[list(feed) for feed in profile] for profile in feeds]
    arrays = [a.astype(str) if a.dtype == object else a for profile in feeds for feed in profile for a in feed.values()]
    entries: dict[str, Any] = {f"a{number}": a for number, a in enumerate(arrays)}
    np.savez(file, names=np.array(json.dumps(names)), **entries)


def _kept(file: Path) -> list[list[Feed]]:
    with np.load(file, allow_pickle=False) as found:
        arrays = iter([found[f"a{number}"] for number in range(len(found.files) - 1)])
        names = json.loads(str(found["names"]))
    read = (a.astype(object) if a.dtype.kind == "U" else a for a in arrays)
    return [[{name: next(read) for name in feed} for feed in profile] for profile in names]


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
        sys.stderr.flush()
        self._kept = os.dup(2)
        os.dup2(self._file.fileno(), 2)

    def __exit__(self, *_: object) -> None:
        os.dup2(self._kept, 2)
        os.close(self._kept)
