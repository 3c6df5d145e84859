"""A pass graph made in Python."""

from __future__ import annotations

import pytest

from autoopt.errors import ConfigError
from autoopt.space import Boolean, Conditional, Integer
from autoopt.spec import Dag, load_dag


def test_the_three_ways_to_connect_nodes() -> None:
    made = Dag("d").add("a", "simplify").add("b", "float16", params="search")
    assert Dag("d").add("a").chain("a").spec().chains == (("a",),)
    assert made.stage("a").stage("b", None).spec().stages == (("a",), ("b", None))
    assert Dag("d").add("a").add("b").edge("a", "b").spec().edges == (("a", "b"),)


def test_parameters_are_written_as_in_a_file() -> None:
    made = (
        Dag("d")
        .add("q", "dynamic_quantization", per_channel=Boolean(), x=Integer(1, 3), weight_type="QInt8")
        .chain("q")
    )
    written = {"per_channel": {"search": [True, False]}, "x": {"search": [1, 2, 3]}, "weight_type": "QInt8"}
    assert made.to_json()["passes"] == {"q": {"pass": "dynamic_quantization", "params": written}}
    assert made.spec().model_dump() == load_dag(made.to_json()).model_dump()


def test_other_fields() -> None:
    spec = Dag("d", search={"trials": 3}).add("a").chain("a").set(objectives=["throughput"], constraints=[]).spec()
    assert spec.search.trials == 3
    assert spec.objectives[0].metric == "throughput"
    assert spec.constraints == ()


def test_mistakes_are_told_like_those_in_a_file() -> None:
    with pytest.raises(ConfigError, match="is in no chain"):
        Dag("d").add("a").add("b").chain("a").spec()
    with pytest.raises(TypeError, match="conditions belong to the pass"):
        Dag("d").add("a", x=Conditional("y", {1: Boolean()}))
    with pytest.raises(TypeError, match="remove x"):
        Dag("d").add("a", params="search", x=1)
