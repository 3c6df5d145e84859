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
