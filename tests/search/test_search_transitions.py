"""Points that are known to repeat a candidate: not asked, not counted, and learnt from."""

from __future__ import annotations

import itertools

import pytest
from search_cases import LATENCY, NODES, SIX, drive, text

from autoopt.search import ChainSpace, Feedback, Proposal, SearchConfig, Study, create_study, iterate
from autoopt.search.history import History, Known, steps_of
from autoopt.space import Categorical, NodeSpace, SearchSpace

NOTHING = frozenset(("pass1", "pass3"))
"""Passes that change no candidate."""
LARGE = (
    *SIX,
    *(
        ChainSpace(">".join(nodes), tuple((node, node) for node in nodes), SearchSpace({n: NODES[n] for n in nodes}))
        for nodes in itertools.permutations(("pass2", "pass4", "pass5"), 2)
    ),
    ChainSpace("wide", (("w", "w"),), SearchSpace({"w": NodeSpace({"x": Categorical(*range(20))})})),
)


def path_of(study: Study, proposal: Proposal) -> tuple[str, ...]:
    """The candidates on the way; some passes do nothing, and `pass2` is the same in all modes."""
    candidate = "source"
    path = []
    for node in study.history.by_id[proposal.chain].nodes:
        settings = {} if node == "pass2" else proposal.point.get(node, {})
        if node not in NOTHING:
            candidate = f"{candidate}|{node}{settings}"
        path.append(candidate)
    return tuple(path)


def result(study: Study, proposal: Proposal) -> Feedback:
    path = path_of(study, proposal)
    return Feedback({"latency_p50": 1.0 + len(path[-1]) % 7}, artifact=path[-1], path=path)


def test_siblings_share_the_result_and_the_source_has_none() -> None:
    history = History(SIX, LATENCY)
    history.add(Proposal(0, "pass1>pass5", {"pass5": {"mode": "a"}}))
    told = Feedback({"latency_p50": 2.0}, artifact="made", path=("source", "made"))
    history.tell(0, told)
    assert history.known(steps_of(("pass5",), {"pass5": {"mode": "a"}})) == Known(told)
    assert history.known(steps_of(("pass1",), {})) == Known()
    assert history.known(steps_of(("pass1", "pass3"), {})) is None
    assert history.repeats == 0


@pytest.mark.parametrize("chains", [SIX, LARGE])
def test_known_repeats_are_never_asked(chains: tuple[ChainSpace, ...]) -> None:
    study = create_study(SearchConfig(stop_early=False), chains, LATENCY)
    asked = drive(study, outcome=lambda proposal: result(study, proposal))
    all_points = [Proposal(0, chain, point) for chain, point in iterate(chains)]
    distinct = {path_of(study, proposal)[-1] for proposal in all_points}
    assert {path_of(study, proposal)[-1] for proposal in asked} >= distinct - {"source"}
    assert len(asked) < len(all_points)
    assert len({text(proposal) for proposal in asked}) == len(asked)
    known = History(chains, LATENCY)
    for number, proposal in enumerate(asked):
        assert known.known(steps_of(known.by_id[proposal.chain].nodes, proposal.point)) is None
        known.add(Proposal(number, proposal.chain, proposal.point))
        known.tell(number, result(study, proposal))


def test_repeats_do_not_count_as_trials_and_are_limited_too() -> None:
    study = create_study(SearchConfig(trials=4), LARGE, LATENCY)
    every_second = itertools.count()

    def outcome(proposal: Proposal) -> Feedback:
        return Feedback({"latency_p50": 1.0}, artifact=f"c{next(every_second) // 2}")

    assert len(drive(study, outcome=outcome)) == 7  # 4 candidates, and 3 repeats between them
    assert study.history.repeats == 3
    only_repeats = create_study(SearchConfig(trials=4), LARGE, LATENCY)
    assert len(drive(only_repeats, outcome=lambda proposal: Feedback({"latency_p50": 1.0}, artifact="source"))) == 4
