"""Versions of a model."""

from __future__ import annotations

import onnx
import pytest
from micro_models import MODELS, made

from autoopt.passes.base import Refused
from autoopt.passes.onnx_tools.opsets import at_least_opset, import_domain, ir_version_for, opset

RELU = "g (float[2] x) => (float[2] y) { y = Relu (x) }"


@pytest.mark.parametrize("version", [11, 17, 21])
def test_the_opset_is_that_of_the_standard_operators(version: int) -> None:
    model = made(RELU, opset=version, domains=', "com.microsoft": 1')
    assert opset(model) == version


def test_both_spellings_of_the_standard_domain_count() -> None:
    model = made(RELU)
    model.opset_import[0].domain = "ai.onnx"
    assert opset(model) == 17


def test_a_model_without_standard_operators_has_opset_0() -> None:
    assert opset(MODELS["trees"]()) == 0
    with pytest.raises(Refused, match=r"does not use the ai\.onnx operators"):
        at_least_opset(MODELS["trees"](), 13)


def test_newer_models_are_returned_as_they_are() -> None:
    model = made(RELU, opset=17)
    assert at_least_opset(model, 13) is model
    assert at_least_opset(model, 17) is model


def test_older_models_are_converted_with_their_ir_version() -> None:
    converted = at_least_opset(made(RELU, opset=13, ir=7), 21)
    assert opset(converted) == 21
    assert converted.ir_version >= ir_version_for(21) > 7
    onnx.checker.check_model(converted, full_check=True)


def test_a_model_that_cannot_be_converted_is_refused() -> None:
    model = made(RELU, opset=13)
    model.graph.node[0].op_type = "NoSuchOperator"
    with pytest.raises(Refused, match="needs opset 21; the model at opset 13 cannot be converted"):
        at_least_opset(model, 21)


def test_a_missing_domain_is_imported_once_if_it_is_used() -> None:
    model = made(RELU)
    import_domain(model, "com.microsoft")
    assert [entry.domain for entry in model.opset_import] == [""]
    model.graph.node[0].domain = "com.microsoft"
    import_domain(model, "com.microsoft")
    import_domain(model, "com.microsoft")
    assert [(entry.domain, entry.version) for entry in model.opset_import] == [("", 17), ("com.microsoft", 1)]
