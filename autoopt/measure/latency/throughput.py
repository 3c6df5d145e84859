"""Throughput with parallel inferences in one session, source and candidate in turn."""

from __future__ import annotations

import math
import random
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from autoopt.errors import InputError, one_line
from autoopt.measure.inference import evaluation_data, with_batch_size
from autoopt.measure.intervals.replicas import log_interval
from autoopt.measure.latency.prepare import subject_of
from autoopt.measure.latency.timer import Call, Subject
from autoopt.measure.request import MeasureRequest
from autoopt.measure.settings import ThroughputCase
from autoopt.metrics import Estimate
from autoopt.tuning import TIMING


@dataclass(frozen=True)
class Throughput:
    """Items per second of both models, and their paired ratio; None where the source is not measured."""

    candidate: Estimate
    source: Estimate | None = None
    ratio: Estimate | None = None


Table: TypeAlias = dict[ThroughputCase, Throughput | str]
"""Throughput by case, or the reason why a model does not run in it."""


def throughput_table(request: MeasureRequest, candidate: Subject, source: Subject | None, seconds: float) -> Table:
    """Measure the setting `concurrency`, if it is above 1, and all cases of the setting `throughput`.

    `seconds` is the time for each case.
    """
    main = main_case(request)
    cases = list(request.settings.throughput)
    if main.concurrency > 1:
        cases.insert(0, main)
    table: Table = {}
    for case in dict.fromkeys(cases):
        try:
            calls, source_calls = _calls(request, candidate, source, case.batch_size)
            table[case] = compare_throughput(calls, source_calls, case, seconds=seconds, seed=request.settings.seed)
        except Exception as error:
            if case == main:
                raise
            text = error.what if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
            table[case] = one_line(text)
    return table


def main_case(request: MeasureRequest) -> ThroughputCase:
    """The case that the metric `throughput` is of."""
    return ThroughputCase(request.settings.batch_size, request.settings.concurrency or 1)


def _calls(
    request: MeasureRequest, candidate: Subject, source: Subject | None, size: int
) -> tuple[list[Call], list[Call]]:
    """Make the functions that run a batch of that size once: of the candidate, and of the source if it is measured."""
    if size == request.settings.batch_size:
        source_replicas = source.replicas if source is not None else []
        return [replica.call for replica in candidate.replicas], [replica.call for replica in source_replicas]
    request = with_batch_size(request, size)
    data = evaluation_data(request)
    calls = [subject_of(request, data, request.candidate).make(0)]
    if source is None or request.source is None:
        return calls, []
    return calls, [subject_of(request, data, request.source).make(0)]


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
    candidates: Sequence[Call], sources: Sequence[Call], case: ThroughputCase, *, seconds: float, seed: int = 0
) -> Throughput:
    """Measure the throughput of candidate and source in alternating rounds.

    Several sessions of a model are used in turn; `sources` is empty if the source is not measured. All of it takes the
    `seconds`.
    """
    rng = random.Random(seed)
    candidate_logs: list[float] = []
    source_logs: list[float] = []
    models = [(candidates, candidate_logs)]
    if sources:
        models.append((sources, source_logs))
    share = seconds / (TIMING.throughput_rounds * len(models))
    for number in range(TIMING.throughput_rounds):
        turn = list(models)
        rng.shuffle(turn)
        for calls, logs in turn:
            rate = case.batch_size * inference_rate(calls[number % len(calls)], case.concurrency, share)
            logs.append(math.log(max(rate, 1e-9)))
    candidate = log_interval(candidate_logs, seed=seed)
    if not sources:
        return Throughput(candidate)
    ratios = [a - b for a, b in zip(candidate_logs, source_logs, strict=True)]
    return Throughput(candidate, log_interval(source_logs, seed=seed), log_interval(ratios, seed=seed))
