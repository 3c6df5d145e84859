"""The worker functions for models."""

from __future__ import annotations

import builtins
from pathlib import Path

import builders
import onnxruntime
import pytest

from autoopt.model import worker
from autoopt.model.admit import NotAdmitted
from autoopt.model.files import digest_folder


def test_admitting_copies_a_model_and_names_it_by_content(tmp_path: Path) -> None:
    path = builders.write(builders.mlp(), tmp_path / "source")
    reply = worker.admit({"source": str(path), "dest": str(tmp_path / "dest")})
    assert reply == {
        "digest": digest_folder(tmp_path / "source"),
        "bytes": path.stat().st_size,
        "files": ["model.onnx"],
        "repairs": [],
    }
    assert (tmp_path / "dest" / "model.onnx").read_bytes() == path.read_bytes()


def test_a_url_is_downloaded_into_the_cache(tmp_path: Path) -> None:
    path = builders.write(builders.mlp(), tmp_path / "source")
    document = {"source": path.as_uri(), "dest": str(tmp_path / "dest"), "cache": str(tmp_path / "cache")}
    assert worker.admit(document)["files"] == ["model.onnx"]
    assert (tmp_path / "cache").is_dir()


def test_a_folder_of_several_models_is_refused(tmp_path: Path) -> None:
    for name in ("a.onnx", "b.onnx"):
        (tmp_path / name).write_bytes(b"x")
    with pytest.raises(NotAdmitted, match="a folder with 2 models"):
        worker.admit({"source": str(tmp_path), "dest": str(tmp_path / "dest")})


def test_a_path_is_located_where_it_is(tmp_path: Path) -> None:
    path = builders.write(builders.mlp(), tmp_path)
    assert worker.locate({"source": str(path), "cache": str(tmp_path / "cache")}) == {"path": str(path)}


def test_the_model_of_an_mlflow_folder_is_located(tmp_path: Path) -> None:
    path = builders.write(builders.mlp(), tmp_path)
    (tmp_path / "MLmodel").write_text("flavors:\n  onnx: {data: model.onnx}\n")
    assert worker.locate({"source": str(tmp_path), "cache": str(tmp_path / "cache")}) == {"path": str(path)}


def test_an_inspection_is_json(tmp_path: Path) -> None:
    path = builders.write(builders.cnn(), tmp_path)
    reply = worker.inspect({"path": str(path)})
    assert reply["op_counts"]["Conv"] > 0  # type: ignore[index, call-overload, operator]
    assert reply["bytes"] == path.stat().st_size


def test_the_runtime_is_described_with_its_providers() -> None:
    reply = worker.runtime({})
    assert reply["onnxruntime"] == onnxruntime.__version__
    assert reply["providers"] == onnxruntime.get_available_providers()


def test_an_interpreter_without_libraries_has_no_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    real_import = builtins.__import__

    def bare(name: str, *arguments: object, **keywords: object) -> object:
        if name in ("onnxruntime", "numpy"):
            raise ImportError(name)
        return real_import(name, *arguments, **keywords)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", bare)
    reply = worker.runtime({})
    assert (reply["onnxruntime"], reply["providers"], reply["numpy"]) == ("", [], "")
