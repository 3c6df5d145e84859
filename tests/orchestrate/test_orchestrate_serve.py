"""`autoopt serve` as an operator uses it: run, watch, fail, retry, cancel, kill, sweep by schedule."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from zoneinfo import ZoneInfo

import httpx
import psutil
import pytest
from browsing import browsing
from builders import cnn, mlp, write
from children import HANG_SECONDS, start_process
from ports import free_port
from serving import Serving, alive, belonging, environment, eventually, serving

from autoopt.results import Trial
from autoopt.store import open_store
from autoopt.workers import Gate

pytestmark = pytest.mark.service

SCRIPT = '''\
import time
from pathlib import Path

from autoopt import register

HERE = Path(__file__).parent


@register("fragile")
def fragile(model, size: int = 1):
    """Fails while there is a file `broken`, hangs while there is a file `slow`."""
    with (HERE / "calls.txt").open("a") as calls:
        calls.write(f"{size}\\n")
    if (HERE / "slow").exists():
        time.sleep(600)
    if size > 2 and (HERE / "broken").exists():
        raise RuntimeError("the disk it needs is away")
    model.graph.node[0].doc_string = f"size {size}"
    return model
'''
DAG = """\
name: fragile
model: cnn/model.onnx
user_script: script.py
passes:
  tidy: {pass: name_fix}
  weak: {pass: fragile, params: {size: {search: [3, 4]}}}
  slow: {pass: fragile, params: {size: 1}}
chains: CHAINS
constraints: []
measurement: {seconds: 0.2, replicas: 2, target_width: 1.0, rounds: 2}
"""
BUG = """\
import os
from pathlib import Path

if "PREFECT__FLOW_RUN_ID" in os.environ and Path(__file__).with_name("bug").exists():
    from autoopt.problem.run_request import RunRequest

    del RunRequest.from_json
"""
"""A module that Python imports first."""
QUICK = """\
name: quick
passes: [name_fix, constant_folding]
chains: [[name_fix, constant_folding]]
objectives: [{metric: size}]
constraints: []
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    folder = tmp_path_factory.mktemp("serve")
    write(cnn(), folder / "cnn")
    write(mlp(), folder / "mlp")
    (folder / "script.py").write_text(SCRIPT)
    dag(folder, "[[tidy, weak]]")
    (folder / "quick.yaml").write_text(QUICK)
    models = "[mlp, {path: cnn, name: vision, tags: [conv]}]"
    (folder / "zoo.yaml").write_text(f"name: night\ndag: quick.yaml\nmodels: {models}\n")
    (folder / "sitecustomize.py").write_text(BUG)
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    night = ("--zoo", "zoo.yaml", "--cron", "0 2 * * *", "--timezone", "Europe/Berlin")
    with serving(folder, *night, PYTHONPATH=path) as found:
        yield found


def dag(folder: Path, chains: str) -> str:
    path = folder / "dag.yaml"
    text = DAG.replace("CHAINS", chains)
    unused = [node for node in ("tidy", "weak", "slow") if node not in chains]
    path.write_text("\n".join(line for line in text.splitlines() if line.strip().split(":")[0] not in unused))
    return str(path)


def calls(served: Serving) -> list[str]:
    path = served.folder / "calls.txt"
    return path.read_text().split() if path.exists() else []


def trials(served: Serving) -> tuple[Trial, ...]:
    with open_store(None, served.folder / "home") as store:
        return store.trials.all(store.runs.get("latest").id)


def test_it_says_what_it_started(served: Serving) -> None:
    said = "".join(served.said)
    model, night = served.deployment("optimize_model"), served.deployment("nightly_sweep")
    assert model["name"] == night["name"]
    for word in (served.url, f"optimize_model/{model['name']}", f"nightly_sweep/{night['name']}"):
        assert word in said
    assert served.password not in said
    assert (served.folder / "home" / "prefect.json").stat().st_mode & 0o777 == 0o600
    limits = [row["global_concurrency_limit"]["limit"] for row in (night, model)]
    assert limits == [1, 2]
    assert not served.find("work_pools")
    listening = [c for c in psutil.net_connections("inet") if c.status == "LISTEN" and c.laddr.port == served.port]
    assert {c.laddr.ip for c in listening} == {"127.0.0.1"}


