"""PyTorch models, in an interpreter that has torch."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from children import HANG_SECONDS
from interpreters import interpreter

pytestmark = [pytest.mark.service, pytest.mark.xdist_group("torch")]
HERE = Path(__file__).parent
SCRIPT = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first = torch.nn.Linear(16, 64)
        self.last = torch.nn.Linear(64, 4)

    def forward(self, x):
        return self.last(torch.relu(self.first(x))) * x.shape[0]

def model():
    return Net()

def both():
    return Net(), torch.ones(2, 16)

def example_inputs():
    return (torch.ones(2, 16),)
"""


MAKE = """
import numpy as np, net, torch
module = net.model().eval()
batch = torch.export.Dim("batch", max=64)
torch.export.save(torch.export.export(module, net.example_inputs(), dynamic_shapes=({0: batch},)), "net.pt2")
x = np.random.default_rng(0).standard_normal((3, 16)).astype("float32")
with torch.no_grad():
    np.savez("truth.npz", x=x, y=module(torch.from_numpy(x)).numpy())
"""


DAG = {
    "name": "small",
    "passes": {"names": "name_fix", "fold": "constant_folding"},
    "chains": [["names", "fold"]],
    "constraints": [],
    "objectives": [{"metric": "size", "goal": "minimize"}],
}


MLMODEL = "flavors:\n  pytorch: {model_data: data, pytorch_version: 2.13.0}\n"


@pytest.fixture(scope="session")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter with torch; everything else is what these tests run with."""
    return interpreter(tmp_path_factory.mktemp("torch") / "env", "torch")


@pytest.fixture(scope="session")
def work(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a script, its exported program and what the model computes."""
    folder = tmp_path_factory.mktemp("torch-models")
    (folder / "net.py").write_text(SCRIPT)
    (folder / "dag.json").write_text(json.dumps(DAG))
    subprocess.run([python, "-c", MAKE], cwd=folder, check=True, capture_output=True)
    for name in ("good", "pickled"):
        (folder / name / "data").mkdir(parents=True)
        (folder / name / "MLmodel").write_text(MLMODEL)
    (folder / "good/data/model.pt2").write_bytes((folder / "net.pt2").read_bytes())
    (folder / "pickled/data/model.pth").write_bytes(b"never read")
    return folder


def autoopt(python: Path, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "AUTOOPT_HOME": str(folder / "home")}
    command = [python, "-m", "autoopt", *words]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=HANG_SECONDS)


def run(python: Path, folder: Path, source: str) -> dict[str, Any]:
    done = autoopt(python, folder, "run", "dag.json", "--model", source, "--engine", "inline", "-q", "--json")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("source", ["net.pt2", "good", "net.py", "net.py:both"])
def test_a_run_starts_from_a_pytorch_model(python: Path, work: Path, source: str) -> None:
    run(python, work, source)
    lineage = json.loads(autoopt(python, work, "lineage", "out/model.onnx", "--json").stdout)
    assert lineage["converted"]["pass"] == "torch_export"
    assert lineage["converted"]["reports"]["conversion"]["status"] == "same"
    assert lineage["converted"]["output"] == lineage["source"]
    if not source.startswith("net.py"):  # the exported program left its batch open
        truth = np.load(work / "truth.npz")
        session = onnxruntime.InferenceSession(work / "out/model.onnx")
        (made,) = session.run(None, {session.get_inputs()[0].name: truth["x"]})
        np.testing.assert_allclose(made, truth["y"], rtol=1e-4, atol=1e-5)


def test_the_same_program_is_converted_once(python: Path, work: Path) -> None:
    first, packaged = run(python, work, "net.pt2"), run(python, work, "good")
    assert first["source"] == packaged["source"] if "source" in first else first["run"] == packaged["run"]


def test_apply_converts(python: Path, work: Path) -> None:
    for words in (["net.pt2"], ["net.py", "-p", "exporter=torchscript", "-p", "dynamic_batch=true"]):
        done = autoopt(python, work, "apply", "torch_export", *words, "-o", "converted.onnx", "--force", "--json")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["reports"]["conversion"]["status"] == "same"


def test_a_pickled_model_is_refused_with_a_remedy(python: Path, work: Path) -> None:
    done = autoopt(python, work, "run", "dag.json", "--model", "pickled", "--engine", "inline", "-q")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "serialization_format='pt2'" in done.stderr


class Touch:
    """Unpickling this leaves a file behind."""

    def __reduce__(self) -> Any:
        return os.mkdir, ("unpickled",)


def rewritten(source: Path, target: Path, **changes: Any) -> None:
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            short = name.partition("/")[2]
            content = old.read(name)
            change = changes.get(short.rpartition("/")[2].partition(".")[0])
            new.writestr(name, change(content) if change else content)


def graph(edit: Any) -> Any:
    def change(content: bytes) -> bytes:
        if not content.startswith(b'{"graph_module"'):
            return pickle.dumps(((Touch(),), {}))  # the sample inputs, which have the graph's name
        made = json.loads(content)
        edit(made)
        return json.dumps(made).encode()

    return change


def call_system(made: dict[str, Any]) -> None:
    made["graph_module"]["graph"]["nodes"][0]["target"] = "torch.os.system"


def size_that_runs(made: dict[str, Any]) -> None:
    values = made["graph_module"]["graph"]["tensor_values"]
    values["x"]["sizes"][0]["as_expr"]["expr_str"] = "__import__('os').mkdir('unpickled')"


ATTACKS = {"sample inputs": graph(lambda made: None), "function": graph(call_system), "size": graph(size_that_runs)}


@pytest.mark.parametrize("attack", ATTACKS)
def test_nothing_in_an_exported_program_is_executed(python: Path, work: Path, attack: str) -> None:
    rewritten(work / "net.pt2", work / "bad.pt2", model=ATTACKS[attack])
    done = autoopt(python, work, "apply", "torch_export", "bad.pt2", "-o", "bad.onnx")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert not (work / "unpickled").exists()
    assert not (work / "bad.onnx").exists()


def test_hqq_keeps_the_pass_contract(python: Path, tmp_path: Path) -> None:
    outs = []
    for seed in ("1", "2"):
        out = tmp_path / f"{seed}.jsonl"
        env = {**os.environ, "PYTHONHASHSEED": seed}
        subprocess.run([python, HERE / "sweep_torch.py", out], cwd=HERE, env=env, check=True, capture_output=True)
        outs.append([json.loads(line) for line in out.read_text().splitlines()])
    assert [r["digest"] for r in outs[0]] == [r["digest"] for r in outs[1]]
    done = [r for r in outs[0] if r["outcome"] == "ok"]
    assert done
    for result in outs[0]:
        told = f"{result['model']} {result['asked']}: {result['outcome']} {result['message']}"
        assert result["outcome"] in ("ok", "unchanged", "refused"), told
        if result["outcome"] == "ok":
            assert result["equivalence"]["max_relative_error"] < 0.6, told
