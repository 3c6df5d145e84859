"""The pass graph: every path from start to end is one chain."""

from __future__ import annotations

from itertools import combinations, product
from typing import Any

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoopt.dag.compiler.pass_graph import END, START, build_graph
from autoopt.errors import ConfigError
from autoopt.spec import load_dag


def paths(**graph: Any) -> tuple[set[tuple[str, ...]], Any]:
    nodes = list("abcde")
    kind, written = next(iter(graph.items()))
    used = [n for n in nodes if n in str(written).replace("None", "")]
    built = build_graph(load_dag({"name": "d", "passes": used, kind: written}))
    assert nx.is_directed_acyclic_graph(built.graph)
    assert (built.order[0], built.order[-1]) == (START, END)
    found = {
        tuple(built.node_of[k] for k in p[1:-1]) for p in nx.all_simple_paths(built.graph, START, END) if len(p) > 2
    }
    return found, built


def test_lists_become_a_prefix_tree_of_copies() -> None:
    found, built = paths(chains=[list("abc"), list("dbe"), list("ab")])
    assert found == {tuple("abc"), tuple("dbe"), tuple("ab")}
    assert sorted(k for k in built.node_of if built.node_of[k] == "b") == ["b", "b#2"]
    assert built.edge_count == 4


def test_stages_connect_across_skips() -> None:
    found, built = paths(stages=["a", ["b", None], [None, "c", "d"]])
    assert found == {("a",), tuple("ab"), tuple("ac"), tuple("ad"), tuple("abc"), tuple("abd")}
    assert built.edge_count == 5


def test_skips_at_the_start_and_the_end() -> None:
    found, built = paths(stages=[["a", None], ["b", None]])
    assert found == {("a",), ("b",), tuple("ab")}
    assert not built.graph.has_edge(START, END)


def test_edges_give_every_root_to_leaf_path() -> None:
    found, built = paths(edges=["a -> b -> d", ["a", "c"], "c -> d", "e"])
    assert found == {tuple("abd"), tuple("acd"), ("e",)}
    assert built.edge_count == 4


@st.composite
def links(draw: st.DrawFn) -> list[str]:
    """Edges of a random DAG over the nodes a to e: each leads to a later letter."""
    pairs = [f"{one} -> {other}" for one, other in combinations("abcde", 2)]
    return draw(st.lists(st.sampled_from(pairs), min_size=1, unique=True))


@given(links())
def test_edges_give_the_same_paths_as_networkx(edges: list[str]) -> None:
    expected = nx.DiGraph([tuple(edge.split(" -> ")) for edge in edges])
    roots = [node for node in expected if not expected.in_degree(node)]
    leaves = [node for node in expected if not expected.out_degree(node)]
    chains = set()
    for root, leaf in product(roots, leaves):
        chains |= set(map(tuple, nx.all_simple_paths(expected, root, leaf)))
    built_paths, built = paths(edges=edges)
    assert built_paths == chains
    assert built.edge_count == expected.number_of_edges()


@given(
    st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=3, unique=True).map(tuple), min_size=1, max_size=5)
)
def test_listed_chains_are_the_only_ones(chains: list[tuple[str, ...]]) -> None:
    built_paths, built = paths(chains=[list(chain) for chain in dict.fromkeys(chains)])
    assert built_paths == set(chains)
    prefixes = {chain[:length] for chain in chains for length in range(1, len(chain) + 1)}
    assert len(built.node_of) == len(prefixes)


@pytest.mark.parametrize(
    ("edges", "cycle"),
    [
        (["a -> b", "b -> a"], {"a -> b -> a", "b -> a -> b"}),
        (["a -> b -> c", "c -> b"], {"b -> c -> b", "c -> b -> c"}),
    ],
)
def test_a_cycle_is_shown_at_the_edge_that_closes_it(edges: list[str], cycle: set[str]) -> None:
    with pytest.raises(ConfigError, match=r"is part of a cycle") as error:
        paths(edges=edges)
    assert error.value.field == f"edges[{len(edges) - 1}]"
    assert any(text in str(error.value) for text in cycle)
