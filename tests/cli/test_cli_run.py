"""`autoopt run` on the demo model: once in a process of its own, then in this one."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from children import HANG_SECONDS

from autoopt.cli.app import main
from autoopt.cli.run import chosen_engine
from autoopt.model.session import session_document
from autoopt.settings import settings

DIGITS = Path(__file__).parents[2] / "dags" / "digits"
MODEL = ["--model", str(DIGITS / "model.onnx")]
DAG: dict[str, Any] = {
    "name": "small",
    "model": str(DIGITS / "model.onnx"),
    "data": {"evaluation": str(DIGITS / "evaluation.npz"), "calibration": str(DIGITS / "calibration.npz")},
    "passes": {
        "names": {"pass": "name_fix"},
        "constants": {"pass": "constant_folding"},
        "fold": {"pass": "batchnorm_folding"},
    },
    "chains": [["names"], ["constants", "fold"]],  # the names are fine: one of the two trials is the source itself
    "objectives": [{"metric": "size"}],
    "constraints": [{"metric": "accuracy", "max_drop": 0.01}, {"metric": "latency_p50", "max": 1e6}],
    "measurement": {"seconds": 0.05, "replicas": 1, "target_width": 1.0, "rounds": 0},
}


Command = Callable[..., subprocess.CompletedProcess[str]]


def run_process(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `autoopt` in a process of its own."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("AUTOOPT_HOME", "AUTOOPT_DB", "PREFECT"))}
    command = [sys.executable, "-m", "autoopt", *arguments]
    return subprocess.run(
        command, cwd=folder, env=env, capture_output=True, text=True, timeout=HANG_SECONDS, check=False
    )


@pytest.fixture
def autoopt(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Iterator[Command]:
    """Return `autoopt(folder, ...)`, which runs a command in a folder, in this process."""
    for name in ("AUTOOPT_HOME", "AUTOOPT_DB_URL"):
        monkeypatch.delenv(name, raising=False)

    def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        monkeypatch.chdir(folder)
        settings.cache_clear()
        capfd.readouterr()
        code = main(arguments)
        return subprocess.CompletedProcess(arguments, code, *capfd.readouterr())

    yield run
    settings.cache_clear()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli")
    (folder / "dag.json").write_text(json.dumps(DAG))
    return folder


@pytest.fixture(scope="module")
def first(folder: Path) -> subprocess.CompletedProcess[str]:
    """Finish one run."""
    return run_process(folder, "run", "dag.json", "--engine", "inline", "--json")


def test_stdout_is_one_document_and_progress_goes_to_stderr(first: subprocess.CompletedProcess[str]) -> None:
    assert first.returncode == 0, first.stderr
    document = json.loads(first.stdout)
    assert set(document) >= {
        "run", "status", "baseline", "best", "pareto", "trials", "pass_runs", "evaluations", "seconds"
    }  # fmt: skip
    assert document["trials"]["total"] == 2
    assert document["best"]["ratios"]["size"]["value"] < 1
    assert document["best"]["ratios"]["latency_p50"]["value"] > 0
    assert "% smaller " in first.stderr
    assert "  constants -> fold\n" in first.stderr


def test_the_best_model_and_its_recipe_are_left(folder: Path, first: subprocess.CompletedProcess[str]) -> None:
    best = json.loads(first.stdout)["best"]
    assert (folder / best["path"]).read_bytes() == (folder / "out" / "model.onnx").read_bytes()
    recipe = json.loads((folder / "out" / "recipe.json").read_text())
    assert [step["pass"] for step in recipe["steps"]][-1] == "batchnorm_folding"
    session = json.loads((folder / "out" / "session.json").read_text())
    assert session == session_document(best["session_options"], threads=1)


def test_the_same_again_executes_nothing_and_says_so(
    folder: Path, first: subprocess.CompletedProcess[str], autoopt: Command
) -> None:
    again = autoopt(folder, "run", "dag.json", "--engine", "inline")
    assert again.returncode == 0
    assert "nothing was executed" in again.stdout
    assert again.stderr == ""


def test_the_store_answers_for_it(folder: Path, first: subprocess.CompletedProcess[str], autoopt: Command) -> None:
    run = json.loads(first.stdout)["run"]
    assert json.loads(autoopt(folder, "runs", "latest", "--json").stdout)["run"] == run
    assert [r["run"] for r in json.loads(autoopt(folder, "runs", "--json").stdout)] == [run]
    steps = json.loads(autoopt(folder, "lineage", "out/model.onnx", "--json").stdout)["steps"]
    assert [step["pass"] for step in steps][-2:] == ["constant_folding", "batchnorm_folding"]


def test_when_nothing_meets_the_constraints_it_is_1(
    folder: Path, first: subprocess.CompletedProcess[str], autoopt: Command
) -> None:
    strict = {**DAG, "constraints": [{"metric": "size", "max": 1000}, {"metric": "accuracy", "min": 0}]}
    (folder / "strict.json").write_text(json.dumps(strict))
    fell_short = autoopt(folder, "run", "strict.json", "--engine", "inline", "--json", "--quiet", "--out", "none")
    assert fell_short.returncode == 1
    assert json.loads(fell_short.stdout)["best"] is None
    assert fell_short.stderr == ""
    assert not (folder / "none").exists()


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        ("name: x\npasses:\n  a: {pass: simplfy}\nchains: [[a]]\n", MODEL, "bad.yaml:3: passes.a.pass: unknown pass"),
        ("name: x\nname: y\n", [], "bad.yaml:2: "),
        ("name: x\npasses:\n  a: {pass: simplify}\nchains: [[a]]\n", [], "bad.yaml:1: model: "),
        ("name: x\npasses:\n  a: {pass: simplify}\nchains: [[a]]\n", ["--model", "none.onnx"], "none.onnx"),
        (None, [], "bad.yaml"),
        (json.dumps(DAG), ["--out", "bad.yaml/out"], "bad.yaml: is a file, not a folder for results"),
        (json.dumps(DAG), ["--set", "search.trails=3"], "search.trails: unknown field"),
        (json.dumps(DAG), ["--set", "trials"], "--set: must be NAME=VALUE"),
        (json.dumps(DAG), ["--set", "search.order=[fold]"], "strategy: per-chain"),
    ],
)  # fmt: skip
def test_wrong_input_is_one_line(
    tmp_path: Path, autoopt: Command, text: str | None, arguments: list[str], message: str
) -> None:
    if text is not None:
        (tmp_path / "bad.yaml").write_text(text)
    failed = autoopt(tmp_path, "run", "bad.yaml", *arguments)
    assert (failed.returncode, failed.stdout) == (2, "")
    assert failed.stderr.count("\n") == 1
    assert message in failed.stderr


def test_the_engine_is_prefect_only_where_its_server_is_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    assert chosen_engine(None) == "inline"
    assert chosen_engine("prefect") == "prefect"
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:4200/api")
    assert chosen_engine(None) == "prefect"
    assert chosen_engine("inline") == "inline"
