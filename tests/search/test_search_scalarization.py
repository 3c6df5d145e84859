"""Several objectives as one loss."""

from __future__ import annotations

import math
from random import Random

from search_cases import BOTH, LATENCY

from autoopt.metrics import Objective
from autoopt.search import Feedback, Proposal, Trial
from autoopt.search.surrogates.scalarization import draw_weights, single_losses


def trials(*feedback: Feedback | None) -> list[Trial]:
    return [Trial(Proposal(i, "c", {}), f) for i, f in enumerate(feedback)]


def test_times_are_compared_by_factors() -> None:
    made = single_losses(trials(*(Feedback({"latency_p50": v}) for v in (1.0, 10.0, 100.0))), LATENCY, Random(0))
    assert math.isclose(made.loss[1] - made.loss[0], made.loss[2] - made.loss[1])
    assert made.unit == 1


def test_maximised_values_are_negated_and_their_unit_is_the_best() -> None:
    accuracy = (Objective("accuracy", "maximize"),)
    made = single_losses(trials(Feedback({"accuracy": 0.5}), Feedback({"accuracy": 0.8})), accuracy, Random(0))
    assert made.loss == [-0.5, -0.8]
    assert made.unit == 0.8


def test_what_has_no_value_has_no_loss() -> None:
    made = single_losses(
        trials(None, Feedback(failed=True), Feedback({"latency_p50": math.inf}), Feedback({"latency_p50": 2.0})),
        LATENCY,
        Random(0),
    )
    assert [math.isfinite(loss) for loss in made.loss] == [False, False, False, True]
    assert all(math.isnan(loss) for loss in single_losses(trials(None, None), LATENCY, Random(0)).loss)


def test_each_point_of_a_front_is_best_in_some_weighting_and_no_other_is() -> None:
    front = [Feedback({"latency_p50": v, "accuracy": a}) for v, a in ((1.0, 0.5), (2.0, 0.8), (9.0, 0.9))]
    worse = Feedback({"latency_p50": 9.5, "accuracy": 0.5})
    winners = set()
    for seed in range(60):
        loss = single_losses(trials(*front, worse), BOTH, Random(seed)).loss
        winners.add(loss.index(min(loss)))
    assert winners == {0, 1, 2}


def test_weights_sum_to_one_and_follow_the_objectives() -> None:
    heavy = (Objective("a", "minimize", 9.0), Objective("b", "minimize", 1.0))
    drawn = [draw_weights(heavy, Random(seed)) for seed in range(200)]
    assert all(math.isclose(sum(w), 1) for w in drawn)
    assert sum(w[0] for w in drawn) / 200 > 0.7
