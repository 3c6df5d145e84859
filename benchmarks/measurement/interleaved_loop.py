"""A plain loop over several models in one process, in turns; nothing of autoopt's measuring is used.

    python benchmarks/measurement/interleaved_loop.py JOB.json

JOB names `models`, a list of {path, options}, the last being the source, `data` (an npz file or null), `seconds`,
`seed` and `threads`. Every model has four sessions. In each round, every model runs for about 20 ms, the models in
random order; a round's ratio is that of the medians. Prints one JSON document: for every model the median ratio over
all rounds and a bootstrap interval, and the source's median in ms. With `real_time`, for a machine that is not quiet,
the blocks have real-time priority, which needs root, and others run for as long after each.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from perf_loop import item, make

SESSIONS = 4
BLOCK_SECONDS = 0.02


def main() -> None:
    job = json.loads(Path(sys.argv[1]).read_text())
    print(json.dumps(measure(job)))


def measure(job: dict[str, Any]) -> dict[str, Any]:
    """Ratios of all models to the last one."""
    rng = random.Random(job["seed"])
    calls = [[_call(model, job, number) for number in range(SESSIONS)] for model in job["models"]]
    lengths = []
    for sessions in calls:
        for call in sessions:
            call()
            call()
        began = time.perf_counter()
        sessions[0]()
        lengths.append(max(1, round(BLOCK_SECONDS / (time.perf_counter() - began))))
    real_time = job.get("real_time", False)
    if real_time:
        for task in os.listdir("/proc/self/task"):
            os.sched_setscheduler(int(task), os.SCHED_FIFO, os.sched_param(1))
    rounds: list[list[float]] = []
    end = time.monotonic() + job["seconds"]
    while time.monotonic() < end or len(rounds) < 5:
        medians = [0.0] * len(calls)
        for number in rng.sample(range(len(calls)), len(calls)):
            call = calls[number][len(rounds) % SESSIONS]
            call()
            began = time.monotonic()
            medians[number] = statistics.median(_seconds(call) for _ in range(lengths[number]))
            if real_time:
                time.sleep(time.monotonic() - began)
        rounds.append(medians)
    times = np.array(rounds)
    ratios = times / times[:, -1:]
    resamples = np.random.default_rng(0).integers(0, len(ratios), (400, len(ratios)))
    medians = np.median(ratios[resamples], axis=1)
    low, high = np.quantile(medians, [0.025, 0.975], axis=0)
    return {
        "ratios": np.median(ratios, axis=0).tolist(),
        "low": low.tolist(),
        "high": high.tolist(),
        "source_ms": 1e3 * float(np.median(times[:, -1])),
        "rounds": len(rounds),
    }


def _call(model: dict[str, Any], job: dict[str, Any], number: int) -> Any:
    session = make(model["path"], model["options"], job["threads"])
    if job["data"] is not None:
        feed = item(session, job["data"], number)
    else:
        rng = np.random.default_rng(number)
        feed = {i.name: rng.standard_normal(i.shape).astype(np.float32) for i in session.get_inputs()}
    return lambda: session.run(None, feed)


def _seconds(call: Any) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
