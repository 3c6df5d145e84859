"""The list of samplers."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

import pytest

from autoopt.spec.samplers import DEFAULT_SAMPLER, SAMPLERS, SamplerInfo, find_sampler, short_name
from autoopt.spec.source import FieldError

INSTALLED = [sampler for sampler in SAMPLERS if all(map(find_spec, sampler.requires))]
UNUSABLE = {"GridSampler", "PartialFixedSampler"}  # both need arguments that a dag.yaml does not give


@pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda sampler: sampler.name)
def test_every_sampler_has_a_module_that_creates_it(sampler: SamplerInfo) -> None:
    assert callable(import_module(f"autoopt.search.samplers.{sampler.module}").create)


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
    monkeypatch.setattr("autoopt.spec.samplers.find_spec", lambda name: None)
    with pytest.raises(FieldError, match="needs the package cmaes, which is not installed"):
        find_sampler("cmaes")


def test_the_default_samplers_can_be_used_with_their_strategies() -> None:
    for strategy, name in DEFAULT_SAMPLER.items():
        assert strategy in find_sampler(name).strategies


def test_the_list_names_every_usable_sampler_of_optuna() -> None:
    optuna = import_module("optuna.samplers")
    of_optuna = {name for name in optuna.__all__ if name.endswith("Sampler") and not name.startswith("Base")}
    assert {s.name for s in SAMPLERS if s.module == "optuna_sampler"} == of_optuna - UNUSABLE
