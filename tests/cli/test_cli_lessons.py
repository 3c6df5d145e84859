"""Built-in lessons in `autoopt plan`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

DIGITS = Path(__file__).parents[2] / "dags/digits/model.onnx"
PLAN = ("--verbose", "plan", str(DIGITS), "--data", str(DIGITS.with_name("evaluation.npz")))
ReportCpu = Callable[[str], None]


@pytest.mark.parametrize("name", ["avx2", "arm"])
def test_those_from_cpus_with_other_instructions_are_left_out(call: Any, report_cpu: ReportCpu, name: str) -> None:
    report_cpu(name)
    planned = call(*PLAN).out
    assert "left out, measured on a CPU with other instructions for integers" in planned
    assert "learned: " not in planned


def test_they_order_the_plans_of_models_and_dags_without_a_store(call: Any, report_cpu: ReportCpu) -> None:
    report_cpu("avx512_vnni")
    planned = call(*PLAN).out
    assert "knowledge: built in: " in planned
    assert "learned: " in planned
    Path("d.yaml").write_text("name: d\npasses: {q: dynamic_quantization, s: simplify}\nchains: [[q], [s]]\n")
    assert "learned: " in call("--verbose", "plan", "d.yaml", "--model", str(DIGITS)).out
    assert "learned" not in call("--verbose", "plan", "d.yaml").out
