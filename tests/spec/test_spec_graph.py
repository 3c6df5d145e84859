"""The three ways to write the pass graph."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoopt.spec.graph import mentions, read_chains, read_edges, read_stages
from autoopt.spec.source import FieldError

IDS = st.lists(st.sampled_from("abcdef"), min_size=1, max_size=5, unique=True)


@given(st.lists(IDS, min_size=1, max_size=4))
def test_lists_and_arrows_write_the_same_paths(paths: list[list[str]]) -> None:
    expected = tuple(tuple(path) for path in paths)
    assert read_edges(paths) == expected
    assert read_edges([" -> ".join(path) for path in paths]) == expected
    assert read_chains(paths) == expected


def test_mermaid_arrows_are_arrows() -> None:
    assert read_edges(["a --> b->c"]) == (("a", "b", "c"),)


def test_stages_take_single_passes_alternatives_and_skips() -> None:
    assert read_stages(["a", ["b", None], [None, "c", None]]) == (("a",), ("b", None), (None, "c"))
    assert read_stages((("a", "b"), None, "c")) == (("a", "b"), (None,), ("c",))


def test_every_mention_has_its_place() -> None:
    stages = read_stages(["a", ["b", None]])
    assert list(mentions("stages", stages)) == [("a", ("stages", 0, 0)), ("b", ("stages", 1, 0))]
    assert list(mentions("edges", read_edges(["a -> b"]))) == [("a", ("edges", 0, 0)), ("b", ("edges", 0, 1))]


@pytest.mark.parametrize(
    ("value", "place", "words"),
    [
        ([["a"], ["b", "a", "b"]], (1,), "node 'b' is in it twice: b -> a -> b"),
        ([["a", 3]], (0, 1), "must be a node id, not the number 3"),
        (["a -> "], (0,), "must be a node id, not ''"),
        ([None], (0,), "must be a list of node ids or 'a -> b', not None"),
        ("a -> b", (), "must be a list of edges"),
        ([], (), "is empty"),
    ],
)
def test_malformed_edges_are_refused_at_their_place(value: object, place: tuple[object, ...], words: str) -> None:
    with pytest.raises(FieldError, match=words) as refused:
        read_edges(value)
    assert refused.value.place == place


def test_a_flat_list_of_chains_gets_the_form_for_one_chain() -> None:
    with pytest.raises(FieldError) as refused:
        read_chains(["a", "b"])
    assert refused.value.remedy == "write [[a, b]] for one chain"


@pytest.mark.parametrize(
    ("value", "place", "words"),
    [
        (["a", []], (1,), "has no alternative"),
        ([["a", "b"], ["c", "a"]], (1, 1), "node 'a' is in stage 1 already"),
        (["a", True], (1,), "must be a node id, not True"),
        ([None, None], (), "has no passes"),
    ],
)
def test_malformed_stages_are_refused_at_their_place(value: object, place: tuple[object, ...], words: str) -> None:
    with pytest.raises(FieldError, match=words) as refused:
        read_stages(value)
    assert refused.value.place == place
