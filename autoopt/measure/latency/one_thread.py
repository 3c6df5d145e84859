"""Ratios on one thread: further evidence on models that run on several threads beside other programs.

Several threads can only be timed by the clock, which other programs disturb. Beside two and eight busy processes on two
cores, such ratios spread by 10 to 40 % from one process to the next. The ratio of CPU times on one thread repeated
within 1 to 5 %. That of two threads on the idle machine was 0.9 to 1.5 times as large.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from autoopt import json_codec
from autoopt.measure.contention import error_of
from autoopt.measure.latency import timing
from autoopt.measure.latency.comparison import Comparison
from autoopt.measure.latency.helper_threads import wakes_helpers
from autoopt.measure.latency.machine import Load
from autoopt.measure.latency.measurement import Measurement, width_beside
from autoopt.measure.latency.precedence import thread_count
from autoopt.measure.latency.subjects import SubjectOf
from autoopt.measure.request import MeasureReply, MeasureRequest
from autoopt.measure.settings import MeasurementSettings
from autoopt.measure.two_ratios import DETAIL, DISTURBANCE, TwoRatios
from autoopt.metrics import MEDIAN_LATENCY, Estimate
from autoopt.model.model_file import ModelFile

WIDE = 0.2
"""Relative width of the interval by the clock from which the ratio on one thread is measured too, on any machine."""
CLOCK_SHARE, CPU_SHARE = 0.1, 0.4
"""Shares of the setting `seconds` for measuring by the clock and on one thread, where the machine is busy. More of it
by the clock says little: in 5 to 7 s beside eight busy processes, intervals of six models were 8 to 40 % wide on each
side, and other programs add 20 % whatever the time."""
REPLICAS, ROUNDS = 3, 6
"""Sessions of each model and rounds of blocks at most: beside the error of `DIFFERENCE`, more tell nothing. With four
sessions and twelve rounds, intervals were 1 to 4 % wide on each side beside eight busy processes."""
LOOK_DISTURBANCE = 0.2
"""`DISTURBANCE` of a look of three pairs of blocks."""


@dataclass(frozen=True)
class ThreadRatio:
    """The ratio of CPU times of a candidate and the source."""

    ratio: Estimate
    is_serial: bool = False
    """True if both ran with their own session options, because neither shares out work among threads."""


def clock_settings(request: MeasureRequest, *, busy: bool) -> MeasurementSettings:
    """Shorten the measurement by the clock where other programs disturb it anyway, and one on one thread follows."""
    settings = request.settings
    if busy and timing.can_time_on_core() and any(_is_comparable(request, model) for model in request.models):
        width = max(settings.target_width, width_beside(DISTURBANCE))
        return replace(settings, seconds=CLOCK_SHARE * settings.seconds, target_width=width)
    return settings


def ratios_on_one_thread(
    request: MeasureRequest,
    measurement: Measurement,
    subject_of: SubjectOf,
    source_subject_of: SubjectOf,
    *,
    load: Load,
) -> list[ThreadRatio | None]:
    """Measure the ratios on one thread of the candidates whose ratio by the clock is uncertain.

    `measurement` is the completed one by the clock. On a busy machine no ratio by the clock is certain: if other
    programs gave way meanwhile, it is that of free cores.

    Returns:
        A ratio for each of the request's models; None where the clock was good enough, or where one thread tells
        nothing: the models run on one anyway, or on another device.
    """
    ratios: list[ThreadRatio | None] = [None] * len(request.models)
    if request.source is None or not timing.can_time_on_core():
        return ratios
    uncertain: list[int] = []
    for number, (model, comparison) in enumerate(zip(request.models, measurement.comparisons, strict=True)):
        same_threads = thread_count(request, model) == thread_count(request, request.source)
        busy = load.busy or load.gave_way
        is_uncertain = _is_uncertain(measurement, comparison, same_threads=same_threads, busy=busy)
        if is_uncertain and _is_comparable(request, model):
            uncertain.append(number)
    serial = [number for number in uncertain if _is_serial(request, number, measurement, subject_of)]
    others = [number for number in uncertain if number not in serial]
    if load.gave_way:
        serial = []  # they need no further core
    for numbers, is_serial in ((serial, True), (others, False)):
        for number, ratio in _measured(request, numbers, subject_of, source_subject_of, is_serial=is_serial).items():
            ratios[number] = ThreadRatio(ratio, is_serial)
    return ratios


def _is_serial(request: MeasureRequest, number: int, measurement: Measurement, subject_of: SubjectOf) -> bool:
    """True if neither the model with this number nor the source shares out work among threads."""
    comparison = measurement.comparisons[number]
    for model, subject in ((request.source, comparison.source), (request.models[number], comparison.candidate)):
        if model is None or subject is None or wakes_helpers(subject_of, model, subject.replicas[0].warm.time):
            return False
    return True


def _measured(
    request: MeasureRequest,
    numbers: Sequence[int],
    subject_of: SubjectOf,
    source_subject_of: SubjectOf,
    *,
    is_serial: bool,
) -> dict[int, Estimate]:
    """Measure the ratios of CPU times of the request's models with these numbers: on one thread, or as they are."""
    if not numbers or request.source is None:
        return {}
    reference = source_subject_of(request.source if is_serial else _on_one_thread(request.source))
    comparisons: dict[int, Comparison] = {}
    for number in numbers:
        model = request.models[number]
        candidate = subject_of(model if is_serial else _on_one_thread(model))
        comparisons[number] = Comparison(candidate, reference, seed=request.settings.seed)
    settings = request.settings
    settings = replace(
        settings,
        seconds=CPU_SHARE * settings.seconds,
        replicas=min(REPLICAS, settings.replicas),
        max_pairs=min(ROUNDS, settings.max_pairs),
        incumbent_ratio=None,
    )
    Measurement(list(comparisons.values()), settings, request.brief).run()
    return {number: comparison.estimate() for number, comparison in comparisons.items()}


