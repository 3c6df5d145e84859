"""The flows of deployments: a server keeps entry points, names and parameters of the version that deployed them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

pytest.importorskip("prefect")
from prefect import Flow
from prefect.flows import load_flow_from_entrypoint
from prefect.utilities.callables import parameter_schema

from autoopt import deployments
from autoopt.orchestrate.flow_runs.naming import CHAIN_NAME, EARLIER_NAME
from autoopt.orchestrate.hosts.work_pool import DOCKER_POOL, ENTRY_POINT

ROOT = Path(__file__).parents[2]
RECORDED: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("deployments_of_0_1_0.json").read_text())
"""What version 0.1.0 sent to the server: by name, the entry point, work pool, tags, parameter schema and some runs."""


def flow_of(deployment: str) -> Flow[..., Any]:
    return load_flow_from_entrypoint(RECORDED[deployment]["entrypoint"])


@pytest.mark.parametrize("deployment", RECORDED)
def test_an_entry_point_of_version_0_1_0_leads_to_the_flow_of_that_name(deployment: str) -> None:
    assert flow_of(deployment).name == deployment.partition("/")[0]


@pytest.mark.parametrize("deployment", RECORDED)
def test_parameters_of_version_0_1_0_have_the_same_types_and_defaults(deployment: str) -> None:
    recorded = RECORDED[deployment]["schema"]
    schema = parameter_schema(flow_of(deployment)).model_dump(mode="json")
    assert schema["required"] == recorded["required"]
    names = list(recorded["properties"])
    assert list(schema["properties"])[: len(names)] == names  # later versions add optional ones
    for name, expected in recorded["properties"].items():
        actual = {key: schema["properties"][name].get(key) for key in expected}
        assert actual == expected, name


@pytest.mark.parametrize(
    ("deployment", "parameters"), [(name, run) for name, entry in RECORDED.items() for run in entry["runs"]]
)
def test_runs_that_version_0_1_0_scheduled_are_accepted(deployment: str, parameters: dict[str, Any]) -> None:
    validated = flow_of(deployment).validate_parameters(parameters)
    assert {name: validated[name] for name in parameters} == parameters


def test_each_parameter_is_described_on_the_page_that_starts_a_run() -> None:
    for deployment in RECORDED:
        for name, field in parameter_schema(flow_of(deployment)).properties.items():
            assert field["description"], f"{deployment}: {name}"


def test_deployments_of_version_0_1_0_are_known_by_their_names_and_keep_their_work_pools() -> None:
    pools = {name: entry["pool"] for name, entry in RECORDED.items()}
    assert pools == {
        f"optimize_model/{EARLIER_NAME}": deployments.MODELS,
        f"tune_chain/{EARLIER_NAME}": deployments.CHAINS,
        f"nightly_sweep/{EARLIER_NAME}": deployments.MODELS,
        f"remote_call/{DOCKER_POOL}": DOCKER_POOL,
    }
    assert set(deployments.POOLS) == {deployments.MODELS, deployments.CHAINS}
    assert RECORDED[f"remote_call/{DOCKER_POOL}"]["entrypoint"] == ENTRY_POINT


def test_prefect_yaml_deploys_the_same_flows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    entries = YAML(typ="safe").load((ROOT / "prefect.yaml").read_text())["deployments"]
    assert [entry["name"] for entry in entries] == [deployments.OPTIMIZE_ANY, CHAIN_NAME, deployments.SWEEP_ANY]
    for entry in entries:
        flow = load_flow_from_entrypoint(entry["entrypoint"])
        recorded = RECORDED[f"{flow.name}/{EARLIER_NAME}"]
        assert entry["entrypoint"].endswith(f":{flow.name}")
        assert (entry["work_pool"]["name"], entry["tags"]) == (recorded["pool"], recorded["tags"])
    named = {Path(entry["entrypoint"].partition(":")[0]).stem for entry in entries}
    flows = {path.stem for path in Path("flows").glob("[a-z]*.py")}
    assert named == flows - {"remote_call"}  # which a run deploys itself into the pool that its DAG names
