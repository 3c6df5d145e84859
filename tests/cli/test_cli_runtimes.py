"""`--ep all` and `--runtime`: the runtimes of a machine as targets of one run, and what they lack in one line."""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import pytest
from builders import mlp, write
from children import HANG_SECONDS

from autoopt.model.runtimes import first_use
from autoopt.problem.runtimes import InstalledRuntime, machine_targets
from autoopt.spec.proposal_options import ProposalOptions

CPU, OPENVINO = "CPUExecutionProvider", "OpenVINOExecutionProvider"


@pytest.fixture(scope="module")
def openvino(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter with numpy and onnxruntime-openvino, which runs on any x86 CPU."""
    folder = tmp_path_factory.mktemp("openvino")
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "onnxruntime-openvino", "numpy"]
    done = subprocess.run(pip, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"onnxruntime-openvino cannot be installed: {done.stderr[-200:]}")
    return python


def autoopt(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "autoopt", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=HANG_SECONDS)


@pytest.mark.service
def test_the_providers_of_two_runtimes_are_searched_in_one_run(openvino: Path, tmp_path: Path) -> None:
    model = str(write(mlp(width=64), tmp_path / "mlp"))
    done = autoopt(tmp_path, "run", model, "--runtime", str(openvino), "--trials", "2", "--json", "--quiet")
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    first, other, last = (target["name"] for target in document["targets"])
    assert (first, other.startswith("cpu-"), last) == ("cpu", True, "openvino")
    assert document["choice"]["name"] in (first, other, last)
    timed = document["choice"]["models"]
    assert timed["openvino"]["ratios"]["latency_p50"]["value"] > 0
    package = tmp_path / "out" / "targets" / "openvino"
    assert (package / "requirements.txt").read_text().startswith("onnxruntime-openvino==")
    session = json.loads((package / "session.json").read_text())
    assert session["inference_session"]["providers"] == [OPENVINO, CPU]
    program = [str(package / "run.py"), "--seconds", "1"]
    there = subprocess.run([openvino, *program], capture_output=True, text=True, timeout=HANG_SECONDS)
    assert f"session  {OPENVINO}" in there.stdout, there.stderr
    here = subprocess.run([sys.executable, *program], capture_output=True, text=True, timeout=HANG_SECONDS)
    assert f"{OPENVINO} is not in the installed onnxruntime" in here.stderr
    assert f"run it with {openvino}" in here.stderr


@pytest.mark.service
def test_lossy_arithmetic_of_a_provider_is_compared_with_the_default_one(openvino: Path, tmp_path: Path) -> None:
    target = {"execution_provider": OPENVINO, "python": str(openvino)}
    limits = [{"metric": "max_abs_error", "max": 0.0}]
    dag = {"passes": {"bf16": "provider_precision"}, "chains": [["bf16"]], "constraints": limits}
    (tmp_path / "dag.json").write_text(json.dumps({"name": "d", "target": target, **dag}))
    model = str(write(mlp(width=64), tmp_path / "mlp"))
    done = autoopt(tmp_path, "run", "dag.json", "--model", model, "--json", "--quiet")
    assert json.loads(done.stdout)["baseline"]["metrics"]["max_abs_error"] > 0, "of the source on OpenVINO, too"
    assert done.returncode == 1, "no provider rounds as the default one does"


@pytest.mark.service
def test_plan_and_doctor_list_the_runtimes(openvino: Path, tmp_path: Path) -> None:
    model = str(write(mlp(width=64), tmp_path / "mlp"))
    for arguments in (("plan", model), ("doctor",)):
        done = autoopt(tmp_path, *arguments, "--runtime", str(openvino))
        assert f" of {openvino} with OpenVINO, CPU" in done.stdout


def test_an_interpreter_that_cannot_be_used_is_one_line(tmp_path: Path) -> None:
    model = str(write(mlp(width=64), tmp_path / "mlp"))
    bare = tmp_path / "bare"
    venv.create(bare, with_pip=False)
    for python, reason in ((bare / "bin" / "python", "has no onnxruntime"), ("/bin/false", "is no Python that")):
        done = autoopt(tmp_path, "run", model, "--runtime", str(python))
        assert done.returncode == 2
        assert f"{python}: {reason}" in done.stderr.splitlines()[-1]


def test_a_provider_that_does_not_load_has_a_reason() -> None:
    assert first_use(CPU) == ""
    assert first_use("NoSuchExecutionProvider").startswith("onnxruntime does not load it")


def test_each_provider_that_can_be_used_is_a_target_and_the_default_one_is_first() -> None:
    here = InstalledRuntime(
        "", "onnxruntime", "1.31.1", ("AzureExecutionProvider", CPU), {"AzureExecutionProvider": "x"}
    )
    same = InstalledRuntime("/a/python", "onnxruntime-gpu", "1.31.1", ("CUDAExecutionProvider", CPU), {})
    older = InstalledRuntime("/b/python", "onnxruntime-openvino", "1.24.1", (OPENVINO, CPU), {})
    targets = machine_targets(ProposalOptions(execution_provider="all"), [here, same, older])
    assert [target.name for target in targets] == ["cpu", "cuda", "cpu-1.24.1", "openvino"]
    assert [target.python for target in targets] == ["", "/a/python", "/b/python", "/b/python"]
    assert older.words == "onnxruntime-openvino 1.24.1 of /b/python with OpenVINO, CPU"