FOREIGN_PAGE = """\
<script>
const started = JSON.stringify({parameters: {}});
const own = {method: "POST", headers: {"Content-Type": "application/json"}, body: started};
const simple = {method: "POST", body: new Blob([started])};  // needs no preflight
Promise.allSettled([fetch(API, own), fetch(API, simple), fetch(API.replace(/[^/]*$/, ""))]).then(answers => {
  document.body.innerText = "done: " + answers.map(answer => answer.status).join(" ");
});
</script><body></body>
"""


def test_other_web_pages_reach_nothing(served: Serving) -> None:
    deployment = served.deployment("optimize_model")["id"]
    api = f"{served.url}/api/deployments/{deployment}/create_flow_run"
    asks = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type,authorization"}
    for origin, allowed in (
        ("https://evil.example", False),
        ("null", False),
        (f"http://127.0.0.1:{served.port + 1}", False),
        (served.url, True),
        (f"http://localhost:{served.port}", False),
    ):
        answer = httpx.options(api, headers={"Origin": origin, **asks}, timeout=HANG_SECONDS)
        assert (answer.status_code == 200, "access-control-allow-origin" in answer.headers) == (allowed, allowed)
    assert httpx.post(api, json={"parameters": {}}, timeout=HANG_SECONDS).status_code == 401
    page = f"<!doctype html><meta charset=utf-8><script>const API = {json.dumps(api)}</script>{FOREIGN_PAGE}"
    with web_page(page) as url, browsing(url, served.folder / "shots") as browser:
        browser.open("")
        browser.wait_for("done: rejected rejected rejected")
    assert not served.find("flow_runs", deployments={"id": {"any_": [deployment]}})


def test_the_api_runs_no_script_that_the_operator_did_not_name(served: Serving, tmp_path: Path) -> None:
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    asked = {"name": "evil", "passes": ["name_fix"], "chains": [["name_fix"]], "constraints": []}
    model = str(served.folder / "cnn/model.onnx")
    requested: list[str] = []
    with web_page("open('ran', 'w')", requested) as url:
        for script in (str(tmp_path / "evil.py"), f"{url}/evil.py"):
            run = served.ended(served.start("optimize_model", dag={**asked, "user_script": script}, model=model))
            assert run["state_type"] == "FAILED"
            assert "this worker may run only scripts in allowed folders" in run["state"]["message"]
    assert not requested
    assert not (tmp_path / "ran").exists()


def test_the_form_starts_a_run_and_retry_repeats_what_failed(served: Serving) -> None:
    (served.folder / "broken").touch()
    known = served.deployment("optimize_model")["id"]
    with browsing(served.url, served.folder / "shots", served.password) as browser:
        browser.open(f"deployments/deployment/{known}/run")
        browser.wait_for("path of a dag.yaml")
        browser.choose(str(served.folder / "dag.yaml"))
        browser.shot("start")
        browser.press("Submit")
        model = eventually(lambda: served.named("model · dag"))["id"]
        ended = served.ended(model)
        assert (ended["state_type"], "your pass fails in every trial" in ended["state"]["message"]) == ("FAILED", True)
        assert {t.partition(":")[0] for t in ended["tags"]} >= {
            "autoopt",
            "model",
            "dag",
            "target",
            "run",
            "host",
            "store",
        }
        chain = served.children_of(model)[0]
        assert (chain["name"], chain["state_type"]) == ("tidy -> weak", "FAILED")
        assert [t.outcome for t in trials(served)] == ["failed", "failed"]
        before, tried = served.autoopt("runs", "latest"), len(calls(served))

        (served.folder / "broken").unlink()
        browser.open(f"runs/flow-run/{model}")
        browser.wait_for("Failed")
        browser.shot("failed")
        browser.press("Retry")
        browser.confirm("Retry", lambda: served.get(f"flow_runs/{model}")["state_type"] != "FAILED")
        assert eventually(lambda: served.get(f"flow_runs/{model}")["run_count"] == 2)
        served.completed(model)
        browser.wait_for("Completed")
        browser.shot("retried")
    assert len(calls(served)) == tried + 2  # the two that had failed, once each
    assert [t.outcome for t in trials(served)] == ["ok", "ok"]
    assert served.autoopt("runs", "latest")["run"] != "" != before["run"]


