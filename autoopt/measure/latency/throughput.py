"""Throughput with parallel inferences in one session, source and candidate in turn."""

from __future__ import annotations

import math
import random
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from autoopt.measure.intervals.replicas import log_interval
from autoopt.measure.latency.timing import Call
from autoopt.metrics import Estimate

ROUNDS = 8
"""Turns of all models in random order, so that a change of the machine's pace meets all of them."""


@dataclass(frozen=True)
class Throughput:
    """Items per second of both models, and their paired ratio; None where the source is not measured."""

    candidate: Estimate
    source: Estimate | None = None
    ratio: Estimate | None = None


def inference_rate(call: Call, concurrency: int, seconds: float) -> float:
    """Count the inferences per second of `concurrency` threads that call back to back for `seconds`.

    Raises:
        Exception: the first failure of a thread.
    """
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

    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(concurrency)]
    for thread in threads:
        thread.start()
    start.wait()
    began = time.perf_counter()
    stop.wait(seconds)
    stop.set()
    for thread in threads:
        thread.join()
    elapsed = time.perf_counter() - began
    if failures:
        raise failures[0]
    return sum(counts) / elapsed


def compare_throughput(
    candidates: Sequence[Call], sources: Sequence[Call], *, concurrency: int, batch: int, seconds: float, seed: int = 0
) -> Throughput:
    """Measure the throughput of candidate and source in alternating rounds.

    Several sessions of a model are used in turn; `sources` is empty if the source is not measured. `batch` is the
    number of items per inference, `seconds` the time for everything.
    """
    rng = random.Random(seed)
    candidate_logs: list[float] = []
    source_logs: list[float] = []
    models = [(candidates, candidate_logs)]
    if sources:
        models.append((sources, source_logs))
    share = seconds / (ROUNDS * len(models))
    for number in range(ROUNDS):
        turn = list(models)
        rng.shuffle(turn)
        for calls, logs in turn:
            rate = batch * inference_rate(calls[number % len(calls)], concurrency, share)
            logs.append(math.log(max(rate, 1e-9)))
    candidate = log_interval(candidate_logs, seed=seed)
    if not sources:
        return Throughput(candidate)
    ratios = [a - b for a, b in zip(candidate_logs, source_logs, strict=True)]
    return Throughput(candidate, log_interval(source_logs, seed=seed), log_interval(ratios, seed=seed))
