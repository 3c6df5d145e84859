"""`autoopt serve` as an operator uses it: run, watch, fail, retry, cancel, kill, sweep by schedule."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import httpx
import psutil
import pytest
from aiosmtpd.controller import Controller
from browsing import browsing
from builders import cnn, mlp, write
from children import HANG_SECONDS, start_process
from ports import free_port
from receiving import receiver
from ruamel.yaml import YAML
from serving import Serving, alive, belonging, environment, eventually, serving

from autoopt.orchestrate.server.heartbeats import AUTOMATION, CONTINUATION
from autoopt.store import TrialRecord, open_store

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
user_script: script.py
passes:
  tidy: {pass: name_fix}
  weak: {pass: fragile, params: {size: {search: [3, 4]}}}
  slow: {pass: fragile, params: {size: 1}}
chains: CHAINS
constraints: []
measurement: {seconds: 0.2, replicas: 2, target_width: 1.0, rounds: 2}
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    folder = tmp_path_factory.mktemp("serve")
    write(cnn(), folder / "cnn")
    write(mlp(), folder / "mlp")
    (folder / "script.py").write_text(SCRIPT)
    with serving(folder) as found:
        yield found
    assert not (folder / "home" / "serve.json").exists()


def dag(served: Serving, chains: str) -> str:
    path = served.folder / "dag.yaml"
    text = DAG.replace("CHAINS", chains)
    unused = [node for node in ("tidy", "weak", "slow") if node not in chains]
    path.write_text("\n".join(line for line in text.splitlines() if line.strip().split(":")[0] not in unused))
    return str(path)


def calls(served: Serving) -> list[str]:
    path = served.folder / "calls.txt"
    return path.read_text().split() if path.exists() else []


def test_it_says_what_it_started(served: Serving) -> None:
    said = "".join(served.said)
    for word in (
        served.url,
        "optimize_model/optimize-model",
        "tune_chain/tune-chain",
        "nightly_sweep/sweep-zoo",
        "worker for pool",
    ):
        assert word in said
    assert {p["name"] for p in served.find("work_pools")} == {"autoopt-models", "autoopt-chains"}
    assert {automation["name"] for automation in served.find("automations")} == {AUTOMATION, CONTINUATION}
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
    deployment = served.get("deployments/name/optimize_model/optimize-model")["id"]
    api = f"{served.url}/api/deployments/{deployment}/create_flow_run"
    asks = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type,authorization"}
    for origin, allowed in (
        ("https://evil.example", False),
        ("null", False),
        (f"http://127.0.0.1:{served.port + 1}", False),
        (served.url, True),
        (f"http://localhost:{served.port}", True),
    ):
        answer = httpx.options(api, headers={"Origin": origin, **asks}, timeout=HANG_SECONDS)
        assert (answer.status_code == 200, "access-control-allow-origin" in answer.headers) == (allowed, allowed)
    assert httpx.post(api, json={"parameters": {}}, timeout=HANG_SECONDS).status_code == 401
    before = len(served.find("flow_runs"))
    page = f"<!doctype html><meta charset=utf-8><script>const API = {json.dumps(api)}</script>{FOREIGN_PAGE}"
    with web_page(page) as url, browsing(url, served.folder / "shots") as browser:
        browser.open("")
        browser.wait_for("done: rejected rejected rejected")
    assert len(served.find("flow_runs")) == before


def test_the_api_runs_no_script_that_the_operator_did_not_name(served: Serving, tmp_path: Path) -> None:
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    asked = {"name": "evil", "passes": ["name_fix"], "chains": [["name_fix"]], "constraints": []}
    model = str(served.folder / "cnn/model.onnx")
    requested: list[str] = []
    with web_page("open('ran', 'w')", requested) as url:
        runs = [
            served.start("optimize_model/optimize-model", dag={**asked, "user_script": script}, model=model)
            for script in (str(tmp_path / "evil.py"), f"{url}/evil.py")
        ]
        for run in runs:
            ended = served.ended(run)
            assert ended["state_type"] == "FAILED"
            assert "this worker may run only scripts in allowed folders" in ended["state"]["message"]
    assert not requested
    assert not (tmp_path / "ran").exists()


def test_a_serve_that_is_killed_leaves_nothing_behind(tmp_path: Path) -> None:
    with serving(tmp_path) as found:
        assert belonging(tmp_path, " server start")
        assert len(belonging(tmp_path, "server.worker")) == 2
        found.process.kill()
        found.process.wait()
        eventually(lambda: not [process for process in belonging(tmp_path) if alive(process)])
    with serving(tmp_path, PREFECT_SERVER_API_AUTH_STRING="me:canary") as found:  # where it was before
        assert found.get("deployments/name/tune_chain/tune-chain")
        unnamed = httpx.get(f"{found.url}/api/deployments/name/tune_chain/tune-chain", timeout=HANG_SECONDS)
        assert unnamed.status_code == 401
        eventually(lambda: found.get("work_pools/autoopt-chains")["status"] == "READY")  # its worker is let in

        second = [sys.executable, "-m", "autoopt", "serve", "--port", str(free_port())]
        api, note = f"{found.url}/api", tmp_path / "home" / "serve.json"
        noted = note.read_text()
        for env, reason in (
            ({}, "another autoopt serve is running here"),
            ({"PREFECT_API_URL": api}, "requires another password; set PREFECT_API_AUTH_STRING"),
        ):
            refused = subprocess.run(second, cwd=tmp_path, env=environment(tmp_path, **env), capture_output=True)
            assert (refused.returncode, refused.stdout, refused.stderr.count(b"\n")) == (2, b"", 1)
            assert reason in refused.stderr.decode()
        assert note.read_text() == noted

        assert not [p for p in belonging(tmp_path) if "canary" in " ".join(p.cmdline())]
    logs = [*(tmp_path / "home" / "logs").iterdir()]
    names = {"autoopt-chains.log", "autoopt-models.log", "server.log"}
    assert {log.name for log in logs} == names
    assert "canary" not in "".join([*found.said, noted, *(log.read_text() for log in logs)])


def trials(served: Serving) -> tuple[TrialRecord, ...]:
    with open_store(None, served.folder / "home") as store:
        return store.trials.all(store.runs.get("latest").id)


def test_cancel_ends_the_workers_and_leaves_the_store_right(served: Serving) -> None:
    (served.folder / "slow").touch()
    run = served.start(
        "optimize_model/optimize-model", dag=dag(served, "[[slow]]"), model=str(served.folder / "cnn/model.onnx")
    )
    eventually(lambda: "1" in calls(served))
    workers = belonging(served.folder, "workers/child.py")
    assert workers
    served.cancel(run)
    assert served.ended(run)["state_type"] == "CANCELLED"
    chain = served.children_of(run)[0]["id"]
    assert served.ended(chain)["state_type"] == "CANCELLED"
    assert eventually(lambda: not any(map(alive, workers)))
    (served.folder / "slow").unlink()
    with open_store(None, served.folder / "home") as store:
        record = store.runs.get("latest")
        assert record.status == "cancelled"
        assert [t.status for t in store.trials.all(record.id)] == ["pending"]
        assert store.trials.claim_next(record.id) is not None  # nobody holds it


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_end_it_while_it_starts(number: signal.Signals, tmp_path: Path) -> None:
    port = free_port()
    command = [sys.executable, "-m", "autoopt", "serve", "--port", str(port)]
    process = start_process(command, cwd=tmp_path, env=environment(tmp_path))
    eventually(lambda: belonging(tmp_path, " server start"))
    process.send_signal(number)
    assert process.wait(HANG_SECONDS) == 130
    assert not list(filter(alive, belonging(tmp_path)))


def test_a_sweep_by_schedule(served: Serving) -> None:
    folder = served.folder
    (folder / "nightly.yaml").write_text(
        "name: night\ndag: quick.yaml\nmodels:\n  - {path: mlp, tags: [dense]}\n  - {path: cnn, name: vision}\n"
    )
    lines = ["name: quick", "passes: [name_fix, constant_folding]", "chains: [[name_fix, constant_folding]]"]
    (folder / "quick.yaml").write_text("\n".join([*lines, "objectives: [{metric: size}]", "constraints: []"]))
    ordered = ("nightly.yaml", "--schedule", "0 2 * * *", "--timezone", "Europe/Berlin")
    made = served.autoopt("sweep", *ordered)
    assert (made["deployment"], made["timezone"]) == ("nightly_sweep/night", "Europe/Berlin")
    deployment = served.get(f"deployments/name/{made['deployment']}")
    [schedule] = [s["schedule"] for s in deployment["schedules"] if s["active"]]
    assert (schedule["cron"], schedule["timezone"]) == ("0 2 * * *", "Europe/Berlin")
    assert served.autoopt("sweep", *ordered, "--only", "dense")["deployment"] == "nightly_sweep/night-dense"
    (folder / "other.yaml").write_text("name: night\ndag: quick.yaml\nmodels: [mlp]\n")
    with pytest.raises(AssertionError, match=r"/night is the deployment of .*/nightly.yaml; give this zoo"):
        served.autoopt("sweep", "other.yaml", *ordered[1:])

    of_it = {
        "deployments": {"id": {"any_": [deployment["id"]]}},
        "flow_runs": {"state": {"type": {"any_": ["SCHEDULED"]}}},
    }
    due = eventually(lambda: served.find("flow_runs", **of_it))
    nights = {datetime.fromisoformat(r["expected_start_time"]).astimezone(ZoneInfo("Europe/Berlin")) for r in due}
    assert {(night.hour, night.minute) for night in nights} == {(2, 0)}

    run, other = (served.start(made["deployment"]) for _ in range(2))  # as late ones do, at once

    default = served.get("deployments/name/nightly_sweep/sweep-zoo")
    written = YAML(typ="safe").load((Path(__file__).parents[2] / "prefect.yaml").read_text())["deployments"][-1]
    [schedule] = default["schedules"]
    is_set = {name: {**schedule, **schedule["schedule"]}[name] for name in ("cron", "timezone", "active")}
    assert [default["parameters"], [is_set]] == [written[name] for name in ("parameters", "schedules")]
    here = f"deployments/{default['id']}"
    served.ask("PATCH", here, {"parameters": {"zoo": "mine.yaml"}})
    served.ask("PATCH", f"{here}/schedules/{schedule['id']}", {"active": True})
    again = "from autoopt.deployments import deploy_all; deploy_all()"
    env = environment(folder, PREFECT_API_URL=f"{served.url}/api", PREFECT_API_AUTH_STRING=served.password)
    subprocess.run([sys.executable, "-c", again], cwd=folder, env=env, check=True, timeout=HANG_SECONDS)
    default = served.get("deployments/name/nightly_sweep/sweep-zoo")
    assert default["parameters"] == {"zoo": "mine.yaml"}
    assert [(s["schedule"]["cron"], s["active"]) for s in default["schedules"]] == [("0 2 * * *", True)]

    states = {served.ended(one)["state_type"]: one for one in (run, other)}
    assert set(states) == {"COMPLETED", "CANCELLED"}
    run = states["COMPLETED"]
    models = served.children_of(run)
    assert {m["name"] for m in models} == {"mlp · quick", "vision · quick"}
    assert all(served.children_of(m["id"]) for m in models)
    artifacts = {a["key"]: a for a in served.find("artifacts", artifacts={"flow_run_id": {"any_": [run]}})}
    assert "2 models: 2 ok" in artifacts["sweep-night"]["data"]
    assert (folder / "out" / "sweep.html").exists()
    told = {"filter": {"event": {"name": ["autoopt.sweep.finished"]}}}
    [event] = eventually(lambda: served.ask("POST", "events/filter", told).json()["events"])
    assert event["resource"]["prefect.resource.id"] == "autoopt.zoo.night"
    assert event["payload"]["outcome"] == "No regression in 2 models."

    served.retry(run)  # nothing of it was interrupted: it measures again
    assert eventually(lambda: served.get(f"flow_runs/{run}")["run_count"] == 2)
    served.completed(run)


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


SECRET = "T0KEN0F0A0WEBHOOK"


class Mails:
    """A mail server's handler that keeps what it is sent."""

    def __init__(self) -> None:
        self.kept: list[tuple[list[str], EmailMessage]] = []

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        message = message_from_bytes(envelope.content, _class=EmailMessage, policy=default)
        self.kept.append((envelope.rcpt_tos, message))
        return "250 kept"


