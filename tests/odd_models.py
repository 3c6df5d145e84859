"""Models that are valid but odd, invalid, or hostile: sizes, types, names, versions, references and structure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import builders
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, parser

GRAPHS: dict[str, str] = {
    "no nodes": "g () => () { }",
    "an output from nowhere": "g () => (float[2] y) { }",
    "an input as output": "g (float[b, 4] x) => (float[b, 4] x) { }",
    "no inputs": "g () => (float[2] y) { y = Constant <value = float[2] {1, 2}> () }",
    "random without inputs": "g () => (float[2] y) { y = RandomNormal <shape = [2]> () }",
    "random": "g (float[b, 4] x) => (float[b, 4] y) { r = RandomNormalLike (x)\n y = Add (x, r) }",
    "no items": "g (float[0, 4] x) => (float[0, 4] y) { y = Relu (x) }",
    "a scalar": "g (float x) => (float y) { y = Relu (x) }",
    "unknown rank": "g (float[] x) => (float[] y) { y = Relu (x) }",
    "texts": "g (string[b, 2] x) => (string[b, 2] y) { y = Identity (x) }",
    "booleans": "g (bool[b] x) => (bool[b] y) { y = Not (x) }",
    "complex": "g (complex64[b] x) => (complex64[b] y) { y = Identity (x) }",
    "bfloat16": "g (bfloat16[b, 4] x) => (float[b, 4] y) { y = Cast <to = 1> (x) }",
    "float16": "g (float16[b, 4] x) => (float16[b, 4] y) { y = Relu (x) }",
    "a sequence": "g (seq(float[b]) x) => (float[n] y) { y = ConcatFromSequence <axis = 0> (x) }",
    "a sequence as output": "g (float[b, 4] x) => (seq(float[c, 4]) y) { y = SplitToSequence <axis = 0> (x) }",
    "an optional": "g (optional(float[2]) x) => (bool y) { y = OptionalHasElement (x) }",
    "a huge open input": "g (float[1099511627776] x) => (float[1099511627776] y) { y = Relu (x) }",
    "a huge product": "g (float[65536, 65536, 16] x) => (float[65536, 65536, 16] y) { y = Relu (x) }",
    "a cycle": "g (float[4] x) => (float[4] y) { a = Add (x, b)\n b = Relu (a)\n y = Relu (b) }",
    "a node that reads itself": "g (float[4] x) => (float[4] y) { y = Add (x, y) }",
    "unsorted": "g (float[4] x) => (float[4] y) { y = Relu (a)\n a = Neg (x) }",
    "a value from nowhere": "g (float[4] x) => (float[4] y) { y = Add (x, nowhere) }",
    "a value made twice": "g (float[4] x) => (float[4] y) { y = Neg (x)\n y = Relu (x) }",
    "an unknown operator": "g (float[4] x) => (float[4] y) { y = Magic (x) }",
    "too many inputs": "g (float[4] x) => (float[4] y) { y = Relu (x, x, x, x) }",
    "too few inputs": "g (float[4] x) => (float[4] y) { y = Add (x) }",
    "a node without outputs": "g (float[4] x) => (float[4] y) { y = Relu (x)\n = Neg (x) }",
    "a wrong output type": "g (float[4] x) => (int64[4] y) { y = Relu (x) }",
    "a wrong output shape": "g (float[b, 4] x) => (float[b, 7] y) { y = Relu (x) }",
    "a wrong input type": "g (string[4] x) => (float[4] y) { y = Relu (x) }",
    "not a number": "g (float[4] x) => (float[4] y) { a = Sub (x, x)\n y = Div (a, a) }",
    "a division by zero": "g (int64[4] x) => (int64[4] y) <int64[1] z = {0}> { y = Div (x, z) }",
    "constants divided by zero": """g (int64[4] x) => (int64[4] y) <int64[1] z = {0}, int64[1] a = {7}> {
        b = Mod (a, z)\n y = Add (x, b) }""",
    "an overflowing division": """g (int64[4] x) => (int64[4] y)
        <int64[1] z = {-1}, int64[1] a = {-9223372036854775808}> { b = Div (a, z)\n y = Add (x, b) }""",
    "an expansion of a terabyte": """g () => (float[m, n] y) <int64[2] s = {1048576, 1048576}, float[1] a = {1}> {
        y = Expand (a, s) }""",
    "a constant of a terabyte": """g (float[4] x) => (float[4] y) <int64[1] s = {274877906944}> {
        a = ConstantOfShape (s)\n b = ReduceSum (a)\n y = Add (x, b) }""",
    "an endless range": """g () => (int64[n] y) <int64 a = {0}, int64 b = {35184372088832}, int64 c = {1}> {
        y = Range (a, b, c) }""",
    "a padding of 2^60": """g (float[b, 4] x) => (float[b, n] y) <int64[4] p = {0, 0, 0, 1152921504606846976}> {
        y = Pad (x, p) }""",
    "tiles of a terabyte": """g (float[b, 4] x) => (float[m, n] y) <int64[2] r = {1048576, 1048576}> {
        y = Tile (x, r) }""",
    "two open sizes": "g (float[b, 4] x) => (float[m, n] y) <int64[2] s = {-1, -1}> { y = Reshape (x, s) }",
    "a negative k": "g (float[b, 4] x) => (float[b, n] y) <int64[1] k = {-3}> { y, i = TopK (x, k) }",
    "no stride": """g (float[1, 4, 8, 8] x) => (float[n] y) {
        y = MaxPool <kernel_shape = [2, 2], strides = [0, 0]> (x) }""",
    "no kernel": "g (float[1, 4, 8, 8] x) => (float[n] y) { y = MaxPool <kernel_shape = [0, 0]> (x) }",
    "an attribute of a wrong kind": 'g (float[b, 4] x) => (float[b, 4] y) { y = Softmax <axis = "last"> (x) }',
    "an empty result": """g (float[b, 4] x) => (float[m, 4] y) <int64[1] a = {0}> { y = Slice (x, a, a) }""",
    "a result that depends on the data": "g (float[b, 4] x) => (int64[2, n] y) { y = NonZero (x) }",
    "one result for all items": "g (float[b, 4] x) => (float y) { y = ReduceSum <keepdims = 0> (x) }",
}
"""Graphs at opset 17."""
RAW: dict[str, bytes] = {
    "nothing": b"",
    "zeros": b"\0" * 4096,
    "a web page": b"<!doctype html><html>Log in</html>",
    "a pointer of Git LFS": b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n",
    "an archive": b"PK\x03\x04" + b"\0" * 50,
    "a pickle": b"\x80\x04\x95" + b"\0" * 20,
    "deep nesting": b"\x3a\x80\x01" * 5000,
}
"""Bytes that are no model."""
NAMES = (
    "../../x",
    "/x",
    "ввод \U0001f600",
    "\u202ex",
    "a\x1b[2Jb",
    "x\0",
    "<script>alert(1)</script>",
    "n" * 100_000,
    "",
)
LOCATIONS = (
    "../secret",
    "/etc/passwd",
    "missing.bin",
    "",
    ".",
    "/dev/zero",
    "http://127.0.0.1:1/x",
    "/proc/self/environ",
)


def odd_models() -> dict[str, bytes]:
    """The models by what is odd about them."""
    models = dict(RAW)
    for name, graph in GRAPHS.items():
        text = f'<ir_version: 8, opset_import: ["": 17]> {graph}'
        models[name] = parser.parse_model(text).SerializeToString()
    for change in CHANGES:
        model = builders.mlp()
        change(model)
        models[change.__name__.strip("_").replace("_", " ")] = model.SerializeToString()
    for version in (-1, 0, 1, 7, 21, 24, 25, 2**31):
        model = builders.mlp()
        model.opset_import[0].version = version
        models[f"opset {version}"] = model.SerializeToString()
    for version in (-1, 0, 2, 3, 11, 99):
        model = builders.mlp()
        model.ir_version = version
        models[f"IR version {version}"] = model.SerializeToString()
    for name in NAMES:
        models[f"the name {name[:20]!r}"] = _named(name)
    for location in LOCATIONS:
        models[f"weights in {location!r}"] = _with_weights_in(location)
    models["a name in another encoding"] = _named("@@@").replace(b"@@@", "名".encode("gbk") + b"@")
    whole = builders.mlp().SerializeToString()
    models["half a model"] = whole[: len(whole) // 2]
    models["a model twice"] = whole * 2
    return models


def _named(name: str) -> bytes:
    """A model whose input, output, dimension and node have this name."""
    node = helper.make_node("Relu", [name], [f"{name}y"], name)
    inputs, outputs = [builders.tensor(name, [name, 4])], [builders.tensor(f"{name}y", [name, 4])]
    data: bytes = builders.model([node], inputs, outputs, {}).SerializeToString()
    return data


def _with_weights_in(location: str) -> bytes:
    model = builders.mlp()
    weight = model.graph.initializer[0]
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    weight.external_data.add(key="location", value=location)
    data: bytes = model.SerializeToString()
    return data


def _no_opset(model: Any) -> None:
    del model.opset_import[:]


def _two_opsets(model: Any) -> None:
    model.opset_import.add(domain="ai.onnx", version=13)


def _no_outputs(model: Any) -> None:
    del model.graph.output[:]


def _an_input_twice(model: Any) -> None:
    model.graph.input.append(model.graph.input[0])


def _an_output_twice(model: Any) -> None:
    model.graph.output.append(model.graph.output[0])


def _a_weight_twice(model: Any) -> None:
    model.graph.initializer.append(model.graph.initializer[0])


def _a_weight_with_the_name_of_the_input(model: Any) -> None:
    model.graph.initializer.append(numpy_helper.from_array(np.zeros((2, 16), np.float32), model.graph.input[0].name))


def _equal_node_names(model: Any) -> None:
    for node in model.graph.node:
        node.name = "n"


def _an_input_without_type(model: Any) -> None:
    model.graph.input[0].ClearField("type")


def _seventy_dimensions(model: Any) -> None:
    model.graph.input[0].type.CopyFrom(helper.make_tensor_type_proto(TensorProto.FLOAT, [1] * 70))


def _a_negative_size(model: Any) -> None:
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -5


def _weights_cut_short(model: Any) -> None:
    model.graph.initializer[0].raw_data = model.graph.initializer[0].raw_data[:-3]


def _weights_too_long(model: Any) -> None:
    model.graph.initializer[0].raw_data += b"xxxx"


def _no_weights(model: Any) -> None:
    model.graph.initializer[0].ClearField("raw_data")


def _weights_of_an_unknown_type(model: Any) -> None:
    model.graph.initializer[0].data_type = 77


def _weights_of_a_huge_shape(model: Any) -> None:
    model.graph.initializer[0].dims[:] = [1 << 32, 1 << 32]


def _weights_of_a_negative_shape(model: Any) -> None:
    model.graph.initializer[0].dims[:] = [-4, -4]


def _weights_in_segments(model: Any) -> None:
    model.graph.initializer[0].segment.end = 5


def _weights_that_are_not_numbers(model: Any) -> None:
    weight = model.graph.initializer[0]
    weight.CopyFrom(numpy_helper.from_array(np.full(tuple(weight.dims), np.nan, np.float32), weight.name))


def _a_huge_sparse_weight(model: Any) -> None:
    values = helper.make_tensor("sparse", TensorProto.FLOAT, [1], [1.0])
    indices = helper.make_tensor("indices", TensorProto.INT64, [1], [0])
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [1 << 20, 1 << 20]))


def _a_sparse_weight_with_bad_indices(model: Any) -> None:
    values = helper.make_tensor("sparse", TensorProto.FLOAT, [2], [1.0, 2.0])
    indices = helper.make_tensor("indices", TensorProto.INT64, [2], [-5, 2**40])
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [4, 4]))


def _a_recursive_function(model: Any) -> None:
    node, imports = helper.make_node("F", ["a"], ["b"], domain="f"), [helper.make_opsetid("f", 1)]
    model.functions.append(helper.make_function("f", "F", ["a"], ["b"], [node], imports))
    model.opset_import.add(domain="f", version=1)
    model.graph.node.append(helper.make_node("F", [model.graph.input[0].name], ["unused"], domain="f"))


def _a_function_in_place_of_an_operator(model: Any) -> None:
    node, imports = helper.make_node("Relu", ["a"], ["c"]), [helper.make_opsetid("", 17)]
    model.functions.append(helper.make_function("", "MatMul", ["a", "b"], ["c"], [node], imports))


def _a_foreign_domain(model: Any) -> None:
    model.graph.node[0].domain = "my.ops"


def _training_info(model: Any) -> None:
    model.training_info.add()


def _odd_metadata(model: Any) -> None:
    model.metadata_props.add(key="\x1b[31m", value="x" * 100_000)
    model.producer_name, model.doc_string, model.model_version = "</script>\x07", "d" * 1_000_000, -1


def _thousands_of_unused_nodes(model: Any) -> None:
    name = model.graph.input[0].name
    model.graph.node.extend(helper.make_node("Relu", [name], [f"unused{i}"]) for i in range(2000))


def _an_attribute_twice(model: Any) -> None:
    node = model.graph.node[-1]
    node.attribute.extend([onnx.helper.make_attribute("axis", 0), onnx.helper.make_attribute("axis", 1)])


CHANGES: tuple[Callable[[Any], None], ...] = (
    _no_opset,
    _two_opsets,
    _no_outputs,
    _an_input_twice,
    _an_output_twice,
    _a_weight_twice,
    _a_weight_with_the_name_of_the_input,
    _equal_node_names,
    _an_input_without_type,
    _seventy_dimensions,
    _a_negative_size,
    _weights_cut_short,
    _weights_too_long,
    _no_weights,
    _weights_of_an_unknown_type,
    _weights_of_a_huge_shape,
    _weights_of_a_negative_shape,
    _weights_in_segments,
    _weights_that_are_not_numbers,
    _a_huge_sparse_weight,
    _a_sparse_weight_with_bad_indices,
    _a_recursive_function,
    _a_function_in_place_of_an_operator,
    _a_foreign_domain,
    _training_info,
    _odd_metadata,
    _thousands_of_unused_nodes,
    _an_attribute_twice,
)
"""Changes of a small model, named by what is odd afterwards."""
