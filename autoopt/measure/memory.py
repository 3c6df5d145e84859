"""Peak memory of a model, read in a fresh process: the memory of a warm worker says nothing about one model."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from autoopt.data.dataset import Feed
from autoopt.errors import SystemFailure, one_line
from autoopt.json_codec import JsonObject, JsonValue
from autoopt.measure.inference import ModelRunner, evaluation_data, items, sized
from autoopt.measure.latency.prepare import read_profiles, request_for
from autoopt.measure.request import MeasureReply, MeasureRequest
from autoopt.metrics import Estimate
from autoopt.model.model_file import ModelFile
from autoopt.model.runtimes import native_output

RUNS = 5
"""Inferences before the memory is read; the arena has grown by then."""
PROCESSES = 2
"""The smallest number that has an interval."""
METRICS: Final = ("peak_memory", "arena_memory")
PROGRAM = Path(__file__).parents[1] / "workers" / "child.py"
"""The program of a worker process. It is named by path, because workers import meters and not the other way round."""


def measure(request: MeasureRequest) -> MeasureReply:
    """Measure `peak_memory` and `arena_memory` of candidate and source, in bytes.

    Each is the mean over two fresh processes, with the smallest and the largest value as interval. Batches are those
    of the latency meter. With `profiles`, one session runs all of them, so the largest counts.

    Raises:
        InputError: the settings or the data do not fit the model.
        SystemFailure: the process failed; the message quotes its last line.
        Exception: onnxruntime's, where it refuses the candidate.
    """
    feeds: list[list[Feed]] = []
    sizes: dict[str, JsonValue] = {}
    source_refusal = ""
    parts = {"": request}
    if request.settings.profiles:
        parts = {str(profile.name): request_for(request, profile) for profile in read_profiles(request)}
    for name, part in parts.items():
        part, refusal = sized(part)
        size = part.settings.batch_size
        data = evaluation_data(part)
        feeds.append([items(data, number, size) for number in range(RUNS)])
        sizes[name] = {"batch_size": size}
        source_refusal = source_refusal or refusal
    details: dict[str, JsonValue] = {"batch_size": part.settings.batch_size}
    if request.settings.profiles:
        details = {"profiles": sizes}
        request = replace(request, data=None)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "feeds.npz")
        _save_feeds(feeds, file)
        metrics = _measure_model(request, request.candidate, file)
        source_metrics: dict[str, Estimate] = {}
        if request.is_source:
            source_metrics = metrics
        elif request.source is not None and not source_refusal:
            try:
                source_metrics = _measure_model(request, request.source, file)
            except SystemFailure as error:  # The source does not run: the candidate has no ratios then.
                source_refusal = str(error)
    return MeasureReply(metrics, source_metrics, details={**details, "source_refused": source_refusal})


def _measure_model(request: MeasureRequest, model: ModelFile, feeds: Path) -> dict[str, Estimate]:
    payload: dict[str, JsonValue] = {"request": replace(request, candidate=model).to_json(), "feeds": str(feeds)}
    readings = [_run_fresh_process(payload) for _ in range(PROCESSES)]
    estimates: dict[str, Estimate] = {}
    for name in METRICS:
        values = [float(reading[name] or 0) for reading in readings if reading[name] is not None]
        if values and (not request.metrics or name in request.metrics):
            estimates[name] = Estimate(sum(values) / len(values), min(values), max(values))
    return estimates


def _run_fresh_process(payload: JsonObject) -> dict[str, int | None]:
    command = [sys.executable, "-P", str(PROGRAM), "autoopt.measure.memory:child"]
    process = subprocess.run(command, input=json.dumps(payload), capture_output=True, text=True, check=False)
    if process.returncode != 0:
        lines = [line for line in process.stderr.splitlines() if line.strip()]
        last = one_line(lines[-1]) if lines else ""
        raise SystemFailure(f"the memory of a model could not be read (exit {process.returncode}): {last}")
    reading: dict[str, int | None] = json.loads(process.stdout)
    return reading


def child(payload: JsonObject) -> dict[str, int | None]:
    """Measure how this process grows when it opens a session of the candidate and runs the feeds; all in bytes.

    Must be called in a fresh process. `payload` holds a `request` and the path of a file with `feeds`.
    """
    import onnxruntime

    document, path = payload["request"], payload["feeds"]
    assert isinstance(document, Mapping)
    assert isinstance(path, str)
    request = MeasureRequest.from_json(document)
    feeds = _load_feeds(Path(path))
    # The arena reports its size only in the log.
    onnxruntime.set_default_logger_severity(1)
    # Reset the peak (VmHWM): the process has needed memory to import its libraries.
    Path("/proc/self/clear_refs").write_text("5")
    before = _status_bytes("VmRSS")
    log: list[str] = []
    with native_output(log):
        runner = ModelRunner.open(request.candidate, request)
        for profile_feeds in feeds:
            runner.reset()
            for feed in profile_feeds:
                runner.run(feed)
        after = _status_bytes("VmHWM")
    return {"peak_memory": max(0, after - before), "arena_memory": arena_bytes("".join(log))}


def _save_feeds(feeds: Sequence[Sequence[Feed]], file: Path) -> None:
    """Write the feeds of each profile. Texts are stored as such, since objects could only be pickled."""
    arrays: list[np.ndarray] = []
    names: list[list[list[str]]] = []
    for profile_feeds in feeds:
        names.append(list(map(list, profile_feeds)))
        for feed in profile_feeds:
            arrays += [array.astype(str) if array.dtype == object else array for array in feed.values()]
    np.savez(file, np.array(json.dumps(names)), *arrays)  # named arr_0 (the names), arr_1, ...


def _load_feeds(file: Path) -> list[list[Feed]]:
    feeds: list[list[Feed]] = []
    number = 0
    with np.load(file, allow_pickle=False) as entries:
        for profile_names in json.loads(str(entries["arr_0"])):
            feeds.append([])
            for input_names in profile_names:
                feed: Feed = {}
                for name in input_names:
                    number += 1
                    array = entries[f"arr_{number}"]
                    feed[name] = array.astype(object) if array.dtype.kind == "U" else array
                feeds[-1].append(feed)
    return feeds


def arena_bytes(log: str) -> int | None:
    """Read the size of the arenas from onnxruntime's log (severity INFO).

    Returns:
        0 if the runtime made no arena, None if the log does not say.
    """
    if "onnxruntime" not in log and "Arena" not in log:
        return None
    totals = re.findall(r"Total allocated bytes: (\d+)", log)
    if totals:
        return int(totals[-1])
    return sum(map(int, re.findall(r"Reserving memory in BFCArena for \S+ size: (\d+)", log)))


def _status_bytes(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise SystemFailure(f"this system does not report {field}")
