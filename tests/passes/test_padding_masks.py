"""The number that onnxruntime's attention adds to scores of padding."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from micro_models import made

from autoopt.passes.base import Refused
from autoopt.passes.fusion.padding_masks import state_padding_value

LOWEST = float(np.finfo(np.float32).min)


def fused(attributes: str = "", mask: str = "m") -> onnx.ModelProto:
    return made(
        f"g (float[1, 4, 8] x, float[8, 24] w, float[24] b, int32[1, 4] m) => (float y)"
        f"{{ y = com.microsoft.Attention <num_heads = 2{attributes}> (x, w, b, {mask}) }}",
        domains=', "com.microsoft": 1',
    )


def source(*numbers: float) -> onnx.ModelProto:
    model = made("g (float[1] x) => (float[1] y) { y = Neg (x) }")
    for index, number in enumerate(numbers):
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.float32(number), f"n{index}"))
    return model


def stated(model: onnx.ModelProto) -> list[float]:
    return [attribute.f for attribute in model.graph.node[0].attribute if attribute.name == "mask_filter_value"]


@pytest.mark.parametrize("number", [LOWEST, -1e9, -1e4, -np.inf])
def test_the_number_of_the_source_is_stated(number: float) -> None:
    model = fused()
    state_padding_value(model, source(2, number, -1, number))
    assert stated(model) == [np.float32(number)]


def test_a_stated_number_and_attention_without_padding_stay() -> None:
    for model in (fused(", mask_filter_value = -5000.0"), fused(mask=""), fused(", unidirectional = 1", mask="")):
        before = model.SerializeToString()
        state_padding_value(model, source(LOWEST, -1e9))
        assert model.SerializeToString() == before


@pytest.mark.parametrize("numbers", [(), (LOWEST, -1e9)])
def test_an_unknown_number_is_refused(numbers: tuple[float, ...]) -> None:
    with pytest.raises(Refused, match="unknown"):
        state_padding_value(fused(), source(*numbers))


def test_a_number_counts_whatever_its_rank() -> None:
    model = source(LOWEST)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.full((1, 1, 1, 1), -1e4, np.float32), "hidden"))
    with pytest.raises(Refused, match="unknown"):
        state_padding_value(fused(), model)


def test_causal_attention_with_padding_is_refused() -> None:
    """It gives an item behind nothing but padding its own value; models give it the mean of others."""
    with pytest.raises(Refused, match="causal"):
        state_padding_value(fused(", unidirectional = 1"), source(LOWEST))
