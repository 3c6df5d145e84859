"""Made-up models whose candidates have known ratios: chains of equal layers, and a pass that shortens them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from autoopt import Categorical, Pass, register

SIZES = {"5us": (8, 1, 20), "0.5ms": (64, 8, 100), "4ms": (128, 64, 100), "40ms": (256, 256, 100)}
"""Width, rows and layers by the time that an inference takes on a core of 2 to 3 GHz."""
CASES = {
    "one plain winner": (0.5, 0.8, 0.95, 1.05),
    "two that are close": (0.8, 0.82, 0.99, 1.0),
    "a small gain": (0.95, 0.99, 1.0, 1.05),
    "no gain": (0.99, 1.0, 1.05),
}
"""Shares of the layers that the candidates keep; 1.0 is a copy of the source."""


@register("shorten")
class Shorten(Pass):
    """Keeps a share of the layers; more than 1 appends layers."""

    tolerance = "lossy"
    share: Annotated[float, Categorical(0.5, 0.8, 0.82, 0.95, 0.99, 1.0, 1.05), "share of the layers to keep"] = 1.0

    def run(self, model: onnx.ModelProto) -> onnx.ModelProto:
        layers = len(model.graph.node) // 2
        nodes = []
        for number in range(round(layers * self.share)):
            nodes += _layer(model, number % layers, number)
        nodes[-1].output[0] = model.graph.output[0].name
        used = {name for node in nodes for name in node.input}
        weights = [weight for weight in model.graph.initializer if weight.name in used]
        del model.graph.node[:], model.graph.initializer[:]
        model.graph.node.extend(nodes)
        model.graph.initializer.extend(weights)
        model.producer_version = f"share {self.share}"
        return model


def _layer(model: onnx.ModelProto, source: int, number: int) -> list[onnx.NodeProto]:
    """The nodes of one layer, its values renamed to its number."""
    weight = model.graph.node[2 * source].input[1]
    before = f"y{number - 1}" if number else model.graph.input[0].name
    return [
        helper.make_node("MatMul", [before, weight], [f"m{number}"]),
        helper.make_node("Tanh", [f"m{number}"], [f"y{number}"]),
    ]


def write(size: str, folder: Path) -> Path:
    """Write the source model of a size."""
    width, rows, layers = SIZES[size]
    rng = np.random.default_rng(0)
    nodes, weights, before = [], [], "x"
    for number in range(layers):
        values = rng.standard_normal((width, width)) / np.sqrt(width)
        weights.append(numpy_helper.from_array(values.astype(np.float32), f"w{number}"))
        nodes.append(helper.make_node("MatMul", [before, f"w{number}"], [f"m{number}"]))
        before = f"y{number}" if number < layers - 1 else "output"
        nodes.append(helper.make_node("Tanh", [f"m{number}"], [before]))
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [rows, width]) for name in ("x", "output")]
    graph = helper.make_graph(nodes, "chain", values[:1], values[1:], weights)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path
