"""Peak memory of real models."""

from __future__ import annotations

import builders
import numpy as np
import onnx
from measure_helpers import sigmoid
from onnx import helper

from autoopt.measure import memory, worker
from autoopt.model import io


def test_memory_is_read_in_a_fresh_process_with_the_batch_of_the_data(files, tmp_path):
    width, batch = 200_000, 64
    model = {"path": str(io.save(builders.mlp(width=width), tmp_path))}
    data = {"path": files["data"], "batch_size": batch}
    found = worker.memory({"candidate": model, "source": model, "metrics": [], "data": data})
    assert 4 * width * batch < found["metrics"]["peak_memory"]["value"] < 400 << 20
    assert found["metrics"]["arena_memory"]["value"] >= 0
    assert found["ratios"]["peak_memory"]["value"] == 1.0
    assert found["details"]["batch_size"] == batch


def test_memory_of_a_model_that_takes_texts(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "PROCESSES", 1)
    texts = [helper.make_tensor_value_info(name, onnx.TensorProto.STRING, ["n"]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", texts[:1], texts[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    np.savez(tmp_path / "texts.npz", x=np.array(["one", "zwei", "três"]))
    payload = {"candidate": {"path": str(io.save(model, tmp_path))}, "data": str(tmp_path / "texts.npz")}
    found = worker.memory({**payload, "metrics": ["peak_memory"]})
    assert found["metrics"]["peak_memory"]["value"] > 0


def test_memory_over_profiles_is_that_of_the_largest(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "PROCESSES", 1)
    elements = 3 << 20
    profiles = [{"name": "long", "dimensions": {"length": elements}}, {"dimensions": {"length": 8}}]
    payload = {"candidate": {"path": sigmoid(tmp_path)}, "metrics": ["peak_memory"], "settings": {"profiles": profiles}}
    found = worker.memory(payload)
    assert found["metrics"]["peak_memory"]["value"] > 4 * elements
    assert set(found["details"]["profiles"]) == {"long", "1"}
