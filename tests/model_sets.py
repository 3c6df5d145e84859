"""Models that belong together, made for tests: encoder and decoder, named as Optimum exports them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import builders
import numpy as np
import onnx
import yaml
from onnx import TensorProto, helper

from autoopt.engine.parts.connections import connect
from autoopt.model.inspection import inspect_model
from autoopt.model.io import parse
from autoopt.model.model_set import MODEL_SET

VOCABULARY, HEADS, SIZE = 128, 2, 16
WIDTH = HEADS * SIZE
TEXTS = np.random.default_rng(0).integers(0, VOCABULARY, (12, 6))


PAIR: dict[str, Any] = {
    "name": "pair",
    "model": {"first": "first/model.onnx", "second": "second/model.onnx"},
    "connections": {"second.x": "first.y"},
    "data": "x.npz",
    "passes": {
        "tidy": "shape_inference",
        "quant": {"pass": "dynamic_quantization", "params": {"per_channel": {"search": [True, False]}}},
    },
    "chains": [["tidy"], ["quant"]],
    "objectives": [{"metric": "size"}],
    "constraints": [{"metric": "agreement", "min": 0.1}],
    "search": {"strategy": "per-chain", "sampler": "exhaustive"},
    "measurement": {"seconds": 0.05, "replicas": 1, "target_width": 2.0, "rounds": 0},
}
"""A DAG of two models that follow each other: three trials each, and the smaller ones win."""


def write_pair(folder: Path, **fields: Any) -> Path:
    """`pair.yaml` with its models and data; `fields` replace those of `PAIR`."""
    builders.write(builders.mlp(width=64, classes=8), folder / "first")
    builders.write(builders.mlp(width=64, seed=1), folder / "second")
    np.savez(folder / "x.npz", x=np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32))
    file = folder / "pair.yaml"
    file.write_text(yaml.safe_dump({**PAIR, **fields}, sort_keys=False))
    return file


def write_set(folder: Path, *, merged: bool = False) -> dict[str, str]:
    """`encoder_model.onnx`, and one decoder, or one for prompts and one for further tokens; paths by name."""
    models = {"encoder": encoder(), "decoder": decoder(first=True), "decoder_with_past": decoder(first=False)}
    if merged:
        models = {"encoder": encoder(), "decoder": merged_decoder()}
    paths = {}
    for name, made in models.items():
        paths[name] = str(folder / f"{name}_model.onnx")
        folder.mkdir(parents=True, exist_ok=True)
        onnx.save(made, paths[name])
    return paths


def write_texts(folder: Path, **more: np.ndarray) -> Path:
    """`texts.npz` with the inputs of the encoder."""
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(folder / "texts.npz", input_ids=TEXTS, attention_mask=np.ones_like(TEXTS), **more)
    return folder / "texts.npz"


def write_description(folder: Path, paths: dict[str, str]) -> Path:
    """Connect the models and write the description of the set."""
    inspections = {name: inspect_model(parse(Path(path)), Path(path)) for name, path in paths.items()}
    description = connect(paths, inspections, {})
    (folder / MODEL_SET).write_text(json.dumps(description.to_json()))
    return folder / MODEL_SET


def encoder() -> Any:
    """`input_ids`, `attention_mask` [batch, seq] -> `last_hidden_state` [batch, seq, width]."""
    rng = np.random.default_rng(1)
    weights = {
        "tokens": rng.standard_normal((VOCABULARY, WIDTH)).astype(np.float32),
        "w": rng.standard_normal((WIDTH, WIDTH)).astype(np.float32) / 4,
        "two": np.array([2], np.int64),
    }
    nodes = [
        helper.make_node("Gather", ["tokens", "input_ids"], ["token"]),
        helper.make_node("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["mask", "two"], ["mask_row"]),
        helper.make_node("Mul", ["token", "mask_row"], ["seen"]),
        helper.make_node("MatMul", ["seen", "w"], ["last_hidden_state"], "mix"),
    ]
    names = ("input_ids", "attention_mask")
    inputs = [builders.tensor(name, ["batch", "text"], TensorProto.INT64) for name in names]
    return builders.model(nodes, inputs, [builders.tensor("last_hidden_state", ["batch", "text", WIDTH])], weights)


def merged_decoder() -> Any:
    """One decoder for prompts and for further tokens, which takes the encoder's output at each step."""
    made = builders.decoder(VOCABULARY, HEADS, SIZE, scale=0.5)
    _add_context(made)
    made.graph.input.append(_encoded())
    return made


def decoder(*, first: bool) -> Any:
    """A decoder for prompts, which gives keys of the encoder's output, or one for further tokens, which takes them."""
    made = builders.decoder(VOCABULARY, HEADS, SIZE, scale=0.5)
    _add_context(made)
    graph = made.graph
    cross = builders.tensor("", ["batch", HEADS, "text", SIZE])
    if not first:
        del graph.node[:3]  # the keys come from the prompt's decoder
        cross.name = "past_key_values.0.encoder.key"
        graph.input.append(cross)
        for node in graph.node:
            node.input[:] = [cross.name if name == "present.0.encoder.key" else name for name in node.input]
    else:
        graph.input.append(_encoded())
        cross.name = "present.0.encoder.key"
        graph.output.append(cross)
        for node in [node for node in graph.node if node.op_type == "Concat"]:
            node.op_type = "Identity"
            del node.input[0]
            del node.attribute[:]
        kept = [value for value in graph.input if not value.name.startswith("past")]
        del graph.input[:]
        graph.input.extend(kept)
    return made


def _encoded() -> Any:
    return builders.tensor("encoder_hidden_states", ["batch", "text", WIDTH])


def _add_context(made: Any) -> None:
    """Add the mean of the encoder's output to the decoder's, through keys of it."""
    node = helper.make_node
    graph = made.graph
    for each in graph.node:
        if each.output[0] == "y":
            each.output[0] = "own"
    head = graph.node[-1]
    del graph.node[-1]
    keys = [
        node("Reshape", ["encoder_hidden_states", "split"], ["encoded_split"]),
        node("Transpose", ["encoded_split"], ["encoded_turned"], perm=[0, 2, 1, 3]),
        node("Identity", ["encoded_turned"], ["present.0.encoder.key"]),
    ]
    context = [
        node("ReduceMean", ["present.0.encoder.key"], ["mean"], axes=[2], keepdims=1),
        node("Transpose", ["mean"], ["mean_turned"], perm=[0, 2, 1, 3]),
        node("Reshape", ["mean_turned", "joined"], ["context"]),
        node("Add", ["own", "context"], ["y"]),
    ]
    nodes = [*keys, *graph.node, *context, head]
    del graph.node[:]
    graph.node.extend(nodes)
