"""The course of a latency measurement, with sleepless fake models on a fake clock."""

from __future__ import annotations

import gc
from collections.abc import Callable

import numpy as np
import pytest
from fake_machine import Machine, MakeSession
from measure_helpers import compared, measured

from autoopt.measure.latency import timer
from autoopt.measure.latency.busy import Load
from autoopt.measure.latency.comparison import Comparison
from autoopt.measure.latency.timer import Subject
from autoopt.measure.latency.timing import Measurement
from autoopt.measure.settings import MeasurementSettings
from autoopt.metrics import Estimate
from autoopt.tuning import TIMING


def relative_width(estimate: Estimate) -> float:
    return (estimate.high - estimate.low) / estimate.value


def test_the_interval_of_a_clear_ratio_covers_it(machine: Machine) -> None:
    measurement = measured([machine.model(50)], machine.model(100))
    estimate = measurement.comparisons[0].estimate()
    assert measurement.stopped == "narrow"
    assert estimate.low <= 0.5 <= estimate.high
    assert relative_width(estimate) <= 0.04


def test_sessions_that_differ_are_not_measured_to_the_end_for_nothing(machine: Machine) -> None:
    spread = machine.model(100, session_spread=0.05, noise=0.002)
    measurement = measured([spread], spread, seconds=20.0)
    assert measurement.stopped == "no narrower"
    assert measurement.seconds < 5.0
    whole = compared(spread, spread, seconds=20.0, fixed=True)
    # Their sessions are others, so their spread is another too.
    assert relative_width(measurement.comparisons[0].estimate()) < 3 * relative_width(whole.estimate())


def test_noise_is_measured_until_it_is_averaged_out(machine: Machine) -> None:
    noisy = machine.model(1000, noise=0.1)
    assert measured([noisy], noisy, target_width=0.05).stopped == "narrow"


def test_an_interval_that_other_programs_make_wide_is_not_measured_to_the_last_percent(machine: Machine) -> None:
    candidate, source = machine.model(500, noise=0.05), machine.model(1000, noise=0.05)
    quiet = measured([candidate], source)
    machine.load = Load(2.0, runnable=8.0)
    beside_others = measured([candidate], source)
    assert beside_others.stopped == quiet.stopped == "narrow"
    assert beside_others.rounds < quiet.rounds
    alone = measured([candidate], None)
    assert relative_width(alone.comparisons[0].estimate()) <= 0.04


def test_a_clearly_worse_candidate_stops_after_a_few_rounds(machine: Machine) -> None:
    measurement = measured([machine.model(80)], machine.model(100), incumbent_ratio=0.6)
    assert measurement.stopped == "worse"
    assert measurement.rounds <= 8


def test_a_hopeless_candidate_gets_a_look_at_one_session(machine: Machine) -> None:
    measurement = measured([machine.model(3000)], machine.model(1000), incumbent_ratio=1.0)
    assert measurement.stopped == "hopeless"
    assert measurement.rounds == 3
    comparison = measurement.comparisons[0]
    assert comparison.source is not None
    assert [len(subject.replicas) for subject in subjects_of(comparison)] == [1, 1]
    assert comparison.estimate().low > 1.5
    warm_up_calls = 0.0
    for subject, ms in ((comparison.candidate, 3.0), (comparison.source, 1.0)):
        for replica in subject.replicas:
            warm_up_calls += ms * (1 + replica.warm.calls) / 1e3 + replica.cold_start / 1e9
    assert measurement.seconds - warm_up_calls < 0.1


def test_beside_other_programs_a_candidate_must_look_slower_to_be_hopeless(machine: Machine) -> None:
    machine.load = Load(2.0, runnable=8.0)
    slow, hopeless = machine.model(1700, noise=0.001), machine.model(2500, noise=0.001)
    source = machine.model(1000, noise=0.001)
    assert measured([slow], source, incumbent_ratio=1.0).stopped == "worse"
    assert measured([hopeless], source, incumbent_ratio=1.0).stopped == "hopeless"
    machine.load = Load(0.0)
    assert measured([slow], source, incumbent_ratio=1.0).stopped == "hopeless"


def test_a_session_that_is_slow_by_a_quarter_makes_no_candidate_hopeless(machine: Machine) -> None:
    slow = machine.model(1000 * 1.25, noise=0.0)

    def first_one_slow(number: int) -> Callable[[], None]:
        return (slow if number == 0 else machine.model(900, noise=0.0))(number)

    measurement = measured([first_one_slow], machine.model(1000, noise=0.0), incumbent_ratio=0.9)
    assert measurement.stopped != "hopeless"
    assert measurement.comparisons[0].estimate().low < 0.95


def test_after_a_look_that_promised_too_little_all_sessions_count(machine: Machine) -> None:
    """The first pair says that the candidate is hopeless, the next ones do not."""
    calls = 0

    def spell() -> None:
        nonlocal calls
        calls += 1
        machine.slowdown = 3.0 if calls < 8 else 1.0

    candidate = machine.occasionally(0.9, spell, every=1)
    measurement = measured([candidate], machine.model(1000, noise=0.0), incumbent_ratio=1.0, seed=1)
    comparison = measurement.comparisons[0]
    assert measurement.stopped != "hopeless"
    assert len(comparison.candidate.replicas) == 8
    assert {pair.replica for pair in comparison.pairs} == set(range(8))


