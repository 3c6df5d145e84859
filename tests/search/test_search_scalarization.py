"""The losses of trials by objective, and one for each trial."""

from __future__ import annotations

import math

from search_cases import BOTH, LATENCY

from autoopt.metrics import Objective
from autoopt.search import Feedback, Proposal, Trial
from autoopt.search.surrogates.scalarization import loss_columns, single_losses


def trials(*feedback: Feedback | None) -> list[Trial]:
    return [Trial(Proposal(i, "c", {}), f) for i, f in enumerate(feedback)]


def test_times_are_compared_by_factors() -> None:
    made = single_losses(trials(*(Feedback({"latency_p50": v}) for v in (1.0, 10.0, 100.0))), LATENCY)
    assert math.isclose(made.loss[1] - made.loss[0], made.loss[2] - made.loss[1])
    assert made.unit == 1


def test_maximised_values_are_negated_and_their_unit_is_the_best() -> None:
    accuracy = (Objective("accuracy", "maximize"),)
    made = single_losses(trials(Feedback({"accuracy": 0.5}), Feedback({"accuracy": 0.8})), accuracy)
    assert made.loss == [-0.5, -0.8]
    assert made.unit == 0.8


def test_what_has_no_value_has_no_loss() -> None:
    missing = trials(None, Feedback(failed=True), Feedback({"latency_p50": math.inf}), Feedback({"latency_p50": 2.0}))
    made = single_losses(missing, LATENCY)
    assert [math.isfinite(loss) for loss in made.loss] == [False, False, False, True]
    assert all(math.isnan(loss) for loss in single_losses(trials(None, None), LATENCY).loss)


def test_with_several_objectives_only_what_enlarges_the_front_lowers_the_loss() -> None:
    front = [Feedback({"latency_p50": v, "accuracy": a}) for v, a in ((1.0, 0.5), (2.0, 0.8), (9.0, 0.9))]
    worse = Feedback({"latency_p50": 9.5, "accuracy": 0.5})
    broken = Feedback({"latency_p50": 0.1, "accuracy": 0.9}, violation=1.0)
    lacking = Feedback({"accuracy": 0.9})
    loss = single_losses(trials(front[0], worse, front[1], broken, lacking, front[2], None), BOTH).loss
    assert loss[0] == loss[1] > loss[2] > loss[5]
    assert all(math.isnan(loss[number]) for number in (3, 4, 6))


def test_each_objective_has_a_column_as_far_as_it_was_measured() -> None:
    made = loss_columns(trials(Feedback({"accuracy": 0.5}), Feedback({"latency_p50": math.e})), BOTH)
    assert [column[number] for column, number in zip(made, (1, 0), strict=True)] == [1.0, -0.5]
    assert math.isnan(made[0][0])
    assert math.isnan(made[1][1])


def test_a_single_huge_value_has_a_loss() -> None:
    """A metric of the user's own may be huge."""
    made = single_losses(trials(Feedback({"latency_p50": 1.0, "accuracy": 1e30})), BOTH)
    assert math.isfinite(made.loss[0])
