"""The environment that is recorded with results."""

from __future__ import annotations

import json
import os

from autoopt.engine.work.environment import LIBRARIES, cpu, environment, library_version, versions


def test_the_cpu_is_described() -> None:
    assert cpu()["model"]
    assert cpu()["cores"] == os.cpu_count()
    assert list(cpu()["flags"]) == sorted(cpu()["flags"])


def test_only_installed_libraries_have_a_version() -> None:
    assert library_version("no-such-distribution") == ""
    assert versions()["onnx"] == library_version("onnx")
    assert set(versions()) <= set(LIBRARIES)
    assert all(versions().values())


def test_the_environment_is_json() -> None:
    assert json.loads(json.dumps(environment())) == environment()
    assert set(environment()) == {"host", "cpu", "os", "python", "libraries"}