def command(served: Serving, *arguments: str) -> subprocess.Popen[str]:
    return start_process(
        [sys.executable, "-m", "autoopt", "run", *arguments, "--engine", "prefect"],
        cwd=served.folder,
        env={name: value for name, value in environment(served.folder).items() if name != "AUTOOPT_SCRIPTS"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_command_submits_its_run_and_follows_it(served: Serving) -> None:
    # Options that no form has come along, too.
    asked = ("quick.yaml", "--model", "mlp/model.onnx", "--minimize", "size", "-o", "made", "--json")
    process = command(served, *asked)
    out, err = process.communicate(timeout=HANG_SECONDS)
    assert process.returncode == 0, err
    document = json.loads(out)
    assert [one["metric"] for one in document["objectives"]] == ["size"]
    assert (served.folder / "made" / "model.onnx").exists()
    assert f"{served.url}/runs/flow-run/" in err
    assert "trial 0" in err
    run = err.partition("/runs/flow-run/")[2].split()[0]
    row = served.get(f"flow_runs/{run}")
    assert (row["state_type"], f"run:{document['run']}" in row["tags"]) == ("COMPLETED", True)
    assert row["deployment_id"] == served.deployment("optimize_model")["id"]
    again = json.loads(command(served, *asked).communicate(timeout=HANG_SECONDS)[0])
    assert (again["run"], again["reused"]) == (document["run"], True)


def test_a_script_that_serve_may_not_run_keeps_the_run_in_the_command(served: Serving, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(SCRIPT)
    text = DAG.replace("CHAINS", "[[weak]]").replace("script.py", str(tmp_path / "own.py"))
    lines = [line for line in text.splitlines() if line.strip().split(":")[0] not in ("tidy", "slow")]
    (served.folder / "own.yaml").write_text("\n".join(lines))
    process = command(served, "own.yaml", "--model", "mlp/model.onnx", "--json")
    out, err = process.communicate(timeout=HANG_SECONDS)
    assert process.returncode == 0, err
    assert f"need 'autoopt serve --scripts DIR' with {tmp_path / 'own.py'}" in err
    run = json.loads(out)["run"]
    tagged = served.find("flow_runs", flow_runs={"tags": {"all_": [f"run:{run}"]}})
    assert {row["name"] for row in tagged} == {"mlp · fragile", "weak"}
    assert not [row for row in tagged if row["deployment_id"]]


def test_a_failure_of_the_machine_ends_a_submitted_run_as_it_ends_others(served: Serving) -> None:
    write(mlp(seed=7), served.folder / "busy")
    with Gate(served.folder / "tmp").measuring():
        process = command(served, "quick.yaml", "--model", "busy/model.onnx", "--minutes", "0.02")
        _, err = process.communicate(timeout=HANG_SECONDS)
    assert process.returncode == 3, err
    assert "wait for the other run, or allow more --minutes" in err.splitlines()[-1]
    run = err.partition("/runs/flow-run/")[2].split()[0]
    assert served.get(f"flow_runs/{run}")["state_type"] == "CRASHED"


def test_a_bug_ends_a_submitted_run_as_it_ends_others(served: Serving) -> None:
    (served.folder / "bug").touch()
    process = command(served, "quick.yaml", "--model", "mlp/model.onnx", "--again", "all")
    _, err = process.communicate(timeout=HANG_SECONDS)
    (served.folder / "bug").unlink()
    assert process.returncode == 3, err
    assert "internal error: AttributeError: " in err.splitlines()[-1]
    run = err.partition("/runs/flow-run/")[2].split()[0]
    assert served.get(f"flow_runs/{run}")["state_type"] == "FAILED"
    assert any("Traceback" in line["message"] for line in served.find("logs", logs={"flow_run_id": {"any_": [run]}}))


def test_an_interrupt_of_the_command_cancels_the_run(served: Serving) -> None:
    (served.folder / "slow").touch()
    dag(served.folder, "[[slow]]")
    process = command(served, "dag.yaml", "--model", "mlp/model.onnx")
    eventually(lambda: "1" in calls(served))
    workers = belonging(served.folder, "workers/child.py")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=HANG_SECONDS)
    (served.folder / "slow").unlink()
    assert process.returncode == 130
    run = err.partition("/runs/flow-run/")[2].split()[0]
    assert served.get(f"flow_runs/{run}")["state_type"] == "CANCELLED"
    assert {row["state_type"] for row in served.children_of(run)} == {"CANCELLED"}
    assert eventually(lambda: not any(map(alive, workers)))
    with open_store(None, served.folder / "home") as store:
        record = store.runs.get("latest")
        assert [t.status for t in store.trials.all(record.id)] == ["pending"]


def test_a_night_by_schedule(served: Serving) -> None:
    night = served.deployment("nightly_sweep")
    [schedule] = [one["schedule"] for one in night["schedules"] if one["active"]]
    assert (schedule["cron"], schedule["timezone"]) == ("0 2 * * *", "Europe/Berlin")
    waiting = {
        "deployments": {"id": {"any_": [night["id"]]}},
        "flow_runs": {"state": {"type": {"any_": ["SCHEDULED"]}}},
    }
    due = eventually(lambda: served.find("flow_runs", **waiting))
    nights = {datetime.fromisoformat(row["expected_start_time"]).astimezone(ZoneInfo("Europe/Berlin")) for row in due}
    assert {(one.hour, one.minute) for one in nights} == {(2, 0)}
    run = served.start("nightly_sweep", only="conv")
    served.completed(run)
    assert [row["name"] for row in served.children_of(run)] == ["vision · quick"]
    assert served.autoopt("nights", "night")["nights"]


def test_a_serve_that_is_killed_leaves_nothing_behind(tmp_path: Path) -> None:
    write(mlp(), tmp_path / "mlp")
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "slow").touch()
    with serving(tmp_path) as found:
        found.start("optimize_model", dag=dag(tmp_path, "[[slow]]"), model=str(tmp_path / "mlp/model.onnx"))
        eventually(lambda: (tmp_path / "calls.txt").exists())
        assert belonging(tmp_path, "prefect server start")
        assert belonging(tmp_path, "prefect.engine")
        found.process.kill()
        found.process.wait()
        eventually(lambda: not [process for process in belonging(tmp_path) if alive(process)])
    (tmp_path / "slow").unlink()
    with serving(tmp_path, PREFECT_SERVER_API_AUTH_STRING="me:canary") as found:  # where it was before
        assert found.deployment("optimize_model")
        assert httpx.get(f"{found.url}/api/flows/", timeout=HANG_SECONDS).status_code == 401
        api, kept = f"{found.url}/api", (tmp_path / "home" / "prefect.json").read_text()
        second = [sys.executable, "-m", "autoopt", "serve", "--port", str(free_port())]
        for env, reason in (
            ({}, "another autoopt serve is running at"),
            ({"PREFECT_API_URL": api}, "requires another password; set PREFECT_API_AUTH_STRING"),
        ):
            refused = subprocess.run(second, cwd=tmp_path, env=environment(tmp_path, **env), capture_output=True)
            assert (refused.returncode, refused.stdout, refused.stderr.count(b"\n")) == (2, b"", 1)
            assert reason in refused.stderr.decode()
        assert (tmp_path / "home" / "prefect.json").read_text() == kept
        assert not [p for p in belonging(tmp_path) if "canary" in " ".join(p.cmdline())]
    logs = [path.read_text() for path in (tmp_path / "home" / "logs").iterdir()]
    assert "canary" not in "".join([*found.said, *logs])


def test_a_work_pool_executes_instead(served: Serving) -> None:
    def deploy(pool: str) -> subprocess.CompletedProcess[str]:
        api = {"PREFECT_API_URL": f"{served.url}/api", "PREFECT_API_AUTH_STRING": served.password}
        arguments = [sys.executable, "-m", "autoopt", "serve", "--pool", pool]
        env = environment(served.folder, AUTOOPT_HOME=str(served.folder / "pool-home"), **api)
        return subprocess.run(
            arguments, cwd=served.folder, env=env, capture_output=True, text=True, timeout=HANG_SECONDS
        )

    missing = deploy("gpus")
    assert (missing.returncode, missing.stdout.count("deployments:")) == (2, 0)
    assert "create the pool with 'prefect work-pool create" in missing.stderr
    served.ask("POST", "work_pools/", {"name": "gpus", "type": "process"})
    made = deploy("gpus")
    assert made.returncode == 0, made.stderr
    assert "prefect worker start --pool gpus --limit 3" in made.stdout
    row = served.get("deployments/name/optimize_model/gpus")
    assert (row["work_pool_name"], row["tags"]) == ("gpus", ["autoopt", "pool:gpus"])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_end_it_while_it_starts(number: signal.Signals, tmp_path: Path) -> None:
    arguments = [sys.executable, "-m", "autoopt", "serve", "--port", str(free_port())]
    process = start_process(arguments, cwd=tmp_path, env=environment(tmp_path))
    eventually(lambda: belonging(tmp_path, "prefect server start"))
    process.send_signal(number)
    assert process.wait(HANG_SECONDS) == 130
    assert not list(filter(alive, belonging(tmp_path)))


@contextmanager
def web_page(text: str, requested: list[str] | None = None) -> Iterator[str]:
    """A web server with one page at every path: its address. The paths that were asked for go to `requested`."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if requested is not None:
                requested.append(self.path)
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
