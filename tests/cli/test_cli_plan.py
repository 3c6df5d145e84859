"""`autoopt plan`, with paths relative to the project."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SIX = "dags/six_pass.yaml"


Plan = Callable[..., Any]


@pytest.fixture
def plan(call: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Plan:
    """Return `plan(...)`, which runs `autoopt plan` in the project's folder, in this process."""
    monkeypatch.setenv("AUTOOPT_HOME", str(Path.cwd() / ".autoopt"))
    monkeypatch.chdir(ROOT)
    return lambda *arguments: call("plan", *arguments)


def test_json_is_one_document_with_the_six_chains(plan: Plan) -> None:
    result = plan(SIX, "--json")
    data = json.loads(result.out)
    assert (result.code, result.err) == (0, "")
    assert [c["points"] for c in data["chains"]] == [9, 3, 1, 6, 2, 3]
    assert data["dag"] == "six-pass"
    assert {"chain_count", "point_count", "prefix_nodes", "chains", "pruned"} <= set(data)


def test_limit_lists_fewer_and_counts_all(plan: Plan) -> None:
    assert plan(SIX, "--limit", 30 * "9") == plan(SIX)
    data = json.loads(plan(SIX, "--json", "--limit", "2").out)
    assert (len(data["chains"]), data["chain_count"], data["point_count"]) == (2, 6, 24)


def test_the_goal_is_that_of_the_file_unless_options_override_it(plan: Plan) -> None:
    assert "goal: minimize latency_p50\n" in plan(SIX).out
    options = ("--minimize", "size", "--metric", "f1", "--max-drop", "0.02")
    assert json.loads(plan(SIX, *options, "--json").out)["goal"] == [
        "minimize size",
        "f1 may get worse by at most 0.02",
    ]
    wrong = plan(SIX, "--metric", "size")
    assert (wrong.code, wrong.err) == (2, "--metric: size is no metric of quality; see docs/quality.md\n")


def test_a_model_is_inspected_by_a_worker(plan: Plan) -> None:
    result = plan("dags/cpu_transformer.yaml", "--model", "dags/digits/model.onnx", "--json")
    assert result.code == 0, result.err
    assert json.loads(result.out)["chain_count"] > 0


def test_wrong_input_is_one_line_and_exit_code_2(plan: Plan, tmp_path: Path) -> None:
    file = tmp_path / "d.yaml"
    file.write_text("name: d\npasses:\n  a: simplfy\nchains: [[a]]\n")
    result = plan(str(file))
    assert (result.code, result.out) == (2, "")
    assert result.err == f"{file}:3: passes.a.pass: unknown pass 'simplfy'; did you mean 'simplify'?\n"


def test_a_file_that_is_no_model_is_one_line_too(plan: Plan, tmp_path: Path) -> None:
    file = tmp_path / "m.onnx"
    file.write_bytes(b"not a model")
    result = plan(SIX, "--model", str(file))
    assert result.code == 2, result.out
    assert str(file) in result.err
    assert result.err.count("\n") == 1


def test_planning_loads_no_native_library() -> None:
    code = (
        "import sys\nfrom autoopt.cli.app import main\n"
        f"assert main(['plan', '{SIX}']) == 0\nprint(*sys.modules, file=sys.stderr)"
    )
    process = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    heavy = {"numpy", "onnx", "onnxruntime", "prefect", "sqlalchemy", "sklearn", "optuna", "scipy", "rich"}
    assert not set(process.stderr.split()) & heavy


def test_all_mistakes_of_a_dag_are_reported_at_once_with_hints(
    call: Callable[..., Any],
) -> None:
    Path("bad.yaml").write_text(
        "name: d\n"
        "passes:\n"
        "  tidy: {pass: simplify, parms: {}}\n"
        "chains: [[tidy, qant]]\n"
        "constraints: [{metric: acc, max_degradation: 0.01}]\n"
        "search: {max_samples: 3, trials: 0}\n"
    )
    said = call("plan", "bad.yaml")
    assert (said.code, said.out) == (2, "")
    assert said.err.splitlines() == [
        "bad.yaml:3: passes.tidy.parms: unknown field; did you mean 'params'?",
        "bad.yaml:4: chains[0][1]: unknown node 'qant'; known: tidy",
        "bad.yaml:5: constraints[0].max_degradation: unknown field; did you mean 'max_drop'?",
        "bad.yaml:5: constraints[0].metric: unknown metric 'acc'; did you mean 'accuracy'?",
        "bad.yaml:6: search.max_samples: unknown field; did you mean 'trials'?",
        "bad.yaml:6: search.trials: must be at least 1, not 0",
    ]


def test_all_wrong_passes_and_parameters_are_reported_at_once(call: Callable[..., Any]) -> None:
    Path("bad.yaml").write_text(
        "name: d\n"
        "passes:\n"
        "  tidy: {pass: simplfy}\n"
        "  quant: {pass: dynamic_quantization, params: {weight_typ: QInt8, per_channel: 3}}\n"
        "chains: [[tidy, quant]]\n"
    )
    lines = call("plan", "bad.yaml").err.splitlines()
    assert [line.partition(": ")[0] for line in lines] == ["bad.yaml:3", "bad.yaml:4", "bad.yaml:4"]
    assert "did you mean 'simplify'?" in lines[0]