@contextmanager
def mail_server() -> Iterator[tuple[str, Mails]]:
    """A mail server: an address for Apprise, and what it has been sent."""
    mails = Mails()
    server = Controller(mails, "127.0.0.1", free_port())
    server.start()
    try:
        yield f"mailto://127.0.0.1:{server.port}?from=autoopt@example.com&to=ops@example.com&format=text", mails
    finally:
        server.stop()


def told_of(served: Serving, flow_run: str) -> int:
    """The number of times that an automation has sent messages about a flow run."""
    fired = {"filter": {"event": {"name": ["prefect.automation.triggered"]}}}
    events = served.ask("POST", "events/filter", fired).json()["events"]
    causes = [event["payload"]["triggering_event"]["resource"]["prefect.resource.id"] for event in events]
    return causes.count(f"prefect.flow-run.{flow_run}")


def test_a_regression_is_told_once_to_slack_teams_a_webhook_and_by_mail(served: Serving) -> None:
    folder = served.folder
    write(mlp(width=256), folder / "wide")
    lines = ["name: watched", "objectives: [{metric: size}]", "constraints: []"]
    lines += ["measurement: {seconds: 0.2, replicas: 2}"]

    def dag_of(made_by: str) -> None:
        (folder / "watched-dag.yaml").write_text("\n".join([*lines, f"passes: [{made_by}]", f"chains: [[{made_by}]]"]))

    with receiver() as (url, bodies), mail_server() as (address, mails):
        unreachable = f"http://127.0.0.1:{free_port()}/{SECRET}"
        notify = ["$SLACK_URL", f"teams:{url}{SECRET}", f"{url}{SECRET}", unreachable, address]
        (folder / "watched.yaml").write_text(
            f"name: watched\ndag: watched-dag.yaml\nmodels: [wide]\nnotify: {json.dumps(notify)}\n"
        )
        dag_of("dynamic_quantization")
        served.autoopt("sweep", "watched.yaml", "--schedule", "0 2 * * *", SLACK_URL=f"slack:{url}{SECRET}")
        served.completed(served.start("nightly_sweep/watched"))
        assert not bodies
        assert not mails.kept
        dag_of("name_fix")
        worse = served.ended(served.start("nightly_sweep/watched"))
        assert worse["state_type"] == "FAILED"
        assert worse["state"]["message"].startswith("1 of 1 model regressed: wide.\nwide: size of the best model ")
        eventually(lambda: len(bodies) == 3)
        eventually(lambda: mails.kept)
        served.retry(worse["id"])
        eventually(lambda: served.get(f"flow_runs/{worse['id']}")["run_count"] == 2)
        assert served.ended(worse["id"])["state_type"] == "FAILED"
        another = served.ended(served.start("nightly_sweep/watched"))
        eventually(lambda: told_of(served, another["id"]) == 1)
        assert told_of(served, worse["id"]) == 1, "a night that fails again sends nothing"
    bodies[:] = [body for body in bodies if worse["id"] in body]
    del mails.kept[1:]
    documents = {tuple(document): document for document in map(json.loads, bodies)}
    title = f"{worse['name']} failed"
    text = f"{worse['state']['message']}\n{served.url}/runs/flow-run/{worse['id']}"
    assert documents[("text",)]["text"] == f"*{title}*\n{text}"
    assert documents[("title", "text")] == {"title": title, "text": f"{title}\n{text}"}
    [card] = documents[("type", "attachments")]["attachments"]
    assert [block["text"] for block in card["content"]["body"]] == [title, text.replace("\n", "\n\n")]
    [(receivers, mail)] = mails.kept
    assert receivers == ["ops@example.com"]
    assert mail["Subject"] == title
    assert mail.get_content().replace("\n", " ").split() == text.split()
    logs = [path.read_text(errors="replace") for path in (folder / "home").rglob("*.log")]
    assert logs
    assert not any(SECRET in log for log in logs)
