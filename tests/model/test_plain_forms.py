"""The plain operators that integer and fused ones stand for."""

from __future__ import annotations

from autoopt.model.plain_forms import FLOAT_FORMS, FUSED_LAYERS, QUANTIZED_OPS, with_plain_forms


def test_integer_and_fused_operators_count_as_their_plain_forms_too() -> None:
    counts = {"Conv": 1, "QLinearConv": 2, "com.microsoft::FusedConv": 3, "Relu": 4}
    assert with_plain_forms(counts) == {**counts, "Conv": 6}
    assert counts["Conv"] == 1


def test_no_plain_form_is_quantized_or_fused() -> None:
    forms = {*FLOAT_FORMS.values(), *FUSED_LAYERS.values()}
    assert not forms & (QUANTIZED_OPS | FUSED_LAYERS.keys())
