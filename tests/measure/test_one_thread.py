"""Ratios on one thread, of real sessions."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from pathlib import Path

import builders
import pytest

from autoopt.json_codec import JsonObject
from autoopt.measure.contention import error_of
from autoopt.measure.inference.batches import evaluation_data, sized
from autoopt.measure.latency import meter, one_thread
from autoopt.measure.latency.comparison import Comparison
from autoopt.measure.latency.helper_threads import wakes_helpers
from autoopt.measure.latency.machine import QUIET, Load
from autoopt.measure.latency.measurement import Measurement, StopReason, width_beside
from autoopt.measure.latency.one_thread import ThreadRatio
from autoopt.measure.request import MeasureReply, MeasureRequest
from autoopt.measure.settings import MeasurementSettings
from autoopt.measure.two_ratios import DETAIL, DISTURBANCE, TwoRatios
from autoopt.metrics import MEDIAN_LATENCY, Estimate
from autoopt.model import io
from autoopt.model.model_file import ModelFile
from autoopt.target import Target

BUSY = Load(cores=2.0)


@pytest.fixture
def request_on_two_threads(tmp_path: Path) -> MeasureRequest:
    source = str(io.save(builders.mlp(), tmp_path / "source"))
    other = str(io.save(builders.mlp(seed=1), tmp_path / "other"))
    return MeasureRequest(
        candidate=ModelFile(other),
        source=ModelFile(source),
        metrics=(MEDIAN_LATENCY,),
        target=Target(threads=2),
        settings=MeasurementSettings(seconds=0.2, quiet_seconds=0, replicas=2),
    )


def ratios_of(
    request: MeasureRequest,
    monkeypatch: pytest.MonkeyPatch,
    *,
    wide: float,
    busy: bool = False,
    stopped: StopReason = "time",
) -> list[ThreadRatio | None]:
    """The ratios on one thread where an interval of that width by the clock is wide."""
    monkeypatch.setattr(one_thread, "WIDE", wide)
    request, _ = sized(request)
    data = evaluation_data(request)
    assert request.source is not None
    source = meter.subject_of(request, data, request.source)
    comparisons = [Comparison(meter.subject_of(request, data, model), source) for model in request.models]
    measurement = Measurement(comparisons, request.settings).run()
    measurement.stopped = stopped
    subject_of = partial(meter.subject_of, request, data)
    return one_thread.ratios_on_one_thread(request, measurement, subject_of, subject_of, load=BUSY if busy else QUIET)


def test_an_uncertain_candidate_is_measured_on_one_thread_too(
    request_on_two_threads: MeasureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    (measured,) = ratios_of(request_on_two_threads, monkeypatch, wide=0.0)
    assert 0 < measured.ratio.low <= measured.ratio.value <= measured.ratio.high
    assert 0.01 < measured.ratio.value < 100


@pytest.mark.parametrize(("width", "expected"), [(16, False), (1 << 16, True)])
def test_only_large_operators_wake_helper_threads(tmp_path: Path, width: int, *, expected: bool) -> None:
    model = ModelFile(str(io.save(builders.mlp(width), tmp_path / "model")))
    request, _ = sized(MeasureRequest(candidate=model, metrics=(MEDIAN_LATENCY,), target=Target(threads=2)))
    subject_of = partial(meter.subject_of, request, evaluation_data(request))
    assert wakes_helpers(subject_of, model, inference_ns=1e5) is expected
    assert wakes_helpers(subject_of, model, inference_ns=1e7)


def test_models_that_wake_no_helpers_are_measured_with_their_own_options(
    request_on_two_threads: MeasureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(one_thread, "wakes_helpers", lambda *_: False)
    (measured,) = ratios_of(request_on_two_threads, monkeypatch, wide=0.0)
    assert measured.is_serial


def test_a_certain_candidate_is_not(request_on_two_threads: MeasureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ratios_of(request_on_two_threads, monkeypatch, wide=1e9) == [None]


def test_on_a_busy_machine_no_candidate_is_certain(
    request_on_two_threads: MeasureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ratios_of(request_on_two_threads, monkeypatch, wide=1e9, busy=True) != [None]
    shorter = one_thread.clock_settings(request_on_two_threads, busy=True)
    assert shorter.seconds == one_thread.CLOCK_SHARE * request_on_two_threads.settings.seconds
    assert shorter.target_width == width_beside(DISTURBANCE)
    assert one_thread.clock_settings(request_on_two_threads, busy=False) == request_on_two_threads.settings
    one = replace(request_on_two_threads, target=Target(threads=1))
    assert one_thread.clock_settings(one, busy=True) == one.settings


def test_what_is_too_slow_by_the_clock_is_measured_again_only_beside_other_programs(
    request_on_two_threads: MeasureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ratios_of(request_on_two_threads, monkeypatch, wide=0.0, stopped="worse") == [None]
    assert ratios_of(request_on_two_threads, monkeypatch, wide=0.0, stopped="worse", busy=True) != [None]


def test_other_programs_do_not_make_up_for_what_is_hopeless_with_as_many_threads(
    request_on_two_threads: MeasureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ratios_of(request_on_two_threads, monkeypatch, wide=0.0, stopped="hopeless", busy=True) == [None]
    other = ModelFile(request_on_two_threads.candidate.path, {"intra_op_num_threads": 1})
    request = replace(request_on_two_threads, candidate=other)
    assert ratios_of(request, monkeypatch, wide=0.0, stopped="hopeless", busy=True) != [None]


@pytest.mark.parametrize(("load", "error"), [(BUSY, one_thread.LOOK_DISTURBANCE), (QUIET, 0.0)])
def test_the_ratio_of_a_hopeless_candidate_shows_what_other_programs_add(
    request_on_two_threads: MeasureRequest, load: Load, error: float
) -> None:
    by_clock = Estimate(2.0, 1.9, 2.1)
    reply = MeasureReply(ratios={MEDIAN_LATENCY: by_clock}, details={"stopped": "hopeless"})
    changed = one_thread.with_one_thread(request_on_two_threads, reply, None, load)
    expected = math.hypot(by_clock.log_deviation, error)
    assert changed.ratios[MEDIAN_LATENCY].log_deviation == pytest.approx(expected, rel=1e-3)
    assert changed.ratios[MEDIAN_LATENCY].value == 2.0


def test_models_on_one_thread_are_not_measured_twice(
    request_on_two_threads: MeasureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = replace(request_on_two_threads, target=Target(threads=1))
    assert ratios_of(request, monkeypatch, wide=0.0, busy=True) == [None]


def test_other_numbers_of_threads_are_compared_on_one_only_beside_other_programs(
    request_on_two_threads: MeasureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = ModelFile(request_on_two_threads.candidate.path, {"intra_op_num_threads": 1})
    request = replace(request_on_two_threads, candidate=other)
    assert ratios_of(request, monkeypatch, wide=0.0) == [None]
    assert ratios_of(request, monkeypatch, wide=0.0, busy=True) != [None]


def test_only_the_ratio_of_the_median_changes(request_on_two_threads: MeasureRequest) -> None:
    by_clock, on_one_thread = Estimate(0.8, 0.4, 1.6), Estimate(0.6, 0.59, 0.61)
    reply = MeasureReply(ratios={MEDIAN_LATENCY: by_clock, "latency_p99": by_clock})
    measured = ThreadRatio(on_one_thread)
    changed = one_thread.with_one_thread(request_on_two_threads, reply, measured, BUSY)
    both = TwoRatios(by_clock, on_one_thread, contention=error_of(0.6, BUSY.contention))
    assert changed.ratios == {MEDIAN_LATENCY: both.combined(), "latency_p99": by_clock}
    assert TwoRatios.of(changed.details) == both
    assert one_thread.with_one_thread(request_on_two_threads, reply, None, BUSY) == reply
    assert DETAIL not in reply.details
    quiet = one_thread.with_one_thread(request_on_two_threads, reply, measured, QUIET)
    assert quiet.details[DETAIL]["disturbance"] == 0


@pytest.mark.parametrize("options", [{}, {"intra_op_num_threads": 1}])
def test_a_small_gain_of_serial_models_is_certain_beside_other_programs(
    request_on_two_threads: MeasureRequest, options: JsonObject
) -> None:
    request = replace(request_on_two_threads, candidate=ModelFile(request_on_two_threads.candidate.path, options))
    reply = MeasureReply(ratios={MEDIAN_LATENCY: Estimate(0.95, 0.9, 1.01)})
    measured = ThreadRatio(Estimate(0.93, 0.91, 0.95), is_serial=True)
    ratio = one_thread.with_one_thread(request, reply, measured, BUSY).ratios[MEDIAN_LATENCY]
    assert 0.9 < ratio.low < 0.935 < ratio.high < 0.97


def test_fewer_threads_may_be_as_fast_or_not(request_on_two_threads: MeasureRequest) -> None:
    single = ModelFile(request_on_two_threads.candidate.path, {"intra_op_num_threads": 1})
    request = replace(request_on_two_threads, candidate=single)
    on_one_thread = Estimate(0.6, 0.59, 0.61)
    reply = MeasureReply(ratios={MEDIAN_LATENCY: Estimate(0.5, 0.49, 0.51)})
    ratio = one_thread.with_one_thread(request, reply, ThreadRatio(on_one_thread), BUSY).ratios[MEDIAN_LATENCY]
    assert ratio.low < 0.6 < ratio.value < 1.2 < ratio.high * 1.1
