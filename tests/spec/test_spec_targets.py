"""Targets and hosts."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from autoopt.spec.strict_model import input_error
from autoopt.spec.targets import HostSpec, TargetSpec
from autoopt.target import Accelerator


def target(value: object) -> TargetSpec:
    return TargetSpec.model_validate(value)


@pytest.mark.parametrize(
    ("value", "device", "provider"),
    [
        ({}, "cpu", "CPUExecutionProvider"),
        ("gpu", "gpu", "CUDAExecutionProvider"),
        ({"execution_provider": "QNNExecutionProvider"}, "npu", "QNNExecutionProvider"),
        ({"device": "cpu", "execution_provider": "OpenVINOExecutionProvider"}, "cpu", "OpenVINOExecutionProvider"),
        (
            {"execution_provider": "AcceleratorOfAnotherDecadeAltogetherExecutionProvider"},
            "cpu",
            "AcceleratorOfAnotherDecadeAltogetherExecutionProvider",
        ),
    ],
)
def test_device_and_provider_follow_from_each_other(value: object, device: str, provider: str) -> None:
    spec = target(value)
    assert (spec.device, spec.execution_provider) == (device, provider)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"execution_provider": "cuda"}, "did you mean 'CUDAExecutionProvider'?"),
        ({"execution_provider": "cudaexecutionprovider"}, "did you mean 'CUDAExecutionProvider'?"),
        ({"execution_provider": "CUDDAExecutionProvider"}, "did you mean 'CUDAExecutionProvider'?"),
        ({"execution_provider": "zzz"}, "or one that ends with ExecutionProvider"),
        ({"device": "tpu"}, "device: must be one of cpu, gpu, npu, not 'tpu'"),
        ({"threads": -1}, "threads: must be a number from 0 to 4096, all, or a list of these, not -1"),
        ({"threads": [1, "two"]}, "threads[1]: must be a number from 0 to 4096, all, or a list of these, not 'two'"),
        ({"threads": True}, "threads: must be a number"),
        ({"threads": []}, "threads: is empty; write a number, or a list such as [1, 2, all]"),
        ({"python": "python3", "host": "python_env"}, "host.python: is required for type python_env"),
        ({"python": "p", "host": {"type": "python_env", "python": "q"}}, "host: python and host exclude each other"),
    ],
)
def test_targets_that_do_not_exist_are_refused(value: object, words: str) -> None:
    with pytest.raises(ValidationError) as refused:
        target(value)
    assert words in str(input_error(refused.value))


def test_another_interpreter_is_an_isolated_host() -> None:
    spec = target({"python": "/env/bin/python", "threads": 2})
    assert spec.where == HostSpec(type="isolated_ort", python="/env/bin/python")
    assert spec.target().python == "/env/bin/python"
    assert spec.words == "CPUExecutionProvider, 2 threads, the runtime of /env/bin/python"


def test_the_instruction_set_is_that_of_the_machine_and_the_target() -> None:
    spec = target({"isa": ["avx512_vnni"], "memory": 10})
    expected = Accelerator("cpu", "CPUExecutionProvider", 10, frozenset({"avx2", "avx512_vnni"}))
    assert spec.accelerator(frozenset({"avx2"})) == expected


@pytest.mark.parametrize(
    ("threads", "measured", "choices", "words"),
    [
        (2, 2, (), "2 threads"),
        ("all", 0, (), "the default number of threads"),
        ([2], 2, (), "2 threads"),
        ([2, 2, 1], 0, (2, 1), "2 or 1 threads"),
        ([1, 2, "all"], 0, (1, 2, 0), "1, 2 or the default number of threads"),
    ],
)
def test_several_threads_are_searched_and_the_source_gets_the_default(
    threads: object, measured: int, choices: tuple[int, ...], words: str
) -> None:
    spec = target({"threads": threads})
    assert (spec.target().threads, spec.thread_choices) == (measured, choices)
    assert spec.accelerator().threads == choices
    assert spec.words.endswith(words)