@pytest.mark.parametrize(
    ("times", "has_source"),
    [((580,), True), ((580,), False), ((4000, 5000), True), ((4000, 500), True)],
    ids=["may win", "alone", "two rivals", "a rival may win"],
)
def test_only_a_single_candidate_beside_the_source_is_stopped_as_worse(
    machine: Machine, times: tuple[int, ...], has_source: bool
) -> None:
    source = machine.model(1000) if has_source else None
    measurement = measured([machine.model(time) for time in times], source, incumbent_ratio=0.6)
    assert measurement.stopped == "narrow"
    if not has_source:  # then values are in nanoseconds
        assert measurement.comparisons[0].estimate().value == pytest.approx(1e3 * times[0], rel=0.02)


def test_the_fixed_protocol_takes_all_its_time_and_the_staged_one_a_fraction(machine: Machine) -> None:
    staged = measured([machine.model(50)], machine.model(100))
    fixed = measured([machine.model(50)], machine.model(100), fixed=True)
    assert fixed.stopped == "time"
    assert fixed.seconds >= 5.0
    assert staged.rounds < 0.25 * fixed.rounds


def test_a_measurement_ends_after_its_largest_number_of_rounds(machine: Machine) -> None:
    measurement = measured([machine.model(50)], machine.model(100), fixed=True, max_pairs=5)
    assert (measurement.stopped, measurement.rounds) == ("max repeats", 5)


def test_time_is_kept_also_by_a_slow_model(machine: Machine) -> None:
    measurement = measured([machine.model(2_000_000)], machine.model(2_000_000), seconds=1.0)
    assert measurement.stopped == "time"
    assert (measurement.rounds, measurement.replicas) == (1, 1)
    estimate = measurement.comparisons[0].estimate()
    assert estimate.low < 0.6 < 1.9 < estimate.high  # one pair says nothing of its error


def test_a_slow_model_gets_twice_the_time_for_three_rounds(machine: Machine) -> None:
    measurement = measured([machine.model(100_000)], machine.model(100_000), seconds=1.0, replicas=1)
    assert measurement.rounds == 3
    assert 1.0 < measurement.seconds < 2.0


def slow_to_open(machine: Machine, microseconds: float, opening_ms: float) -> MakeSession:
    make = machine.model(microseconds)

    def opened(number: int) -> Callable[[], None]:
        machine.run(opening_ms)
        return make(number)

    return opened


def test_sessions_that_took_long_to_open_are_timed_for_as_long_again(machine: Machine) -> None:
    candidate, source = (slow_to_open(machine, time, 10_000.0) for time in (250_000.0, 600_000.0))
    comparison = compared(candidate, source, seconds=0.5)
    assert len(comparison.pairs) == TIMING.pairs_if_wide
    ratio = comparison.estimate()
    assert 0.35 < ratio.low < 250 / 600 < ratio.high < 0.5


def test_one_of_several_measurements_opens_no_sessions_that_take_longer_than_to_time_them(machine: Machine) -> None:
    for opening_ms, sessions in ((500.0, 1), (1.0, 2)):
        candidate, source = (slow_to_open(machine, time, opening_ms) for time in (2000.0, 4000.0))
        comparisons = [Comparison(Subject(candidate), Subject(source))]
        settings = MeasurementSettings(target_width=0.1, replicas=2)
        measurement = Measurement(comparisons, settings, brief=True).run()
        assert measurement.stopped == "narrow"
        assert measurement.replicas == sessions
        assert 6 <= measurement.rounds <= 12
        estimate = comparisons[0].estimate()
        assert estimate.low < 0.5 < estimate.high
    assert measured([candidate], source, replicas=2).replicas == 2


def subjects_of(comparison: Comparison) -> list:
    return [subject for subject in (comparison.candidate, comparison.source) if subject]


def test_warm_up_goes_on_until_times_no_longer_fall(machine: Machine) -> None:
    cold = compared(machine.model(5000, warm=4), machine.model(5000), seconds=60.0)
    assert cold.candidate.replicas[0].warm.calls > 12
    assert cold.candidate.replicas[0].warm.settled
    assert cold.estimate().value == pytest.approx(1.0, rel=0.02)


@pytest.mark.parametrize("microseconds", [2, 100, 250_000])
def test_short_and_long_models_are_measured_alike(machine: Machine, microseconds: float) -> None:
    comparison = compared(machine.model(0.5 * microseconds), machine.model(microseconds), seconds=20.0)
    assert comparison.estimate().value == pytest.approx(0.5, rel=0.02)


