"""Artifacts and models, in every kind of store."""

from __future__ import annotations

from pathlib import Path

from store_helpers import put, write_model

from autoopt.store import ModelRecord, Store


def test_equal_bytes_are_one_artifact(store: Store, tmp_path: Path) -> None:
    first = store.artifacts.put(write_model(tmp_path / "a", b"graph", weights=b"w"))
    assert store.artifacts.put(write_model(tmp_path / "b", b"graph", weights=b"w"), first) == first
    assert store.artifacts.put(write_model(tmp_path / "c", b"graph", weights=b"W")) != first
    record = store.artifacts.get(first[:9])
    assert (record.bytes, record.files) == (6, {"model.onnx": 5, "weights.data": 1})
    assert len(store.artifacts.all()) == 2
    path = store.artifacts.path(first)
    assert path.name == "model.onnx"
    assert (path.parent / "weights.data").read_bytes() == b"w"
    assert (tmp_path / "a" / "model.onnx").exists(), "copied, not moved"


def test_adding_a_model_again_replaces_its_name_and_inspection(store: Store) -> None:
    artifact = put(store, b"source")
    assert store.models.get(artifact) is None
    store.models.add(ModelRecord(artifact, "net"))
    store.models.add(ModelRecord(artifact, "net \x1b[31m", {"inputs": 1}))
    found = store.models.get(artifact)
    assert (found.name, found.inspection) == ("net \\x1b[31m", {"inputs": 1})
    assert len(store.models.all()) == 1
