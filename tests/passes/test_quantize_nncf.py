"""NNCF, in an interpreter that has it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from children import HANG_SECONDS
from interpreters import ROOT, interpreter

pytestmark = [pytest.mark.service, pytest.mark.xdist_group("nncf")]
PASSES = ["nncf_quantization", "nncf_weight_compression"]


HERE = Path(__file__).parent
MODEL, DATA = ROOT / "dags/digits/model.onnx", ROOT / "dags/digits"


@pytest.fixture(scope="session")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return interpreter(tmp_path_factory.mktemp("nncf") / "env", "nncf")


def right(model: Path) -> float:
    """The share of the digits that a model reads right."""
    digits = np.load(DATA / "evaluation.npz")
    session = onnxruntime.InferenceSession(model)
    (scores,) = session.run(None, {"image": digits["image"]})
    return float((scores.argmax(1) == digits["labels"]).mean())


@pytest.mark.parametrize("params", [[], ["-p", "preset=mixed", "-p", "fast_bias_correction=false"]])
def test_a_real_model_is_quantized(python: Path, tmp_path: Path, params: list[str]) -> None:
    out = tmp_path / "out.onnx"
    data = ["--data", str(DATA / "calibration.npz")]
    command = [python, "-m", "autoopt", "apply", PASSES[0], str(MODEL), "-o", str(out), *data, *params, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_SECONDS)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["outcome"] == "ok"
    assert out.stat().st_size < MODEL.stat().st_size / 2
    assert right(out) > right(MODEL) - 0.02


def test_the_pass_contract_holds(python: Path, tmp_path: Path) -> None:
    first, second = (tmp_path / f"{seed}.jsonl" for seed in "12")
    for seed, arguments in (("1", [first, *PASSES]), ("2", ["--again", first, second])):
        env = {**os.environ, "PYTHONHASHSEED": seed}
        subprocess.run([python, HERE / "sweep.py", *arguments], cwd=HERE, env=env, check=True, capture_output=True)
    outs = [[json.loads(line) for line in out.read_text().splitlines()[:-1]] for out in (first, second)]
    changed = [result["digest"] for result in outs[0] if result["outcome"] == "ok"]
    assert changed == [result["digest"] for result in outs[1]]
    for result in outs[0]:
        told = f"{result['pass']} {result['asked']} on {result['model']}: {result['outcome']} {result['message']}"
        assert result["outcome"] in ("ok", "unchanged", "refused"), told
        if result["outcome"] == "ok":
            assert result["equivalence"]["status"] in ("same", "only run", "lossy"), told
    assert {r["pass"] for r in outs[0] if r["outcome"] == "ok"} == set(PASSES)
