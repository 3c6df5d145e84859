"""The JSON of chains and cuts, as stores and scripts read it."""

from __future__ import annotations

from dataclasses import replace

from autoopt.dag.compiler.chain import Chain, ChainNode, CutValue
from autoopt.registry import PassInfo
from autoopt.space import Boolean, NodeSpace, SearchSpace

INFO = PassInfo("p", "t", "s")
SPACE = NodeSpace({"flag": Boolean()})
NODES = (
    ChainNode("helper", "helper", INFO, NodeSpace(), inserted=True),
    ChainNode("a", "p", INFO, SPACE),
    ChainNode("b", "p", INFO, SPACE),
)
CHAIN = Chain("0123456789abcdef", "a -> b", NODES, SearchSpace({"a": SPACE, "b": SPACE}), points_before=4)


def test_passes_are_the_nodes_of_the_spec() -> None:
    assert CHAIN.passes == ("a", "b")
    assert CHAIN.points == 4


def test_a_chain_shows_the_points_before_cuts_only_if_there_are_cuts() -> None:
    data = {"id": "0123456789abcdef", "name": "a -> b", "passes": ["a", "b"], "points": 4}
    assert CHAIN.to_json() == data
    assert replace(CHAIN, points_before=8).to_json() == {**data, "points_before": 8}


def test_a_cut_shows_the_values_beside_it_only_if_there_are_any() -> None:
    cut = CutValue("c", "a", "flag", True, "slow")
    data = {"chain": "c", "node": "a", "param": "flag", "value": True, "reason": "slow"}
    assert cut.to_json() == data
    assert list(cut.to_json()) == list(data), "the order of keys is part of the document"
    beside = {"b": {"flag": False}}
    assert replace(cut, beside=beside).to_json() == {**data, "beside": beside}
