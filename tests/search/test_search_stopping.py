"""The end of a search before its budget."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from search_cases import BOTH, LATENCY, MIDDLE, SIX, drive

from autoopt.search import Feedback, Proposal, SearchConfig, create_study
from autoopt.search.surrogates.observations import Single
from autoopt.search.surrogates.stopping import (
    Outlook,
    SearchState,
    reason_to_stop,
)
from autoopt.tuning import STOPPING

LITTLE_LEFT = "at most 1 % more to gain, 90 % sure"
NONE_FOR_LONG = "18 candidates brought no gain; at most 2 % more to gain, 90 % sure"


def progress(
    losses: Sequence[float], artifacts: Sequence[str | None] = (), violation: float = 0.0, seconds: Sequence[float] = ()
) -> SearchState:
    trials = []
    for number, loss in enumerate(losses):
        artifact = artifacts[number] if artifacts else f"c{number}"
        took = seconds[number] if seconds else 0.0
        result = Feedback({"latency_p50": loss}, violation, artifact=artifact, seconds=took)
        trials.append(Proposal(number, "c", {}, feedback=result))
    trials.append(Proposal(len(trials), "c", {}))
    return SearchState.of(trials, Single([*losses, math.nan]))


def test_a_search_may_stop_after_enough_distinct_candidates_that_meet_the_constraints() -> None:
    enough = [1.0] * STOPPING.min_candidates
    assert progress(enough).may_stop(initial=0, left=100)
    assert not progress(enough).may_stop(initial=STOPPING.min_candidates + 1, left=100)
    assert not progress(enough[1:]).may_stop(initial=0, left=100)
    assert not progress(enough, artifacts=["same"] * STOPPING.min_candidates).may_stop(initial=0, left=100)
    assert progress(enough, artifacts=[None] * STOPPING.min_candidates).may_stop(initial=0, left=100)
    assert not progress(enough, violation=0.1).may_stop(initial=0, left=100)


@pytest.mark.parametrize(("candidates", "left", "enough"), [(9, 6, True), (8, 6, False), (6, 4, True), (5, 1, False)])
def test_three_fifths_of_the_candidates_of_a_small_space_are_enough(candidates: int, left: int, enough: bool) -> None:
    assert progress([1.0] * candidates).may_stop(initial=0, left=left) is enough


def test_candidates_count_as_without_gain_unless_they_are_better_by_a_hundredth() -> None:
    assert progress([2.0, 2.0, 1.0, 1.0, 1.5]).without_gain == 2
    assert progress([2.0, 2.0, 1.995, 3.0]).without_gain == 3


def test_trials_that_took_no_time_say_nothing_about_the_usual_time() -> None:
    assert progress([1.0] * 4, seconds=[0.0, 4.0, 2.0, 60.0]).seconds == 4.0
    assert progress([1.0] * 4).seconds == 0.0


@given(st.lists(st.floats(0, 1), min_size=20, max_size=300), st.floats(0.1, 10))
def test_one_gain_in_fifty_exceeds_the_bound_before_it_is_widened(gains: list[float], unit: float) -> None:
    outlook = Outlook.of(gains, 0.0, unit)
    narrow = outlook.bound / STOPPING.widened
    assert sum(gain / unit > narrow + 1e-9 for gain in gains) <= (1 - STOPPING.drawn_below) * len(gains) + 1
    assert sum(gain / unit < narrow - 1e-9 for gain in gains) <= STOPPING.drawn_below * len(gains) + 1
    assert 0 <= outlook.expected <= max(gains) / unit + 1e-9


def test_without_any_results_everything_is_possible() -> None:
    assert Outlook.of([], 0.0, 1.0) == Outlook(math.inf, math.inf)
    assert not reason_to_stop(Outlook.of([], 0.0, 1.0), SearchState(12, 0, True, 60.0), 0.5)


@pytest.mark.parametrize(
    ("outlook", "without_gain", "seconds", "reason"),
    [
        (Outlook(0.0, 0.0), 0, 0.0, LITTLE_LEFT),
        (Outlook(0.01, 0.002), 0, 0.0, LITTLE_LEFT),
        (Outlook(0.04, 0.011), STOPPING.many_without_gain - 1, 0.0, ""),
        (Outlook(0.3, 0.05), STOPPING.many_without_gain, 0.0, NONE_FOR_LONG),
        (Outlook(0.3, 0.05, drawn=0.08), STOPPING.many_without_gain, 0.0, NONE_FOR_LONG.replace("2 %", "8 %")),
        (
            Outlook(0.3, 0.1),
            STOPPING.many_without_gain,
            0.0,
            "18 candidates brought no gain; at most 30 % more to gain, 90 % sure",
        ),
        (Outlook(0.01, 0.002), STOPPING.many_without_gain, 0.0, LITTLE_LEFT),
        (Outlook(0.04, 0.011), 0, 6.0, ""),  # ten trials a minute
        (
            Outlook(0.041, 0.03),
            0,
            60.0,
            "less than 0.5 % per minute is expected to be gained; at most 5 % more to gain, 90 % sure",
        ),
        (Outlook(0.041, 0.009), 0, 0.0, "less than 1 % is expected to be gained; at most 5 % more to gain, 90 % sure"),
        (
            Outlook(0.07, 0.017, noise=0.009),
            0,
            0.0,
            "less than 1.8 % is expected to be gained; at most 7 % more to gain, 90 % sure",
        ),
        (Outlook(0.2, 0.025, noise=0.3), 0, 0.0, ""),  # what looks like so much noise may be structure
    ],
)
def test_a_search_stops_where_little_is_left_or_takes_too_long(
    outlook: Outlook, without_gain: int, seconds: float, reason: str
) -> None:
    assert reason_to_stop(outlook, SearchState(20, without_gain, True, seconds), 0.005) == reason


def plain(proposal: Proposal) -> Feedback:
    """One setting decides, and all else matters little."""
    slow = proposal.point.get("wide", {}).get("signed", True)
    noise = sum(map(ord, repr(proposal.point))) % 7 / 1e4
    return Feedback({"latency_p50": 1.0 + slow + noise, "accuracy": 0.9}, artifact=repr(proposal))


def test_a_search_ends_once_little_can_be_gained_and_says_so() -> None:
    study = create_study(SearchConfig(), MIDDLE, LATENCY)
    asked = drive(study, outcome=plain)
    assert STOPPING.min_candidates <= len(asked) < sum(chain.space.count for chain in MIDDLE) / 2
    assert str(study.finished).startswith("stopped early: ")
    assert min(plain(proposal).values["latency_p50"] for proposal in asked) < 1.01


def test_a_small_space_is_left_early_too() -> None:
    def even(proposal: Proposal) -> Feedback:
        slow = proposal.point.get("pass5", {}).get("mode", "a") == "a"
        return Feedback({"latency_p50": 1.0 + slow}, artifact=repr(proposal))

    study = create_study(SearchConfig(), SIX, LATENCY)
    assert STOPPING.min_candidates <= len(drive(study, outcome=even)) < 24
    assert str(study.finished).startswith("stopped early: ")
    assert len(drive(create_study(SearchConfig(stop_early=False), SIX, LATENCY), outcome=even)) == 24


@pytest.mark.parametrize("objectives", [LATENCY, BOTH])
def test_a_search_goes_on_if_asked_to(objectives: tuple) -> None:
    study = create_study(SearchConfig(trials=40, stop_early=False), MIDDLE, objectives)
    assert len(drive(study, outcome=plain)) == 40


def test_a_search_for_several_objectives_ends_once_its_front_gains_little() -> None:
    study = create_study(SearchConfig(trials=40), MIDDLE, BOTH)
    asked = drive(study, outcome=plain)
    assert STOPPING.min_candidates <= len(asked) < 40
    assert str(study.finished).startswith("stopped early: ")
    assert "% more hypervolume to gain, 90 % sure" in str(study.finished)
    assert min(plain(proposal).values["latency_p50"] for proposal in asked) < 1.01


def rugged(proposal: Proposal, seconds: float) -> Feedback:
    """Each point has a latency of its own, from which nothing can be learned."""
    number = sum(place * ord(letter) for place, letter in enumerate(repr(proposal.point)))
    return Feedback({"latency_p50": 1.0 + number % 101 / 100}, artifact=repr(proposal), seconds=seconds)


def test_slow_trials_end_a_search_in_which_much_may_be_left() -> None:
    asked: dict[float, int] = {}
    reasons: dict[float, str] = {}
    for seconds in (0.0, 1e5):
        study = create_study(SearchConfig(trials=30), MIDDLE, LATENCY)
        asked[seconds] = len(drive(study, outcome=lambda proposal, took=seconds: rugged(proposal, took)))
        reasons[seconds] = str(study.finished)
    assert asked[1e5] < asked[0.0]
    assert reasons[1e5].startswith("stopped early: less than 0.5 % per minute is expected to be gained; at most ")
    patient = create_study(SearchConfig(trials=30, min_gain_per_minute=0), MIDDLE, LATENCY)
    assert len(drive(patient, outcome=lambda proposal: rugged(proposal, 1e5))) == asked[0.0]


def test_a_process_is_doubted_the_more_the_longer_nothing_was_better() -> None:
    doubts = [progress([1.0] * number).doubt for number in range(1, 48) if number % STOPPING.turn]
    assert doubts[0] == 1.0
    assert doubts == sorted(doubts)
    assert doubts[-1] > 4
    assert progress([*[1.0] * 43, 0.5]).doubt == 1.0
    assert progress([1.0] * 45).doubt == 1.0, "at times it is trusted all the same"
