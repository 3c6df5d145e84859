"""Trials as numbers to learn: losses and constraints."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from search_cases import BOTH, LATENCY, MIDDLE, SIX, drive

from autoopt.metrics import Objective
from autoopt.search import Feedback, Proposal, SearchConfig, create_study
from autoopt.search.surrogates.front import front_losses
from autoopt.search.surrogates.models import expect
from autoopt.search.surrogates.observations import Observations, loss_columns, scaled_violations, single_losses


def trials(*feedback: Feedback | None) -> list[Proposal]:
    return [Proposal(i, "c", {}, feedback=f) for i, f in enumerate(feedback)]


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
    loss = front_losses(trials(front[0], worse, front[1], broken, lacking, front[2], None), BOTH).loss
    assert loss[0] == loss[1] > loss[2] > loss[5]
    assert all(math.isnan(loss[number]) for number in (3, 4, 6))


def test_each_objective_has_a_column_as_far_as_it_was_measured() -> None:
    made = loss_columns(trials(Feedback({"accuracy": 0.5}), Feedback({"latency_p50": math.e})), BOTH)
    assert [column[number] for column, number in zip(made, (1, 0), strict=True)] == [1.0, -0.5]
    assert math.isnan(made[0][0])
    assert math.isnan(made[1][1])


def test_a_single_huge_value_has_a_loss() -> None:
    """A metric of the user's own may be huge."""
    made = front_losses(trials(Feedback({"latency_p50": 1.0, "accuracy": 1e30})), BOTH)
    assert math.isfinite(made.loss[0])


def with_violations(violations: Sequence[float | None]) -> list[Proposal]:
    """Trials with these violations; None for a failed one. The last one is running."""
    results = [Feedback(failed=True) if value is None else Feedback({}, value) for value in violations]
    return trials(*results, None)


def test_violations_keep_their_sign_and_order_and_the_scale_of_the_limit() -> None:
    values = [-0.02, -0.001, 0.002, 0.3]
    scaled = scaled_violations(with_violations([*values, None]))
    assert scaled is not None
    assert all(math.isnan(value) for value in scaled[4:])
    assert sorted(scaled[:4]) == scaled[:4]
    assert scaled[1] < 0 < scaled[2] < 0.5
    assert 3 < scaled[3] < 6
    larger = scaled_violations(with_violations([1000 * value for value in values]))
    assert larger is not None
    assert larger[:4] == pytest.approx(scaled[:4])


@pytest.mark.parametrize(
    "violations", [[], [-0.1, -0.2, -0.3], [-0.1, None, -0.2], [0.0, 1.0, 1.0], [0.0, 0.1, 0.2], [-1.0, 1.0, 1.0]]
)
def test_without_grades_there_is_nothing_to_learn(violations: list[float | None]) -> None:
    assert scaled_violations(with_violations(violations)) is None


def test_the_distance_from_the_limit_tells_more_than_its_side() -> None:
    """Quality falls evenly along a line; the limit lies beyond the points that were tried."""
    line = np.linspace(0, 3, 13)[:, None]
    seen = line[:7]
    violation = seen[:, 0] - 1.4
    labels = (violation <= 0).astype(float)
    loss = np.ones(len(seen))
    graded = expect(Observations(seen, loss, labels, violation), line).log_feasible
    plain = expect(Observations(seen, loss, labels), line).log_feasible
    within, beyond = line[:, 0] < 1.3, line[:, 0] > 1.5
    assert graded[within].mean() > plain[within].mean()
    assert graded[beyond].mean() < plain[beyond].mean()


@pytest.mark.parametrize("chains", [SIX, MIDDLE])
def test_a_search_learns_where_the_limit_is(chains: tuple) -> None:
    """The faster a candidate, the more it breaks the constraint."""

    def outcome(proposal: Proposal) -> Feedback:
        settings = [value for values in proposal.point.values() for value in values.values()]
        speed = sum(map(ord, repr(settings))) % 5
        return Feedback({"latency_p50": 5.0 - speed}, 0.01 * speed - 0.025, artifact=repr(proposal))

    asked = drive(create_study(SearchConfig(trials=20, stop_early=False), chains, LATENCY), outcome=outcome)
    assert min(outcome(proposal).values["latency_p50"] for proposal in asked if outcome(proposal).violation < 0) == 3.0
