"""Agreement of two models' outputs."""

from __future__ import annotations

import numpy as np
import pytest
from test_output_kinds import EXAMPLES, ITEMS, KINDS, ctc_path, recognized, rows, yolo

from autoopt.data.scores import best_path
from autoopt.measure.constraints import share_resolution
from autoopt.measure.quality.agreement import compare_parts, estimate
from autoopt.metrics import Estimate

RNG = np.random.default_rng(1)
ALL = np.arange(ITEMS)


def agreement(candidate: list[object], source: list[object], name: str = "output") -> float:
    """The agreement of one output."""
    parts = recognized([source], [name], [None])
    (result,) = compare_parts(parts, [candidate], [source])
    return result.over(np.arange(len(source)))


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_output_agrees_with_itself(name: str) -> None:
    values = [EXAMPLES[name]() for _ in range(ITEMS)]
    assert agreement(values, values) == pytest.approx(1.0)


@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if kind not in ("ids", "boxes")])
def test_broken_outputs_do_not_agree(name: str) -> None:
    values = [EXAMPLES[name]() for _ in range(ITEMS)]
    assert agreement([np.full_like(value, np.nan) for value in values], values) == 0.0
    assert agreement([np.zeros((3, 7)) for _ in values], values) == 0.0


def test_classes_agree_by_their_highest_score_whatever_the_distance() -> None:
    source = [np.eye(4)[[number % 4]] * 9 - 3 for number in range(ITEMS)]
    assert agreement([value * 0.1 for value in source], source) == 1.0
    candidate = [source[0], *[value[:, ::-1] for value in source[1:3]], *source[3:]]
    assert agreement(candidate, source) == pytest.approx(1 - 2 / ITEMS)


def test_an_item_of_another_length_disagrees_alone() -> None:
    source = [RNG.random((1, 5 + number % 3, 7)).astype(np.float32) * 9 for number in range(ITEMS)]
    candidate = [source[0][:, :-1], *source[1:]]
    assert 0 < agreement(candidate, source) < 1


@pytest.mark.parametrize(("spread", "holds"), [(0.02, True), (1.0, False)])
def test_a_number_that_hardly_changes_beside_a_decision_is_no_reason_against_a_model(
    spread: float, holds: bool
) -> None:
    moves = [EXAMPLES["logits"]() for _ in range(ITEMS)]
    values = [np.array([[spread * RNG.uniform(-0.5, 0.5)]]) for _ in range(ITEMS)]
    others = [value + 0.5 * spread * RNG.choice([-1, 1]) for value in values]
    parts = recognized([moves, values], ["move", "value"], [None, None])
    found = estimate(compare_parts(parts, [moves, others], [moves, values]), ITEMS)
    assert (found.value > 0.98) is holds


def test_sequences_agree_by_the_share_of_equal_symbols_wherever_they_lie() -> None:
    source = [ctc_path() for _ in range(ITEMS)]
    candidate = [value.copy() for value in source]
    candidate[0][9] = np.roll(candidate[0][9], 1)
    count = sum(len(best_path(value)) for value in source)
    assert 1 - 3 / count < agreement(candidate, source) < 1
    others = [np.roll(value, 1, axis=1) for value in source]
    assert agreement(others, source) < 0.5
    moved = [np.insert(value, 0, value[0], axis=0)[:20] for value in source]
    assert agreement(moved, source) == 1.0


def test_boxes_agree_where_they_show_the_same_object() -> None:
    source = [yolo() for _ in range(ITEMS)]
    nudged = [value + np.array([0.1, 0.1, 0, 0, 0, 0])[None, :, None] for value in source]
    assert agreement(nudged, source) == 1.0
    far = [value + np.array([500, 0, 0, 0, 0, 0])[None, :, None] for value in source]
    assert agreement(far, source) == 0.0


def test_boxes_that_overlap_less_agree_less() -> None:
    source = [np.array([[[0, 0, 100, 100, 0.9, 0]]], np.float32)] * ITEMS
    assert agreement([value + np.float32([0, 0, 25, 0, 0, 0]) for value in source], source) == pytest.approx(0.7)
    assert agreement([value + np.float32([0, 0, 70, 0, 0, 0]) for value in source], source) == pytest.approx(0.2)
    assert agreement([value + np.float32([0, 0, 101, 0, 0, 0]) for value in source], source) == 0.0


def test_a_score_near_the_limit_does_not_lose_its_box_and_a_lost_one_costs_its_share() -> None:
    source = [rows() for _ in range(ITEMS)]
    lower = [value * np.array([1, 1, 1, 1, 0.5, 1]) for value in source]
    assert agreement(lower, source) == 1.0
    lost = [value * np.array([1, 1, 1, 1, 0.1 if number < 3 else 1, 1]) for number, value in enumerate(source)]
    hits = ITEMS - 3
    assert agreement(lost, source) == pytest.approx(2 * hits / (hits + ITEMS))


