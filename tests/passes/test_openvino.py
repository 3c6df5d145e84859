"""What passes make runs on OpenVINO as on onnxruntime's own provider."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from interpreters import bare_interpreter
from micro_models import MODELS
from sweep import Preparations, applied, prepare

from autoopt.model.files import model_in
from autoopt.problem.hosts import Host, open_host
from autoopt.registry import PassInfo, registry

OPENVINO = "OpenVINOExecutionProvider"
FIDELITY = "autoopt.measure.worker:fidelity"
ROUNDING = 1e-3
"""OpenVINO's kernels round differently."""


@pytest.mark.service
def test_what_each_pass_makes_of_a_model_runs_on_openvino(tmp_path: Path) -> None:
    """Every pass that is said to suit the provider, on the first micro-model that it changes."""
    python = bare_interpreter(tmp_path / "openvino", "onnxruntime-openvino")
    for name in MODELS:
        prepare(name, tmp_path)
    preparations = Preparations(tmp_path, check=False, provider=OPENVINO)
    failures = []
    with open_host("isolated_ort", str(python)) as host:
        for info in map(registry().info, registry().names()):
            suits = not info.accelerators or OPENVINO in info.accelerators
            if suits and info.available and not info.analysis:
                failures += failures_of(info, preparations, host)
    assert not failures


def failures_of(info: PassInfo, preparations: Preparations, host: Host) -> list[str]:
    """Say what is wrong with the result of a pass on the first model that it changes and that runs there by itself."""
    for name in MODELS:
        source = {"path": str(preparations.folder / name / "model.onnx")}
        _, made = applied(info, name, {}, preparations, preparations.folder / f"{info.name} {name}")
        if made["outcome"] == "ok" and error_of(source, source, host) is not None:
            path = str(model_in(Path(made["path"]))) if made["path"] else source["path"]
            error = error_of({"path": path, "session_options": made["session_options"]}, {"path": path}, host)
            is_good = error is not None and (error <= ROUNDING or info.tolerance == "lossy")
            return [] if is_good else [f"{info.name} on {name}: {error}"]
    return []


def error_of(candidate: dict[str, Any], source: dict[str, Any], host: Host) -> float | None:
    """The largest difference to a model on the default provider; None if the candidate does not run."""
    request = {"candidate": candidate, "source": source, "metrics": ["max_abs_error"]}
    target = {"execution_provider": OPENVINO}
    reply = host.pool.call(FIDELITY, {**request, "target": target}, 60).value
    return None if reply is None else reply["metrics"]["max_abs_error"]["value"]
