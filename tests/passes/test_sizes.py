"""Targets of Reshape that follow from the sizes that it keeps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from bench import outputs
from micro_models import made, normal

from autoopt.passes.base.conversion import to_ir, to_proto
from autoopt.passes.onnx_tools.sizes import fixed_tensor, infer_sizes, make_targets_constant

NUMBERS: dict[str, Any] = {"zero": np.array([0]), "one": np.array([1]), "open": np.array([-1]), "eight": np.array([8])}
NUMBERS |= {"first": np.array(0), "four": np.array([4])}
READ = """
    s = Shape (x)
    b = Slice (s, zero, one)
    scalar = Gather (s, first)
    again = Unsqueeze (scalar, zero)
"""


def with_constant_target(model: onnx.ModelProto) -> tuple[onnx.ModelProto, list[int] | None]:
    """The model with constant targets, and the target of its last node."""
    changed = to_ir(model)
    infer_sizes(changed)
    make_targets_constant(changed)
    tensor = fixed_tensor(changed.graph[-1].inputs[1])
    return to_proto(changed), None if tensor is None else tensor.numpy().tolist()


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("t = Concat <axis = 0> (b, open, four, eight)", [0, 0, 4, 8]),
        ("t = Concat <axis = 0> (again, open)", [0, -1]),
        ("p = Mul (b, four)\n t = Concat <axis = 0> (p, open, eight)", None),
        ("p = Mul (b, four)\n d = Div (p, four)\n t = Concat <axis = 0> (d, four, open)", [0, 4, -1]),
        ("t = Concat <axis = 0> (open, b)", None),
        ("p = Add (b, zero)\n t = Concat <axis = 0> (p, open)", None),
    ],
)
def test_only_targets_that_follow_are_constant(tmp_path: Path, target: str, expected: list[int] | None) -> None:
    model = made(f"g (float[B, S, 32] x) => (float y) {{ {READ} {target}\n y = Reshape (x, t) }}", **NUMBERS)
    feed = {"x": normal(2, 6, 32)}
    before = outputs(model, tmp_path, feed)[0]
    changed, target = with_constant_target(model)
    assert target == expected
    np.testing.assert_array_equal(outputs(changed, tmp_path, feed)[0], before)


@pytest.mark.parametrize(("sizes", "expected"), [("B, S", [0, 0, 4, 8]), ("?, ?", None)])
def test_the_number_of_heads_follows_from_the_width(sizes: str, expected: list[int] | None) -> None:
    target = "two = Slice (s, zero, end)\n t = Concat <axis = 0> (two, open, eight)"
    model = made(
        f"g (float[B, S, 32] x) => (float[A, C, D, E] y) {{ s = Shape (x)\n {target}\n y = Reshape (x, t) }}",
        **NUMBERS,
        end=np.array([2]),
    )
    for dim, name in zip(model.graph.input[0].type.tensor_type.shape.dim, sizes.split(", "), strict=False):
        dim.dim_param = name
    assert with_constant_target(model)[1] == expected
