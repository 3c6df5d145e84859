"""Models made for tests: small good ones, and ones that kill, hang or flood whoever reads them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def model(nodes: list[Any], inputs: list[Any], outputs: list[Any], weights: dict[str, Any], **more: Any) -> Any:
    """A checked-by-nobody ModelProto at opset 17, IR version 8, unless `more` says otherwise."""
    initializers = [numpy_helper.from_array(np.asarray(w), name) for name, w in weights.items()]
    graph = helper.make_graph(nodes, more.pop("name", "g"), inputs, outputs, initializers)
    more.setdefault("opset_imports", [helper.make_opsetid("", 17)])
    made = helper.make_model(graph, **more)
    made.ir_version = 8
    return made


def tensor(name: str, shape: Any, dtype: int = TensorProto.FLOAT) -> Any:
    return helper.make_tensor_value_info(name, dtype, shape)


def mlp(width: int = 16, classes: int = 4, seed: int = 0, batch: int | str = "batch") -> Any:
    """Input `x` [batch, 8] -> Gemm, Relu, Gemm, Softmax -> output `y` [batch, classes]."""
    rng = np.random.default_rng(seed)
    weights = {
        "w1": rng.standard_normal((8, width)).astype(np.float32),
        "b1": rng.standard_normal(width).astype(np.float32),
        "w2": rng.standard_normal((width, classes)).astype(np.float32),
        "b2": rng.standard_normal(classes).astype(np.float32),
    }
    nodes = [
        helper.make_node("Gemm", ["x", "w1", "b1"], ["h"], "first"),
        helper.make_node("Relu", ["h"], ["r"], "relu"),
        helper.make_node("Gemm", ["r", "w2", "b2"], ["s"], "second"),
        helper.make_node("Softmax", ["s"], ["y"], "softmax", axis=-1),
    ]
    return model(nodes, [tensor("x", [batch, 8])], [tensor("y", [batch, classes])], weights)


def cnn(channels: int = 8, seed: int = 0) -> Any:
    """Input `x` [batch, 1, 8, 8] -> Conv, BatchNormalization, Relu, pooling, Gemm -> output `y` [batch, 10]."""
    rng = np.random.default_rng(seed)
    ones = np.ones(channels, np.float32)
    weights = {
        "w": rng.standard_normal((channels, 1, 3, 3)).astype(np.float32) / 3,
        "scale": ones,
        "bias": ones / 10,
        "mean": ones / 20,
        "var": ones / 2,
        "wf": rng.standard_normal((channels, 10)).astype(np.float32),
        "bf": np.zeros(10, np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "conv", pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["c", "scale", "bias", "mean", "var"], ["n"], "norm"),
        helper.make_node("Relu", ["n"], ["r"], "relu"),
        helper.make_node("GlobalAveragePool", ["r"], ["p"], "pool"),
        helper.make_node("Flatten", ["p"], ["f"], "flatten"),
        helper.make_node("Gemm", ["f", "wf", "bf"], ["y"], "head"),
    ]
    return model(nodes, [tensor("x", ["batch", 1, 8, 8])], [tensor("y", ["batch", 10])], weights)


def split_abort() -> Any:
    """`Split(num_outputs=2)` with three outputs: the checker says OK, shape inference and onnxruntime abort."""
    node = helper.make_node("Split", ["x"], ["a", "b", "c"], num_outputs=2)
    outputs = [tensor(n, [None]) for n in "abc"]
    return model([node], [tensor("x", [6])], outputs, {}, opset_imports=[helper.make_opsetid("", 18)])


def regex_segfault() -> Any:
    """`RegexFullMatch` of an input that nobody defines: shape inference and version conversion segfault."""
    node = helper.make_node("RegexFullMatch", ["nowhere"], ["y"], pattern="a")
    return model([node], [], [tensor("y", [1], TensorProto.BOOL)], {}, opset_imports=[helper.make_opsetid("", 20)])


def endless_loop() -> Any:
    """A `Loop` without trip count whose condition stays true: loads everywhere, an inference never returns."""
    body = helper.make_graph(
        [helper.make_node("Identity", ["c_in"], ["c_out"])],
        "body",
        [tensor("i", [], TensorProto.INT64), tensor("c_in", [], TensorProto.BOOL)],
        [tensor("c_out", [], TensorProto.BOOL)],
    )
    # the graph's output is the input, the loop merely has to run before the end
    node = helper.make_node("Loop", ["", "true", "x"], ["y"], body=_carry(body))
    return model([node], [tensor("x", [1])], [tensor("y", [1])], {"true": np.array(True)})


def _carry(body: Any) -> Any:
    body.node.append(helper.make_node("Identity", ["v_in"], ["v_out"]))
    body.input.append(tensor("v_in", [1]))
    body.output.append(tensor("v_out", [1]))
    return body


def memory_bomb(doublings: int = 36) -> Any:
    """A chain of `Concat` of a tensor with itself: each step doubles it, the end needs hundreds of GiB."""
    nodes = [helper.make_node("Concat", [f"t{i}", f"t{i}"], [f"t{i + 1}"], axis=0) for i in range(doublings)]
    return model(nodes, [tensor("t0", [1])], [tensor(f"t{doublings}", [None])], {})


def nested_functions(depth: int = 30) -> Any:
    """Functions that each call the one below twice: 2^depth nodes when inlined; checker and onnxruntime hang."""
    opset = [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)]
    functions = [helper.make_function("f", "F0", ["a"], ["b"], [helper.make_node("Relu", ["a"], ["b"])], opset)]
    for level in range(1, depth):
        below = f"F{level - 1}"
        nodes = [helper.make_node(below, ["a"], ["m"], domain="f"), helper.make_node(below, ["m"], ["b"], domain="f")]
        functions.append(helper.make_function("f", f"F{level}", ["a"], ["b"], nodes, opset))
    node = helper.make_node(f"F{depth - 1}", ["x"], ["y"], domain="f")
    return model([node], [tensor("x", [1])], [tensor("y", [1])], {}, opset_imports=opset, functions=functions)


KILLERS: dict[str, Callable[[], Any]] = {
    "split_abort": split_abort,
    "regex_segfault": regex_segfault,
    "endless_loop": endless_loop,
    "memory_bomb": memory_bomb,
    "nested_functions": nested_functions,
}


def write(made: Any, folder: Path) -> Path:
    """`folder/model.onnx`."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "model.onnx"
    path.write_bytes(made.SerializeToString())
    return path


