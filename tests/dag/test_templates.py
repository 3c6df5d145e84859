"""The nodes of proposals refer to passes, parameters and values that exist."""

from __future__ import annotations

import inspect

import pytest

from autoopt.dag.proposal import inputs
from autoopt.dag.proposal.templates import MINUTES, TABLES, TEMPLATES, TRIALS, Template
from autoopt.registry import registry
from autoopt.space import same
from autoopt.spec.proposal_options import HIGHEST
from autoopt.target import Accelerator


@pytest.mark.parametrize("template", TEMPLATES.values(), ids=list(TEMPLATES))
def test_values_are_accepted_by_the_pass(template: Template) -> None:
    cuda = Accelerator("gpu", "CUDAExecutionProvider")
    info = registry().info(template.pass_name, cuda if template is TEMPLATES["cuda_session"] else Accelerator())
    assert template.lossy == (info.tolerance == "lossy")
    assert not set(template.search) & set(template.fixed)
    for name, value in template.fixed.items():
        assert info.parameter(name).check(value) is None
    for name, values in template.search.items():
        assert all(info.parameter(name).check(value) is None for value, _ in values)
        assert not any(same(one, other) for i, (one, _) in enumerate(values) for other, _ in values[:i])


@pytest.mark.parametrize("template", TEMPLATES.values(), ids=list(TEMPLATES))
def test_every_level_that_uses_a_node_has_a_value_for_each_parameter(template: Template) -> None:
    info = registry().info(template.pass_name)
    lossy_level = 3 if info.needs_data else 2
    lowest_use = lossy_level if template.lossy else (0 if info.session_only else 1)
    for values in template.search.values():
        levels = [level for _, level in values]
        assert min(levels) <= lowest_use
        assert levels[0] == min(levels), "the first value is the one to fall back on"
        assert set(levels) <= set(range(HIGHEST + 1))


@pytest.mark.parametrize("template", TEMPLATES.values(), ids=list(TEMPLATES))
def test_only_lossy_nodes_shrink_a_model(template: Template) -> None:
    assert 0 < template.size <= 1
    assert template.lossy or template.size == 1
    assert template.summary[0].islower() or template.summary[0].isdigit()


def test_budgets_grow_with_the_level() -> None:
    assert len(TRIALS) == len(MINUTES) == HIGHEST + 1
    assert list(TRIALS) == sorted(set(TRIALS))
    assert list(MINUTES) == sorted(set(MINUTES))


def test_conditions_name_facts_that_there_are() -> None:
    rows = (*TABLES.stages, *TABLES.excluded, *TABLES.cuts, *TABLES.searched, *TABLES.changes)
    named = {name.removeprefix("not ") for row in rows for name in row.when}
    facts = {name for name in named if name.islower()}
    assert len(facts) > 20
    source = inspect.getsource(inputs)
    assert not [name for name in facts if f'"{name}"' not in source]
