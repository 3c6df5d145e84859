"""The ratio of one candidate to the source, from pairs of blocks."""

from __future__ import annotations

import numpy as np
import pytest
from fake_machine import Machine
from hypothesis import given
from hypothesis import strategies as st
from measure_helpers import compared, measured

from autoopt.measure.latency.comparison import (
    Comparison,
    Pair,
    disturbance,
    disturbed_share,
    preempted_share,
    select_pairs,
    shared_variance,
)
from autoopt.measure.latency.timer import Block, Subject
from autoopt.tuning import TIMING


def comparison_of(pairs: list[Pair], replicas: int = 8) -> Comparison:
    subject = Subject(Machine().model(1))
    return Comparison(subject, subject, replicas, pairs=pairs)


def interrupted(count: int, biased: int, disturbed: float) -> list[Pair]:
    """Pairs of 8 replicas; the first `biased` of each are slower for the candidate, because others had the core."""
    rng = np.random.default_rng(0)
    pairs = []
    for number in range(count):
        for replica in range(8):
            slower, share = (0.1, disturbed) if number < biased else (0.0, 0.0)
            pairs.append(Pair(replica, float(np.exp(rng.normal(slower, 0.002))), 1.0, share))
    return pairs


def test_a_spread_between_sessions_widens_the_interval(machine: Machine) -> None:
    settings = {"fixed": True, "seconds": 2.0}
    calm = compared(machine.model(100), machine.model(100), **settings).estimate()
    spread = machine.model(100, session_spread=0.03)
    wild = compared(spread, spread, **settings).estimate()
    assert wild.high - wild.low > 3 * (calm.high - calm.low)
    assert wild.low <= 1.0 <= wild.high


def test_intervals_cover_one_for_equal_models_whose_sessions_differ() -> None:
    covered = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        pairs = [Pair(k, float(np.exp(rng.normal(0, 0.001) + bias))) for k, bias in enumerate(rng.normal(0, 0.02, 8))]
        estimate = comparison_of(pairs * 10).estimate()
        covered += estimate.low <= 1.0 <= estimate.high
    assert covered >= 54


@pytest.mark.parametrize(
    ("replicas", "beyond"),
    [
        (8, TIMING.beyond_processes),
        (4, TIMING.beyond_processes),
        (2, 2 * TIMING.beyond_processes),
        (1, 8**0.5 * TIMING.beyond_processes),
    ],
)
def test_equal_pairs_leave_the_difference_between_processes(replicas: int, beyond: float) -> None:
    pairs = [Pair(number % replicas, 0.5) for number in range(4 * replicas)]
    estimate = comparison_of(pairs, replicas).estimate()
    assert estimate.value == pytest.approx(0.5)
    assert np.log(estimate.high / estimate.value) == pytest.approx(beyond)


def test_pairs_that_others_interrupted_are_set_aside() -> None:
    comparison = comparison_of(interrupted(10, 6, 0.4))
    assert comparison.estimate().value == pytest.approx(1.0, abs=0.003)
    assert len(comparison.selected_pairs()) == 32


def mostly_disturbed(biased: float) -> list[Pair]:
    """Pairs of 8 replicas of which three in four are disturbed, and slower for the candidate by `biased`."""
    rng = np.random.default_rng(0)
    pairs = []
    for number in range(12):
        for replica in range(8):
            share = 0.0 if number % 4 == 0 else 0.2
            slower = biased if share else 0.0
            pairs.append(Pair(replica, float(np.exp(rng.normal(slower, 0.03))), 1.0, share))
    return pairs


def test_where_most_pairs_are_disturbed_and_agree_with_the_rest_all_count() -> None:
    assert len(comparison_of(mostly_disturbed(biased=0.0)).selected_pairs()) == 96
    assert len(comparison_of(mostly_disturbed(biased=0.2)).selected_pairs()) == 24


def test_slow_spells_that_hit_one_model_harder_are_set_aside() -> None:
    pairs = interrupted(10, 0, 0.0)
    slow = pairs[:40] + [pair._replace(candidate=pair.candidate * 1.55, source=1.18) for pair in pairs[40:]]
    assert comparison_of(slow).estimate().value == pytest.approx(1.0, abs=0.003)


def logs_of(seed: int, *, between: float, within: float, rounds: int = 10) -> list[Pair]:
    rng = np.random.default_rng(seed)
    bias = rng.normal(0, between, 8)
    return [Pair(k, float(np.exp(bias[k] + rng.normal(0, within)))) for _ in range(rounds) for k in range(8)]


