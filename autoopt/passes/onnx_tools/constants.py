"""Constant nodes that hold plain numbers in place of tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from autoopt.passes.onnx_tools.graphs import replace_items

if TYPE_CHECKING:
    from onnx import NodeProto

FLOAT_ATTRIBUTES: Final = {"value_float": "float32", "value_floats": "float32"}
NUMBER_ATTRIBUTES: Final = {**FLOAT_ATTRIBUTES, "value_int": "int64", "value_ints": "int64"}
"""Attributes of Constant that hold numbers, and the element type of the tensor that they stand for."""


def store_as_tensor(constant: NodeProto, attributes: Mapping[str, str]) -> None:
    """Store the numbers of a Constant node as a tensor, in place, if one of `attributes` holds them."""
    import numpy as np
    from onnx import helper, numpy_helper

    for attribute in constant.attribute:
        if attribute.name in attributes:
            array = np.asarray(helper.get_attribute_value(attribute), dtype=attributes[attribute.name])
            replace_items(constant.attribute, [helper.make_attribute("value", numpy_helper.from_array(array))])
            return
