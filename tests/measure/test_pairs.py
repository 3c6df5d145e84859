"""The choice of the pairs of blocks that count."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoopt.measure.latency.comparison import Pair, disturbance, disturbed_share, preempted_share, select_pairs
from autoopt.measure.latency.timer import Block
from autoopt.tuning import TIMING

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
