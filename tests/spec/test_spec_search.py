"""The search settings, the list of samplers."""

from __future__ import annotations

import importlib
import pkgutil
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import autoopt
from autoopt.errors import ConfigError, InputError
from autoopt.metrics import Objective
from autoopt.search import ChainSpace, create_study
from autoopt.space import Boolean, NodeSpace, SearchSpace
from autoopt.spec import load_dag
from autoopt.spec.search import (
    DEFAULT_SAMPLER,
    OPTUNA,
    SAMPLERS,
    SamplerInfo,
    SearchConfig,
    SearchFields,
    find_sampler,
    short_name,
)
from autoopt.spec.source import FieldError

# The `search:` section, the field that is wrong, and words of the reason.
INVALID = [line.split(" | ") for line in Path(__file__).with_name("wrong_searches.txt").read_text().splitlines()]

DAG = """\
name: searched
passes:
  a: simplify
  b: name_fix
chains: [[a, b], [b]]
search: """


@pytest.mark.parametrize(("section", "field", "words"), INVALID)
def test_plan_and_run_refuse_the_same_with_file_line_and_field(
    tmp_path: Path, section: str, field: str, words: str
) -> None:
    file = tmp_path / "dag.yaml"
    file.write_text(DAG + section + "\n")
    with pytest.raises(ConfigError) as planned:
        autoopt.plan(file)
    text = str(planned.value)
    assert text.startswith(f"{file}:6: search.{field}: ")
    assert words in text
    assert planned.value.exit_code == 2
    if field != "order" or "comes before" not in words:  # that one compares chains, which loading does not list
        with pytest.raises(ConfigError) as loaded:
            load_dag(file)
        assert str(loaded.value) == text


def test_an_empty_list_of_objectives_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "dag.yaml"
    file.write_text(DAG + "{trials: 3}\nobjectives: []\n")
    with pytest.raises(ConfigError, match="7: objectives: is empty; name a metric, or remove the field"):
        autoopt.plan(file)


def test_a_staged_order_may_leave_out_nodes_of_the_chains(tmp_path: Path) -> None:
    file = tmp_path / "dag.yaml"
    file.write_text(DAG + "{strategy: per-chain, order: [b]}\n")
    assert autoopt.plan(file).chain_count == 2


NODES = {"a": NodeSpace({"x": Boolean()}), "b": NodeSpace({"y": Boolean()})}
CHAINS = [
    ChainSpace("1", (("a", "simplify"), ("b", "name_fix")), SearchSpace(NODES)),
    ChainSpace("2", (("b", "name_fix"),), SearchSpace({"b": NODES["b"]})),
]
SECTIONS = st.fixed_dictionaries(
    {},
    optional={
        "strategy": st.sampled_from(["unified", "per-chain"]),
        "sampler": st.sampled_from(["surrogate", "exhaustive", "random", "tpe", "qmc", "grid", "TPESampler"]),
        "order": st.sampled_from(["joint", "pass-by-pass", ["a", "b"], {"nested": ["b", "a"]}, {"nest": []}]),
        "allocation": st.sampled_from(["sequential", "max_ucb"]),
        "trials": st.sampled_from([0, 5]),
        "minutes": st.just(1.0),
        "with_replacement": st.booleans(),
        "min_expected_improvement": st.just(0.1),
    },
)


