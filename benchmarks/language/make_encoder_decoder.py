"""Make an encoder-decoder of T5's or Whisper's kind with random weights, in the files and with the names of Optimum.

    python benchmarks/language/make_encoder_decoder.py OUT [--audio] [--hidden 256] [--layers 4]

Writes OUT/models/encoder_model.onnx, decoder_model.onnx and decoder_with_past_model.onnx, and OUT/texts.npz with random
tokens; with --audio, an encoder of mel spectra with convolutions, and OUT/sounds.npz with random spectra. Shapes and
operators are real, what it says is not: use it for times and sizes.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

HEAD_SIZE = 32
ITEMS, LENGTH = 48, 64
BANDS = 80


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--vocabulary", type=int, default=4096)
    parser.add_argument("--audio", action="store_true")
    options = parser.parse_args()
    shape = Shape(options.hidden, options.layers, options.vocabulary, options.audio)
    weights = Weights(np.random.default_rng(0))
    models = {
        "encoder_model": encoder(shape, weights),
        "decoder_model": decoder(shape, weights, with_past=False),
        "decoder_with_past_model": decoder(shape, weights, with_past=True),
    }
    folder = options.out / "models"
    folder.mkdir(parents=True, exist_ok=True)
    for name, model in models.items():
        onnx.checker.check_model(model)
        onnx.save(model, folder / f"{name}.onnx")
    if options.audio:
        spectra = np.random.default_rng(1).standard_normal((ITEMS, BANDS, 2 * LENGTH)).astype(np.float32)
        np.savez(options.out / "sounds.npz", input_features=spectra)
        return
    tokens = np.random.default_rng(1).integers(0, options.vocabulary, (ITEMS, LENGTH))
    np.savez(options.out / "texts.npz", input_ids=tokens, attention_mask=np.ones_like(tokens))


@dataclass(frozen=True)
class Shape:
    """The sizes of a model."""

    hidden: int
    layers: int
    vocabulary: int
    audio: bool = False
    """True for an encoder of spectra, which needs no mask."""

    @property
    def heads(self) -> int:
        return self.hidden // HEAD_SIZE


@dataclass
class Weights:
    """Random weights by name; the two decoders share them."""

    rng: np.random.Generator
    arrays: dict[str, np.ndarray] = field(default_factory=dict)

    def matrix(self, name: str, rows: int, columns: int) -> np.ndarray:
        """A matrix that keeps the scale of its input."""
        if name not in self.arrays:
            values = self.rng.standard_normal((rows, columns)) / np.sqrt(rows)
            self.arrays[name] = values.astype(np.float32)
        return self.arrays[name]


@dataclass
class Graph:
    """A graph under construction."""

    shape: Shape
    weights: Weights
    nodes: list[Any] = field(default_factory=list)
    initializers: dict[str, Any] = field(default_factory=dict)

    def op(self, kind: str, *inputs: str, output: str = "", **attributes: object) -> str:
        """Add a node; return its output."""
        output = output or f"{kind}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [output], f"node_{len(self.nodes)}", **attributes))
        return output

    def constant(self, name: str, value: object) -> str:
        self.initializers.setdefault(name, numpy_helper.from_array(np.asarray(value), name))
        return name

    def linear(self, x: str, name: str, rows: int, columns: int) -> str:
        return self.op("MatMul", x, self.constant(name, self.weights.matrix(name, rows, columns)))

    def norm(self, x: str, name: str) -> str:
        """A normalization by the root of the mean square, as T5 has it."""
        mean = self.op("ReduceMean", self.op("Mul", x, x), axes=[-1], keepdims=1)
        root = self.op("Sqrt", self.op("Add", mean, self.constant("epsilon", np.float32(1e-6))))
        scale = self.constant(f"{name}.scale", np.ones(self.shape.hidden, np.float32))
        return self.op("Mul", self.op("Div", x, root), scale)

    def split(self, x: str, output: str = "") -> str:
        """(batch, length, hidden) -> (batch, heads, length, head)."""
        sizes = self.constant("split", np.array([0, 0, self.shape.heads, HEAD_SIZE]))
        return self.op("Transpose", self.op("Reshape", x, sizes), output=output, perm=[0, 2, 1, 3])

    def attention(self, x: str, keys: str, values: str, name: str, bias: str = "") -> str:
        """Attend from `x` to keys and values that are split into heads; return the sum with `x`."""
        hidden = self.shape.hidden
        query = self.split(self.linear(self.norm(x, name), f"{name}.q", hidden, hidden))
        scores = self.op("MatMul", query, self.op("Transpose", keys, perm=[0, 1, 3, 2]))
        scores = self.op("Mul", scores, self.constant("root", np.float32(HEAD_SIZE**-0.5)))
        if bias:
            scores = self.op("Add", scores, bias)
        mixed = self.op("Transpose", self.op("MatMul", self.op("Softmax", scores, axis=-1), values), perm=[0, 2, 1, 3])
        joined = self.op("Reshape", mixed, self.constant("joined", np.array([0, 0, hidden])))
        return self.op("Add", x, self.linear(joined, f"{name}.o", hidden, hidden))

    def feed_forward(self, x: str, name: str) -> str:
        hidden = self.shape.hidden
        inner = self.op("Relu", self.linear(self.norm(x, name), f"{name}.in", hidden, 4 * hidden))
        return self.op("Add", x, self.linear(inner, f"{name}.out", 4 * hidden, hidden))

    def gelu(self, x: str) -> str:
        erf = self.op("Erf", self.op("Div", x, self.constant("root2", np.float32(2**0.5))))
        product = self.op("Mul", x, self.op("Add", erf, self.one()))
        return self.op("Mul", product, self.constant("half", np.float32(0.5)))

    def one(self) -> str:
        return self.constant("one", np.float32(1))

    def spectrum(self) -> str:
        """The front end of Whisper: (batch, bands, frames) -> (batch, frames / 2, hidden)."""
        x, hidden = "input_features", self.shape.hidden
        for name, bands, stride in (("front.0", BANDS, 1), ("front.1", hidden, 2)):
            kernel = self.weights.matrix(name, 3 * bands, hidden).T.reshape(hidden, bands, 3)
            conv = self.op("Conv", x, self.constant(name, kernel), pads=[1, 1], strides=[stride])
            x = self.gelu(conv)
        return self.op("Transpose", x, perm=[0, 2, 1])

    def embedding(self) -> str:
        table = self.weights.matrix("tokens", self.shape.vocabulary, self.shape.hidden) * np.sqrt(self.shape.vocabulary)
        return self.op("Gather", self.constant("embedding", table.astype(np.float32)), "input_ids")

    def mask(self, name: str) -> str:
        """A mask of ones and zeros as a bias of 0 and -1e9: (batch, 1, 1, length)."""
        ones = self.op("Cast", name, to=TensorProto.FLOAT)
        hidden = self.op("Sub", self.one(), ones)
        bias = self.op("Mul", hidden, self.constant("minus", np.float32(-1e9)))
        return self.op("Unsqueeze", bias, self.constant("axes", np.array([1, 2])))

    def model(self, inputs: list[Any], outputs: list[Any]) -> onnx.ModelProto:
        graph = helper.make_graph(self.nodes, "graph", inputs, outputs, list(self.initializers.values()))
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def encoder(shape: Shape, weights: Weights) -> onnx.ModelProto:
    """`input_ids` and `attention_mask`, or `input_features` -> `last_hidden_state`."""
    graph = Graph(shape, weights)
    hidden = shape.hidden
    if shape.audio:
        x, bias = graph.spectrum(), ""
        sizes = ["batch_size", BANDS, "frames"]
        inputs = [helper.make_tensor_value_info("input_features", TensorProto.FLOAT, sizes)]
    else:
        x, bias = graph.embedding(), graph.mask("attention_mask")
        inputs = [tokens("input_ids", "encoder_sequence_length"), tokens("attention_mask", "encoder_sequence_length")]
    for layer in range(shape.layers):
        name = f"encoder.{layer}.self"
        own = graph.norm(x, f"{name}.kv")
        keys = graph.split(graph.linear(own, f"{name}.k", hidden, hidden))
        values = graph.split(graph.linear(own, f"{name}.v", hidden, hidden))
        x = graph.feed_forward(graph.attention(x, keys, values, name, bias), f"encoder.{layer}.ff")
    last = graph.norm(x, "encoder.norm")
    graph.op("Identity", last, output="last_hidden_state")
    return graph.model(inputs, [hidden_state("last_hidden_state", hidden)])


def decoder(shape: Shape, weights: Weights, *, with_past: bool) -> onnx.ModelProto:
    """The decoder for a prompt of one token, or for each further token, with the keys and values of those before."""
    graph = Graph(shape, weights)
    hidden = shape.hidden
    inputs = [tokens("input_ids", "decoder_sequence_length")]
    outputs = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch_size", None, shape.vocabulary])]
    if not with_past:
        inputs.append(hidden_state("encoder_hidden_states", hidden))
    x, bias = graph.embedding(), ""
    if not shape.audio:
        inputs.append(tokens("encoder_attention_mask", "encoder_sequence_length"))
        bias = graph.mask("encoder_attention_mask")
    for layer in range(shape.layers):
        own = graph.norm(x, f"decoder.{layer}.self.kv")
        cached = []
        for kind in ("key", "value"):
            present, past = f"present.{layer}.decoder.{kind}", f"past_key_values.{layer}.decoder.{kind}"
            outputs.append(cache(present, shape, "past_decoder_sequence_length + 1"))
            new = graph.linear(own, f"decoder.{layer}.self.{kind}", hidden, hidden)
            if with_past:
                inputs.append(cache(past, shape, "past_decoder_sequence_length"))
                graph.op("Concat", past, graph.split(new), output=present, axis=2)
            else:
                graph.split(new, present)
            cached.append(present)
        x = graph.attention(x, cached[0], cached[1], f"decoder.{layer}.self")
        cross = []
        for kind in ("key", "value"):
            present, past = f"present.{layer}.encoder.{kind}", f"past_key_values.{layer}.encoder.{kind}"
            if with_past:
                inputs.append(cache(past, shape, "encoder_sequence_length"))
            else:
                outputs.append(cache(present, shape, "encoder_sequence_length"))
                new = graph.linear("encoder_hidden_states", f"decoder.{layer}.cross.{kind}", hidden, hidden)
                graph.split(new, present)
            cross.append(past if with_past else present)
        x = graph.attention(x, cross[0], cross[1], f"decoder.{layer}.cross", bias)
        x = graph.feed_forward(x, f"decoder.{layer}.ff")
    logits = graph.linear(graph.norm(x, "decoder.norm"), "head", hidden, shape.vocabulary)
    graph.op("Mul", logits, graph.constant("sharpness", np.float32(4)), output="logits")
    return graph.model(inputs, outputs)


def tokens(name: str, length: str) -> Any:
    return helper.make_tensor_value_info(name, TensorProto.INT64, ["batch_size", length])


def hidden_state(name: str, hidden: int) -> Any:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch_size", "encoder_sequence_length", hidden])


def cache(name: str, shape: Shape, length: str) -> Any:
    sizes = ["batch_size", shape.heads, length, HEAD_SIZE]
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, sizes)


if __name__ == "__main__":
    main()
