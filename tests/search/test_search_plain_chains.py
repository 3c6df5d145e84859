"""The best candidate is also tried without its preparation."""

from __future__ import annotations

import math

from search_cases import LATENCY, drive

from autoopt.search import ChainSpace, Feedback, Proposal, SearchConfig, create_study
from autoopt.space import Categorical, NodeSpace, Point, SearchSpace

NODES = {
    "simplify": NodeSpace({"engine": Categorical("slim", "sim")}),
    "fold": NodeSpace(),
    "constants": NodeSpace(),
    "static": NodeSpace({"x": Categorical(*range(12))}),
    "dynamic": NodeSpace({"x": Categorical(*range(12))}),
    "session": NodeSpace({"threads": Categorical(1, 2)}),
}
PREPARATION = frozenset(("simplify", "fold", "constants"))
BEGIN: Point = {"simplify": {"engine": "slim"}, "static": {"x": 5}, "dynamic": {"x": 5}, "session": {"threads": 1}}


def _chain(text: str, *, prior: bool = False, cuts: tuple[Point, ...] = ()) -> ChainSpace:
    nodes = text.split()
    space = SearchSpace({node: NODES[node] for node in nodes}, cuts)
    begin = {node: BEGIN[node] for node in nodes if node in BEGIN}
    return ChainSpace(
        text,
        tuple((node, node) for node in nodes),
        space,
        prior=(begin,) if prior else (),
        preparation=PREPARATION & set(nodes),
    )


CHAINS = (
    _chain("simplify fold static", prior=True),
    _chain("simplify static"),
    _chain("constants fold static"),
    _chain("constants static"),
    _chain("simplify fold dynamic", prior=True),
    _chain("constants dynamic"),
    _chain("simplify fold"),
    _chain("constants"),
)


def _chains_tried(slower: float, chains: tuple[ChainSpace, ...] = CHAINS, *, violation: float = 0.0) -> list[str]:
    """The chains of the first trials, where the simplifier makes models slower by a factor; static is fastest."""

    def outcome(proposal: Proposal) -> Feedback:
        latency = {"static": 1.0, "dynamic": 2.0, "session": 0.5}
        factor = math.prod(latency.get(node, 1.0) for node in proposal.chain.split())
        return Feedback({"latency_p50": factor * (slower if "simplify" in proposal.chain else 1.0)}, violation)

    config = SearchConfig(trials=9, stop_early=False)
    study = create_study(config, chains, LATENCY)
    return [proposal.chain for proposal in drive(study, limit=6, outcome=outcome)]


PRIOR = ["simplify fold static", "simplify fold dynamic"]


def test_the_best_point_is_tried_in_the_chain_that_has_the_least_of_its_preparation() -> None:
    begin = _chains_tried(1.5, (CHAINS[0], CHAINS[3], CHAINS[4]))
    assert begin[:3] == [*PRIOR, "constants static"]


def test_the_same_values_are_tried() -> None:
    study = create_study(SearchConfig(trials=9), CHAINS[:4], LATENCY)
    points = [p.point for p in drive(study, limit=5, outcome=lambda p: Feedback({"latency_p50": float(len(p.chain))}))]
    assert {"static": {"x": 5}} in points


def test_a_candidate_that_breaks_a_constraint_is_not_repeated() -> None:
    assert _chains_tried(1.5, violation=1.0)[2] != "constants static"


def test_a_search_chain_by_chain_knows_only_its_own() -> None:
    study = create_study(
        SearchConfig(trials=20, strategy="per-chain", sampler="surrogate", stop_early=False), CHAINS[3:6], LATENCY
    )
    asked = drive(study, limit=16, outcome=lambda proposal: Feedback({"latency_p50": 1.0 + len(proposal.chain)}))
    assert len(asked) == 16
