"""Models whose weights a store splits from their graphs, for a limit of `WEIGHT` bytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

from autoopt.model import io, splitting
from autoopt.model.files import MODEL
from autoopt.store import Store

WIDTH = 64
WEIGHT = WIDTH * WIDTH * 4


def layers(name: str, seed: int = 0) -> ModelProto:
    """Four weights, the last one in a branch; those of other seeds differ from the second one on."""
    weights = [np.random.default_rng(99).standard_normal((WIDTH, WIDTH), np.float32)]
    weights += [np.random.default_rng([seed, layer]).standard_normal((WIDTH, WIDTH), np.float32) for layer in range(3)]
    nodes = [helper.make_node("MatMul", [f"x{layer}", f"w{layer}"], [f"x{layer + 1}"]) for layer in range(4)]
    values = [helper.make_tensor_value_info(value, TensorProto.FLOAT, ["n", WIDTH]) for value in ("x0", "x4")]
    tensors = [numpy_helper.from_array(weight, f"w{layer}") for layer, weight in enumerate(weights)]
    branch = helper.make_graph([nodes.pop()], "branch", [], values[1:], [tensors.pop()])
    nodes.append(helper.make_node("If", ["yes"], ["x4"], then_branch=branch, else_branch=branch))
    tensors.append(numpy_helper.from_array(np.array(True), "yes"))
    graph = helper.make_graph(nodes, name, values[:1], values[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def put_large(store: Store, name: str, seed: int = 0, *, external: bool = False) -> str:
    folder = store.home / "made" / f"{name}{seed}{external}"
    io.save(layers(name, seed), folder, external=external)
    return store.artifacts.put(folder)


def split_here(source: Path, folder: Path, digest: str | None = None) -> Path | None:
    """Split a model as another process does it for a store, but in this one, which knows the limit of the test."""
    if not (source / MODEL).exists():
        return None
    try:
        return splitting.split_folder(source, folder, digest)
    except io.Unreadable:
        return None


def weights(store: Store) -> list[Path]:
    return sorted((store.files.split_folder / "weights").glob("*/*"))
