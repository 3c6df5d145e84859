"""The space of a node: the pass's parameters, the user's settings, conditions, and files by content."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoopt.dag.graph.node_spaces import named_files, node_space
from autoopt.errors import ConfigError
from autoopt.registry import REQUIRED, ParameterInfo, PassInfo
from autoopt.space import IGNORED, INVALID, Boolean, Categorical, Conditional, NodeSpace
from autoopt.spec import DagSpec, load_dag

KIND = ParameterInfo("kind", str, "a", Categorical("a", "b"))
TYPE = ParameterInfo(
    "type", str, "x", Conditional("kind", {"a": Categorical("x", "y"), "b": Categorical("y")}, default=INVALID)
)
SHARE = ParameterInfo(
    "share", float, 0.5, Conditional("kind", {"a": Categorical(0.1, 0.2), "b": IGNORED}, default=INVALID)
)
FLAG = ParameterInfo("flag", bool, False, Boolean())
LIMIT = ParameterInfo("limit", int, REQUIRED)
FILE = ParameterInfo("file", str, "", category="path")
TABLE = ParameterInfo("table", str, "", category="data")


def spec_of(params: Any, **fields: Any) -> DagSpec:
    dag = {"name": "d", "passes": {"n": {"pass": "p", "params": params}}, "chains": [["n"]], **fields}
    return load_dag(dag)


def space_of(params: Any, *parameters: ParameterInfo, **fields: Any) -> NodeSpace:
    return node_space(spec_of(params, **fields), "n", PassInfo("p", "t", "s", parameters))


def points(space: NodeSpace) -> list[dict[str, Any]]:
    return list(space.iterate())


def test_without_settings_every_parameter_takes_its_default() -> None:
    space = space_of({}, KIND, FLAG)
    assert points(space) == [{}]
    assert space.config({}) == {"flag": False, "kind": "a"}


def test_search_searches_every_parameter_that_has_values() -> None:
    assert points(space_of("search", KIND, FLAG)) == [
        {"kind": kind, "flag": flag} for kind in ("a", "b") for flag in (True, False)
    ]


def test_the_run_can_search_the_parameters_that_a_node_does_not_set() -> None:
    space = space_of({"kind": "b"}, KIND, FLAG, search="all")
    assert points(space) == [{"flag": True}, {"flag": False}]
    assert space.fixed == {"kind": "b"}


def test_a_setting_is_a_value_a_list_the_pass_s_own_values_or_the_default() -> None:
    assert space_of({"kind": "b"}, KIND).fixed == {"kind": "b"}
    assert points(space_of({"kind": {"search": ["b"]}}, KIND)) == [{"kind": "b"}]
    assert points(space_of({"kind": "search"}, KIND)) == [{"kind": "a"}, {"kind": "b"}]
    assert space_of({"kind": "default"}, KIND, search="all").config({})["kind"] == "a"


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"knd": 1}, "passes.n.params.knd: pass 'p' has no parameter 'knd'; did you mean 'kind'?"),
        ({"flag": 1}, "passes.n.params.flag: must be true or false, not 1"),
        ({"flag": {"search": [True, "no"]}}, "passes.n.params.flag.search[1]: must be true or false, not 'no'"),
        ({"limit": "search"}, "passes.n.params.limit: parameter 'limit' has no search values of its own"),
        ({"limit": "default"}, "passes.n.params.limit: parameter 'limit' has no default; give a value"),
        ({"file": "absent.onnx"}, "passes.n.params.file: no such file: absent.onnx"),
        ({"flag": True}, "passes.n: pass 'p' needs parameter 'limit'; give params: {limit: ...}"),
    ],
)
def test_a_mistake_is_reported_at_its_place(params: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        space_of(params, KIND, FLAG, LIMIT, FILE)
    assert message in str(error.value)


def test_presets_of_an_alias_are_fixed_unless_the_user_sets_them() -> None:
    info = PassInfo("p", "t", "s", (KIND, FLAG), presets={"kind": "b", "flag": True})
    space = node_space(spec_of({"flag": False}, search="all"), "n", info)
    assert space.fixed == {"flag": False, "kind": "b"}
    assert points(space) == [{}]


def test_the_pass_s_conditions_apply_to_the_users_names() -> None:
    space = space_of({"kind": "search", "type": {"search": ["x"]}}, KIND, TYPE)
    assert points(space) == [{"kind": "a", "type": "x"}], "type x is not offered for kind b"
    space = space_of({"kind": "search", "type": "y"}, KIND, TYPE)
    assert points(space) == [{"kind": "a", "type": "y"}, {"kind": "b", "type": "y"}]


def test_numbers_of_the_user_need_not_be_among_the_pass_s_own() -> None:
    space = space_of({"kind": "search", "share": {"search": [0.7]}}, KIND, SHARE)
    assert points(space) == [{"kind": "a", "share": 0.7}, {"kind": "b"}]


@given(st.lists(st.sampled_from(("x", "y")), min_size=1, unique=True), st.sampled_from(("a", "b")))
def test_conditions_never_add_a_value_that_the_user_did_not_give(values: list[str], kind: str) -> None:
    space = space_of({"kind": {"search": [kind]}, "type": {"search": values}}, KIND, TYPE)
    offered = ("x", "y") if kind == "a" else ("y",)
    assert [point["type"] for point in points(space)] == [value for value in values if value in offered]


def test_a_value_withdrawn_on_this_accelerator_leaves_the_default() -> None:
    parameter = ParameterInfo("mode", str, "plain", withdrawn=(("fast", "needs AVX"),))
    assert points(space_of({"mode": "search"}, parameter)) == [{}]


def test_parameters_that_depend_on_each_other_in_a_cycle_are_refused() -> None:
    first = ParameterInfo("first", int, 0, Conditional("second", {1: Categorical(1)}))
    second = ParameterInfo("second", int, 0, Conditional("first", {1: Categorical(1)}))
    with pytest.raises(ConfigError, match=r"passes\.n\.params: parameters depend on each other in a cycle"):
        space_of("search", first, second)


def test_files_are_found_beside_the_dag_and_digested_by_content(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"a")
    (tmp_path / "b.bin").write_bytes(b"b")
    info = PassInfo("p", "t", "s", (FILE, TABLE))
    dag = tmp_path / "dag.yaml"
    dag.write_text(
        "name: d\npasses: {n: {pass: p, params: {file: {search: [a.bin, b.bin]}, table: a.bin}}}\nchains: [[n]]\n"
    )
    spec = load_dag(dag)
    space = node_space(spec, "n", info)
    paths = [str(tmp_path / name) for name in ("a.bin", "b.bin")]
    assert [point["file"] for point in points(space)] == paths
    digests = {file.text: file.digest for file in named_files(spec, info, space)}
    assert sorted(digests) == sorted([*paths, "a.bin"])
    assert digests["a.bin"] == digests[paths[0]] != digests[paths[1]]
    (tmp_path / "b.bin").write_bytes(b"a")
    assert len({file.digest for file in named_files(spec, info, space)}) == 1
    (tmp_path / "a.bin").unlink()
    assert [file.digest for file in named_files(spec, info, space) if file.text == "a.bin"] == [""]
