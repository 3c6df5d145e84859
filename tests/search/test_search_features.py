"""Study points as rows of numbers."""

from __future__ import annotations

import numpy as np
from search_cases import MIDDLE, SIX, chain

from autoopt.search import ChainSpace, iterate
from autoopt.search.surrogates.features import Features
from autoopt.space import Categorical, NodeSpace, SearchSpace


def test_different_points_have_different_rows() -> None:
    for chains in (SIX, MIDDLE):
        rows = Features(chains).rows(list(iterate(chains)))
        assert len(np.unique(rows, axis=0)) == len(rows)
        assert (np.ptp(rows, axis=0) > 0).all()


def test_a_pass_set_alike_is_alike_in_every_chain() -> None:
    chains = (chain("pass1", "pass2"), chain("pass3", "pass2"))
    points = [(c.id, {"pass2": {"mode": m}}) for c in chains for m in "ab"]
    rows = Features(chains).rows(points)
    step = rows[0] - rows[1]
    assert (rows[2] - rows[3] == step).all()
    assert step.any()


def test_settings_belong_to_the_pass_not_to_the_node_name() -> None:
    space = NodeSpace({"x": Categorical("a", "b")})
    first = ChainSpace("one", (("n1", "quantize"),), SearchSpace({"n1": space}))
    second = ChainSpace("two", (("n2", "quantize"),), SearchSpace({"n2": space}))
    rows = Features((first, second)).rows(
        [("one", {"n1": {"x": "a"}}), ("two", {"n2": {"x": "a"}}), ("one", {"n1": {"x": "b"}})]
    )
    assert np.abs(rows[0] - rows[1]).sum() < np.abs(rows[0] - rows[2]).sum()


def test_the_same_pass_twice_keeps_its_settings_apart() -> None:
    space = NodeSpace({"x": Categorical("a", "b")})
    twice = ChainSpace("t", (("n1", "p"), ("n2", "p")), SearchSpace({"n1": space, "n2": space}))
    points = [("t", p) for p in twice.space.iterate()]
    assert len(np.unique(Features((twice,)).rows(points), axis=0)) == 4


def test_fixed_values_count() -> None:
    made = [
        ChainSpace(kind, ((kind, "quantize"),), SearchSpace({kind: NodeSpace(fixed={"type": kind})}))
        for kind in ("int8", "int4", "uint8")
    ]
    rows = Features(made).rows([(c.id, {}) for c in made])
    assert len(np.unique(rows, axis=0)) == 3
    assert rows.shape[1] == 3 + 3


def test_numbers_are_near_when_their_values_are_near() -> None:
    sizes = NodeSpace({"block": Categorical(16, 32, 64, 128, 256)})
    one = ChainSpace("c", (("n", "p"),), SearchSpace({"n": sizes}))
    rows = Features((one,)).rows([("c", {"n": {"block": b}}) for b in (16, 32, 256)])
    assert np.abs(rows[0] - rows[1]).sum() < np.abs(rows[0] - rows[2]).sum()


def test_many_chains_are_no_feature() -> None:
    one = chain("pass2")
    many = [ChainSpace(str(i), one.passes, one.space) for i in range(250)]
    rows = Features(many).rows([(c.id, {"pass2": {"mode": "a"}}) for c in many])
    assert rows.shape[1] == 0
