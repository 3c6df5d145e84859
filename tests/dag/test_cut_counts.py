"""Points are counted by the parts of cuts that they match, exactly as listing them would."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoopt.dag.compiler import cut_counts
from autoopt.dag.compiler.cut_counts import NO_POINTS_YET, CutCounter
from autoopt.dag.graph.priors import Cut, Scope
from autoopt.errors import InputError
from autoopt.space import Categorical, NodeSpace, matches

NODES = ("a", "b", "c")
SPACES = {node: NodeSpace({"v": Categorical(0, 1, 2), "w": Categorical(0, 1)}) for node in NODES}
cut_values = st.dictionaries(
    st.sampled_from(NODES),
    st.dictionaries(st.sampled_from("vw"), st.integers(0, 1), min_size=1),
    min_size=1,
)
cuts_everywhere = st.lists(st.builds(Cut, st.just(Scope()), cut_values, st.just("")), max_size=4)


@given(cuts_everywhere)
def test_the_points_that_remain_are_those_that_match_no_cut(cuts: list[Cut]) -> None:
    counter = CutCounter(cuts, SPACES)
    counts = NO_POINTS_YET
    for node in NODES:
        counts = counter.extend(counts, node)
    remaining = 0
    for values in product(*(space.iterate() for space in SPACES.values())):
        point = dict(zip(NODES, values, strict=True))
        remaining += not any(matches(point, cut.values) for cut in cuts)
    assert sum(counts.values()) == remaining


@given(st.lists(st.builds(Cut, st.just(Scope(chain=NODES)), cut_values, st.just("")), max_size=3))
def test_a_cut_of_some_chains_keeps_its_points_apart_until_the_chain_is_known(cuts: list[Cut]) -> None:
    counter = CutCounter(cuts, SPACES)
    counts = NO_POINTS_YET
    for node in NODES:
        counts = counter.extend(counts, node)
    assert sum(counts.values()) == 6**3, "no point is dropped early"
    allowed = sum(count for matched, count in counts.items() if not counter.excludes(matched, lambda scope: True))
    points = [dict(zip(NODES, parts, strict=True)) for parts in product(*(s.iterate() for s in SPACES.values()))]
    assert allowed == sum(not any(matches(point, cut.values) for cut in cuts) for point in points)
    assert not any(counter.excludes(matched, lambda scope: False) for matched in counts)


def test_without_cuts_points_multiply() -> None:
    counter = CutCounter([], SPACES)
    assert counter.extend({frozenset(): 10**40}, "a") == {frozenset(): 6 * 10**40}


def test_a_node_that_no_cut_names_is_not_enumerated() -> None:
    huge = NodeSpace({f"p{i}": Categorical(list(range(1000))) for i in range(10)})
    counter = CutCounter([Cut(Scope(), {"a": {"v": 0}}, "")], {**SPACES, "huge": huge})
    assert sum(counter.extend(NO_POINTS_YET, "huge").values()) == 10**30


def test_too_many_points_under_a_combined_cut_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cut_counts, "MAX_SPLIT", 5)
    with pytest.raises(InputError, match="priors on values of 'a' need at most 5 points there; it has 6") as error:
        CutCounter([Cut(Scope(), {"a": {"v": 0}, "b": {"v": 1}}, "")], SPACES)
    assert error.value.remedy == "search fewer values, or state the prior about one value alone"
