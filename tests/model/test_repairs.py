"""Faults of model files that do not change what a model computes are mended when it is taken in."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from builders import model as built
from builders import tensor
from onnx import helper

from autoopt.model.repairs import LATEST_IR, repair

X, Y = [tensor("x", [2])], [tensor("y", [2])]
W = {"w": np.float32([1, 2])}


def small(*nodes: onnx.NodeProto, ir: int = 8) -> onnx.ModelProto:
    made = built(list(nodes), X, Y, W)
    made.ir_version = ir
    return made


def outputs(model: onnx.ModelProto) -> np.ndarray:
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"x": np.float32([-3, 5])})[0])


ADD = helper.make_node("Add", ["x", "w"], ["a"], "n")
NEG = helper.make_node("Neg", ["a"], ["y"], "n")
FUSED = helper.make_node("QuickGelu", ["a"], ["y"], domain="com.microsoft", alpha=1.0)
SUM = np.float32([-2, 7])
CASES = {
    "early": (small(ADD, helper.make_node("Neg", ["a"], ["y"]), ir=3), "IR version raised from 3 to 4", -SUM),
    "late": (small(ADD, helper.make_node("Neg", ["a"], ["y"]), ir=LATEST_IR + 1), "IR version lowered", -SUM),
    "names": (small(ADD, NEG), "names", -SUM),
    "order": (small(helper.make_node("Neg", ["a"], ["y"]), ADD), "sorted", -SUM),
    "unstated": (small(ADD, helper.make_node("Neg", ["a"], ["y"]), ir=0), "IR version 8 stated", -SUM),
    "spelling": (small(ADD, helper.make_node("Neg", ["a"], ["y"], domain="ai.onnx")), "short name", -SUM),
    "domain": (small(ADD, FUSED), "'com.microsoft' imported", SUM / (1 + np.exp(-SUM))),
}


@pytest.mark.parametrize("name", CASES)
def test_faults_are_mended_once_and_results_stay(name: str) -> None:
    faulty, text, expected = CASES[name]
    mended = onnx.ModelProto.FromString(faulty.SerializeToString())
    repairs = repair(mended)
    assert len(repairs) == 1
    assert text in repairs[0]
    onnx.checker.check_model(mended, full_check=name != "domain")
    assert outputs(mended) == pytest.approx(expected, rel=1e-6)
    assert repair(mended) == []


def test_maps_of_float64_are_made_of_float32() -> None:
    made = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17, "ai.onnx.ml": 3]>
        g (double[2] x) => (seq(map(int64, double)) y) {
            h = Neg (x)\n y = ai.onnx.ml.ZipMap <classlabels_int64s = [3, 7]> (h) }""")
    assert "float64 to float32" in repair(made)[0]
    session = ort.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    assert session.run(None, {"x": np.float64([-3, 5])})[0] == [{3: 3.0, 7: -5.0}]


def test_what_is_right_or_cannot_be_mended_stays_as_it_is() -> None:
    inputs = [*X, tensor("w", [2])]
    early = built([helper.make_node("Add", ["x", "w"], ["y"])], inputs, Y, W)
    early.ir_version = 3
    cyclic = small(helper.make_node("Add", ["x", "y"], ["a"]), helper.make_node("Neg", ["a"], ["y"]))
    for model in (small(ADD, helper.make_node("Neg", ["a"], ["y"])), early, cyclic):
        before = model.SerializeToString()
        assert repair(model) == []
        assert model.SerializeToString() == before


def test_nodes_that_a_body_reads_come_first() -> None:
    body = helper.make_graph([helper.make_node("Neg", ["a"], ["b"])], "body", [], [tensor("b", [2])])
    flag = helper.make_node("Constant", [], ["f"], value=helper.make_tensor("v", onnx.TensorProto.BOOL, [], [True]))
    branch = helper.make_node("If", ["f"], ["y"], then_branch=body, else_branch=body)
    model = small(branch, flag, ADD)
    assert repair(model) == ["nodes sorted"]
    assert [node.op_type for node in model.graph.node] == ["Constant", "Add", "If"]


def test_the_runtime_refuses_later_versions_and_repeated_names(tmp_path: Path) -> None:
    """Fails once onnxruntime takes such models: then they need no repair."""
    late = deepcopy(CASES["late"][0])
    late.ir_version = 99
    for model in (late, CASES["names"][0]):
        with pytest.raises(Exception, match=r"IR version|same node name"):
            outputs(model)
