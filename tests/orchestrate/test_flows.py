"""The flows of deployments and what prefect.yaml says of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

pytest.importorskip("prefect")
from prefect.flows import load_flow_from_entrypoint
from prefect.utilities.callables import parameter_schema

ROOT = Path(__file__).parents[2]


@pytest.fixture
def entries(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The deployments of prefect.yaml."""
    monkeypatch.chdir(ROOT)
    found: list[dict[str, Any]] = YAML(typ="safe").load((ROOT / "prefect.yaml").read_text())["deployments"]
    return found


def test_prefect_yaml_deploys_every_flow(entries: list[dict[str, Any]]) -> None:
    names = {load_flow_from_entrypoint(entry["entrypoint"]).name for entry in entries}
    assert names == {path.stem for path in Path("flows").glob("[a-z]*.py")}


def test_each_parameter_is_described_on_the_page_that_starts_a_run(entries: list[dict[str, Any]]) -> None:
    for entry in entries:
        flow = load_flow_from_entrypoint(entry["entrypoint"])
        for name, field in parameter_schema(flow).properties.items():
            assert field["description"], f"{flow.name}: {name}"
