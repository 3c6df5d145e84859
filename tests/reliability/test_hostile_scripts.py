"""A user's script may break the process that runs it; what does not need the script goes on."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import mlp, write

import autoopt
from autoopt.settings import settings

pytestmark = pytest.mark.usefixtures("kept_workers")
BREAKS = """
import sys
from autoopt import register, register_metric

class Broken:
    def __getattr__(self, name):
        raise RuntimeError("broken on purpose")

@register("mine")
def mine(model):
    return model

@register_metric("one", unit="1", direction="maximize")
def one(outputs, labels):
    return 1.0

for name in ("onnx", "onnx.checker", "onnx.helper", "onnx_ir", "onnxruntime", "onnxslim", "numpy.random"):
    sys.modules[name] = Broken()
"""
DAG = {
    "name": "hostile",
    "user_script": "script.py",
    "passes": {"tidy": {"pass": "shape_inference"}, "simple": {"pass": "simplify"}, "own": {"pass": "mine"}},
    "chains": [["tidy", "simple"], ["simple", "tidy"], ["own", "simple"]],
    "objectives": [{"metric": "size"}],
    "constraints": [],
    "search": {"strategy": "per-chain", "sampler": "exhaustive"},
}


def test_a_script_that_replaces_modules_spoils_only_its_own_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOOPT_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    monkeypatch.chdir(tmp_path)
    settings.cache_clear()
    Path("script.py").write_text(BREAKS)
    result = autoopt.run(DAG, model=write(mlp(width=64), tmp_path / "mlp"), out=None, workers=1)
    assert result.best is not None
    assert result.trial_counts["ok"] == 2
