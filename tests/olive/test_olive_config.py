"""Systems of Olive as targets and hosts."""

from __future__ import annotations

from typing import Any

import pytest

Convert = Any


def converted_target(converted: Convert, **system: Any) -> Any:
    return converted(systems={"s": system}, target="s")


def test_an_accelerator_becomes_a_target(converted: Convert) -> None:
    accelerator = {"device": "gpu", "execution_providers": [["CUDAExecutionProvider", "lib.so"]], "memory": "4 GB"}
    dag = converted_target(converted, type="LocalSystem", accelerators=[accelerator]).dag
    assert dag["target"] == {"device": "gpu", "execution_provider": "CUDAExecutionProvider", "memory": 4 * 2**30}


def test_several_providers_become_targets(converted: Convert) -> None:
    providers = ["CPUExecutionProvider", "OpenVINOExecutionProvider"]
    conversion = converted_target(converted, type="LocalSystem", accelerators=[{"execution_providers": providers}])
    assert [target["name"] for target in conversion.dag["targets"]] == ["cpu", "openvino"]
    assert "one target for each of the 2 execution providers" in conversion.remarks[0]
    old = converted(engine={"execution_providers": providers})
    assert len(old.dag["targets"]) == 2


def test_old_accelerators_are_devices(converted: Convert) -> None:
    assert converted_target(converted, config={"accelerators": ["gpu"]}).dag["target"] == {"device": "gpu"}


def test_a_python_environment_is_an_interpreter(converted: Convert) -> None:
    system = {"type": "PythonEnvironment", "python_environment_path": "venv/bin", "accelerators": [{"device": "cpu"}]}
    assert converted_target(converted, **system).dag["target"] == {"device": "cpu", "python": "venv/bin/python"}
    dag = converted(systems={"s": system}, host="s").dag
    assert dag["host"] == {"type": "python_env", "python": "venv/bin/python"}


@pytest.mark.parametrize(
    ("system", "remark"),
    [
        ({"type": "PythonEnvironment", "olive_managed_env": True}, "no environment is created"),
        ({"type": "Docker", "image_name": "img:1"}, "run autoopt in that image"),
        ({"type": "AzureML"}, "no system 'AzureML'"),
    ],
)
def test_other_systems_are_named(converted: Convert, system: Any, remark: str) -> None:
    conversion = converted_target(converted, **system)
    assert remark in conversion.remarks[0]
    assert "target" not in conversion.dag
