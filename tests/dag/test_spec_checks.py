"""Statements of a spec about chains, values and the search order are checked against its graph."""

from __future__ import annotations

from typing import Any

import pytest

from autoopt.dag.graph.pass_graph import build_graph
from autoopt.dag.graph.spec_checks import SpecChecks
from autoopt.errors import ConfigError
from autoopt.space import Boolean, Categorical, NodeSpace
from autoopt.spec import load_dag

SPACES = {
    "a": NodeSpace({"size": Categorical(list(range(1, 21)))}),
    "b": NodeSpace({"flag": Boolean()}),
    "c": NodeSpace(),
}


def staged(order: list[Any]) -> dict[str, Any]:
    return {"strategy": "per-chain", "order": order}


def check(**fields: Any) -> None:
    graph = {"chains": [["a", "b"], ["a", "c"]]} if not {"stages", "edges"} & set(fields) else {}
    spec = load_dag({"name": "d", "passes": list("abc"), **graph, **fields})
    SpecChecks(spec, build_graph(spec), SPACES).check()


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"forbid": ["a -> b"], "require": ["a -> c"], "prefer": ["a -> b"]},
        {"forbid": [{"values": {"a": {"size": 20}, "b": {"flag": False}}}]},
        {"weights": {"a -> b": 2.0, "0123456789abcdef": 0.5}},
        {"stages": [["a", None], ["b", "c", None]], "forbid": ["a", "a -> c", "b"]},
        {"edges": ["a -> b -> c"], "search": staged(["a", ["b", "c"]])},
        {"search": staged([["a", "b"], "c"])},
    ],
)
def test_statements_that_fit_the_graph_pass(fields: dict[str, Any]) -> None:
    check(**fields)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"forbid": ["b -> a"]}, "forbid[0]: no chain of this graph begins with b"),
        ({"forbid": ["a -> b", "a -> b -> c"]}, "forbid[1]: no chain of this graph begins with a -> b -> c"),
        ({"require": ["a"]}, "require[0]: no chain of this graph ends after a"),
        ({"weights": {"b": 2.0}}, "weights.b: no chain of this graph begins with b"),
        ({"weights": {"zzz": 2.0}}, "weights.zzz: is not a chain; write its name 'a -> b' or its id"),
        (
            {"forbid": [{"values": {"b": {"flg": True}}}]},
            "forbid[0].values.b.flg: parameter 'flg' is not searched here; did you mean 'flag'?",
        ),
        ({"forbid": [{"values": {"c": {"v": 1}}}]}, "'v' is not searched here; searched: nothing"),
        ({"require": [{"values": {"b": {"flag": 1}}}]}, "must be one of True, False, not 1"),
        ({"require": [{"values": {"a": {"size": 0}}}]}, "must be one of 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, ..., not 0"),
        (
            {"edges": ["a -> b -> c"], "search": staged([["a", "c"], "b"])},
            "search.order: 'c' comes before 'b' here, and after it in a chain",
        ),
    ],
)
def test_a_statement_that_does_not_fit_the_graph_is_refused_at_its_place(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        check(**fields)
    assert message in str(error.value)


def test_only_chains_that_exist_decide_about_the_order() -> None:
    check(chains=[["a", "b"], ["a", "c"]], search=staged(["a", "c", "b"]))
    check(stages=[["a", "b"], ["c", None]], search=staged(["b", "a", "c"]))
