"""`--ep all` and `--runtime`: the runtimes of a machine as targets of one run, and what they lack in one line."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import venv
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from builders import mlp, write
from children import HANG_SECONDS
from interpreters import bare_interpreter, pip
from onnx import parser

from autoopt.model.runtimes import first_use
from autoopt.problem.hosts import InstalledRuntime, machine_targets
from autoopt.spec.proposal_options import ProposalOptions

CPU, OPENVINO, GGML = "CPUExecutionProvider", "OpenVINOExecutionProvider", "GgmlExecutionProvider"


def packages_of(python: Path) -> Path:
    [packages] = python.parents[1].glob("lib/python3*/site-packages")
    return packages


@pytest.fixture(scope="module")
def openvino(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter with onnxruntime-openvino, which runs on any x86 CPU."""
    return bare_interpreter(tmp_path_factory.mktemp("openvino"), "onnxruntime-openvino")


@pytest.fixture(scope="module")
def plugged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter with two plug-ins.

    OpenVINO's takes Intel's CPUs alone. That of ggml takes every one; a package with the usual name and functions of
    plug-ins leads to its library.
    """
    folder = tmp_path_factory.mktemp("plugged")
    runtime = f"onnxruntime=={metadata.version('onnxruntime')}"
    python = bare_interpreter(folder, runtime, "onnxruntime-ep-openvino")
    if pip(python, "install", "--quiet", "--no-deps", "onnxruntime-ggml").returncode:
        pytest.skip("onnxruntime-ggml cannot be installed")
    packages = packages_of(python)
    [library] = packages.glob("onnxruntime_ggml/lib/*.so")
    plugin, record = packages / "onnxruntime_ep_ggml", packages / "onnxruntime_ep_ggml-0.2.0.dist-info"
    plugin.mkdir()
    record.mkdir()
    functions = f"get_library_path = lambda: {str(library)!r}\nget_ep_name = lambda: {GGML!r}\n"
    (plugin / "__init__.py").write_text(functions)
    (record / "METADATA").write_text("Metadata-Version: 2.1\nName: onnxruntime-ep-ggml\nVersion: 0.2.0\n")
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
    needed = pip(openvino, "install", "--dry-run", "-r", str(package / "requirements.txt")).stdout
    assert "onnxruntime-openvino==" in needed
    assert "Would install" not in needed
    session = json.loads((package / "session.json").read_text())
    assert session["inference_session"]["providers"] == [OPENVINO, CPU]
    program = [str(package / "run.py"), "--seconds", "1"]
    there = subprocess.run([openvino, *program], capture_output=True, text=True, timeout=HANG_SECONDS)
    assert f"session  {OPENVINO}" in there.stdout, there.stderr
    here = subprocess.run([sys.executable, *program], capture_output=True, text=True, timeout=HANG_SECONDS)
    assert f"{OPENVINO} is not in the installed onnxruntime" in here.stderr
    assert f"run it with {openvino}" in here.stderr


@pytest.mark.service
def test_a_provider_that_does_not_take_the_model_is_left_out(openvino: Path, tmp_path: Path) -> None:
    """OpenVINO refuses an output that the runtime folds to a constant."""
    graph = "g (float[4] x) => (float[4] y, float[4] t) <float[4] w = {1, 2, 3, 4}> { y = Relu(x)\n t = Neg(w) }"
    model = str(write(parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {graph}'), tmp_path / "m"))
    done = autoopt(tmp_path, "run", model, "--runtime", str(openvino), "--trials", "1", "--json", "--quiet")
    document = json.loads(done.stdout)
    assert "openvino" not in [target["name"] for target in document["targets"]]
    assert "OpenVINO does not take the model" in document["notes"][0]


@pytest.mark.service
def test_a_provider_that_takes_no_node_is_told_and_not_compared(openvino: Path, tmp_path: Path) -> None:
    opsets = '["": 17, "ai.onnx.ml": 3]'
    graph = "g (float[1, 8] x) => (float[1, 8] y) { y = ai.onnx.ml.Binarizer<threshold: float = 0.5>(x) }"
    model = str(write(parser.parse_model(f"<ir_version: 8, opset_import: {opsets}> {graph}"), tmp_path / "m"))
    done = autoopt(tmp_path, "run", model, "--runtime", str(openvino), "--trials", "1", "--json", "--quiet")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert "openvino" not in document["choice"]["models"]
    assert f"openvino is not compared: {OPENVINO} takes no node of this model" in document["notes"][0]


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
def test_plan_and_doctor_list_the_runtimes_and_what_they_lack(openvino: Path, plugged: Path) -> None:
    model = str(write(mlp(width=64), plugged.parent / "mlp"))
    for package in packages_of(plugged).glob("onnxruntime_ep_ggml*"):  # it needs a newer onnxruntime than there is
        shutil.copytree(package, packages_of(openvino) / package.name)
    for arguments in (("plan", model), ("doctor",)):
        done = autoopt(plugged.parent, *arguments, "--runtime", str(openvino), "--runtime", str(plugged))
        assert (
            f" of {openvino} with OpenVINO (CPU), CPU; not onnxruntime-ep-ggml: it needs onnxruntime 1." in done.stdout
        )
        assert "Ggml (CPU, onnxruntime-ep-ggml 0.2.0)" in done.stdout


@pytest.mark.service
@pytest.mark.parametrize(("provider", "plugin"), [(GGML, "onnxruntime-ep-ggml"), (OPENVINO, "onnxruntime-ep-openvino")])
def test_a_package_says_which_plugin_it_needs(provider: str, plugin: str, plugged: Path, tmp_path: Path) -> None:
    target = {"execution_provider": provider, "python": str(plugged)}
    dag = {"name": "d", "target": target, "passes": {"tidy": "simplify"}, "chains": [["tidy"]]}
    (tmp_path / "dag.json").write_text(json.dumps(dag))
    done = autoopt(tmp_path, "run", "dag.json", "--model", str(write(mlp(width=64), tmp_path / "mlp")), "--quiet")
    if f"{plugin}: it takes no device" in autoopt(tmp_path, "doctor", "--runtime", str(plugged)).stdout:
        pytest.skip(f"{plugin} takes no device of this machine")
    assert done.returncode == 0, done.stderr
    assert f"{plugin}==" in (tmp_path / "out" / "requirements.txt").read_text()
    program = [str(tmp_path / "out" / "run.py"), "--seconds", "1"]
    there = subprocess.run([plugged, *program], capture_output=True, text=True, timeout=HANG_SECONDS)
    assert f"session  {provider}" in there.stdout, there.stderr


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