def test_a_spread_between_sessions_remains_and_noise_does_not() -> None:
    assert comparison_of(logs_of(0, between=0.05, within=0.002)).remaining_width(10) > 0.95
    noise = [comparison_of(logs_of(seed, between=0, within=0.05)).remaining_width(10) for seed in range(50)]
    assert np.median(noise) < 0.8


def test_nothing_is_foretold_of_too_few_pairs() -> None:
    assert comparison_of([Pair(k, 1.0) for k in range(8)]).remaining_width(10) == 0.0
    assert comparison_of([Pair(k, 1.0) for k in range(8)] * 3).remaining_width(10) == pytest.approx(10**-0.5)


def test_a_machine_that_changes_its_pace_is_disturbed() -> None:
    steady = [Pair(k % 8, 0.5, 1.0) for k in range(80)]
    drifting = [pair._replace(source=1 + number / 300) for number, pair in enumerate(steady)]
    assert not comparison_of(steady).disturbed
    assert comparison_of(drifting).disturbed


def rivals(seed: int, *, source_spread: float, noise: float, replicas: int = 8, rounds: int = 10) -> list[Comparison]:
    """Three candidates whose pairs share the source's sessions and its noise."""
    rng = np.random.default_rng(seed)
    bias = rng.normal(0, source_spread, replicas)
    comparisons = [comparison_of([], replicas) for _ in range(3)]
    for number in range(rounds * replicas):
        replica = number % replicas
        source = float(np.exp(bias[replica] + rng.normal(0, noise)))
        for comparison in comparisons:
            comparison.pairs.append(Pair(replica, float(np.exp(rng.normal(0, 0.002))), source))
    return comparisons


@pytest.mark.parametrize(
    ("source_spread", "noise", "replicas", "expected"),
    [
        (0.03, 0.002, 8, 0.03**2 / 8),  # the source's sessions
        (0.0, 0.03, 2, 0.03**2 / 20),  # the noise of its blocks
    ],
)
def test_the_shared_variance_is_that_of_the_sources_mean(
    source_spread: float, noise: float, replicas: int, expected: float
) -> None:
    variances = []
    for seed in range(100):
        comparisons = rivals(seed, source_spread=source_spread, noise=noise, replicas=replicas)
        variances.append(shared_variance(comparisons))
    assert 0.6 * expected < np.mean(variances) < 1.4 * expected


def test_independent_candidates_share_little() -> None:
    separate = [comparison_of(logs_of(seed, between=0.01, within=0.01)) for seed in range(3)]
    assert shared_variance(separate) < 0.3 * 0.01**2 / 8


def test_one_disturbed_round_does_not_decide_what_is_shared() -> None:
    comparisons = rivals(0, source_spread=0.0, noise=0.002, replicas=2)
    before = shared_variance(comparisons)
    for comparison in comparisons:
        comparison.pairs[3] = comparison.pairs[3]._replace(source=3.0)
    assert shared_variance(comparisons) < 3 * before


def test_one_candidate_shares_nothing(machine: Machine) -> None:
    assert shared_variance(measured([machine.model(100)], machine.model(100), seconds=0.5).comparisons) == 0.0


def test_the_summary_lists_all_pairs_by_column(machine: Machine) -> None:
    comparison = compared(machine.model(1000, noise=0), machine.model(2000, noise=0), seconds=0.5)
    blocks = comparison.summary()["blocks"]
    count = len(comparison.pairs)
    assert blocks == {
        "replica": [pair.replica for pair in comparison.pairs],
        "candidate": [1_000_000] * count,
        "source": [2_000_000] * count,
        "disturbed": [0.0] * count,
    }
    alone = compared(machine.model(1000, noise=0), None, seconds=0.5).summary()
    assert set(alone["blocks"]) == {"replica", "candidate", "disturbed"}
    assert (alone["calm"], alone["set_aside"]) == (1.0, 0)


TIMES = st.floats(0.5, 2.0)
PAIRS = st.lists(st.builds(Pair, st.integers(0, 5), TIMES, TIMES, st.floats(0, 0.2)), min_size=1, max_size=60)


def quiet(count: int, replicas: int = 8) -> list[Pair]:
    """Pairs of several replicas that nothing disturbed."""
    rng = np.random.default_rng(0)
    return [Pair(number % replicas, float(np.exp(rng.normal(0, 0.002)))) for number in range(count * replicas)]