def test_keypoints_agree_within_a_twentieth_of_the_figure() -> None:
    source = [np.array([[0, 0], [60, 0], [60, 80], [0, 80], [30, 40]], float) for _ in range(ITEMS)]
    for step, expected in ((4.9, 1.0), (5.1, 0.0)):
        assert agreement([value + [step, 0] for value in source], source, "keypoints") == expected


def test_events_agree_by_the_f1_of_the_positive_ones() -> None:
    source = [np.array([0.95, 0.99, 0.05, 0.01])] * ITEMS
    candidate = [np.array([0.6, 0.4, 0.05, 0.01])] * ITEMS
    assert agreement(candidate, source) == pytest.approx(2 / 3)


def test_embeddings_agree_by_the_order_of_their_neighbours() -> None:
    source = [EXAMPLES["embedding"]() for _ in range(ITEMS)]
    turn = np.linalg.qr(RNG.normal(size=(64, 64)))[0]
    assert agreement([value @ turn for value in source], source) == pytest.approx(1.0)
    assert agreement([EXAMPLES["embedding"]() for _ in source], source) < 0.5


def tokens_agreement(candidate: list[np.ndarray], source: list[np.ndarray]) -> float:
    """The agreement of token embeddings of which the last third is padding."""
    masks = [np.arange(source[0].shape[1]) < 8 for _ in source]
    parts = recognized([source], ["last_hidden_state"], [None], masks=masks)
    (result,) = compare_parts(parts, [candidate], [source])
    return result.over(np.arange(len(source)))


def test_token_embeddings_agree_by_their_mean_without_padding() -> None:
    source = [RNG.normal(size=(1, 1, 48)) + RNG.normal(0, 0.5, (1, 12, 48)) for _ in range(ITEMS)]
    padded = [np.concatenate([value[:, :8], -value[:, 8:]], axis=1) for value in source]
    assert tokens_agreement(padded, source) == pytest.approx(1.0)
    noisy = [value + RNG.normal(0, 0.1, value.shape) for value in source]
    assert 0.98 < tokens_agreement(noisy, source) < 1
    assert tokens_agreement(source[1:] + source[:1], source) < 0.5


def test_token_embeddings_agree_no_better_than_their_single_vectors() -> None:
    source = [RNG.normal(size=(1, 1, 48)) + RNG.normal(0, 0.5, (1, 12, 48)) for _ in range(ITEMS)]
    turn = np.linalg.qr(RNG.normal(size=(48, 48)))[0]
    assert tokens_agreement([value @ turn for value in source], source) < 0.5


def test_values_agree_by_their_distance() -> None:
    source = [EXAMPLES["image"]() for _ in range(ITEMS)]
    assert agreement([value * 0.97 for value in source], source) == pytest.approx(0.97)
    assert agreement([value * -5 for value in source], source) == 0.0


def test_one_sensitive_output_of_twelve_costs_its_share() -> None:
    source = [[RNG.normal(0, 0.1, (1, 3)) for _ in range(ITEMS)] for _ in range(12)]
    candidate = [[value * 0.99 for value in values] for values in source]
    candidate[7] = [value * 0.9 for value in source[7]]
    names = [str(number) for number in range(12)]
    agreements = compare_parts(recognized(source, names, [None] * 12), candidate, source)
    assert estimate(agreements, ITEMS).value == pytest.approx((11 * 0.99 + 0.9) / 12)


def test_decisions_that_did_not_change_may_change_on_the_next_item() -> None:
    source = [[np.eye(4)[[number % 4]] * 9 - 3 for number in range(ITEMS)]]
    agreements = compare_parts(recognized(source, ["output"], [None]), source, source)
    assert estimate(agreements, ITEMS) == Estimate(1.0, 1 - share_resolution(ITEMS), 1.0)
    assert estimate(agreements, ITEMS, same=True) == Estimate.exact(1.0)


def test_all_states_together_count_as_one_output() -> None:
    scores = [RNG.normal(0, 6, (1, 10)) for _ in range(ITEMS)]
    states = [[RNG.normal(size=(1, 20)) for _ in range(ITEMS)] for _ in range(6)]
    source = [scores, *states]
    parts = recognized(source, [f"output_{index}" for index in range(7)], [None] * 7, states=range(1, 7))
    wrong_scores = [[np.roll(value, 1) for value in scores], *states]
    assert estimate(compare_parts(parts, wrong_scores, source), ITEMS).value == pytest.approx(0.5)
    drifted = [scores, *[[1.1 * value for value in state] for state in states]]
    assert estimate(compare_parts(parts, drifted, source), ITEMS).value == pytest.approx(0.95)
