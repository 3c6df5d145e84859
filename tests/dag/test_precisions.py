"""The table of providers and precisions is complete and refers to nodes that exist."""

from __future__ import annotations

import pytest

from autoopt.dag.proposal.templates import TABLES, TEMPLATES, provider_profile
from autoopt.registry import registry
from autoopt.spec.proposal_options import PRECISIONS
from autoopt.target import EXECUTION_PROVIDERS

PROFILES = TABLES.providers


@pytest.mark.parametrize("name", PROFILES)
def test_every_provider_has_a_method_or_a_reason_for_each_precision(name: str) -> None:
    methods = PROFILES[name].methods
    assert tuple(methods) == PRECISIONS
    for method in methods.values():
        assert method.text
        assert "{nodes}" not in method.text or method.nodes
        assert all(TEMPLATES[node].lossy for node in method.nodes)


@pytest.mark.parametrize("name", PROFILES)
def test_fixed_parameters_belong_to_their_pass(name: str) -> None:
    for node, params in PROFILES[name].fixed.items():
        info = registry().info(TEMPLATES[node].pass_name)
        for parameter, value in params.items():
            assert info.parameter(parameter).check(value) is None


def test_the_table_names_providers_of_the_runtime() -> None:
    assert set(PROFILES) <= {*EXECUTION_PROVIDERS, "other"}
    assert provider_profile("NobodysExecutionProvider") is PROFILES["other"]


@pytest.mark.parametrize("name", PROFILES)
@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_requested_precision_is_the_only_one(name: str, precision: str) -> None:
    assert list(PROFILES[name].chosen(precision)) == [precision]


@pytest.mark.parametrize("name", PROFILES)
def test_by_default_all_precisions_worth_trying_are_chosen(name: str) -> None:
    chosen = PROFILES[name].chosen(None)
    assert "fp32" in chosen
    assert all(method.auto for method in chosen.values())
    assert all(method.nodes for precision, method in chosen.items() if precision != "fp32")
    assert list(chosen) == [precision for precision in PRECISIONS if precision in chosen]


def test_a_cpu_does_not_try_half_precision_unless_it_is_requested() -> None:
    cpu = provider_profile("CPUExecutionProvider")
    assert set(cpu.chosen(None)) == {"fp32", "int8", "int4"}
    assert cpu.chosen("fp16")["fp16"].nodes == ("half",)
