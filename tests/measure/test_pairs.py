"""The choice of the pairs of blocks that count."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoopt.measure.latency.pairs import PREEMPTED, SLOW, Pair, disturbance, select_pairs

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


def test_a_preempted_thread_disturbs_a_pair_in_proportion() -> None:
    pairs = [*quiet(5, replicas=1), Pair(0, 1.0, 1.0, 2 * PREEMPTED)]
    assert disturbance(pairs)[-1] == pytest.approx(2)
    assert len(pairs) - 1 not in select_pairs(pairs)


@pytest.mark.parametrize("side", ["candidate", "source"])
def test_a_slow_block_of_either_model_disturbs_a_pair(side: str) -> None:
    pairs = [Pair(0, 1.0, 1.0)] * 9
    pairs.append(pairs[0]._replace(**{side: 1 + 3 * SLOW}))
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
