"""The course of a latency measurement, with sleepless fake models on a fake clock."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from autoopt.errors import InputError
from autoopt.measure.latency import subjects, timing
from autoopt.measure.latency.measurement import Measurement
from autoopt.measure.latency.pairs import Pair
from autoopt.measure.latency.results import STATISTICS, results
from autoopt.measure.latency.subjects import Subject
from autoopt.measure.request import MeasureRequest, ModelFile
from autoopt.measure.settings import MeasurementSettings


class Machine:
    """A clock that moves only when a model runs on it, with noise of its own seed."""

    def __init__(self, seed: int = 0) -> None:
        self.now = 0
        self.stolen = 0
        """How much of it others had the core."""
        self.rng = np.random.default_rng(seed)

    def clock(self) -> int:
        return self.now

    def presence(self) -> timing.ThreadUsage:
        return timing.ThreadUsage(self.now, self.now - self.stolen, 0, 0)

    def model(
        self,
        microseconds: float,
        *,
        session_spread: float = 0.0,
        warm: int = 0,
        noise: float = 0.02,
        stolen: float = 0.0,
    ):
        """Makes sessions of a model; `warm` is how many calls it takes to get 2.7 times nearer to full speed, `stolen`
        the share of its time in which others have the core."""

        def make(number: int):
            bias = float(np.exp(self.rng.normal(0, session_spread))) if session_spread else 1.0
            calls = itertools.count()

            def call() -> None:
                slow = 1 + 2 * np.exp(-next(calls) / warm) if warm else 1.0
                spent = int(1000 * microseconds * bias * slow * np.exp(self.rng.normal(0, noise)))
                self.now += spent
                self.stolen += int(stolen * spent)

            self.now += 1_000_000
            return call

        return make


@pytest.fixture
def machine(monkeypatch):
    machine = Machine()
    monkeypatch.setattr(subjects.time, "perf_counter_ns", machine.clock)
    monkeypatch.setattr("autoopt.measure.latency.measurement.time.monotonic", lambda: machine.now / 1e9)
    monkeypatch.setattr(timing.ThreadUsage, "now", machine.presence)
    return machine


def course(machine, candidate, source, **settings):
    return Measurement(
        Subject(candidate), Subject(source) if source else None, MeasurementSettings.parse(settings)
    ).run()


def test_a_clear_ratio_is_found_and_its_interval_covers_it(machine):
    done = course(machine, machine.model(50), machine.model(100))
    found = done.estimate()
    assert done.stopped == "narrow"
    assert found.low <= 0.5 <= found.high
    assert found.high - found.low <= 0.04 * found.value


def test_a_spread_between_sessions_widens_the_interval(machine):
    settings = {"fixed": True, "seconds": 2.0}
    calm = course(machine, machine.model(100), machine.model(100), **settings).estimate()
    spread = machine.model(100, session_spread=0.03)
    wild = course(machine, spread, spread, **settings).estimate()
    assert wild.high - wild.low > 3 * (calm.high - calm.low)
    assert wild.low <= 1.0 <= wild.high


def test_sessions_that_differ_are_not_measured_to_the_end_for_nothing(machine):
    spread = machine.model(100, session_spread=0.05, noise=0.002)
    done = course(machine, spread, spread, seconds=20.0)
    assert done.stopped == "no narrower"
    assert done.seconds < 5.0
    whole = course(machine, spread, spread, seconds=20.0, fixed=True)
    ends = [(e.high - e.low) / e.value for e in (done.estimate(), whole.estimate())]
    assert ends[0] < 3 * ends[1]  # other sessions, so of another spread
    noisy = course(machine, machine.model(100, noise=0.1), machine.model(100, noise=0.1), target_width=0.02)
    assert noisy.stopped == "narrow"  # noise that repeats take away


def test_intervals_cover_one_for_equal_models_whose_sessions_differ():
    covered = 0
    for seed in range(60):
        machine = Machine(seed)
        rng = np.random.default_rng(seed)
        pairs = [Pair(k, float(np.exp(rng.normal(0, 0.001) + bias))) for k, bias in enumerate(rng.normal(0, 0.02, 8))]
        done = Measurement(
            Subject(machine.model(1)), Subject(machine.model(1)), MeasurementSettings(), pairs=pairs * 10, replicas=8
        )
        found = done.estimate()
        covered += found.low <= 1.0 <= found.high
    assert covered >= 54


def test_a_clearly_worse_candidate_stops_after_a_few_pairs(machine):
    done = course(machine, machine.model(400), machine.model(100), incumbent_ratio=0.6)
    assert done.stopped == "worse"
    assert len(done.pairs) <= 8


def test_one_that_may_win_is_not_stopped_as_worse(machine):
    assert course(machine, machine.model(58), machine.model(100), incumbent_ratio=0.6).stopped == "narrow"


def test_the_fixed_protocol_takes_all_its_time_and_the_staged_one_a_fraction(machine):
    staged = course(machine, machine.model(50), machine.model(100))
    fixed = course(machine, machine.model(50), machine.model(100), fixed=True)
    assert fixed.stopped == "time"
    assert fixed.seconds >= 5.0
    assert staged.candidate.repeats < 0.25 * fixed.candidate.repeats


def test_time_is_kept_also_by_a_slow_model(machine):
    done = course(machine, machine.model(2_000_000), machine.model(2_000_000), seconds=1.0)
    assert done.stopped == "time"
    assert len(done.pairs) == 1
    assert done.replicas == 1


def test_warm_up_goes_on_until_times_no_longer_fall(machine):
    cold = course(machine, machine.model(5000, warm=4), machine.model(5000), seconds=60.0)
    assert cold.candidate.replicas[0].warm.calls > 12
    assert cold.candidate.replicas[0].warm.settled
    assert cold.estimate().value == pytest.approx(1.0, rel=0.02)


def test_a_model_alone_is_measured_in_nanoseconds(machine):
    done = course(machine, machine.model(100), None)
    assert done.estimate().value == pytest.approx(1e5, rel=0.02)
    assert done.stopped == "narrow"


def test_the_order_of_a_pair_is_random_but_seeded(machine):
    order = []

    def named(name, make):
        def made(number):
            call = make(number)

            def run():
                order.append(name)
                call()

            return run

        return made

    def once():
        order.clear()
        slow = machine.model(300_000)  # one inference a block, without lead-in
        course(machine, named("c", slow), named("s", slow), seconds=100.0, max_pairs=32, fixed=True)
        return list(order)

    first, second = once(), once()
    assert first == second
    last = first[-16:]
    assert sorted(last) == ["c"] * 8 + ["s"] * 8
    assert last not in (["c", "s"] * 8, ["s", "c"] * 8)


def test_settings_that_make_no_sense_are_errors():
    with pytest.raises(InputError, match="seconds"):
        MeasurementSettings.parse({"seconds": 0})
    assert MeasurementSettings.parse({"seconds": 2.0, "profiles": []}).seconds == 2.0


def interrupted(count, biased, away):
    """Pairs of 8 replicas; the first `biased` of each are slower for the candidate, while others had the core."""
    rng = np.random.default_rng(0)
    return [
        Pair(replica, float(np.exp(rng.normal(0.1 if n < biased else 0.0, 0.002))), 1.0, away if n < biased else 0.0)
        for n in range(count)
        for replica in range(8)
    ]


def test_pairs_that_others_interrupted_are_set_aside(machine):
    subject = Subject(machine.model(1))
    done = Measurement(subject, subject, MeasurementSettings(), pairs=interrupted(10, 6, 0.4), replicas=8)
    assert done.estimate().value == pytest.approx(1.0, abs=0.003)
    assert len(done.selected_pairs()) == 32


def test_slow_spells_that_hit_one_model_harder_are_set_aside(machine):
    subject = Subject(machine.model(1))
    pairs = interrupted(10, 0, 0.0)
    slow = pairs[:40] + [pair._replace(candidate=pair.candidate * 1.55, source=1.18) for pair in pairs[40:]]
    done = Measurement(subject, subject, MeasurementSettings(), pairs=slow, replicas=8)
    assert done.estimate().value == pytest.approx(1.0, abs=0.003)


def test_where_all_were_interrupted_the_calmest_quarter_counts(machine):
    subject = Subject(machine.model(1))
    pairs = [pair._replace(preempted=max(pair.preempted, 0.1)) for pair in interrupted(8, 6, 0.4)]
    done = Measurement(subject, subject, MeasurementSettings(), pairs=pairs, replicas=8)
    assert len(done.selected_pairs()) == 16
    assert done.estimate().value == pytest.approx(1.0, abs=0.003)


def test_replicas_without_a_calm_pair_do_not_count_where_others_are_enough(machine):
    subject = Subject(machine.model(1))
    bad = [Pair(0, 1.5, 1.0, 0.5) for _ in range(4)]
    done = Measurement(
        subject,
        subject,
        MeasurementSettings(),
        pairs=[p for p in interrupted(4, 0, 0.0) if p.replica] + bad,
        replicas=8,
    )
    assert {pair.replica for pair in done.selected_pairs()} == set(range(1, 8))


def now_and_then(machine, milliseconds, times, stolen=False):
    """Makes sessions of a model that every tenth inference takes that many times as long: of its own accord, or because
    others have the core."""

    def make(number):
        calls = itertools.count()

        def call():
            slow = next(calls) % 10 == 9
            machine.now += int(1e6 * milliseconds * (times if slow else 1))
            machine.stolen += int(1e6 * milliseconds * (times - 1)) if slow and stolen else 0

        machine.now += 1_000_000
        return call

    return make


WITH_SOURCE = MeasureRequest(ModelFile("candidate"), ModelFile("source", {"io_binding": True}), (), None)


@pytest.mark.parametrize("replicas_are_units", [True, False])
@pytest.mark.parametrize("times", [2, 5])
def test_what_a_model_does_now_and_then_is_in_its_mean_and_percentiles(machine, times, replicas_are_units):
    settings = {"seconds": 90.0, "fixed": True, "replicas": 8 if replicas_are_units else 2}
    done = course(machine, now_and_then(machine, 20, times), now_and_then(machine, 20, 1), **settings)
    assert done.by_replica is replicas_are_units
    found = results(WITH_SOURCE, done, 1, {})
    slower = {"latency_p50": 1.0, "latency_p99": times, "latency_mean": 0.9 + 0.1 * times}
    for name, expected in slower.items():
        assert found.metrics[name].value == pytest.approx(20 * expected, rel=0.05)
        assert found.ratios[name].value == pytest.approx(expected, rel=0.05)
    assert found.metrics["throughput"].value == pytest.approx(50 / slower["latency_mean"], rel=0.05)
    assert found.details["interrupted"] == 0


def test_blocks_in_which_others_had_the_core_are_in_no_value(machine):
    done = course(machine, now_and_then(machine, 20, 5, stolen=True), machine.model(20_000), seconds=60.0, fixed=True)
    found = results(WITH_SOURCE, done, 1, {})
    assert 0 < found.details["interrupted"] < len(done.pairs) / 4
    for name in ("latency_p50", "latency_p90", "latency_p99", "latency_mean"):
        assert found.metrics[name].value == pytest.approx(20, rel=0.01)


def test_where_others_always_had_the_core_the_calmest_blocks_give_all_values(machine):
    done = course(machine, machine.model(20_000, stolen=0.2), machine.model(20_000), seconds=20.0, fixed=True)
    found = results(WITH_SOURCE, done, 1, {})
    assert len(done.pairs) / 2 < found.details["interrupted"] < len(done.pairs)
    assert set(found.ratios) == set(found.metrics) == set(STATISTICS)


def test_only_time_taken_away_counts_as_away():
    began = timing.ThreadUsage(0, 0, 0, 0)
    assert began.preempted_share(timing.ThreadUsage(1000, 600, 0, 1)) == pytest.approx(0.4)
    assert began.preempted_share(timing.ThreadUsage(1000, 600, 0, 0)) == pytest.approx(0.4)  # the host had the core
    assert began.preempted_share(timing.ThreadUsage(1000, 600, 3, 0)) == 0.0  # it waited for a device
    assert began.preempted_share(timing.ThreadUsage(1000, 1001, 0, 0)) == 0.0
