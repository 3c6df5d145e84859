"""Constraints as numbers to learn."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from search_cases import LATENCY, MIDDLE, SIX, drive

from autoopt.search import Feedback, Proposal, SearchConfig, Trial, create_study
from autoopt.search.surrogates.models import expect
from autoopt.search.surrogates.observations import Observations
from autoopt.search.surrogates.scalarization import scaled_violations


def trials(violations: Sequence[float | None]) -> list[Trial]:
    """Trials with these violations; None for a failed one."""
    made = []
    for number, violation in enumerate(violations):
        feedback = Feedback(failed=True) if violation is None else Feedback({}, violation)
        made.append(Trial(Proposal(number, "c", {}), feedback))
    return [*made, Trial(Proposal(len(made), "c", {}))]


def test_violations_keep_their_sign_and_order_and_the_scale_of_the_limit() -> None:
    values = [-0.02, -0.001, 0.002, 0.3]
    scaled = scaled_violations(trials([*values, None]))
    assert scaled is not None
    assert all(math.isnan(value) for value in scaled[4:])
    assert sorted(scaled[:4]) == scaled[:4]
    assert scaled[1] < 0 < scaled[2] < 0.5
    assert 3 < scaled[3] < 6
    larger = scaled_violations(trials([1000 * value for value in values]))
    assert larger is not None
    assert larger[:4] == pytest.approx(scaled[:4])


@pytest.mark.parametrize(
    "violations", [[], [-0.1, -0.2, -0.3], [-0.1, None, -0.2], [0.0, 1.0, 1.0], [0.0, 0.1, 0.2], [-1.0, 1.0, 1.0]]
)
def test_without_grades_there_is_nothing_to_learn(violations: list[float | None]) -> None:
    assert scaled_violations(trials(violations)) is None


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
    """What is fast breaks the constraint, the more so the faster it is."""

    def outcome(proposal: Proposal) -> Feedback:
        settings = [value for values in proposal.point.values() for value in values.values()]
        speed = sum(map(ord, repr(settings))) % 5
        return Feedback({"latency_p50": 5.0 - speed}, 0.01 * speed - 0.025, artifact=repr(proposal))

    asked = drive(create_study(SearchConfig(trials=20, stop_early=False), chains, LATENCY), outcome=outcome)
    assert min(outcome(proposal).values["latency_p50"] for proposal in asked if outcome(proposal).violation < 0) == 3.0