def test_the_order_of_a_round_is_random_but_seeded(machine: Machine) -> None:
    order: list[str] = []

    def named(name: str, make: MakeSession) -> MakeSession:
        def made(number: int) -> Callable[[], None]:
            call = make(number)

            def run() -> None:
                order.append(name)
                call()

            return run

        return made

    def once(seed: int) -> list[str]:
        order.clear()
        slow = machine.model(300_000)  # one inference a block, without lead-in
        models = [named(name, slow) for name in "abs"]
        measured(models[:2], models[2], seconds=100.0, max_pairs=32, fixed=True, seed=seed)
        return order[-24 * 3 :]

    first = once(0)
    assert first == once(0)
    assert first != once(1)
    rounds = [tuple(first[start : start + 3]) for start in range(0, len(first), 3)]
    assert all(sorted(names) == ["a", "b", "s"] for names in rounds)
    assert len(set(rounds)) == 6


def test_garbage_is_not_collected_meanwhile(machine: Machine) -> None:
    states = set()
    measured([machine.occasionally(1.0, lambda: states.add(gc.isenabled()))], None, seconds=0.5)
    assert states == {False}
    assert gc.isenabled()


def test_several_candidates_get_their_own_ratios(machine: Machine) -> None:
    times = [300, 600, 900, 1200]
    measurement = measured([machine.model(time) for time in times], machine.model(1000))
    assert measurement.stopped == "narrow"
    for comparison, time in zip(measurement.comparisons, times, strict=True):
        estimate = comparison.estimate()
        assert estimate.low <= time / 1000 <= estimate.high
        assert relative_width(estimate) <= 0.04
        assert len(comparison.pairs) == measurement.rounds
        assert comparison.source is measurement.comparisons[0].source


def test_several_candidates_go_on_until_the_last_is_known(machine: Machine) -> None:
    noisy = machine.model(500, noise=0.1)
    alone = measured([machine.model(500)], machine.model(1000))
    beside = measured([machine.model(500), noisy], machine.model(1000), seconds=20.0)
    assert alone.stopped == "narrow"
    assert beside.rounds > alone.rounds


def test_several_candidates_stop_where_one_will_not_become_known_better(machine: Machine) -> None:
    spread = machine.model(500, session_spread=0.05, noise=0.002)
    measurement = measured([machine.model(500, noise=0.002), spread], machine.model(1000, noise=0.002), seconds=20.0)
    assert measurement.stopped == "no narrower"
    assert relative_width(measurement.comparisons[0].estimate()) <= 0.04


def test_a_slow_spell_of_whole_rounds_biases_no_contrast(machine: Machine) -> None:
    calls = 0

    def spell() -> None:
        nonlocal calls
        calls += 1
        # About twenty rounds of ten are slower by half, in all models alike.
        machine.slowdown = 1.5 if calls // 100 % 3 == 2 else 1.0

    models = [machine.model(500), machine.model(1000)]
    source = machine.occasionally(1.0, spell, every=1)
    measurement = measured(models, source, fixed=True)
    ratios = [comparison.estimate() for comparison in measurement.comparisons]
    assert {len(comparison.pairs) for comparison in measurement.comparisons} == {measurement.rounds}
    assert ratios[0].value == pytest.approx(0.5, rel=0.01)
    assert ratios[0].value / ratios[1].value == pytest.approx(0.5, rel=0.01)


@pytest.mark.parametrize("waiting", [0, 1, 2])
def test_if_one_model_waits_all_of_its_round_are_timed_by_the_clock(machine: Machine, waiting: int) -> None:
    """Two candidates and the source; one of them runs half of its time on a device."""
    events: list[Callable[[], None]] = [lambda: machine.preempt(1.0)] * 3
    events[waiting] = lambda: machine.wait(1.0)
    *models, source = (machine.occasionally(1.0, event, every=1) for event in events)
    for comparison in measured(models, source, seconds=1.0).comparisons:
        assert {(pair.candidate, pair.source) for pair in comparison.pairs} == {(2e6, 2e6)}


def test_a_model_that_waits_now_and_then_is_timed_on_the_core_in_the_other_rounds(machine: Machine) -> None:
    models = [machine.model(1000, noise=0), machine.occasionally(1.0, lambda: machine.wait(1.0), every=11)]
    first, second = measured(models, machine.model(2000, noise=0), seconds=1.0, fixed=True).comparisons
    assert first.estimate().value == second.estimate().value == pytest.approx(0.5)
    assert any(replica_max(second) > 1.5e6)


def replica_max(comparison: Comparison) -> np.ndarray:
    return np.array([times.max() for replica in comparison.candidate.replicas for times in replica.blocks])


def test_without_time_on_the_core_preempted_pairs_are_set_aside(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timer, "can_time_on_core", lambda: False)
    comparison = compared(machine.occasionally(1.0, lambda: machine.preempt(4.0), every=9), machine.model(2000))
    assert max(pair.candidate for pair in comparison.pairs) > 2e6
    assert max(pair.candidate for pair in comparison.selected_pairs()) == 1e6
    assert comparison.estimate().value == pytest.approx(0.5, rel=0.01)
