from __future__ import annotations

from pathlib import Path

import builders
import numpy as np
import onnx
import pytest

from autoopt.memory import data_size
from autoopt.model import io
from autoopt.model.files import digest_folder


@pytest.mark.parametrize("external", [False, True])
def test_saving_twice_gives_equal_bytes_and_leaves_the_model_alone(tmp_path: Path, external: bool) -> None:
    made = builders.mlp(width=512)
    before = made.SerializeToString()
    paths = [io.save(made, tmp_path / name, external=external) for name in ("a", "b")]
    assert made.SerializeToString() == before
    assert digest_folder(paths[0].parent) == digest_folder(paths[1].parent)
    assert (paths[0].parent / "model.onnx.data").exists() is external
    assert io.load(paths[0]).SerializeToString() == before


def test_external_data_is_aligned_and_small_tensors_stay(tmp_path: Path) -> None:
    path = io.save(builders.mlp(width=512), tmp_path, external=True)
    weights = io.parse(path).graph.initializer
    places = {w.name: {e.key: e.value for e in w.external_data} for w in weights}
    assert [name for name, place in places.items() if not place] == ["b2"]
    assert all(int(place["offset"]) % 4096 == 0 for place in places.values() if place)


def test_saving_inline_removes_stale_external_data(tmp_path: Path) -> None:
    io.save(builders.mlp(width=512), tmp_path, external=True)
    io.save(builders.mlp(), tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["model.onnx"]


def test_large_models_get_external_data_by_themselves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(io, "EXTERNAL_ABOVE", 10_000)
    io.save(builders.mlp(width=8), tmp_path / "small")
    io.save(builders.mlp(width=2048), tmp_path / "large")
    assert not (tmp_path / "small" / "model.onnx.data").exists()
    assert (tmp_path / "large" / "model.onnx.data").exists()


def test_writing_external_data_takes_no_second_copy_of_the_weights(tmp_path: Path) -> None:
    made = builders.mlp(width=4096, classes=4096)  # 64 MB
    before = data_size()
    io.save(made, tmp_path, external=True)
    assert data_size() - before < 16 << 20


def test_weights_stay_when_writing_fails(tmp_path: Path) -> None:
    made = builders.mlp(width=512)
    before = made.SerializeToString()
    (tmp_path / "model.onnx").mkdir()
    with pytest.raises(IsADirectoryError):
        io.save(made, tmp_path, external=True)
    assert made.SerializeToString() == before


def test_weights_in_subgraphs_are_moved_out_too(tmp_path: Path) -> None:
    weight = onnx.numpy_helper.from_array(np.arange(1000, dtype=np.float32), "w")
    body = onnx.helper.make_graph([], "body", [], [builders.tensor("w", [1000])], [weight])
    node = onnx.helper.make_node("If", ["c"], ["y"], then_branch=body, else_branch=body)
    made = builders.model([node], [builders.tensor("c", [], onnx.TensorProto.BOOL)], [builders.tensor("y", [1000])], {})
    path = io.save(made, tmp_path, external=True)
    assert path.stat().st_size < 1000
    assert io.load(path).SerializeToString() == made.SerializeToString()


def test_a_model_whose_external_data_was_not_loaded_is_not_saved(tmp_path: Path) -> None:
    path = io.save(builders.mlp(width=512), tmp_path / "a", external=True)
    with pytest.raises(ValueError, match=r"use io\.load"):
        io.save(io.parse(path), tmp_path / "b")


def test_external_data_without_a_length_has_that_of_its_shape(tmp_path: Path) -> None:
    path = io.save(builders.mlp(width=512), tmp_path, external=True)
    model = onnx.load(path, load_external_data=False)
    for tensor in io.external_tensors(model):
        kept = [entry for entry in tensor.external_data if entry.key != "length"]
        del tensor.external_data[:]
        tensor.external_data.extend(kept)
    path.write_bytes(model.SerializeToString())
    assert io.load(path) == builders.mlp(width=512)


def test_missing_external_data_is_unreadable(tmp_path: Path) -> None:
    path = io.save(builders.mlp(width=512), tmp_path, external=True)
    (tmp_path / "model.onnx.data").unlink()
    with pytest.raises(io.Unreadable, match="external data cannot be read"):
        io.load(path)


@pytest.mark.parametrize(
    ("content", "reason"), [(b"", "empty"), (b"hello", "not an ONNX model"), (b"\x08\x08", "no graph")]
)
def test_unreadable(tmp_path: Path, content: bytes, reason: str) -> None:
    (tmp_path / "model.onnx").write_bytes(content)
    with pytest.raises(io.Unreadable, match=reason):
        io.load(tmp_path / "model.onnx")
