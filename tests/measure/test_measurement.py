"""The course of a latency measurement, with sleepless fake models on a fake clock."""

from __future__ import annotations

import numpy as np
import pytest
from fake_machine import Machine
from measure_helpers import measured

from autoopt.errors import InputError
from autoopt.measure.latency.measurement import Measurement
from autoopt.measure.latency.pairs import Pair
from autoopt.measure.latency.subjects import Subject
from autoopt.measure.settings import MeasurementSettings


def test_a_clear_ratio_is_found_and_its_interval_covers_it(machine):
    done = measured(machine.model(50), machine.model(100))
    found = done.estimate()
    assert done.stopped == "narrow"
    assert found.low <= 0.5 <= found.high
    assert found.high - found.low <= 0.04 * found.value


def test_a_spread_between_sessions_widens_the_interval(machine):
    settings = {"fixed": True, "seconds": 2.0}
    calm = measured(machine.model(100), machine.model(100), **settings).estimate()
    spread = machine.model(100, session_spread=0.03)
    wild = measured(spread, spread, **settings).estimate()
    assert wild.high - wild.low > 3 * (calm.high - calm.low)
    assert wild.low <= 1.0 <= wild.high


def test_sessions_that_differ_are_not_measured_to_the_end_for_nothing(machine):
    spread = machine.model(100, session_spread=0.05, noise=0.002)
    done = measured(spread, spread, seconds=20.0)
    assert done.stopped == "no narrower"
    assert done.seconds < 5.0
    whole = measured(spread, spread, seconds=20.0, fixed=True)
    ends = [(e.high - e.low) / e.value for e in (done.estimate(), whole.estimate())]
    assert ends[0] < 3 * ends[1]  # other sessions, so of another spread
    noisy = measured(machine.model(100, noise=0.1), machine.model(100, noise=0.1), target_width=0.02)
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
    done = measured(machine.model(400), machine.model(100), incumbent_ratio=0.6)
    assert done.stopped == "worse"
    assert len(done.pairs) <= 8


def test_one_that_may_win_is_not_stopped_as_worse(machine):
    assert measured(machine.model(58), machine.model(100), incumbent_ratio=0.6).stopped == "narrow"


def test_the_fixed_protocol_takes_all_its_time_and_the_staged_one_a_fraction(machine):
    staged = measured(machine.model(50), machine.model(100))
    fixed = measured(machine.model(50), machine.model(100), fixed=True)
    assert fixed.stopped == "time"
    assert fixed.seconds >= 5.0
    assert staged.candidate.repeats < 0.25 * fixed.candidate.repeats


def test_time_is_kept_also_by_a_slow_model(machine):
    done = measured(machine.model(2_000_000), machine.model(2_000_000), seconds=1.0)
    assert done.stopped == "time"
    assert len(done.pairs) == 1
    assert done.replicas == 1


def test_warm_up_goes_on_until_times_no_longer_fall(machine):
    cold = measured(machine.model(5000, warm=4), machine.model(5000), seconds=60.0)
    assert cold.candidate.replicas[0].warm.calls > 12
    assert cold.candidate.replicas[0].warm.settled
    assert cold.estimate().value == pytest.approx(1.0, rel=0.02)


def test_a_model_alone_is_measured_in_nanoseconds(machine):
    done = measured(machine.model(100), None)
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
        measured(named("c", slow), named("s", slow), seconds=100.0, max_pairs=32, fixed=True)
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
