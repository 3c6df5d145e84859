"""The best candidate is also tried with other settings at run time."""

from __future__ import annotations

from search_cases import BOTH, LATENCY, drive

from autoopt.search import ChainSpace, Feedback, Proposal, SearchConfig, create_study
from autoopt.search.history import History
from autoopt.search.samplers.run_settings import with_first_settings
from autoopt.space import Boolean, Categorical, NodeSpace, Point, SearchSpace

NODES = {
    "a": NodeSpace({"x": Categorical(*range(12))}),
    "session": NodeSpace({"default": Boolean(), "level": Categorical("all", "basic")}),
}
CUTS = ({"session": {"default": True, "level": "all"}},)
FIRST = {"default": True, "level": "basic"}
SLOW = {"a": {"x": 11}, "session": {"default": False, "level": "basic"}}


def _chain(prior: Point, *, sets_only_run: bool = False) -> ChainSpace:
    space = SearchSpace({node: NODES[node] for node in prior}, CUTS)
    passes = tuple((node, node) for node in prior)
    return ChainSpace(">".join(prior), passes, space, prior=(prior,), sets_only_run=sets_only_run)


CHAINS = [_chain({"a": {"x": 5}}), _chain(SLOW, sets_only_run=True)]


def _points(factor: float, violation: float = 0.0) -> list[Point]:
    """The first points of a search in which settings change the latency by a factor."""

    def outcome(proposal: Proposal) -> Feedback:
        latency = (1.0 + proposal.point["a"]["x"]) * (factor if "session" in proposal.point else 1.0)
        return Feedback({"latency_p50": latency}, violation)

    study = create_study(SearchConfig(trials=14, stop_early=False), CHAINS, LATENCY)
    return [proposal.point for proposal in drive(study, limit=8, outcome=outcome)]


def test_the_best_point_is_tried_with_the_first_settings_that_are_allowed() -> None:
    assert _points(0.9)[:3] == [{"a": {"x": 5}}, SLOW, {"a": {"x": 5}, "session": FIRST}]


def test_settings_that_lost_twice_are_not_tried_on_the_next_best() -> None:
    points = _points(1.5)
    assert {"a": {"x": 0}} in points
    assert {"a": {"x": 0}, "session": FIRST} not in points


def test_a_candidate_that_breaks_a_constraint_is_not_tried_with_settings() -> None:
    assert {"a": {"x": 5}, "session": FIRST} not in _points(0.9, violation=1.0)[:3]


def test_settings_come_first_for_one_objective_only() -> None:
    chain, with_settings = CHAINS
    suggested: list[bool] = []
    for objectives in (LATENCY, BOTH):
        history = History(CHAINS, objectives)
        history.add(Proposal(0, chain.id, chain.prior[0]))
        history.tell(0, Feedback({"latency_p50": 1.0, "accuracy": 0.9}))
        suggested.append(with_first_settings(CHAINS, history) == (with_settings.id, {"a": {"x": 5}, "session": FIRST}))
    assert suggested == [True, False]
