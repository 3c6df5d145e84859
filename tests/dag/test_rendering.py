"""Plans as text."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dag_worlds import make_info

from autoopt.dag import Plan, compile_plan
from autoopt.dag.compiler.plan import Decision
from autoopt.dag.compiler.priors import Prior, Scope
from autoopt.dag.compiler.rendering import tree_text
from autoopt.registry import PassInfo
from autoopt.spec import load_dag


def plan(**fields: Any) -> Plan:
    passes = {"a": "p", "b": {"pass": "q", "params": "search"}, "c": "broken", "d": "asks"}
    infos = {
        "p": make_info("p"),
        "q": make_info("q", 3),
        "broken": make_info("broken", missing="no library"),
        "asks": make_info("asks", requires=("helper",), needs_data=True),
        "helper": make_info("helper"),
    }
    dag = {"name": "drawn", "passes": passes, "edges": ["a -> b -> d", "a -> c"], **fields}
    return compile_plan(load_dag(dag), infos.__getitem__)


def test_the_tree_shows_chains_points_insertions_cuts_and_reasons() -> None:
    made = plan(forbid=[{"values": {"b": {"v": 0}}, "reason": "slow"}])
    chain = next(made.chains())
    assert tree_text(made).splitlines() == [
        "drawn: 1 chain, 2 points (of 3 before cuts), 3 nodes in the prefix tree",
        "└─ a (p)",
        "   └─ b (q, x3)",
        f"      └─ d (asks)  = 2 points (of 3 before cuts)  {chain.id}",
        "inserted: helper before d",
        "cut: a -> b -> d: b.v=0: excluded by 'forbid': slow",
        "pruned: a -> c: c: pass broken is not available: no library [unavailable]",
    ]


def test_the_tree_of_a_proposal_says_why_a_chain_comes_early_or_late() -> None:
    prior = Prior("prefer", Scope(chain=("a",)), weight=0.9, reason="late, because it gains little", origin="library")
    points = Prior("prefer", Scope(chain=("a",)), {"a": {"v": 1}}, origin="library")
    dag = {"name": "d", "passes": {"a": "p"}, "chains": [["a"]]}
    made = compile_plan(load_dag(dag), lambda name: make_info(name, 3), priors=(prior, points))
    lines = tree_text(replace(made, decisions=(Decision("level 1", "asked"),))).splitlines()
    assert [line for line in lines if line.startswith("order:")] == ["order: a: late, because it gains little"]


def test_the_tree_says_what_it_leaves_out() -> None:
    passes = {f"n{i}": "p" for i in range(8)}
    stages = [[f"n{2 * i}", f"n{2 * i + 1}"] for i in range(4)]
    dag = {"name": "many", "passes": passes, "stages": stages, "forbid": [{"nodes": ["n0"]}]}
    text = tree_text(compile_plan(load_dag(dag), make_info), limit=2)
    assert "... and 6 more chains" in text
    assert "pruned: 8 chains in total (forbid: 8)" in text
    assert text.count("pruned: n0 -> ") == 2


def test_a_chain_that_is_the_beginning_of_another_ends_on_its_own_line() -> None:
    dag = {"name": "d", "passes": ["a", "b"], "chains": [["a"], ["a", "b"]]}
    lines = tree_text(compile_plan(load_dag(dag), make_info)).splitlines()
    assert lines[1].startswith("└─ a  = 1 point  ")
    assert lines[2].startswith("   └─ b  = 1 point  ")


def test_an_alias_is_shown_with_the_pass_and_the_parameters_that_it_stands_for() -> None:
    def look_up(name: str) -> PassInfo:
        return make_info("q", presets={"v": 1, "mode": "fast"} if name == "quick" else {})

    dag = {"name": "d", "passes": {"a": "quick", "b": "other"}, "chains": [["a", "b"]]}
    lines = tree_text(compile_plan(load_dag(dag), look_up)).splitlines()
    assert 'alias: a: quick is q with v: 1, mode: "fast"' in lines
    assert "alias: b: other is q" in lines
