"""Fields that `--set` overrides."""

from __future__ import annotations

from typing import Any

import pytest

from autoopt.errors import InputError
from autoopt.spec import load_dag
from autoopt.spec.overrides import overridden, parse_fields
from autoopt.spec.reader import read_document

DAG = {"name": "d", "passes": {"a.b": {"pass": "simplify"}, "c": None}, "chains": [["a.b", "c"]], "search": "none"}


def test_values_are_json_or_yaml_or_text() -> None:
    fields = parse_fields(["search.seed=7", "search.order=pass-by-pass", "chains=[[a, b]]", "x=a=b"])
    assert fields == {"search.seed": 7, "search.order": "pass-by-pass", "chains": [["a", "b"]], "x": "a=b"}


@pytest.mark.parametrize("given", [["seed"], ["=7"], ["a=1", "a=2"], ["a=[1"]])
def test_malformed_assignments_are_refused(given: list[str]) -> None:
    with pytest.raises(InputError, match="--set"):
        parse_fields(given)


def test_fields_of_nodes_with_dots_and_of_missing_sections_are_set() -> None:
    fields: dict[str, Any] = {"passes.a.b.params.engine": "x", "passes.c.pass": "name_fix", "target.threads": 2}
    spec = load_dag(overridden(read_document(DAG), fields))
    assert spec.passes["a.b"].params == {"engine": "x"}
    assert spec.target is not None
    assert spec.target.threads == 2


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("search.seed", 7, "<dict>:1: search: is no mapping of fields; set it as a whole: --set search=..."),
        ("target.thread", 2, "<dict>: target.thread: unknown field; did you mean 'threads'?"),
        ("trgets", [], "<dict>: trgets: unknown field; did you mean 'targets'?"),
    ],
)
def test_mistakes_name_the_field_and_no_line(name: str, value: Any, said: str) -> None:
    with pytest.raises(InputError) as error:
        load_dag(overridden(read_document(DAG), {name: value}))
    assert str(error.value) == said
