"""Job templates fit what Prefect knows of each type of pool, and manifests what Kubernetes knows."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import prefect.server.api.collections_data as collections
import pytest
from jsonschema import Draft202012Validator
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.utilities.templating import apply_values, find_placeholders
from ruamel.yaml import YAML

FOLDER = Path(__file__).parents[2] / "scripts" / "pools"
TYPES = ("azure-container-instance", "docker", "kubernetes", "process")


def shipped() -> dict[str, Any]:
    """The base job templates that Prefect itself ships, by type."""
    text = Path(collections.__path__[0], "views", "aggregate-worker-metadata.json").read_text()
    workers = [worker for package in json.loads(text).values() for worker in package.values()]
    return {worker["type"]: worker["default_base_job_configuration"] for worker in workers}


def ours(kind: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((FOLDER / f"{kind}.json").read_text())
    return loaded


def without_default(variable: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in variable.items() if key != "default"}


def test_each_template_has_a_test() -> None:
    assert sorted(path.stem for path in FOLDER.iterdir()) == sorted(TYPES)


@pytest.mark.parametrize("kind", TYPES)
def test_a_template_fits_its_pool(kind: str) -> None:
    template, theirs = ours(kind), shipped()[kind]
    WorkPoolCreate(name="autoopt-chains", type=kind, base_job_template=template)  # refuses unknown placeholders
    Draft202012Validator.check_schema(template["variables"])
    assert set(template["job_configuration"]) == set(theirs["job_configuration"])
    variables = template["variables"]["properties"]
    known = theirs["variables"]["properties"]
    assert {name: without_default(v) for name, v in variables.items()} == {
        name: without_default(v) for name, v in known.items()
    }
    defaults = {name: v["default"] for name, v in variables.items() if "default" in v}
    checked = {**template["variables"], "required": []}
    assert not list(Draft202012Validator(checked).iter_errors(defaults))
    named = {p.name for p in find_placeholders(template["job_configuration"])}
    assert named <= set(variables)


@pytest.fixture
def job() -> dict[str, Any]:
    """The job that Prefect's worker makes from the template for Kubernetes."""
    template = ours("kubernetes")
    values = {name: v.get("default") for name, v in template["variables"]["properties"].items() if "default" in v}
    made = apply_values(template["job_configuration"], {**values, "command": ["prefect", "flow-run", "execute"]})
    manifest: dict[str, Any] = made["job_manifest"]
    (container,) = manifest["spec"]["template"]["spec"]["containers"]
    container["env"] = [
        {"name": name, "value": value} for name, value in container["env"].items()
    ]  # as the worker does
    return manifest


def test_a_kubernetes_job_fits_the_schema_of_the_api(job: dict[str, Any]) -> None:
    kubernetes = pytest.importorskip("kubernetes_validate")
    kubernetes.validate(job, kubernetes.latest_version(), strict=True)
    job["spec"]["template"]["spec"]["affinities"] = {}
    with pytest.raises(kubernetes.ValidationError, match="affinities"):
        kubernetes.validate(job, kubernetes.latest_version(), strict=True)


def test_a_kubernetes_pod_keeps_to_the_baseline_of_pod_security(job: dict[str, Any]) -> None:
    pod = job["spec"]["template"]["spec"]
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
    assert not [volume for volume in pod["volumes"] if "hostPath" in volume]
    (container,) = pod["containers"]
    assert not {"securityContext", "ports"} & set(container)


def test_a_kubernetes_job_is_one_that_measures_alone(job: dict[str, Any]) -> None:
    assert (job["apiVersion"], job["kind"], job["spec"]["backoffLimit"]) == ("batch/v1", "Job", 0)
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["resources"]["requests"] == container["resources"]["limits"] == {"cpu": "2", "memory": "4Gi"}
    assert container["command"] + container["args"] == ["/usr/bin/env", "prefect", "flow-run", "execute"]
    mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounted == {"data": "/data"}
    (rule,) = pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert rule["labelSelector"]["matchLabels"] == job["spec"]["template"]["metadata"]["labels"]
    assert rule["topologyKey"] == "kubernetes.io/hostname"
    assert {volume["name"] for volume in pod["volumes"]} == set(mounted)
    assert pod["terminationGracePeriodSeconds"] <= 30


@pytest.fixture(scope="module")
def manifests() -> dict[str, dict[str, Any]]:
    """The manifests of server, workers and schedule by kind."""
    text = (FOLDER.parent / "kubernetes" / "autoopt.yaml").read_text()
    items = YAML(typ="safe").load(text)["items"]
    return {item["kind"]: json.loads(json.dumps(item)) for item in items}


def pod_of(manifest: dict[str, Any]) -> dict[str, Any]:
    pod: dict[str, Any] = manifest["spec"]["template"]["spec"]
    return pod


def test_manifests_fit_the_schemas_of_the_api(manifests: dict[str, dict[str, Any]]) -> None:
    kubernetes = pytest.importorskip("kubernetes_validate")
    assert sorted(manifests) == ["ConfigMap", "DaemonSet", "Deployment", "Job", "Namespace", "Service"]
    for manifest in manifests.values():
        kubernetes.validate(manifest, kubernetes.latest_version(), strict=True)


def test_manifests_keep_to_the_restricted_pod_security(manifests: dict[str, dict[str, Any]]) -> None:
    for kind in ("Deployment", "Job", "DaemonSet"):
        pod = pod_of(manifests[kind])
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
        assert {next(iter(set(volume) - {"name"})) for volume in pod["volumes"]} <= {"emptyDir", "configMap"}
        for container in (*pod["containers"], *pod.get("initContainers", ())):
            security = container["securityContext"]
            assert security == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
            assert not [port for port in container.get("ports", ()) if "hostPort" in port]


def test_one_pod_measures_on_each_chosen_node(manifests: dict[str, dict[str, Any]]) -> None:
    pod = pod_of(manifests["DaemonSet"])
    assert pod["nodeSelector"] == {"autoopt/measures": "true"}
    (container,) = pod["containers"]
    assert container["resources"]["requests"] == container["resources"]["limits"]
    settings = manifests["ConfigMap"]["data"]
    service = manifests["Service"]
    assert (
        settings["PREFECT_API_URL"] == f"http://{service['metadata']['name']}:{service['spec']['ports'][0]['port']}/api"
    )
    assert service["spec"]["selector"] == manifests["Deployment"]["spec"]["template"]["metadata"]["labels"]


def test_templates_name_the_image_of_the_compose_file() -> None:
    compose = YAML(typ="safe").load((FOLDER.parents[1] / "docker-compose.yml").read_text())
    image = compose["x-autoopt"]["image"]
    for kind in ("docker", "kubernetes", "azure-container-instance"):
        assert ours(kind)["variables"]["properties"]["image"]["default"] == image
    assert f"image: &image {image}\n" in (FOLDER.parent / "kubernetes" / "autoopt.yaml").read_text()


def test_no_template_holds_a_secret() -> None:
    for kind in TYPES:
        env = ours(kind)["variables"]["properties"]["env"].get("default", {})
        assert not [name for name in env if re.search("KEY|PASSWORD|SECRET|AUTH|DB_URL", name)]
