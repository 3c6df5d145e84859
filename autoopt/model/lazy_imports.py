"""numpy, onnx and onnx-ir, imported when they are first used: planning imports all passes, but runs none.

Type checkers see ordinary imports.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING

__all__ = ["convenience", "helper", "ir", "ir_passes", "np", "numpy_helper", "onnx", "shape_inference"]

if TYPE_CHECKING:
    import numpy as np
    import onnx
    import onnx_ir as ir
    from onnx import helper, numpy_helper, shape_inference
    from onnx_ir import convenience
    from onnx_ir.passes import common as ir_passes
else:

    class LazyModule(ModuleType):
        """A module that is imported when one of its attributes is read."""

        def __getattr__(self, name: str) -> object:
            value = getattr(importlib.import_module(self.__name__), name)
            setattr(self, name, value)
            return value

    np = LazyModule("numpy")
    onnx = LazyModule("onnx")
    helper = LazyModule("onnx.helper")
    numpy_helper = LazyModule("onnx.numpy_helper")
    shape_inference = LazyModule("onnx.shape_inference")
    ir = LazyModule("onnx_ir")
    convenience = LazyModule("onnx_ir.convenience")
    ir_passes = LazyModule("onnx_ir.passes.common")
