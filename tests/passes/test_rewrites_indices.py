"""Rules on axes and indices address the same elements."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from bench import ops
from micro_models import made
from onnx import numpy_helper
from rule_bench import compare, rewrite


def constants_of(model: onnx.ModelProto) -> list[np.ndarray]:
    stored = [tensor for node in model.graph.node for a in node.attribute if a.name == "value" for tensor in [a.t]]
    return [numpy_helper.to_array(tensor) for tensor in (*stored, *model.graph.initializer)]


@pytest.mark.parametrize("axis", [-1, -2, -3])
def test_the_axis_of_cumsum_counts_from_the_front(tmp_path: Path, axis: int) -> None:
    model = made(
        "g (float[2, 3, 4] x) => (float[2, 3, 4] y) { y = CumSum <reverse = 1> (x, a) }", a=np.asarray(axis, np.int64)
    )
    after = rewrite(model, "cumsum_workaround")
    assert after is not None
    assert 3 + axis in [int(array) for array in constants_of(after)]
    assert compare(model, after, tmp_path, tolerance="lossless").status == "same"


def test_a_positive_axis_of_cumsum_stays() -> None:
    model = made("g (float[2, 3] x) => (float[2, 3] y) { y = CumSum (x, a) }", a=np.asarray(1, np.int64))
    assert rewrite(model, "cumsum_workaround") is None


@pytest.mark.parametrize("axis", [-1, -2])
def test_the_axis_of_topk_counts_from_the_front(tmp_path: Path, axis: int) -> None:
    model = made(
        f"g (float[3, 4] x) => (float[A, B] v, int64[A, B] i) {{ v, i = TopK <axis = {axis}, largest = 0> (x, k) }}",
        k=np.asarray([2], np.int64),
    )
    after = rewrite(model, "topk_workaround")
    (node,) = [node for node in after.graph.node if node.op_type == "TopK"]
    assert {a.name: a.i for a in node.attribute} == {"axis": 2 + axis, "largest": 0}
    assert compare(model, after, tmp_path, tolerance="lossless").status == "same"


@pytest.mark.parametrize("indices", [[-1], [0, -3, 2], [[-2, 1], [0, -1]]])
def test_negative_indices_of_gather_become_positive(tmp_path: Path, indices: list[int]) -> None:
    array = np.asarray(indices, np.int64)
    dims = ", ".join(map(str, array.shape))
    model = made(f"g (float[3, 2] x) => (float[{dims}, 2] y) {{ y = Gather (x, i) }}", i=array)
    after = rewrite(model, "indices_workaround")
    assert after is not None
    assert all((constant >= 0).all() for constant in constants_of(after))
    assert compare(model, after, tmp_path, tolerance="lossless").status == "same"


def test_positive_indices_of_gather_stay() -> None:
    model = made("g (float[3, 2] x) => (float[1, 2] y) { y = Gather (x, i) }", i=np.asarray([2]))
    assert rewrite(model, "indices_workaround") is None


@pytest.mark.parametrize(("source", "to", "kind"), [("int64", 1, "float"), ("float32", 7, "int64")])
def test_a_cast_moves_into_the_values_of_onehot(tmp_path: Path, source: str, to: int, kind: str) -> None:
    model = made(
        f"g (int64[5] i) => ({kind}[5, 6] y) {{ h = OneHot (i, d, v)\n y = Cast <to = {to}> (h) }}",
        d=np.int64(6),
        v=np.asarray([0, 3], source),
    )
    after = rewrite(model, "fuse_cast_into_onehot")
    assert after is not None
    assert "Cast" not in ops(after)
    assert compare(model, after, tmp_path, tolerance="lossless").status == "same"


@pytest.mark.parametrize("kind", ["int64", "float", "bool"])
def test_nonzero_becomes_argmax_if_the_user_vouches_for_one_element(tmp_path: Path, kind: str) -> None:
    model = made(f"g ({kind}[4] x) => (int64[1, N] y) {{ y = NonZero (x) }}")
    assert rewrite(model, "replace_nonzero") is None
    after = rewrite(model, "replace_nonzero", "one_nonzero")
    assert after is not None
    dtype = {"int64": np.int64, "float": np.float32, "bool": np.bool_}[kind]
    for position in range(4):
        feeds = {"x": np.asarray([0] * position + [-2] + [0] * (3 - position)).astype(dtype)}
        assert compare(model, after, tmp_path / str(position), feeds, "lossless").status == "same"
