"""The facts about a model as a record and as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import builders
import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import numpy_helper, parser

from autoopt.model import worker
from autoopt.model.inspection import FLOAT_FORMS, FUSED_LAYERS, QUANTIZED_OPS, Inspection, ValueSpec, with_plain_forms
from autoopt.model.io import Unreadable, save

DIMS = st.none() | st.integers(0, 9) | st.text(max_size=5)
SPECS = st.builds(ValueSpec, st.text(max_size=5), st.just("float32"), st.none() | st.lists(DIMS, max_size=4).map(tuple))


def inspection(*inputs: ValueSpec, **facts: object) -> Inspection:
    return Inspection(
        inputs=inputs,
        outputs=(ValueSpec("y", "sequence", None),),
        opsets={"": 17, "com.microsoft": 1},
        ir_version=8,
        op_counts={"Conv": 3, "com.microsoft::Gelu": 1},
        parameters=10,
        bytes=40,
        **facts,  # type: ignore[arg-type]
    )


@given(st.lists(SPECS, max_size=4))
def test_an_inspection_survives_json(inputs: list[ValueSpec]) -> None:
    facts = inspection(*inputs, dynamic_dims=("batch", "x[1]"), weight_dtypes={"int8": 4}, functions=2)
    assert Inspection.from_json(json.loads(json.dumps(facts.to_json()))) == facts


def test_facts_that_an_older_document_lacks_have_defaults() -> None:
    document = inspection().to_json()
    for name in ("weight_dtypes", "functions", "external_data", "dynamic_dims"):
        del document[name]
    assert Inspection.from_json(document) == inspection()


def test_the_operators_are_those_that_occur() -> None:
    assert inspection().ops == {"Conv", "com.microsoft::Gelu"}


def test_integer_and_fused_operators_count_as_their_plain_forms_too() -> None:
    counts = {"Conv": 1, "QLinearConv": 2, "com.microsoft::FusedConv": 3, "Relu": 4}
    assert with_plain_forms(counts) == {**counts, "Conv": 6}
    assert counts["Conv"] == 1


def test_no_plain_form_is_quantized_or_fused() -> None:
    forms = {*FLOAT_FORMS.values(), *FUSED_LAYERS.values()}
    assert not forms & (QUANTIZED_OPS | FUSED_LAYERS.keys())


def inspect(made: object, folder: Path) -> Inspection:
    value = worker.inspect({"path": str(builders.write(made, folder))})
    return Inspection.from_json(json.loads(json.dumps(value)))


def test_small_classifier(tmp_path: Path) -> None:
    found = inspect(builders.mlp(), tmp_path)
    assert found.inputs == (ValueSpec("x", "float32", ("batch", 8)),)
    assert found.outputs == (ValueSpec("y", "float32", ("batch", 4)),)
    assert found.op_counts == {"Gemm": 2, "Relu": 1, "Softmax": 1}
    assert found.opsets == {"": 17}
    assert found.parameters == 8 * 16 + 16 + 16 * 4 + 4
    assert found.weight_dtypes == {"float32": found.parameters}
    assert found.layer_parameters == {"Gemm": found.parameters}
    assert found.bytes == (tmp_path / "model.onnx").stat().st_size
    assert found.dynamic_dims == ("batch",)
    assert found.functions == 0
    assert not found.external_data


def test_subgraphs_and_functions_count(tmp_path: Path) -> None:
    loop = inspect(builders.endless_loop(), tmp_path)
    assert loop.op_counts == {"Loop": 1, "Identity": 2}
    assert loop.body_counts == {"Identity": 2}
    nested = inspect(builders.nested_functions(depth=3), tmp_path)
    assert nested.op_counts == {"Relu": 1, "f::F0": 2, "f::F1": 2, "f::F2": 1}
    assert nested.functions == 3
    assert nested.ops == {"Relu", "f::F0", "f::F1", "f::F2"}


def test_quantized_layers_count_as_what_they_are_in_float(tmp_path: Path) -> None:
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (uint8[1, 3, 8, 8] x, float s, uint8 z, float[N, 6] a)'
        " => (uint8[1, 4, 6, 6] y, float[N, 2] b)"
        "{ y = QLinearConv (x, s, z, w, s, z, s, z)\n d = DequantizeLinear (v, s)\n b = MatMul (a, d) }"
    )
    for name, shape in (("w", (4, 3, 3, 3)), ("v", (6, 2))):
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(shape, np.int8), name))
    assert inspect(model, tmp_path).layer_parameters == {"Conv": 4 * 3 * 3 * 3, "MatMul": 6 * 2}


@pytest.mark.parametrize(
    ("kernel", "count"), [("2, 3, 5", 1), ("2, 3, 5, 1", 1), ("2, 3, 1", 0), ("2, 3, 1, 1", 0), ("2, 3, 5, 5", 0)]
)
def test_convolutions_along_one_axis_are_counted(kernel: str, count: int, tmp_path: Path) -> None:
    dims = ", ".join("NABC"[: kernel.count(",") + 1])
    made = parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> '
        f"g (float[{dims}] x) => (float[{dims}] y) <float[{kernel}] w> {{ y = Conv (x, w) }}"
    )
    size = int(np.prod([int(length) for length in kernel.split(",")]))
    made.graph.initializer.append(onnx.helper.make_tensor("w", 1, list(map(int, kernel.split(","))), [1.0] * size))
    assert inspect(made, tmp_path).narrow_convolutions == count


@pytest.mark.parametrize(
    ("nodes", "count"),
    [
        ("a = Squeeze (x, first)\n b = Identity (a)\n y = Unsqueeze (b, first)", 1),
        ("a = Squeeze (x, first)\n b = Relu (a)\n y = Unsqueeze (b, first)", 0),
        ("a = Transpose <perm = [1, 0, 2]> (x)\n y = Squeeze (a, first)", 1),
        ("a = Transpose <perm = [0, 2, 1]> (x)\n y = Squeeze (a, first)", 0),
        ("a = Transpose <perm = [0, 1, 2, 3]> (x)\n y = Transpose ()", 0),
        ("a = Relu (x)\n b = Transpose <perm = [0, 2, 1]> (a)\n y = Squeeze (b, first)", 1),
        ("a = Relu (x)\n b = Reshape (a, four)\n y = Transpose <perm = [0, 2, 1, 3]> (b)", 0),
    ],
)
def test_operators_in_a_row_that_change_a_shape_are_counted(nodes: str, count: int, tmp_path: Path) -> None:
    """A Transpose of unknown sizes may be one of them, unless it is one of attention."""
    text = f"g (float[1, 4, 5] x) => (float y) {{ {nodes} }}"
    made = parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {text}')
    assert inspect(made, tmp_path).view_pairs == count


@pytest.mark.parametrize(("ir_version", "names"), [(3, ()), (8, ("scale",))])
def test_weights_that_callers_may_replace(ir_version: int, names: tuple[str, ...], tmp_path: Path) -> None:
    text = "g (float[4] x, float[1] scale) => (float[4] y) { y = Mul (x, scale) }"
    made = parser.parse_model(f'<ir_version: {ir_version}, opset_import: ["": 17]> {text}')
    made.graph.initializer.append(numpy_helper.from_array(np.ones(1, np.float32), "scale"))
    assert inspect(made, tmp_path).overridable == names


def test_weights_that_nodes_unpack_count(tmp_path: Path) -> None:
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[N, 6] x) => (float[N, 2] y) {'
        " c = Cast <to = 1> (w)\n s = Sub (c, zero)\n m = Mul (s, scale)\n t = Transpose (m)\n y = MatMul (x, t) }"
    )
    weights = {"w": np.ones((2, 6), np.int8), "zero": np.float32(1), "scale": np.ones((2, 1), np.float32)}
    for name, value in weights.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(value), name))
    assert inspect(model, tmp_path).layer_parameters == {"MatMul": 6 * 2}


def test_weights_of_recurrent_layers_count_though_nodes_put_their_gates_in_order(tmp_path: Path) -> None:
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[5, N, 4] x, bool c) => (float[5, 1, N, 6] y) {'
        " y = If (c) <then_branch = t () => (float[5, 1, N, 6] p) { p = GRU <hidden_size = 6> (x, w, r) },"
        "  else_branch = e () => (float[5, 1, N, 6] q) {"
        "   v = Slice (w, zero, all, one)\n s = Slice (r, zero, all, one)\n q = GRU <hidden_size = 6> (x, v, s) }> }"
    )
    weights = {"w": np.ones((1, 18, 4)), "r": np.ones((1, 18, 6)), "zero": [0], "one": [1], "all": [18]}
    for name, value in weights.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(value), name))
    assert inspect(model, tmp_path).layer_parameters == {"GRU": 18 * (4 + 6) + 18 * (6 + 6)}


def test_unknown_sizes_as_some_exporters_write_them_are_open_and_unlike(tmp_path: Path) -> None:
    made = builders.mlp()
    del made.graph.input[:]
    made.graph.input.append(builders.tensor("x", [-1, 3, "?", "?"]))
    assert inspect(made, tmp_path).inputs[0].shape == (None, 3, None, None)


def test_initializers_among_the_inputs_are_no_inputs(tmp_path: Path) -> None:
    made = builders.mlp()
    made.graph.input.append(builders.tensor("w1", [8, 16]))
    assert [v.name for v in inspect(made, tmp_path).inputs] == ["x"]


def test_shapes_of_every_kind(tmp_path: Path) -> None:
    made = builders.mlp()
    del made.graph.input[:]
    made.graph.input.extend(
        [
            builders.tensor("a", None, onnx.TensorProto.STRING),
            builders.tensor("b", [None, 3, "n"], onnx.TensorProto.BFLOAT16),
            builders.tensor("c", [], onnx.TensorProto.DOUBLE),
            onnx.helper.make_tensor_sequence_value_info("d", onnx.TensorProto.FLOAT, [1]),
        ]
    )
    found = inspect(made, tmp_path)
    assert [(v.dtype, v.shape) for v in found.inputs] == [
        ("str", None),
        ("bfloat16", (None, 3, "n")),
        ("float64", ()),
        ("sequence", None),
    ]
    assert found.dynamic_dims == ("b[0]", "n")


@pytest.mark.parametrize(
    ("graph", "lengths"),
    [
        ("y = Gather (table, x)", {"x": 7}),
        ("y = Gather <axis = 1> (table, x)", {"x": 3}),
        ("y = Gather <axis = 5> (table, x)", {}),
        ("c = Cast <to = 6> (x)\n y = Gather (table, c)", {"x": 7}),
        ("c = Slice (x, one, one)\n y = Gather (table, c)", {}),
        ("t = Cast <to = 1> (table)\n y = Gather (t, x)", {"x": 7}),
        ("a = Gather (table, x)\n y = Gather (one, x)", {"x": 1}),
    ],
)
def test_tables_that_inputs_index(graph: str, lengths: dict[str, int], tmp_path: Path) -> None:
    made = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 17]>
        g (int64[n] x) => (float[n, 3] y) <int64[1] one = {{1}}> {{ {graph} }}"""
    )
    made.graph.initializer.append(onnx.numpy_helper.from_array(np.zeros((7, 3), np.float16), "table"))
    assert inspect(made, tmp_path).table_lengths == lengths


