"""Options of a proposal."""

from __future__ import annotations

from pathlib import Path

import pytest

from autoopt.errors import InputError
from autoopt.spec.proposal_options import ProposalOptions, names_model, refuse_proposal_options


@pytest.mark.parametrize(
    ("dag", "expected"),
    [
        ("model.onnx", True),
        (Path("net/MODEL.ONNX"), True),
        ("m.pt2", True),
        ("net.py", True),
        ("net.py:build", True),
        ("s3://bucket/m.onnx?X-Signature=a.yaml", True),
        ("what?.onnx", True),
        ("dag.yaml", False),
        ("https://host/dag.yaml?model=m.onnx", False),
        ({"name": "d"}, False),
        (None, False),
    ],
)
def test_models_are_told_from_dags_by_their_suffix(dag: object, expected: bool) -> None:
    assert names_model(dag) is expected


@pytest.mark.parametrize(
    ("provider", "expected"),
    [
        ("directml", "DmlExecutionProvider"),
        ("TRT", "TensorrtExecutionProvider"),
        ("openvino", "OpenVINOExecutionProvider"),
        ("CUDAExecutionProvider", "CUDAExecutionProvider"),
    ],
)
def test_providers_have_short_names(provider: str, expected: str) -> None:
    assert ProposalOptions(execution_provider=provider).target().execution_provider == expected


def test_the_target_has_device_and_memory() -> None:
    target = ProposalOptions(device="gpu", memory=100).target()
    assert (target.execution_provider, target.memory) == ("CUDAExecutionProvider", 100)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"precision": "int9"}, "precision: unknown precision 'int9'; did you mean 'int8'?"),
        ({"level": 4}, "level: must be 0 to 3, not 4"),
        ({"level": True}, "level: must be 0 to 3, not True"),
    ],
)
def test_values_that_do_not_exist_are_refused(options: dict[str, object], words: str) -> None:
    with pytest.raises(InputError) as refused:
        ProposalOptions(**options)
    assert str(refused.value) == words


def test_all_wrong_options_are_refused_at_once() -> None:
    with pytest.raises(InputError) as refused:
        ProposalOptions(device="tpu", execution_provider="cudaa", precision="int9", level=4, threads="q")
    fields = [problem.where for problem in (refused.value, *refused.value.others)]
    assert fields == ["precision", "level", "device", "execution_provider", "threads"]


def test_an_unknown_target_is_refused() -> None:
    with pytest.raises(InputError, match="execution_provider: unknown execution provider 'cudaa'"):
        ProposalOptions(execution_provider="cudaa").target()


@pytest.mark.parametrize("options", [ProposalOptions(), ProposalOptions("gpu", None, "fp16", 1, 5, True)])
def test_json_has_what_differs_from_the_defaults(options: ProposalOptions) -> None:
    data = options.to_json()
    assert ProposalOptions.from_json(data) == options
    assert (data == {}) == (options == ProposalOptions())


def test_options_are_refused_beside_a_dag() -> None:
    refuse_proposal_options(None)
    refuse_proposal_options(ProposalOptions())
    with pytest.raises(InputError, match="ep, level: applies to a bare model, not to a DAG"):
        refuse_proposal_options(ProposalOptions(execution_provider="cuda", level=1))


@pytest.mark.parametrize("threads", ["two", "1,two", "-1"])
def test_a_wrong_number_of_threads_is_named_as_the_option_is(threads: str) -> None:
    with pytest.raises(InputError, match=r"^threads: must be a number from 0 to 4096"):
        ProposalOptions(threads=threads).target()
