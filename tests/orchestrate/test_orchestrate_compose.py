"""The container stack: its file, and the same services without containers."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from builders import mlp, write
from children import HANG_SECONDS, start_process
from ports import free_port
from postgres import Server
from ruamel.yaml import YAML
from serving import alive, belonging, environment, eventually

ROOT = Path(__file__).parents[2]
SECRETS = {
    "POSTGRES_PASSWORD": "p@canary%2F/:#?",
    "PREFECT_AUTH": "me:canary@%/:x",
}


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = YAML(typ="safe").load((ROOT / "docker-compose.yml").read_text())
    return loaded


def interpolated(text: str, given: dict[str, str]) -> str:
    """`${NAME:?…}` and `${NAME:-default}` as docker-compose reads them."""
    return re.sub(r"\$\{(\w+):([?-])([^}]*)\}", lambda m: given.get(m[1]) or (m[3] if m[2] == "-" else ""), str(text))


def test_every_service_is_pinned_checked_and_closed(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        assert re.search(r":\d+\.\d+", service["image"]), name
        once = service.get("restart") == "no"
        assert once or "healthcheck" in service, name
        for port in service.get("ports", ()):
            assert port.startswith("127.0.0.1:"), name
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            assert source in compose["volumes"] or source.startswith(("./", "${")), name


def test_links_lead_where_browsers_open_the_pages(compose: dict[str, Any]) -> None:
    for service in ("server", "worker"):
        url = compose["services"][service]["environment"]["PREFECT_UI_URL"]
        assert interpolated(url, {}) == "http://127.0.0.1:4200"
        assert interpolated(url, {"PREFECT_URL": "https://models.example"}) == "https://models.example"


def test_the_cores_and_memory_of_a_worker_are_limited_by_the_environment(compose: dict[str, Any]) -> None:
    limits = compose["services"]["worker"]["deploy"]["resources"]["limits"]
    assert {name: interpolated(text, {}) for name, text in limits.items()} == {"cpus": "0", "memory": "0"}
    given = {"WORKER_CPUS": "1.5", "WORKER_MEMORY": "3g"}
    assert {name: interpolated(text, given) for name, text in limits.items()} == {"cpus": "1.5", "memory": "3g"}


def test_no_secret_has_a_default(compose: dict[str, Any]) -> None:
    text = (ROOT / "docker-compose.yml").read_text()
    assert set(re.findall(r"\$\{(\w+):\?", text)) == set(SECRETS)
    assert not [name for name in SECRETS if re.search(rf"\$\{{{name}(:-|\}})", text)]
    example = (ROOT / ".env.example").read_text()
    assert all(re.search(rf"^{name}=$", example, re.MULTILINE) for name in SECRETS)


def test_the_image_is_built_in_stages_and_not_run_by_root() -> None:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    assert sum(line.startswith("FROM ") for line in lines) == 2
    assert "USER autoopt" in lines
    assert any("PREFECT_SERVER_UI_STATIC_DIRECTORY=/home/autoopt/" in line for line in lines)  # root installs
    assert lines.index("USER autoopt") < next(i for i, line in enumerate(lines) if line.startswith("CMD"))
    assert not [line for line in lines if line.startswith("ENTRYPOINT")]  # work pools give a whole command


@pytest.mark.service
def test_docker_compose_takes_the_file(tmp_path: Path) -> None:
    command = shutil.which("docker-compose")
    if command is None:
        pytest.skip("there is no docker-compose")
    (tmp_path / "empty").touch()
    call = [command, "--env-file", str(tmp_path / "empty"), "-f", str(ROOT / "docker-compose.yml"), "config", "-q"]
    path = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    assert subprocess.run(call, env={**path, **SECRETS}, capture_output=True).returncode == 0
    refused = subprocess.run(call, env=path, capture_output=True, text=True)
    assert refused.returncode != 0
    assert "set it in .env" in refused.stderr


@pytest.fixture
def database(compose: dict[str, Any]) -> Iterator[Server]:
    """A PostgreSQL as the file has it: its user, its password, its databases."""
    server = Server()
    try:
        given = {k: interpolated(v, SECRETS) for k, v in compose["services"]["postgres"]["environment"].items()}
        user = given["POSTGRES_USER"]
        server.sql(
            f"CREATE ROLE {user} SUPERUSER LOGIN PASSWORD '{given['POSTGRES_PASSWORD']}'",
            f"CREATE DATABASE {given['POSTGRES_DB']} OWNER {user}",
            (ROOT / "scripts/compose/databases.sql").read_text(),
        )
        rules = f"host all {user} 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\n"
        (server.folder / "data" / "pg_hba.conf").write_text(rules)
        server.sql("SELECT pg_reload_conf()")
        yield server
    finally:
        server.close()


def settings_of(compose: dict[str, Any], service: str, port: int, database: Server) -> dict[str, str]:
    """A service's environment as the file has it, with addresses of this machine."""
    env = {k: interpolated(v, SECRETS) for k, v in compose["services"][service]["environment"].items()}
    swaps = {
        "@postgres:5432": f"@127.0.0.1:{database.port}",
        "http://server:4200": f"http://127.0.0.1:{port}",
        "http://127.0.0.1:4200": f"http://127.0.0.1:{port}",
    }
    for old, new in swaps.items():
        env = {k: v.replace(old, new) for k, v in env.items()}
    kept = {k: v for k, v in env.items() if v and k not in ("AUTOOPT_HOME", "AUTOOPT_GATE", "PREFECT_HOME")}
    return {**kept, "AUTOOPT_SCRIPTS": env.get("AUTOOPT_SCRIPTS", "")}  # empty allows none


