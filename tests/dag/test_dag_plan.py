"""A plan: counts, lists, aliases and the JSON document."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError, replace
from itertools import islice
from typing import Any

import pytest
from dag_worlds import World, make_info, worlds
from hypothesis import given, settings

from autoopt.dag import Plan, compile_plan
from autoopt.dag.compiler.plan import Alias, Decision, Inserted, Learned, Pruned
from autoopt.registry import PassInfo
from autoopt.spec import load_dag

INFOS = {
    "p": make_info("p", 2),
    "broken": make_info("broken", missing="no library"),
    "asks": make_info("asks", requires=("helper",)),
    "helper": make_info("helper"),
}


def look_up(name: str) -> PassInfo:
    return replace(INFOS["p"], presets={"v": 1}) if name == "p_one" else INFOS[name]


def plan_of(**fields: Any) -> Plan:
    passes = {"a": {"pass": "p", "params": "search"}, "b": "broken", "c": "asks", "d": "p_one"}
    dag = {"name": "d", "passes": passes, "stages": ["a", ["b", "c", None], ["d", None]], **fields}
    return compile_plan(load_dag(dag), look_up)


def test_the_counts_and_lists_agree() -> None:
    plan = plan_of()
    assert (plan.chain_count, plan.point_count, plan.pruned_count) == (4, 8, 2)
    assert len(list(plan.chains())) == 4
    assert list(plan.pruned()) == [
        Pruned(name, "unavailable", "b: pass broken is not available: no library") for name in ("a -> b -> d", "a -> b")
    ]
    assert plan.pruned_by_rule == {"unavailable": 2}
    assert [(reason.rule, count) for reason, count in plan.pruned_by_reason.items()] == [("unavailable", 2)]


def test_limits_list_the_first_chains() -> None:
    plan = plan_of()
    assert [c.id for c in plan.chains(2)] == [c.id for c in islice(plan.chains(), 2)]
    assert len(list(plan.pruned(1))) == 1
    data = plan.to_json(limit=1)
    assert (len(data["chains"]), len(data["pruned"]), data["chain_count"]) == (1, 1, 4)  # type: ignore[arg-type]


def test_inserted_passes_and_aliases_are_explained() -> None:
    plan = plan_of()
    assert plan.inserted == (Inserted("helper", "helper", "c"),)
    assert plan.aliases == {"d": Alias("p_one", "p", {"v": 1})}
    data = plan.to_json()
    assert data["inserted"] == [{"node": "helper", "pass": "helper", "before": "c"}]
    assert data["aliases"] == {"d": {"written": "p_one", "pass": "p", "params": {"v": 1}}}
    assert data["nodes"] == {"a": "p", "b": "broken", "c": "asks", "d": "p"}


def test_edges_and_keys_of_pruned_chains_are_not_kept() -> None:
    plan = plan_of()
    assert ("a", "b") not in plan.kept_edges
    assert ("a", "c") in plan.kept_edges
    assert {"a", "c", "d"} <= plan.kept_keys
    assert "b" not in plan.kept_keys


def test_the_document_has_its_keys_in_a_fixed_order() -> None:
    assert list(plan_of().to_json()) == [
        *("dag", "digest", "chain_count", "point_count", "points_before", "prefix_nodes", "edges"),
        *("chains", "pruned", "pruned_count", "pruned_by_rule", "inserted", "cut", "warnings", "nodes"),
        *("aliases", "decided", "learned"),
    ]
    assert "aliases" not in plan_of(passes={"a": "p"}, stages=["a"]).to_json()


def test_decisions_and_learned_preferences_are_part_of_the_document() -> None:
    plan = plan_of(prefer=[{"chain": ["a"], "weight": 2.5}])
    plan = replace(plan, decisions=(Decision("level 1", "asked"),))
    plan = plan.with_learned([Learned("7f", ("a",), {"a": {"x": 1}}, evidence="gave 0.50 on m")])
    data = plan.to_json()
    assert data["decided"] == [{"what": "level 1", "why": "asked"}]
    (learned,) = data["learned"]  # type: ignore[misc]
    assert learned == {"chain": "7f", "name": "a", "point": {"a": {"x": 1}}, "reason": "a: gave 0.50 on m"}


def test_a_plan_is_immutable() -> None:
    with pytest.raises(FrozenInstanceError):
        plan_of().digest = "other"  # type: ignore[misc]


@given(worlds())
@settings(max_examples=40)
def test_the_document_is_json_and_consistent(world: World) -> None:
    plan = compile_plan(load_dag(world.dag), world.info)
    data = json.loads(json.dumps(plan.to_json()))
    assert data["point_count"] == sum(chain["points"] for chain in data["chains"])
    assert data["points_before"] == sum(chain.get("points_before", chain["points"]) for chain in data["chains"])
    assert data["pruned_count"] == len(data["pruned"]) == sum(data["pruned_by_rule"].values())
    assert {cut["chain"] for cut in data["cut"]} <= {chain["id"] for chain in data["chains"]}
    assert data["edges"] == plan.graph.edge_count


def test_a_notebook_shows_the_first_chains_and_the_reasons_of_pruned_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    html = plan_of()._repr_html_()
    assert html.startswith("<p>d: 4 chains, 8 points</p>")
    assert html.count("<tr>") == 1 + 4
    assert "2 pruned: " in html
    monkeypatch.setattr("autoopt.dag.compiler.plan.HTML_ROWS", 3)
    assert "... and 1 more" in plan_of()._repr_html_()