@given(SECTIONS)
def test_python_refuses_what_a_file_refuses_and_a_study_takes_the_rest(section: dict[str, object]) -> None:
    in_file = in_python = ""
    try:
        load_dag({"name": "n", "passes": {"a": "simplify", "b": "name_fix"}, "chains": [["a", "b"]], "search": section})
    except ConfigError as error:
        in_file = f"{error.field}: {error.what}"
    try:
        config = SearchConfig.model_validate(section)
    except InputError as error:
        in_python = f"{error.where}: {error.what}"
    assert in_python == in_file
    if not in_python:
        create_study(config, CHAINS, [Objective("latency", "minimize")])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"trails": 3}, "search.trails: unknown field; did you mean 'trials'"),
        ({"trials": "x"}, "search.trials: must be a whole number"),
        ({"minutes": float("inf")}, "search.minutes: must be a finite number"),
        ({"stop_when_goals_met": "yes"}, "search.stop_when_goals_met: must be true or false"),
        ({"order": "pass-by-pass"}, "search.order: strategy unified takes only joint"),
    ],
)
def test_an_override_is_checked_with_the_fields_that_it_does_not_change(changes: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        SearchConfig().overridden(changes)


def test_overrides_keep_the_other_fields() -> None:
    config = SearchConfig(trials=3).overridden({"strategy": "per-chain", "order": ["a", ["b", "c"]]})
    assert config == SearchConfig(strategy="per-chain", order=["a", ["b", "c"]], trials=3)


def test_overrides_keep_whole_minutes_whole_because_a_runs_identity_depends_on_them() -> None:
    assert repr(SearchConfig().overridden({"minutes": 3}).model_dump()["minutes"]) == "3"


def test_overrides_alone_are_checked_field_by_field() -> None:
    assert SearchFields.model_validate({"min_expected_improvement": 0.1, "sampler": "tpe"}).sampler == "tpe"
    with pytest.raises(ValueError, match="unknown sampler"):
        SearchFields.model_validate({"sampler": "tpee"})


def test_each_strategy_has_a_default_sampler() -> None:
    assert SearchConfig().sampler_name == "surrogate"
    assert SearchConfig(strategy="per-chain").sampler_name == "tpe"


def test_the_section_becomes_the_configuration_without_params() -> None:
    spec = load_dag(
        {"name": "n", "passes": ["simplify"], "chains": [["simplify"]], "search": {"params": "all", "trials": 4}}
    )
    assert spec.search.config() == SearchConfig(trials=4)


INSTALLED = [sampler for sampler in SAMPLERS if all(map(find_spec, sampler.requires))]
UNUSABLE = {"GridSampler", "PartialFixedSampler"}  # both need arguments that a dag.yaml does not give


@pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda sampler: sampler.name)
def test_every_sampler_is_implemented(sampler: SamplerInfo) -> None:
    assert callable(pkgutil.resolve_name(f"autoopt.search.samplers.{sampler.implementation}"))


@pytest.mark.parametrize("sampler", INSTALLED, ids=lambda sampler: sampler.name)
def test_a_sampler_is_found_by_its_name_and_its_short_name(sampler: SamplerInfo) -> None:
    assert find_sampler(sampler.name) is sampler
    if sampler.name != "RandomSampler":  # `random` is autoopt's own
        assert find_sampler(short_name(sampler)) is sampler


def test_hyphens_underscores_and_capitals_do_not_matter_in_short_names() -> None:
    assert find_sampler("nsga-ii") == find_sampler("NSGA_II") == find_sampler("NSGAIISampler")


def test_an_unknown_sampler_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(FieldError) as refused:
        find_sampler("exaustive")
    assert refused.value.remedy == "did you mean 'exhaustive'?"


def test_a_sampler_whose_package_is_missing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autoopt.spec.search.find_spec", lambda name: None)
    with pytest.raises(FieldError, match="needs the package cmaes, which is not installed"):
        find_sampler("cmaes")


def test_the_default_samplers_can_be_used_with_their_strategies() -> None:
    for strategy, name in DEFAULT_SAMPLER.items():
        assert strategy in find_sampler(name).strategies


def test_the_list_names_every_usable_sampler_of_optuna() -> None:
    optuna = importlib.import_module("optuna.samplers")
    of_optuna = {name for name in optuna.__all__ if name.endswith("Sampler") and not name.startswith("Base")}
    assert {s.name for s in SAMPLERS if s.implementation == OPTUNA} == of_optuna - UNUSABLE
