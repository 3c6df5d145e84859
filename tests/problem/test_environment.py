"""The environment that is recorded with results."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from autoopt.distributions import library_version
from autoopt.problem.content_keys import run_identity
from autoopt.problem.environment import LIBRARIES, cpu, environment, local_accelerator, versions


def test_the_cpu_is_described() -> None:
    assert cpu()["model"]
    assert cpu()["cores"] == len(os.sched_getaffinity(0))
    assert list(cpu()["flags"]) == sorted(cpu()["flags"])


@pytest.mark.parametrize(
    ("name", "model", "present", "absent"),
    [
        ("avx2", "AVX2 CPU", "avx2", "avx512_vnni"),
        ("avx512_vnni", "VNNI CPU", "avx512_vnni", "amx_int8"),
        ("arm", platform.processor() or platform.machine(), "asimddp", "avx2"),
    ],
)
def test_the_instruction_set_is_that_which_the_kernel_names(
    report_cpu: Callable[[str], None], name: str, model: str, present: str, absent: str
) -> None:
    report_cpu(name)
    assert cpu()["model"] == model
    assert present in local_accelerator().isa
    assert absent not in local_accelerator().isa


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_results_of_fewer_cores_are_others() -> None:
    """As below `taskset` and in a container with a cpuset."""
    usable = os.sched_getaffinity(0)
    before = run_identity({})
    try:
        os.sched_setaffinity(0, {min(usable)})
        cpu.cache_clear()
        assert run_identity({}) != before
    finally:
        os.sched_setaffinity(0, usable)
        cpu.cache_clear()
    assert run_identity({}) == before


def test_only_installed_libraries_have_a_version() -> None:
    assert library_version("no-such-distribution") == ""
    assert versions()["onnx"] == library_version("onnx")
    assert set(versions()) <= set(LIBRARIES)
    assert all(versions().values())


def test_the_environment_is_json() -> None:
    assert json.loads(json.dumps(environment())) == environment()
    assert set(environment()) == {"host", "cpu", "os", "python", "libraries"}


def test_another_distribution_of_onnxruntime_counts_as_onnxruntime(tmp_path: Path) -> None:
    package = tmp_path / "onnxruntime_openvino-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: onnxruntime-openvino\nVersion: 1.0\n")
    code = "from autoopt.distributions import library_version; print(library_version('onnxruntime'))"
    root = Path(__file__).parents[2]
    done = subprocess.run(  # -S: without the packages of this interpreter
        [sys.executable, "-S", "-c", code],
        env={"PYTHONPATH": f"{root}:{tmp_path}"},
        capture_output=True,
        text=True,
    )
    assert done.stdout == "1.0\n", done.stderr
