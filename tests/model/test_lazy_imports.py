"""Modules that are imported when they are first used."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
from autoopt.model.lazy_imports import helper, ir, np, onnx
assert not {"numpy", "onnx", "onnx_ir"} & sys.modules.keys()
node = helper.make_node("Add", ["a", "b"], ["c"])
print(np.int64(2) + 1, node.op_type, onnx.TensorProto.FLOAT, ir.DataType.FLOAT.value)
"""


def test_a_module_is_imported_at_the_first_use() -> None:
    process = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert process.stdout.split() == ["3", "Add", "1", "1"]
