"""`autoopt plan` as a command."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SIX = "dags/six_pass.yaml"


def plan(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "autoopt", "plan", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def test_json_is_one_document_with_the_six_chains() -> None:
    done = plan(SIX, "--json")
    data = json.loads(done.stdout)
    assert done.returncode == 0
    assert done.stderr == ""
    assert [c["points"] for c in data["chains"]] == [9, 3, 1, 6, 2, 3]
    assert data["dag"] == "six-pass"
    assert {"chain_count", "point_count", "prefix_nodes", "chains", "pruned"} <= set(data)


def test_limit_lists_fewer_and_counts_all() -> None:
    data = json.loads(plan(SIX, "--json", "--limit", "2").stdout)
    assert (len(data["chains"]), data["chain_count"], data["point_count"]) == (2, 6, 24)


@pytest.mark.parametrize(
    ("form", "begins"), [("text", "six-pass: 6 chains, 24 points"), ("mermaid", "flowchart LR"), ("dot", "digraph ")]
)
def test_drawings(form: str, begins: str) -> None:
    assert plan(SIX, "--format", form).stdout.startswith(begins)


def test_a_model_is_inspected_by_a_worker() -> None:
    done = plan("dags/cpu_transformer.yaml", "--model", "dags/digits/model.onnx", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["chain_count"] > 0


def test_wrong_input_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    file = tmp_path / "d.yaml"
    file.write_text("name: d\npasses:\n  a: simplfy\nchains: [[a]]\n")
    done = plan(str(file))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"{file}:3: passes.a.pass: unknown pass 'simplfy'; did you mean 'simplify'?\n"
    for arguments in ((str(tmp_path / "no.yaml"),), (SIX, "--model", "no.onnx"), (SIX, "--data", "no.npz")):
        done = plan(*arguments)
        assert done.returncode == 2
        assert done.stderr.count("\n") == 1
        assert "Traceback" not in done.stderr


def test_a_file_that_is_no_model_is_one_line_too(tmp_path: Path) -> None:
    file = tmp_path / "m.onnx"
    file.write_bytes(b"not a model")
    done = plan(SIX, "--model", str(file))
    assert done.returncode == 2, done.stdout
    assert str(file) in done.stderr
    assert done.stderr.count("\n") == 1


def test_planning_loads_no_native_library() -> None:
    code = (
        "import sys\nfrom autoopt.cli.app import main\n"
        f"assert main(['plan', '{SIX}']) == 0\nprint(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    heavy = {"numpy", "onnx", "onnxruntime", "prefect", "sqlalchemy", "sklearn", "optuna", "scipy", "rich"}
    assert not set(done.stderr.split()) & heavy