def small_models() -> list[Path]:
    """The onnx package's own test models, smallest first."""
    data = Path(onnx.__file__).parent / "backend" / "test" / "data"
    return sorted(data.rglob("*.onnx"), key=lambda p: (p.stat().st_size, str(p)))


def decoder(vocabulary: int = 16, heads: int = 2, size: int = 4, seed: int = 0, scale: float = 1.0) -> Any:
    """A decoder of one layer with a cache, with names as Optimum exports them.

    `input_ids`, `position_ids` [batch, seq], `attention_mask` [batch, past + seq] and `past_key_values.0.key/value`
    [batch, heads, past, size] -> `logits` [batch, seq, vocabulary] and `present.0.key/value`.
    """
    rng = np.random.default_rng(seed)
    width = heads * size
    weights: dict[str, Any] = {
        name: scale * rng.standard_normal(shape).astype(np.float32)
        for name, shape in (
            ("tokens", (vocabulary, width)),
            ("places", (64, width)),
            *((name, (width, width)) for name in ("w_q", "w_k", "w_v")),
            ("head", (width, vocabulary)),
        )
    }
    weights |= {
        "split": np.array([0, 0, heads, size], np.int64),
        "joined": np.array([0, 0, width], np.int64),
        "one": np.array([1], np.int64),
        "two": np.array([2], np.int64),
        "zero_scalar": np.array(0, np.int64),
        "one_scalar": np.array(1, np.int64),
        "hidden": np.array(-1e9, np.float32),
        "seen": np.array(0, np.float32),
        "root": np.array(size**-0.5, np.float32),
    }
    node = helper.make_node
    nodes = [
        node("Gather", ["tokens", "input_ids"], ["token"]),
        node("Gather", ["places", "position_ids"], ["place"]),
        node("Add", ["token", "place"], ["x"]),
    ]
    for name in "qkv":
        nodes += [
            node("MatMul", ["x", f"w_{name}"], [f"{name}_flat"], f"project_{name}"),
            node("Reshape", [f"{name}_flat", "split"], [f"{name}_split"]),
            node("Transpose", [f"{name}_split"], [f"{name}_new"], perm=[0, 2, 1, 3]),
        ]
    nodes += [
        node("Concat", ["past_key_values.0.key", "k_new"], ["present.0.key"], axis=2),
        node("Concat", ["past_key_values.0.value", "v_new"], ["present.0.value"], axis=2),
        node("Transpose", ["present.0.key"], ["k_turned"], perm=[0, 1, 3, 2]),
        node("MatMul", ["q_new", "k_turned"], ["raw"], "scores"),
        node("Mul", ["raw", "root"], ["scaled"]),
        node("Shape", ["attention_mask"], ["mask_shape"]),
        node("Gather", ["mask_shape", "one_scalar"], ["total"]),
        node("Range", ["zero_scalar", "total", "one_scalar"], ["key_places"]),
        node("Unsqueeze", ["position_ids", "two"], ["query_places"]),
        node("LessOrEqual", ["key_places", "query_places"], ["earlier"]),
        node("Cast", ["attention_mask"], ["mask_bool"], to=TensorProto.BOOL),
        node("Unsqueeze", ["mask_bool", "one"], ["mask_row"]),
        node("And", ["earlier", "mask_row"], ["allowed"]),
        node("Unsqueeze", ["allowed", "one"], ["allowed_heads"]),
        node("Where", ["allowed_heads", "seen", "hidden"], ["bias"]),
        node("Add", ["scaled", "bias"], ["masked"]),
        node("Softmax", ["masked"], ["shares"], axis=-1),
        node("MatMul", ["shares", "present.0.value"], ["mixed"], "mix"),
        node("Transpose", ["mixed"], ["mixed_turned"], perm=[0, 2, 1, 3]),
        node("Reshape", ["mixed_turned", "joined"], ["mixed_flat"]),
        node("Add", ["x", "mixed_flat"], ["y"]),
        node("MatMul", ["y", "head"], ["logits"], "scores_of_tokens"),
    ]
    ids = TensorProto.INT64
    inputs = [
        tensor("input_ids", ["batch_size", "sequence_length"], ids),
        tensor("attention_mask", ["batch_size", "past_sequence_length + sequence_length"], ids),
        tensor("position_ids", ["batch_size", "sequence_length"], ids),
    ]
    outputs = [tensor("logits", ["batch_size", "sequence_length", vocabulary])]
    for name in ("key", "value"):
        inputs.append(tensor(f"past_key_values.0.{name}", ["batch_size", heads, "past_sequence_length", size]))
        total = "past_sequence_length + sequence_length"
        outputs.append(tensor(f"present.0.{name}", ["batch_size", heads, total, size]))
    return model(nodes, inputs, outputs, weights)