def test_external_data_is_counted_not_read(tmp_path: Path) -> None:
    path = save(builders.mlp(width=512), tmp_path, external=True)
    found = Inspection.from_json(worker.inspect({"path": str(path)}))
    assert found.external_data
    assert found.parameters == 8 * 512 + 512 + 512 * 4 + 4
    assert found.bytes == sum(p.stat().st_size for p in tmp_path.iterdir())


def test_other_files_beside_the_model_do_not_count(tmp_path: Path) -> None:
    (tmp_path / "data.npz").write_bytes(bytes(1000))
    assert inspect(builders.mlp(), tmp_path).bytes == (tmp_path / "model.onnx").stat().st_size


def test_constants_are_weights(tmp_path: Path) -> None:
    value = onnx.numpy_helper.from_array(np.zeros((3, 5), np.int8), "v")
    node = onnx.helper.make_node("Constant", [], ["y"], value=value)
    found = inspect(builders.model([node], [], [builders.tensor("y", [3, 5], onnx.TensorProto.INT8)], {}), tmp_path)
    assert (found.parameters, found.weight_dtypes) == (15, {"int8": 15})


@pytest.mark.parametrize("path", builders.small_models()[::10], ids=lambda p: p.parent.name)
def test_the_onnx_packages_own_models(path: Path) -> None:
    found = Inspection.from_json(json.loads(json.dumps(worker.inspect({"path": str(path)}))))
    assert found.outputs
    assert sum(found.op_counts.values()) > 0


@pytest.mark.parametrize("name", [b"w1", b"x", b"Relu"])
def test_a_name_that_is_not_utf8_is_refused_in_words(name: bytes, tmp_path: Path) -> None:
    file = tmp_path / "model.onnx"
    content = builders.mlp().SerializeToString()
    assert name in content
    file.write_bytes(content.replace(bytes([len(name)]) + name, bytes([len(name)]) + b"\xc3" * len(name)))
    with pytest.raises(Unreadable, match="is not UTF-8 text; export the model again"):
        worker.inspect({"path": str(file)})
