"""Commands, and the start of a run, while another run measures a latency on this machine."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import mlp, write
from children import HANG_SECONDS
from gated import READINGS, Calls, until

from autoopt.cli.app import main
from autoopt.engine.prepare import prepare
from autoopt.problem.run_request import RunRequest
from autoopt.report.progress import Progress
from autoopt.workers import Gate, gate

Work = Callable[[str, Path], Any]


def apply(model: str, folder: Path) -> Any:
    return main(["apply", "name_fix", model, "-o", str(folder / "out.onnx")])


def compare(model: str, folder: Path) -> Any:
    return main(["compare", model, model])


def begin(model: str, folder: Path) -> Any:
    dag = {"name": "d", "passes": {"s": "simplify"}, "chains": [["s"]]}
    with prepare(RunRequest(dag=dag, model=model, observer=Progress(sys.stderr, live=False))):
        return 0


@pytest.mark.parametrize("work", [apply, compare, begin])
def test_work_waits_says_so_and_goes_on(work: Work, home: Path, calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    model = str(write(mlp(), home.parent / "in"))
    monkeypatch.setattr(gate, "NOTICE_SECONDS", 0.0)
    told = StringIO()  # read while another thread writes, which pytest's own capturing does not stand
    monkeypatch.setattr(sys, "stderr", told)

    with ThreadPoolExecutor(1) as other:
        with Gate().measuring():
            done = other.submit(work, model, home.parent)
            until(lambda: "waiting while another run measures a latency" in told.getvalue())
            assert {function for function, _ in calls} <= {*READINGS}
            assert not done.done()
        assert done.result(timeout=HANG_SECONDS) == 0
    assert calls != []


def plan(model: str, folder: Path) -> Any:
    return main(["plan", model, "--data", str(folder / "x.npz")])


def init(model: str, folder: Path) -> Any:
    return main(["init", model, "-o", str(folder / "dag.yaml")])


def run_with_wrong_labels(model: str, folder: Path) -> Any:
    return main(["run", model, "--data", str(folder / "x.npz"), "--label", "nothing"])


@pytest.mark.parametrize(("work", "code"), [(plan, 0), (init, 0), (run_with_wrong_labels, 2)])
def test_what_only_reads_waits_for_no_measurement(work: Work, code: int, home: Path, calls: Calls) -> None:
    model = str(write(mlp(), home.parent / "in"))
    np.savez(home.parent / "x.npz", x=np.ones((8, 8), np.float32))
    with ThreadPoolExecutor(1) as other, Gate().measuring():
        assert other.submit(work, model, home.parent).result(timeout=HANG_SECONDS) == code
    assert calls != []
