"""Answers for other products' names: complete, and true of the passes there are."""

from __future__ import annotations

from collections import Counter

import pytest

from autoopt.dag import compile_plan, pass_infos
from autoopt.errors import InputError
from autoopt.passes.base.build import full_config
from autoopt.registry import REQUIRED, registry
from autoopt.registry.compat import Answer, answer, answers
from autoopt.registry.pass_registry import PRESETS
from autoopt.spec import load_dag
from autoopt.target import Accelerator

NINE = {
    "OnnxConversion",
    "OnnxOpVersionConversion",
    "OrtTransformersOptimization",
    "OnnxDynamicQuantization",
    "OnnxStaticQuantization",
    "OnnxQuantization",
    "IncStaticQuantization",
    "IncDynamicQuantization",
    "IncQuantization",
}


def test_all_eighty_and_the_nine_have_an_answer() -> None:
    found = Counter(each.product for each in answers().values())
    assert found["PopRT"] == 80
    assert set(answers()) >= NINE
    assert all(each.passes or each.remark for each in answers().values())


@pytest.mark.parametrize("found", answers().values(), ids=lambda found: found.name)
def test_an_answer_names_passes_and_parameters_that_exist(found: Answer) -> None:
    for name in found.passes:
        info = registry().info(name)
        needed = {p.name for p in info.parameters if p.default is REQUIRED} - set(found.params)
        if not needed:
            full_config(info, found.params)


@pytest.mark.parametrize("found", answers().values(), ids=lambda found: found.name)
def test_a_name_in_dag_yaml_means_what_the_answer_says(found: Answer) -> None:
    own = {name: name for name in registry().names()}
    known = own | {alias: name for name in own for alias in registry().info(name).aliases}
    if found.name in known:
        assert registry().resolve(found.name) == known[found.name]
        assert known[found.name] in found.passes
    elif len(found.passes) == 1:
        info = registry().info(found.name)
        assert (info.name,) == found.passes
        assert dict(info.presets) == ({} if found.example else found.params)
    else:
        with pytest.raises(InputError) as told:
            registry().resolve(found.name)
        assert found.text in str(told.value)


def test_a_plan_shows_the_pass_behind_a_name_and_its_parameters() -> None:
    dag = {
        "name": "d",
        "passes": {
            "a": "replace_pow",
            "b": {"pass": "replace_nonzero", "params": {"rules": ["replace_pow"]}},
            "c": {"pass": "OnnxKQuantQuantization", "params": "search"},
        },
        "chains": [["a"], ["b"], ["c"]],
    }
    plan = compile_plan(load_dag(dag), pass_infos(Accelerator()))
    spaces = [chain.space.nodes[chain.nodes[-1].id].config({}) for chain in plan.chains() if chain.nodes[-1].id != "c"]
    assert [space["rules"] for space in spaces] == [["replace_pow"], ["replace_pow"]]
    assert [space["assume"] for space in spaces] == [[], ["one_nonzero"]]
    found = plan.to_json()
    assert found["nodes"] == {"a": "local_rewrites", "b": "local_rewrites", "c": "weight_only_quantization"}
    assert found["aliases"]["a"] == {
        "written": "replace_pow",
        "pass": "local_rewrites",
        "params": {"rules": ["replace_pow"]},
    }
    (searched,) = (chain for chain in plan.chains() if chain.nodes[-1].id == "c")
    assert {searched.space.configs(p)["c"]["algorithm"] for p in searched.space.iterate()} == {"k_quant"}


WRITTEN_AROUND = (
    "cumsum_workaround",
    "topk_workaround",
    "indices_workaround",
    "replace_clip_empty_inputs",
    "replace_consecutive_cast_with_notzero",
    "replace_nonzero",
    "replace_where_with_mul_add",
    "replace_trilu",
    "serialize_matmul",
    "serialize_matmul_add",
)


@pytest.mark.parametrize("name", WRITTEN_AROUND)
def test_a_rule_is_a_pass_and_a_value_of_rules(name: str) -> None:
    dag = {
        "name": "d",
        "passes": {"a": name, "b": {"pass": "local_rewrites", "params": {"rules": [name]}}},
        "chains": [["a"], ["b"]],
    }
    plan = compile_plan(load_dag(dag), pass_infos(Accelerator()))
    spaces = [chain.space.nodes[chain.nodes[-1].id].config({}) for chain in plan.chains()]
    assert [space["rules"] for space in spaces] == [[name], [name]]


def test_a_rule_that_another_pass_replaces_is_refused_with_that_pass() -> None:
    dag = {
        "name": "d",
        "passes": {"a": {"pass": "local_rewrites", "params": {"rules": ["pre_scale", "replace_less_or_equal"]}}},
        "chains": [["a"]],
    }
    with pytest.raises(InputError, match=r"this PopRT pass: expand_functions with ops: \[\"LessOrEqual\"\]"):
        compile_plan(load_dag(dag), pass_infos(Accelerator()))


@pytest.mark.parametrize("name", PRESETS)
def test_a_name_that_implies_parameters_plans_as_its_pass(name: str) -> None:
    dag = {"name": "d", "passes": {"a": {"pass": name, "params": "search"}}, "chains": [["a"]]}
    plan = compile_plan(load_dag(dag), pass_infos(Accelerator()))
    pass_name, params = PRESETS[name]
    assert plan.aliases["a"].to_json() == {"written": name, "pass": pass_name, "params": params}
    (chain,) = plan.chains()
    points = [chain.space.configs(point)["a"] for point in chain.space.iterate()]
    assert points
    assert all(params.items() <= point.items() for point in points)


def test_no_two_passes_claim_a_name() -> None:
    names = registry().names()
    claims = Counter([*names, *PRESETS, *(alias for name in names for alias in registry().info(name).aliases)])
    assert [name for name, times in claims.items() if times > 1] == []


def test_case_does_not_matter_and_unknown_names_get_the_nearest() -> None:
    assert answer("onnxstaticquantization").passes == ("static_quantization",)
    with pytest.raises(InputError, match="did you mean 'replace_pow'"):
        answer("replace_powr")