@pytest.mark.service
def test_the_same_services_without_containers(compose: dict[str, Any], database: Server, tmp_path: Path) -> None:
    port, health = free_port(), free_port()
    write(mlp(), tmp_path / "mlp")
    dag = {"name": "quick", "passes": ["name_fix"], "chains": [["name_fix"]], "constraints": []}
    dag["measurement"] = {"seconds": 0.2, "replicas": 2, "target_width": 1.0, "rounds": 2}
    (tmp_path / "dag.json").write_text(json.dumps(dag))
    (tmp_path / "zoo.yaml").write_text("name: every\ndag: dag.json\nmodels: [mlp]\n")

    def command(service: str) -> tuple[list[str], dict[str, str]]:
        here = {"0.0.0.0": "127.0.0.1", "4200": str(port), "/models/zoo.yaml": str(tmp_path / "zoo.yaml")}
        words = [interpolated(word, SECRETS) for word in compose["services"][service]["entrypoint"]]
        own = settings_of(compose, service, port, database)
        own["PREFECT_WORKER_WEBSERVER_PORT"] = str(health)
        env = environment(tmp_path, PREFECT_HOME=str(tmp_path / f"prefect-{service}"), **own)
        return [sys.executable, "-m", *(here.get(word, word) for word in words)], env

    def healthy(service: str) -> bool:
        kind, program, *words = compose["services"][service]["healthcheck"]["test"]
        assert (kind, program) == ("CMD", "python")
        words = [word.replace(":4200/", f":{port}/").replace(":8080/", f":{health}/") for word in words]
        return subprocess.run([sys.executable, *words], stderr=subprocess.DEVNULL).returncode == 0

    with ExitStack() as stack:

        def start(service: str) -> None:
            program, env = command(service)
            log = stack.enter_context((tmp_path / f"{service}.log").open("wb"))
            process = start_process(program, env=env, cwd=tmp_path, stdout=log, stderr=log, start_new_session=True)
            stack.callback(process.wait, HANG_SECONDS)
            stack.callback(process.terminate)
            eventually(lambda: healthy(service))

        start("server")
        user, _, password = SECRETS["PREFECT_AUTH"].partition(":")
        api = httpx.Client(base_url=f"http://127.0.0.1:{port}/api", auth=(user, password), timeout=HANG_SECONDS)
        unnamed = httpx.post(f"{api.base_url}flow_runs/filter", json={}, timeout=HANG_SECONDS)
        assert unnamed.status_code == 401  # nobody without the password
        for origin, allowed in (("https://evil.example", False), (f"http://127.0.0.1:{port}", True)):
            asks = {"Origin": origin, "Access-Control-Request-Method": "POST"}
            answer = httpx.options(f"{api.base_url}flow_runs/filter", headers=asks, timeout=HANG_SECONDS)
            assert ("access-control-allow-origin" in answer.headers) is allowed
        start("worker")
        program, env = command("deploy")
        subprocess.run(program, env=env, cwd=tmp_path, check=True, capture_output=True, timeout=HANG_SECONDS)
        night = api.get("/deployments/name/nightly_sweep/autoopt").raise_for_status().json()
        assert [one["schedule"]["cron"] for one in night["schedules"]] == ["0 2 * * *"]
        model = api.get("/deployments/name/optimize_model/autoopt").raise_for_status().json()["id"]

        def ended(deployment: str, **parameters: Any) -> Any:
            given = {"parameters": parameters}
            run = api.post(f"/deployments/{deployment}/create_flow_run", json=given).raise_for_status().json()["id"]
            return eventually(lambda: _ended(api, run), HANG_SECONDS)

        made = ended(model, dag=dag, model=str(tmp_path / "mlp" / "model.onnx"))
        assert made["state_type"] == "COMPLETED", made["state"]
        (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
        evil = ended(model, dag={**dag, "user_script": str(tmp_path / "evil.py")}, model=str(tmp_path / "mlp"))
        assert "this worker may run only scripts in allowed folders" in evil["state"]["message"]
        assert not (tmp_path / "ran").exists()
        swept = ended(night["id"])
        assert swept["state_type"] == "COMPLETED", swept["state"]
    assert not list(filter(alive, belonging(tmp_path)))
    logs = "".join(p.read_text(errors="replace") for p in tmp_path.glob("*.log"))
    assert "canary" not in logs


def _ended(api: httpx.Client, run: str) -> Any:
    row = api.get(f"/flow_runs/{run}").raise_for_status().json()
    return row if row["state_type"] in ("COMPLETED", "FAILED", "CRASHED", "CANCELLED") else None


def test_systemd_takes_the_service(tmp_path: Path) -> None:
    verify, program = shutil.which("systemd-analyze"), shutil.which("true")
    if verify is None:
        pytest.skip("there is no systemd-analyze")
    # systemd wants the program to exist; this machine has it elsewhere.
    service = (ROOT / "scripts" / "systemd" / "autoopt.service").read_text()
    unit = tmp_path / "autoopt.service"
    unit.write_text(service.replace("/srv/autoopt/venv/bin/autoopt", str(program)))
    verified = subprocess.run([verify, "verify", str(unit)], capture_output=True, text=True, check=False)
    assert verified.returncode == 0
    assert unit.name not in verified.stderr, "it may report other units of this machine"
