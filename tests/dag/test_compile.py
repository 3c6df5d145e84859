"""From dag.yaml to a plan: chains, reasons, insertions, cuts, priors, identity."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autoopt.dag import Facts, Plan, compile_plan, pass_infos
from autoopt.errors import ConfigError, InputError
from autoopt.model.inspection import Inspection
from autoopt.registry import REQUIRED, ParameterInfo, PassInfo
from autoopt.space import IGNORED, Boolean, Categorical, Conditional
from autoopt.spec import Dag, load_dag
from autoopt.spec.source import Place
from autoopt.target import Accelerator

ROOT = Path(__file__).parents[2]


def number(name: str, *values: int, default: Any = 0) -> ParameterInfo:
    return ParameterInfo(name, int, default, Categorical(list(values)) if values else None)


FILE = ParameterInfo("file", str, "", category="path")
MUCH = (0.1, 0.2)
TYPE = Conditional("kind", {"a": Categorical("x", "y"), "b": Categorical("y")})
PASSES = {
    i.name: i
    for i in (
        PassInfo("plain", "t", "s"),
        PassInfo("three", "t", "s", (number("v", 1, 2, 3),)),
        PassInfo("two", "t", "s", (number("w", 1, 2), ParameterInfo("flag", bool, False, Boolean()))),
        PassInfo("lossy", "t", "s", tolerance="lossy", needs_ops=("Conv",), conflicts=("lossy",)),
        PassInfo("folds", "t", "s", needs_ops=("BatchNormalization",), aliases=("bn",)),
        PassInfo("calibrated", "t", "s", tolerance="lossy", needs_data=True, requires=("prepare",)),
        PassInfo("prepare", "t", "s", requires=("plain",)),
        PassInfo("session", "t", "s", (number("level", 1, 2, 3),), session_only=True),
        PassInfo("cuda", "t", "s", accelerators=("CUDAExecutionProvider",)),
        PassInfo("absent", "t", "s", missing="x is not installed; pip install x"),
        PassInfo("needs_absent", "t", "s", requires=("absent",)),
        PassInfo("needs_unknown", "t", "s", requires=("nobody",)),
        PassInfo("demanding", "t", "s", (number("must", default=REQUIRED), FILE)),
        PassInfo("needs_demanding", "t", "s", requires=("demanding",)),
        PassInfo("ring", "t", "s", requires=("ring2",)),
        PassInfo("ring2", "t", "s", requires=("ring",)),
        PassInfo("hates_plain", "t", "s", conflicts=("plain",)),
        PassInfo("needs_hater", "t", "s", requires=("hates_plain",)),
        PassInfo(
            "conditional", "t", "s",
            (
                ParameterInfo("kind", str, "a", Categorical("a", "b", "c")),
                ParameterInfo("type", str, "x", TYPE),
                ParameterInfo("much", float, 0.5, Conditional("kind", {"a": Categorical(*MUCH)}, default=IGNORED)),
            ),
        ),
    )
}  # fmt: skip
BY_ALIAS = {alias: i for i in PASSES.values() for alias in i.aliases}


def info(name: str) -> PassInfo:
    if name not in PASSES and name not in BY_ALIAS:
        raise InputError(f"unknown pass {name!r}", remedy="did you mean 'plain'?")
    return PASSES.get(name) or BY_ALIAS[name]


def plan(facts: Facts | None = None, **fields: Any) -> Plan:
    """A plan of nodes called like their passes, unless `passes` says otherwise."""
    chains = fields.get("chains", [])
    fields.setdefault("passes", list(dict.fromkeys(n for c in chains for n in c)))
    return compile_plan(load_dag({"name": "d", **fields}), info, facts)


def kept(made: Plan) -> dict[str, int]:
    return {c.name: c.points for c in made.chains()}


def reasons(made: Plan) -> dict[str, tuple[str, str]]:
    return {p.name: (p.rule, p.reason) for p in made.pruned()}


@pytest.mark.parametrize("file", sorted(ROOT.glob("dags/*.yaml")), ids=lambda f: f.name)
def test_the_dags_that_ship_compile(file: Path) -> None:
    spec = load_dag(file)
    spec.check_files()
    made = compile_plan(spec, pass_infos(spec.all_targets[0].accelerator()))
    assert made.chain_count >= 1
    assert made.warnings == ()


def test_the_six_pass_example_has_six_chains_and_24_points() -> None:
    spec = load_dag(ROOT / "dags/six_pass.yaml")
    data = compile_plan(spec, pass_infos(Accelerator())).to_json()
    assert [(c["name"], c["points"]) for c in data["chains"]] == [
        ("pass1 -> pass2 -> pass5", 9),
        ("pass1 -> pass3 -> pass5", 3),
        ("pass1 -> pass3 -> pass6", 1),
        ("pass1 -> pass4 -> pass5", 6),
        ("pass1 -> pass4 -> pass6", 2),
        ("pass1 -> pass5", 3),
    ]
    assert (data["chain_count"], data["point_count"], data["edges"], data["prefix_nodes"]) == (6, 24, 9, 10)
    assert data["pruned"] == data["cut"] == []
    assert data["chains"][0]["passes"] == ["pass1", "pass2", "pass5"]
    assert json.loads(json.dumps(data)) == data


def test_session_options_are_searched_only_if_an_objective_depends_on_them() -> None:
    nodes = {"three": {"pass": "three", "params": "search"}, "session": {"pass": "session", "params": "search"}}
    chains = [["three", "session"]]
    small = plan(passes=nodes, chains=chains, objectives=[{"metric": "size"}])
    assert kept(small) == {"three -> session": 3}
    assert small.warnings[0].startswith("session: not searched")
    fast = [{"metric": "size"}, {"metric": "latency_p50"}]
    assert kept(plan(passes=nodes, chains=chains, objectives=fast)) == {"three -> session": 9}
    limit = [{"metric": "peak_memory", "max": 1e9}]
    limited = plan(passes=nodes, chains=chains, objectives=[{"metric": "size"}], constraints=limit)
    assert kept(limited) == {"three -> session": 9}


def test_lists_that_share_passes_never_make_new_chains() -> None:
    passes = dict.fromkeys("abcde", "plain")
    made = plan(passes=passes, chains=[["a", "b", "c"], ["d", "b", "e"]])
    assert list(kept(made)) == ["a -> b -> c", "d -> b -> e"]
    nested = plan(passes=passes, chains=[["a", "b"], ["a"], ["a", "b"], ["a", "b", "c", "d", "e"]])
    assert list(kept(nested)) == ["a -> b", "a -> b -> c -> d -> e", "a"]
    assert nested.prefix_nodes == 5


def test_stages_give_every_choice_and_the_source_itself_is_no_chain() -> None:
    made = plan(passes=dict.fromkeys("abc", "plain"), stages=["a", ["b", None], [None, "c"]])
    assert set(kept(made)) == {"a", "a -> b", "a -> c", "a -> b -> c"}
    assert set(kept(plan(passes=["plain"], stages=[["plain", None]]))) == {"plain"}


def test_a_pass_may_stand_in_several_nodes_with_points_of_their_own() -> None:
    node = {"pass": "three", "params": "search"}
    made = plan(passes={"x": node, "y": node}, chains=[["x", "y"]])
    chain = next(made.chains())
    assert chain.points == 9
    assert {(p["x"]["v"], p["y"]["v"]) for p in chain.space.iterate()} == {(a, b) for a in (1, 2, 3) for b in (1, 2, 3)}


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        (["a -> b", "b -> c", "c -> a"], "edges[2]: is part of a cycle: "),
        (["a -> b -> c", "c -> b"], "edges[1]: is part of a cycle: b -> c -> b"),
    ],
)
def test_a_cycle_is_told_at_its_last_edge(edges: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        plan(passes=dict.fromkeys("abc", "plain"), edges=edges)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("node", "place", "reason"),
    [
        ({"pass": "plan"}, "passes.n.pass", "unknown pass 'plan'; did you mean 'plain'?"),
        ({"pass": "two", "params": {"flg": True}}, "passes.n.params.flg", "did you mean 'flag'?"),
        ({"pass": "two", "params": {"flag": 1}}, "passes.n.params.flag", "must be true or false, not 1"),
        ({"pass": "two", "params": {"w": {"search": [1, "x"]}}}, "passes.n.params.w.search[1]", "must be int, not 'x'"),
        ({"pass": "demanding"}, "passes.n", "needs parameter 'must'"),
        ({"pass": "demanding", "params": {"must": "default"}}, "passes.n.params.must", "has no default"),
        ({"pass": "demanding", "params": {"must": "search"}}, "passes.n.params.must", "no search values of its own"),
        (
            {"pass": "demanding", "params": {"must": 1, "file": "no.txt"}},
            "passes.n.params.file",
            "no such file: no.txt",
        ),
    ],
)
def test_mistakes_in_nodes(node: dict[str, Any], place: str, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        plan(passes={"n": node}, chains=[["n"]])
    assert caught.value.field == place
    assert reason in str(caught.value)


def test_aliases_stand_for_their_pass() -> None:
    chain = next(plan(passes={"n": "bn"}, chains=[["n"]]).chains())
    assert chain.nodes[0].pass_name == "folds"


@pytest.mark.parametrize(
    ("setting", "points"),
    [
        ("search", [{"kind": "b", "type": "y"}, *({"kind": "a", "type": t, "much": m} for t in "xy" for m in MUCH)]),
        ({"kind": "search"}, [{"kind": k} for k in "abc"]),
        ({"type": "search"}, [{"type": "x"}, {"type": "y"}]),
        ({"kind": "c", "type": "search"}, []),
        ({"kind": {"search": ["a", "b"]}, "type": "y"}, [{"kind": "a", "type": "y"}, {"kind": "b", "type": "y"}]),
        ({"kind": {"search": ["a", "b"]}, "type": {"search": ["x"]}}, [{"kind": "a", "type": "x"}]),
        (
            {"kind": {"search": ["a", "b"]}, "much": {"search": [0.7, 0.9]}},
            [{"kind": "a", "much": 0.7}, {"kind": "a", "much": 0.9}, {"kind": "b"}],
        ),
        ({"kind": "b", "much": 0.7}, [{}]),
    ],
)  # fmt: skip
def test_conditions_of_the_pass_hold_for_the_users_values(setting: Any, points: list[dict[str, Any]]) -> None:
    made = plan(passes={"n": {"pass": "conditional", "params": setting}}, chains=[["n"]])
    found = [p.get("n", {}) for c in made.chains() for p in c.space.iterate()]
    assert sorted(map(str, found)) == sorted(str({k: p[k] for k in ("kind", "type", "much") if k in p}) for p in points)
    if not points:
        assert reasons(made) == {"n": ("empty", "n: its conditions exclude every search point")}


def test_search_all_and_none_per_pass_and_per_run() -> None:
    def points(run: str, node: dict[str, Any]) -> int:
        return plan(passes={"n": {"pass": "two", **node}}, chains=[["n"]], search=run).point_count

    assert points("none", {}) == 1
    assert points("all", {}) == 4
    assert points("all", {"search": "none"}) == 1
    assert points("none", {"search": "all"}) == 4
    assert points("all", {"params": {"w": 2}}) == 2
    assert points("all", {"params": {"w": "default"}}) == 2
    assert points("all", {"params": "default"}) == 1


MODEL = Inspection((), (), {"": 17}, 8, {"MatMul": 3}, 10, 100)


@pytest.mark.parametrize(
    ("chain", "facts", "rule", "words"),
    [
        (["absent"], Facts(), "unavailable", "x is not installed; pip install x"),
        (["cuda"], Facts(), "accelerator", "is for CUDAExecutionProvider, not for CPUExecutionProvider"),
        (["plain"], Facts(installed_eps={"X": ""}), "runtime", "CPUExecutionProvider is not in the installed runtime"),
        (["lossy"], Facts(inspection=MODEL), "inspection", "lossy: needs Conv; the model has none"),
        (
            ["folds"],
            Facts(inspection=MODEL, proposed=True),
            "inspection",
            "needs BatchNormalization; the model has none",
        ),
        (["needs_absent"], Facts(), "requires", "cannot be inserted: pass absent is not available"),
        (["needs_unknown"], Facts(), "requires", "requires nobody, which cannot be inserted: unknown pass 'nobody'"),
        (["needs_demanding"], Facts(), "requires", "it needs parameter 'must'"),
        (["ring"], Facts(), "requires", "require each other in a cycle"),
        (["plain", "hates_plain"], Facts(), "conflicts", "hates_plain (hates_plain) conflicts with plain"),
        (["plain", "needs_hater"], Facts(), "requires", "it conflicts with plain"),
        (["calibrated", "hates_plain"], Facts(), "conflicts", "conflicts with plain"),
        (["calibrated"], Facts(has_calibration=False, proposed=True), "no-data", "needs calibration data"),
        (["calibrated"], Facts(level=2, proposed=True), "level", "level 2 allows only passes that need no calibration"),
        (["lossy"], Facts(level=1, proposed=True), "level", "level 1 allows only"),
        (["plain"], Facts(level=0, proposed=True), "level", "level 0 allows only lossless passes"),
    ],
)
def test_chains_are_pruned_with_a_reason(chain: list[str], facts: Facts, rule: str, words: str) -> None:
    passes = list(dict.fromkeys([*chain, "three"]))
    if rule == "runtime" or facts.level == 0:
        made = plan(facts, chains=[chain])
        assert made.chain_count == 0
        assert "no chain is left" in made.warnings
    else:
        made = plan(facts, passes=passes, chains=[chain, ["three"]])
        assert list(kept(made)) == ["three"]
    found = reasons(made)[" -> ".join(chain)]
    assert found[0] == rule
    assert words in found[1]
    assert made.pruned_by_rule == {rule: 1}
    assert made.to_json()["pruned"] == [{"name": " -> ".join(chain), "rule": rule, "reason": found[1]}]


def test_level_and_missing_data_only_warn_in_a_graph_of_the_user() -> None:
    facts = Facts(has_calibration=False, level=1)
    made = plan(facts, chains=[["calibrated"]])
    assert made.chain_count == 1
    assert [w.split(": ")[0] for w in made.warnings] == ["calibrated"] * 2
    assert "needs calibration data; add --data FILE" in made.warnings[1]


def test_a_pass_without_work_is_only_warned_about_where_the_chain_has_other_aims() -> None:
    made = plan(Facts(inspection=MODEL), chains=[["folds", "three"]])
    assert made.chain_count == 1
    assert made.warnings == ("folds: needs BatchNormalization; the model has none; it will be skipped",)


def test_required_passes_are_inserted_once_and_change_no_chain() -> None:
    with_user = plan(chains=[["plain", "prepare", "calibrated"]])
    assert with_user.inserted == ()
    made = plan(passes={"x": "calibrated", "y": "calibrated"}, chains=[["x", "y"]])
    chain = next(made.chains())
    assert [(n.id, n.inserted) for n in chain.nodes] == [("plain", True), ("prepare", True), ("x", False), ("y", False)]
    assert chain.passes == ("x", "y")
    assert chain.to_json()["passes"] == ["x", "y"]
    assert made.prefix_nodes == 2
    assert made.to_json()["inserted"] == [
        {"node": "plain", "pass": "plain", "before": "x"},
        {"node": "prepare", "pass": "prepare", "before": "x"},
    ]
    assert chain.space.configs(next(chain.space.iterate())) == {n.id: {} for n in chain.nodes}
    without = {n: replace(i, requires=()) for n, i in PASSES.items()}
    bare = compile_plan(made.spec, lambda name: without[name])
    assert next(bare.chains()).id == chain.id


def test_an_inserted_pass_does_not_take_the_name_of_a_users_node() -> None:
    made = plan(passes={"plain": "three", "x": "calibrated"}, chains=[["plain", "x"]])
    assert [n.id for n in next(made.chains()).nodes] == ["plain", "plain.inserted", "prepare", "x"]


SEARCHED = {"a": {"pass": "three", "params": "search"}, "b": {"pass": "two", "params": "search"}, "c": "plain"}


def test_a_forbidden_value_is_cut_from_every_chain() -> None:
    made = plan(
        passes=SEARCHED, chains=[["a", "b"], ["a", "c"]], forbid=[{"values": {"a": {"v": 2}}, "reason": "slow"}]
    )
    assert kept(made) == {"a -> b": 8, "a -> c": 2}
    assert (made.point_count, made.points_before) == (10, 15)
    data = made.to_json()
    assert data["chains"][1]["points_before"] == 3
    ids = [c["id"] for c in data["chains"]]
    cut = {"node": "a", "param": "v", "value": 2, "reason": "excluded by 'forbid': slow"}
    assert data["cut"] == [{"chain": i, **cut} for i in ids]


def test_values_are_cut_in_one_chain_and_across_passes() -> None:
    chains = [["a", "b"], ["a", "c"]]
    one = plan(passes=SEARCHED, chains=chains, forbid=[{"chain": ["a", "b"], "values": {"a": {"v": 2}}}])
    assert kept(one) == {"a -> b": 8, "a -> c": 3}
    across = plan(passes=SEARCHED, chains=chains, forbid=[{"values": {"a": {"v": 2}, "b": {"w": 1}}}])
    assert kept(across) == {"a -> b": 10, "a -> c": 3}
    chain = next(across.chains())
    assert all((p["a"]["v"], p["b"]["w"]) != (2, 1) for p in chain.space.iterate())
    assert across.to_json()["cut"][0]["beside"] == {"a": {"v": 2}}


def test_a_required_value_cuts_the_others() -> None:
    made = plan(passes=SEARCHED, chains=[["a", "b"], ["c"]], require=[{"values": {"a": {"v": 2}, "b": {"flag": True}}}])
    assert kept(made) == {"a -> b": 2, "c": 1}


def test_a_chain_that_loses_every_point_is_pruned() -> None:
    values = [{"values": {"a": {"v": v}}} for v in (1, 2, 3)]
    searched = {n: p for n, p in SEARCHED.items() if n != "b"}
    made = plan(passes=searched, chains=[["a", "c"], ["c"]], forbid=values)
    assert reasons(made)["a -> c"][0] == "cut"
    scoped = plan(passes=searched, chains=[["a", "c"], ["a"]], forbid=[{"nodes": ["c"], **v} for v in values])
    assert kept(scoped) == {"a": 3}
    assert scoped.point_count == 3


def test_chains_are_forbidden_and_required() -> None:
    chains = [["a", "b"], ["a", "c"], ["c"]]
    assert set(kept(plan(passes=SEARCHED, chains=chains, forbid=["a -> b"]))) == {"a -> c", "c"}
    assert set(kept(plan(passes=SEARCHED, chains=chains, forbid=[{"nodes": ["c"]}]))) == {"a -> b"}
    assert set(kept(plan(passes=SEARCHED, chains=chains, require=[{"nodes": ["c"]}]))) == {"a -> c", "c"}
    made = plan(passes=SEARCHED, chains=chains, require=[{"chain": ["a", "b"], "reason": "known"}, {"chain": ["c"]}])
    assert set(kept(made)) == {"a -> b", "c"}
    assert reasons(made)["a -> c"] == ("require", "excluded by 'require': known (only a -> b or c)")


def test_preferences_and_weights() -> None:
    made = plan(
        passes=SEARCHED,
        chains=[["a", "b"], ["a", "c"]],
        prefer=[{"nodes": ["b"], "weight": 3}, {"values": {"a": {"v": 3}, "b": {"flag": False}}}],
        weights={"a -> b": 2.0, "a -> c": 0.5},
    )
    first, second = made.chains()
    assert (first.weight, second.weight) == (6.0, 0.5)
    assert first.prior == ({"a": {"v": 3}, "b": {"w": 1, "flag": False}},)
    assert second.prior == ()
    assert first.prior[0] in list(first.space.iterate())


@pytest.mark.parametrize(
    ("fields", "field", "reason"),
    [
        ({"forbid": ["b -> a"]}, "forbid[0]", "no chain of this graph begins with b"),
        ({"require": ["a"]}, "require[0]", "no chain of this graph ends after a"),
        ({"forbid": [{"values": {"a": {"vv": 1}}}]}, "forbid[0].values.a.vv", "did you mean 'v'?"),
        ({"forbid": [{"values": {"a": {"v": 9}}}]}, "forbid[0].values.a.v", "must be one of 1, 2, 3, not 9"),
        ({"forbid": [{"values": {"b": {"flag": 1}}}]}, "forbid[0].values.b.flag", "must be one of True, False, not 1"),
        ({"weights": {"a -> x": 2.0}}, "weights.a -> x", "no chain of this graph begins with a -> x"),
        ({"weights": {"zzz": 2.0}}, "weights.zzz", "is not a chain"),
    ],
)
def test_priors_that_mean_nothing(fields: dict[str, Any], field: str, reason: str) -> None:
    passes = {k: v for k, v in SEARCHED.items() if k != "c"}
    with pytest.raises(ConfigError) as caught:
        plan(passes=passes, chains=[["a", "b"]], **fields)
    assert caught.value.field == field
    assert reason in str(caught.value)


YAML = """\
name: same
passes:
  a: {pass: three, params: search}
  b: {pass: two, params: {w: {search: [1, 2]}, flag: true}}
  c: plain
