"""Runs on a small model with real data and real measurements, kept short."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import cnn, write
from gated import calls, mlp_file, shared_workers

from autoopt.api import execute
from autoopt.problem.run_request import RunRequest
from autoopt.results import RunResult

__all__ = ["calls", "mlp_file", "shared_workers"]
SHORT = {"seconds": 0.05, "replicas": 1, "target_width": 1.0, "rounds": 0}
Runner = Callable[..., RunResult]


@pytest.fixture
def cnn_file(tmp_path: Path) -> Path:
    return write(cnn(), tmp_path / "cnn")


@pytest.fixture
def calibration(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    path = tmp_path / "x.npz"
    np.savez(path, x=rng.normal(size=(32, 8)).astype(np.float32))
    return path


@pytest.fixture
def go(tmp_path: Path) -> Runner:
    """Return `go(dag, ...)`, which runs a DAG given as a mapping in a store of this test's own."""

    def run(dag: dict[str, Any], *, out: Path | None = None, **options: Any) -> RunResult:
        measurement = {**SHORT, **options.pop("measurement", {})}
        dag = {"name": "t", **dag}
        return execute(RunRequest(dag=dag, home=tmp_path / "home", measurement=measurement, out=out, **options))

    return run
