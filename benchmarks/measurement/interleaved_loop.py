"""A plain loop over models in turns, each in a process of its own; nothing of autoopt's measuring is used.

    python benchmarks/measurement/interleaved_loop.py JOB.json

JOB names `models`, a list of {path, options}, the last being the source, `data` (an npz file or null), `seconds` for
each model, `seed` and `threads`. Every process has one session, as a user's program does: other open sessions change
what a model of microseconds takes (12.7 microseconds alone, 11.8 beside 31 sessions, whichever these are). In each
round every model runs for 40 ms, in random order, after 10 ms that are not timed. A round's ratio is that of the
medians. Prints one JSON document: for every model the median ratio over all rounds, and the source's median in ms. With
`real_time`, for a machine that is not quiet, the models have real-time priority, which needs root, and other programs
run for as long after each block.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from perf_loop import item, make

BLOCK_SECONDS, LEAD_SECONDS = 0.04, 0.01
FEWEST_ROUNDS = 5


def main() -> None:
    job = json.loads(Path(sys.argv[1]).read_text())
    if len(sys.argv) > 2:
        _serve(job["models"][int(sys.argv[2])], job)
    else:
        print(json.dumps(measure(sys.argv[1])))


def measure(job_file: str) -> dict[str, Any]:
    """Ratios of all models to the last one, and its time."""
    job = json.loads(Path(job_file).read_text())
    rng = random.Random(job["seed"])
    numbers = list(range(len(job["models"])))
    processes = [
        subprocess.Popen(
            [sys.executable, __file__, job_file, str(number)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for number in numbers
    ]
    for process in processes:
        _block(process)  # waits until it is ready
    rounds: list[list[float]] = []
    end = time.monotonic() + job["seconds"] * len(numbers)
    while time.monotonic() < end or len(rounds) < FEWEST_ROUNDS:
        medians = [0.0] * len(numbers)
        for number in rng.sample(numbers, len(numbers)):
            began = time.monotonic()
            medians[number] = _block(processes[number])
            if job.get("real_time"):
                time.sleep(time.monotonic() - began)
        rounds.append(medians)
    for process in processes:
        process.communicate()
    ratios = [statistics.median(medians[number] / medians[-1] for medians in rounds) for number in numbers[:-1]]
    return {"ratios": ratios, "source_ms": 1e3 * statistics.median(medians[-1] for medians in rounds)}


def _block(process: subprocess.Popen[str]) -> float:
    """Let a process run its model for a block; the median in seconds."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return float(process.stdout.readline())


def _serve(model: dict[str, Any], job: dict[str, Any]) -> None:
    """Run a block of one model for each line of the input."""
    call = _call(model, job)
    if job.get("real_time"):
        for task in os.listdir("/proc/self/task"):
            os.sched_setscheduler(int(task), os.SCHED_FIFO, os.sched_param(1))
        # The runtime binds its default threads to all cores but the first; real time would not move this one away.
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    for _ in sys.stdin:
        _times(call, LEAD_SECONDS)
        print(statistics.median(_times(call, BLOCK_SECONDS)), flush=True)


def _call(model: dict[str, Any], job: dict[str, Any]) -> Callable[[], Any]:
    session = make(model["path"], model["options"], job["threads"])
    if job["data"] is not None:
        feed = item(session, job["data"], job["seed"])
    else:
        rng = np.random.default_rng(job["seed"])
        feed = {i.name: rng.standard_normal(i.shape).astype(np.float32) for i in session.get_inputs()}
    return lambda: session.run(None, feed)


def _times(call: Callable[[], Any], seconds: float) -> list[float]:
    """Seconds of inferences back to back."""
    times: list[float] = []
    end = time.perf_counter() + seconds
    now = 0.0
    while now < end:
        began = time.perf_counter()
        call()
        now = time.perf_counter()
        times.append(now - began)
    return times


if __name__ == "__main__":
    main()