chains: [[a, b], [a, c]]
forbid: [{values: {a: {v: 2}}}]
"""
VALUE: dict[str, Any] = {
    "name": "same",
    "passes": {
        "a": {"pass": "three", "params": "search"},
        "b": {"pass": "two", "params": {"w": {"search": [1, 2]}, "flag": True}},
        "c": {"pass": "plain"},
    },
    "chains": [["a", "b"], ["a", "c"]],
    "forbid": [{"values": {"a": {"v": 2}}}],
}


def test_yaml_json_mapping_and_python_give_the_same_plan(tmp_path: Path) -> None:
    (tmp_path / "d.yaml").write_text(YAML)
    (tmp_path / "d.json").write_text(json.dumps(VALUE))
    made = Dag("same", forbid=VALUE["forbid"]).add("a", "three", params="search")
    made.add("b", "two", w=Categorical(1, 2), flag=True).add("c", "plain").chain("a", "b").chain("a", "c")
    plans = [
        compile_plan(s, info)
        for s in (load_dag(tmp_path / "d.yaml"), load_dag(tmp_path / "d.json"), load_dag(VALUE), made.spec())
    ]
    assert len({p.digest for p in plans}) == 1
    assert len({json.dumps(p.to_json()) for p in plans}) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"name": "other"},
        {"chains": [["a", "b"], ["a", "b", "c"]]},
        {"forbid": []},
        {"target": "gpu"},
        {"passes": {**VALUE["passes"], "c": "prepare"}},
        {"passes": {**VALUE["passes"], "b": {"pass": "two", "params": {"w": 1}}}, "weights": {"a -> b": 2.0}},
    ],
)
def test_another_graph_has_another_digest(change: dict[str, Any]) -> None:
    assert compile_plan(load_dag({**VALUE, **change}), info).digest != compile_plan(load_dag(VALUE), info).digest


def test_chain_ids_do_not_depend_on_the_rest_of_the_graph() -> None:
    alone = plan(passes={"a": SEARCHED["a"], "b": SEARCHED["b"]}, chains=[["a", "b"]])
    among = plan(passes=SEARCHED, chains=[["c"], ["a", "b"]], forbid=[{"values": {"a": {"v": 2}}}])
    assert next(alone.chains()).id in {c.id for c in among.chains()}


def test_places_of_mistakes_are_those_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "d.yaml"
    file.write_text(YAML.replace("w: {search", "ww: {search"))
    with pytest.raises(ConfigError, match=r"d\.yaml:4: passes\.b\.params\.ww: "):
        compile_plan(load_dag(file), info)
    place: Place = ("passes", "b", "params", "ww", "search", 1)
    assert load_dag(file).source.line(place) == 4


def test_files_that_parameters_name_are_found_beside_the_dag_and_count_by_content(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).write_text(name)

    def digest(file: str) -> str:
        (tmp_path / "d.yaml").write_text(
            f"name: d\npasses:\n  a: {{pass: demanding, params: {{must: 1, file: {file}}}}}\nchains: [[a]]\n"
        )
        made = compile_plan(load_dag(tmp_path / "d.yaml"), info)
        assert kept(made) == {"a": 2 if "search" in file else 1}
        return made.digest

    for file in ("two", "{search: [one, two]}"):
        (tmp_path / "two").write_text("two")
        before = digest(file)
        assert digest(file) == before
        (tmp_path / "two").write_text("changed")
        assert digest(file) != before
    with pytest.raises(ConfigError, match=r"d\.yaml:3: passes\.a\.params\.file\.search\[1\]: no such file: three"):
        digest("{search: [one, three]}")


def test_values_that_the_target_cannot_use_are_shown_as_cut() -> None:
    settings = {"activation_type": "search", "reduce_range": "search"}
    dag = {"name": "d", "passes": {"s": {"pass": "static_quantization", "params": settings}}, "chains": [["s"]]}
    x86 = Accelerator(isa=frozenset({"avx2", "avx512_vnni"}))
    plan = compile_plan(load_dag(dag), pass_infos(x86))
    cut = {(c["param"], c["value"]): c["reason"] for c in plan.to_json()["cut"]}
    assert set(cut) == {("activation_type", "QInt8"), ("reduce_range", True)}
    assert "avx512_vnni" in cut["reduce_range", True]
    asked = {**settings, "activation_type": {"search": ["QInt8", "QUInt8"]}}
    dag["passes"] = {"s": {"pass": "static_quantization", "params": asked}}
    plan = compile_plan(load_dag(dag), pass_infos(x86))
    assert [c["param"] for c in plan.to_json()["cut"]] == ["activation_type", "reduce_range"]
    assert plan.point_count == 1


@pytest.mark.parametrize(
    ("priors", "pruned"),
    [
        ({"forbid": [{"nodes": ["b"], "without": ["a"]}]}, {"b": ("forbid", "excluded by 'forbid'")}),
        (
            {"require": [{"nodes": ["b"]}], "forbid": ["a"]},
            {"a": ("forbid", "excluded by 'forbid'"), "c": ("require", "excluded by 'require' (chains with b)")},
        ),
        (
            {"require": [{"nodes": ["b"], "without": ["a"]}]},
            dict.fromkeys(("a -> b", "a", "c"), ("require", "excluded by 'require' (chains with b without a)")),
        ),
    ],
)
def test_priors_prune_whole_chains_with_their_reason(priors: Any, pruned: dict[str, tuple[str, str]]) -> None:
    made = plan(passes=dict.fromkeys("abc", "plain"), chains=[["a", "b"], ["a"], ["b"], ["c"]], **priors)
    assert reasons(made) == pruned


def test_weights_multiply_and_may_name_a_chain_by_its_id() -> None:
    chains = [["a", "b"], ["a"]]
    chain = next(plan(passes=SEARCHED | {"c": "plain"}, chains=[*chains, ["c"]]).chains())
    nodes = {name: SEARCHED[name] for name in "ab"}
    made = plan(passes=nodes, chains=chains, weights={chain.id: 4.0, "a->b": 0.5}, prefer=["a -> b", {"nodes": ["b"]}])
    assert next(made.chains()).weight == 8.0


def test_preferred_values_that_are_cut_give_no_point() -> None:
    values = {"a": {"v": 1}, "b": {"w": 1}}
    nodes = {name: SEARCHED[name] for name in "ab"}
    for cut in (values, {"a": {"v": 1}}):
        made = plan(passes=nodes, chains=[["a", "b"]], prefer=[{"values": values}], forbid=[{"values": cut}])
        assert next(made.chains()).prior == ()


def test_hosts_come_from_the_node_or_the_whole_dag() -> None:
    host, own = ({"type": "python_env", "python": python} for python in ("/usr/bin/python3", "/bin/python3"))
    made = plan(passes={"x": "prepare", "y": {"pass": "three", "host": own}}, chains=[["x", "y"]], host=host)
    hosts = [node.host.python for node in next(made.chains()).nodes]
    assert hosts == ["/usr/bin/python3", "/usr/bin/python3", "/bin/python3"]


def test_priors_on_values_of_several_passes_need_few_points(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autoopt.dag.compiler.path_rules.MAX_SPLIT", 2)
    nodes = {name: SEARCHED[name] for name in "ab"}
    with pytest.raises(InputError, match="priors on values of 'a' need at most 2 points there; it has 3"):
        plan(passes=nodes, chains=[["a", "b"]], forbid=[{"values": {"a": {"v": 1}, "b": {"w": 1}}}])


@pytest.mark.parametrize(
    ("order", "graph", "message"),
    [
        ([["a", "c"], "b"], {"edges": ["a -> b -> c"]}, "'c' comes before 'b' here, and after it in a chain"),
        (["a", ["b", "c"]], {"edges": ["a -> b -> c"]}, ""),
        (["a", "c", "b"], {"chains": [["a", "b"], ["a", "c"]]}, ""),
        (["b", "a", "c"], {"stages": [["a", "b"], ["c", None]]}, ""),
    ],
)
def test_only_chains_that_exist_decide_about_the_order_of_the_search(order: Any, graph: Any, message: str) -> None:
    fields = {**graph, "passes": dict.fromkeys("abc", "plain"), "search": {"strategy": "per-chain", "order": order}}
    if not message:
        assert plan(**fields).chain_count
        return
    with pytest.raises(ConfigError) as caught:
        plan(**fields)
    assert caught.value.field == "search.order"
    assert message in str(caught.value)


def test_presets_of_an_alias_are_fixed_unless_the_user_sets_them() -> None:
    preset = replace(PASSES["two"], presets={"w": 2, "flag": True})
    spec = load_dag(
        {"name": "d", "passes": {"n": {"pass": "p", "params": {"flag": False}}}, "chains": [["n"]], "search": "all"}
    )
    assert dict(compile_plan(spec, lambda name: preset).spaces["n"].fixed) == {"flag": False, "w": 2}


def test_parameters_that_depend_on_each_other_in_a_cycle_are_refused() -> None:
    first, second = (
        ParameterInfo(name, int, 0, Conditional(other, {1: Categorical(1)}))
        for name, other in (("first", "second"), ("second", "first"))
    )
    spec = load_dag({"name": "d", "passes": {"n": {"pass": "p", "params": "search"}}, "chains": [["n"]]})
    with pytest.raises(ConfigError, match=r"passes\.n\.params: parameters depend on each other in a cycle"):
        compile_plan(spec, lambda name: PassInfo("p", "t", "s", (first, second)))


def test_unknown_passes_name_the_nearest_of_the_script_s_and_autoopt_s() -> None:
    infos = pass_infos(Accelerator(), {"my_pass": PassInfo("my_pass", "mine", "s")})
    assert infos("my_pass").family == "mine"
    for wrong, right in (("my_pas", "my_pass"), ("simplfy", "simplify")):
        with pytest.raises(InputError, match=f"did you mean '{right}'"):
            infos(wrong)


@pytest.mark.parametrize("setting", [["plain", "calibrated"], {"search": [["plain"], ["calibrated"]]}])
def test_a_sequence_declares_what_its_passes_declare(setting: Any) -> None:
    """Else results with other calibration data would be taken for its own, and lossy ones for equal."""
    inner = ParameterInfo("passes", list[str], REQUIRED)
    passes = {**PASSES, "sequence": PassInfo("sequence", "composed", "s", (inner,))}
    passes["calibrated"] = replace(passes["calibrated"], libraries=("nncf",), version=3)
    dag = load_dag(
        {"name": "d", "passes": {"s": {"pass": "sequence", "params": {"passes": setting}}}, "chains": [["s"]]}
    )
    (chain,) = compile_plan(dag, passes.__getitem__, Facts(Accelerator(), has_calibration=True)).chains()
    info = chain.nodes[-1].info
    assert (info.needs_data, info.tolerance, info.libraries) == (True, "lossy", ("nncf",))
    assert "calibrated 3" in info.source_digest
    assert "prepare 1" in info.source_digest, "it is inserted"