def with_one_thread(
    request: MeasureRequest, reply: MeasureReply, measured: ThreadRatio | None, load: Load
) -> MeasureReply:
    """Let the ratio on one thread, if there is one, count in the ratio of the reply.

    Without a load, the ratio by the clock is as certain as its interval says.
    """
    if MEDIAN_LATENCY not in reply.ratios:
        return reply
    if measured is None:
        return _with_disturbance(request, reply, load)
    by_clock, on_one_thread = reply.ratios[MEDIAN_LATENCY], measured.ratio
    contention = error_of(on_one_thread.value, load.contention)
    factor = thread_count(request, request.source) / thread_count(request, request.candidate)
    disturbance = abs(math.log(factor))
    if factor == 1:
        disturbance = DISTURBANCE if load.busy else 0.0
    both = TwoRatios(by_clock, on_one_thread, disturbance, contention, factor, has_free_cores=load.gave_way)
    if measured.is_serial:
        # Its blocks are those of the clock, only longer, but the load changes from one measurement to the next.
        both = TwoRatios(by_clock, on_one_thread, contention, contention, is_serial=True)
    ratios = {**reply.ratios, MEDIAN_LATENCY: both.combined()}
    return replace(reply, ratios=ratios, details={**reply.details, DETAIL: json_codec.to_json(both)})


def _with_disturbance(request: MeasureRequest, reply: MeasureReply, load: Load) -> MeasureReply:
    """The reply for a hopeless candidate with what other programs add to its ratio by the clock."""
    if not load.busy or reply.details.get("stopped") != "hopeless" or not _is_comparable(request, request.candidate):
        return reply
    ratio = reply.ratios[MEDIAN_LATENCY].with_log_error(LOOK_DISTURBANCE)
    return replace(reply, ratios={**reply.ratios, MEDIAN_LATENCY: ratio})


def _is_comparable(request: MeasureRequest, model: ModelFile) -> bool:
    """True if the model or the source runs on several threads of the CPU."""
    source = request.source
    if source is None or request.target.execution_provider != "CPUExecutionProvider" or model.same_as(source):
        return False
    return max(thread_count(request, model), thread_count(request, source)) > 1


def _is_uncertain(measurement: Measurement, comparison: Comparison, *, same_threads: bool, busy: bool) -> bool:
    """True if the clock left a ratio uncertain."""
    if busy:
        # Other programs do not make up for a factor that is hopeless, a different number of threads may.
        return measurement.stopped != "hopeless" or not same_threads
    if comparison.source is None or not same_threads or measurement.stopped in ("worse", "hopeless"):
        return False
    ratio = comparison.estimate()
    return ratio.high - ratio.low > WIDE * ratio.value


def _on_one_thread(model: ModelFile) -> ModelFile:
    return replace(model, session_options={**model.session_options, "intra_op_num_threads": 1})