@given(PAIRS)
def test_selected_pairs_are_indices_in_time_order(pairs: list[Pair]) -> None:
    selected = select_pairs(pairs)
    assert selected == sorted(set(selected))
    assert selected
    assert 0 <= selected[0] <= selected[-1] < len(pairs)


@given(PAIRS)
def test_no_pair_is_selected_while_a_less_disturbed_one_of_its_replica_is_not(pairs: list[Pair]) -> None:
    selected, levels = select_pairs(pairs), disturbance(pairs)
    for number in selected:
        skipped = [
            level
            for other, level in enumerate(levels)
            if pairs[other].replica == pairs[number].replica and other not in selected
        ]
        assert all(level >= levels[number] for level in skipped)


def test_undisturbed_pairs_all_count() -> None:
    pairs = quiet(10)
    assert select_pairs(pairs) == list(range(len(pairs)))
    assert max(disturbance(pairs)) <= 1


def test_what_others_cost_disturbs_a_pair_in_proportion() -> None:
    pairs = [*quiet(5, replicas=1), Pair(0, 1.0, 1.0, 2 * TIMING.disturbed)]
    assert disturbance(pairs)[-1] == pytest.approx(2)
    assert len(pairs) - 1 not in select_pairs(pairs)


def block(*, milliseconds: float, preempted: float, switches: int, core_times: bool) -> Block:
    """A block of ten calls."""
    times = np.full(10, milliseconds * 1e5)
    wall = times / (1 - preempted) if core_times else times
    return Block(wall, times if core_times else wall, preempted, switches)


def test_on_the_core_each_preemption_costs_the_caches() -> None:
    once = block(milliseconds=1.0, preempted=0.8, switches=1, core_times=True)
    assert disturbed_share(once, on_core=True) == pytest.approx(TIMING.switch_ns / 1e6)
    assert preempted_share(once, on_core=True) == 0.0
    host = block(milliseconds=1.0, preempted=0.8, switches=0, core_times=True)
    assert disturbed_share(host, on_core=True) == 0.0


def test_by_the_clock_the_preempted_time_disturbs() -> None:
    once = block(milliseconds=1.0, preempted=0.8, switches=1, core_times=True)
    assert disturbed_share(once, on_core=False) == preempted_share(once, on_core=False) == 0.8


def test_a_preemption_is_in_the_times_of_many_short_calls_but_not_in_their_median() -> None:
    once = block(milliseconds=5.0, preempted=0.5, switches=1, core_times=False)
    assert disturbed_share(once, on_core=True) <= TIMING.disturbed
    assert preempted_share(once, on_core=True) == 0.5


def test_a_pair_is_as_disturbed_as_the_worse_of_its_blocks() -> None:
    pair = Pair(3, 20.0, disturbed=0.1, preempted=0.0).beside(Pair(3, 40.0, disturbed=0.0, preempted=0.2))
    assert pair == Pair(3, 20.0, 40.0, disturbed=0.1, preempted=0.2)


@pytest.mark.parametrize("side", ["candidate", "source"])
def test_a_slow_block_of_either_model_disturbs_a_pair(side: str) -> None:
    pairs = [Pair(0, 1.0, 1.0)] * 9
    pairs.append(pairs[0]._replace(**{side: 1 + 3 * TIMING.slow_block}))
    assert disturbance(pairs)[-1] == pytest.approx(3)


def test_blocks_are_compared_within_their_replica() -> None:
    pairs = [Pair(0, 1.0)] * 5 + [Pair(1, 1.5)] * 5
    assert max(disturbance(pairs)) == 0


def test_the_calmest_quarter_counts_if_all_are_disturbed() -> None:
    pairs = [Pair(0, 1.0, 1.0, 0.1 + 0.01 * number) for number in range(8)]
    assert select_pairs(pairs) == [0, 1]


def test_replicas_without_an_undisturbed_pair_are_left_out_if_others_suffice() -> None:
    bad = [Pair(8, 1.0, 1.0, 0.5)] * 4
    pairs = quiet(4) + bad
    assert {pairs[number].replica for number in select_pairs(pairs)} == set(range(8))
    few = [pair for pair in quiet(4) if pair.replica < 3]
    assert 8 in {(few + bad)[number].replica for number in select_pairs(few + bad)}
