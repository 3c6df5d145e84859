"""Throughput with several inferences at the same time in one session, source and candidate in turn."""

from __future__ import annotations

import math
import random
import threading
import time
from collections.abc import Sequence

from autoopt.measure.intervals.replicas import interval
from autoopt.measure.latency.timing import Call
from autoopt.metrics import Estimate

ROUNDS = 8


def concurrent(call: Call, concurrency: int, seconds: float) -> float:
    """Inferences per second of `concurrency` threads that call back to back for that long. The first failure of a
    thread is raised."""
    counts = [0] * concurrency
    failures: list[BaseException] = []
    start = threading.Barrier(concurrency + 1)
    stop = threading.Event()

    def work(number: int) -> None:
        start.wait()
        try:
            while not stop.is_set():
                call()
                counts[number] += 1
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,), daemon=True) for n in range(concurrency)]
    for thread in threads:
        thread.start()
    start.wait()
    began = time.perf_counter()
    stop.wait(seconds)
    stop.set()
    for thread in threads:
        thread.join()
    spent = time.perf_counter() - began
    if failures:
        raise failures[0]
    return sum(counts) / spent


def compare(
    candidates: Sequence[Call], sources: Sequence[Call], *, concurrency: int, batch: int, seconds: float, seed: int = 0
) -> tuple[Estimate, Estimate | None, Estimate | None]:
    """Items per second of the candidate, of the source, and their paired ratio (None without sources).

    Each is given in several sessions, taken in turn; `seconds` is for everything.
    """
    rng = random.Random(seed)
    sides = 2 if sources else 1
    each = seconds / (ROUNDS * sides)
    ours: list[float] = []
    theirs: list[float] = []
    for number in range(ROUNDS):
        turn = [(candidates, ours)] + ([(sources, theirs)] if sources else [])
        rng.shuffle(turn)
        for calls, found in turn:
            found.append(math.log(max(batch * concurrent(calls[number % len(calls)], concurrency, each), 1e-9)))
    if not sources:
        return interval(ours, seed=seed), None, None
    ratios = [a - b for a, b in zip(ours, theirs, strict=True)]
    return interval(ours, seed=seed), interval(theirs, seed=seed), interval(ratios, seed=seed)
