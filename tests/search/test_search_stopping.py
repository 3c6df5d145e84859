"""The end of a search before its budget."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from search_cases import BOTH, LATENCY, MIDDLE, SIX, drive

from autoopt.search import Feedback, Proposal, SearchConfig, create_study
from autoopt.search.surrogates.scalarization import Single
from autoopt.search.surrogates.stopping import (
    LIKELY,
    LONG_WITHOUT_GAIN,
    MIN_CANDIDATES,
    STOPPED,
    WITHOUT_GAIN,
    chance_of_any,
    gain_in_losses,
    is_settled,
)
from autoopt.search.trial import Trial


def settled(
    losses: Sequence[float],
    initial: int = 0,
    artifacts: Sequence[str | None] = (),
    chance: float = 0.0,
    violation: float = 0.0,
) -> bool:
    trials = []
    for number, loss in enumerate(losses):
        artifact = artifacts[number] if artifacts else f"c{number}"
        result = Feedback({"latency_p50": loss}, violation, artifact=artifact)
        trials.append(Trial(Proposal(number, "c", {}), result))
    return is_settled(trials, Single(list(losses)), initial, lambda: chance)


def test_a_search_is_settled_after_enough_candidates_without_gain() -> None:
    enough = max(MIN_CANDIDATES, WITHOUT_GAIN + 1)
    assert settled([1.0] * enough)
    assert not settled([1.0] * (MIN_CANDIDATES - 1))
    assert not settled([1.0] * enough, initial=enough + 1)
    better = [2.0] * 10 + [1.0] * WITHOUT_GAIN
    assert not settled(better)
    assert settled([*better, 1.0])
    assert settled([*better[:-1], 0.999, 1.0])  # not worth a longer search


def test_a_model_that_promises_more_prolongs_a_search_for_a_while() -> None:
    assert settled([1.0] * (WITHOUT_GAIN + 1), chance=LIKELY)
    assert not settled([1.0] * (WITHOUT_GAIN + 1), chance=LIKELY + 0.1)
    assert settled([1.0] * (LONG_WITHOUT_GAIN + 1), chance=1.0)


def test_repeats_and_infeasible_results_do_not_settle_it() -> None:
    artifacts = [f"c{min(number, 10)}" for number in range(20)]
    assert not settled([1.0] * 20, artifacts=artifacts)
    assert not settled([1.0] * 20, violation=0.1)
    assert settled([1.0] * 20, artifacts=[None] * 20)


@given(st.lists(st.floats(0, 1), max_size=20))
def test_the_chance_of_any_is_that_of_independent_events(chances: list[float]) -> None:
    none = 1.0
    for chance in chances:
        none *= 1 - chance
    assert chance_of_any(chances) == pytest.approx(1 - none, abs=1e-6)


def test_the_gain_is_relative() -> None:
    assert gain_in_losses(Single([], unit=1.0)) == pytest.approx(0.01, rel=0.01)
    assert gain_in_losses(Single([], unit=5.0)) == pytest.approx(0.05, rel=0.01)


def plain(proposal: Proposal) -> Feedback:
    """One setting decides, and all else matters little."""
    slow = proposal.point.get("wide", {}).get("signed", True)
    noise = sum(map(ord, repr(proposal.point))) % 7 / 1e4
    return Feedback({"latency_p50": 1.0 + slow + noise, "accuracy": 0.9}, artifact=repr(proposal))


def test_a_search_ends_once_little_can_be_gained_and_says_so() -> None:
    study = create_study(SearchConfig(), MIDDLE, LATENCY)
    asked = drive(study, outcome=plain)
    assert MIN_CANDIDATES <= len(asked) < sum(chain.space.count for chain in MIDDLE) / 2
    assert study.finished == STOPPED
    assert min(plain(proposal).values["latency_p50"] for proposal in asked) < 1.01


def test_a_small_space_is_left_early_too() -> None:
    def even(proposal: Proposal) -> Feedback:
        slow = proposal.point.get("pass5", {}).get("mode", "a") == "a"
        return Feedback({"latency_p50": 1.0 + slow}, artifact=repr(proposal))

    study = create_study(SearchConfig(), SIX, LATENCY)
    assert MIN_CANDIDATES <= len(drive(study, outcome=even)) < 24
    assert study.finished == STOPPED
    assert len(drive(create_study(SearchConfig(stop_early=False), SIX, LATENCY), outcome=even)) == 24


@pytest.mark.parametrize(("options", "objectives"), [({"stop_early": False}, LATENCY), ({}, BOTH)])
def test_a_search_goes_on_if_asked_to_or_for_several_objectives(options: dict, objectives: tuple) -> None:
    study = create_study(SearchConfig(trials=40, **options), MIDDLE, objectives)
    assert len(drive(study, outcome=plain)) == 40
