from __future__ import annotations

import builtins
import shutil
from pathlib import Path

import builders
import pytest

from autoopt.model import io
from autoopt.model.model_file import ModelFile, content_digest, size_of


@pytest.fixture
def models(tmp_path: Path) -> dict[str, ModelFile]:
    contents = {"source": b"one", "copy": b"one", "other": b"two"}
    files = {}
    for name, content in contents.items():
        path = tmp_path / f"{name}.ort"
        path.write_bytes(content)
        files[name] = ModelFile(str(path))
    return files


def test_models_are_the_same_by_content_and_options(models: dict[str, ModelFile]) -> None:
    source = models["source"]
    assert source.same_as(models["copy"])
    assert source.digest == models["copy"].digest
    assert not source.same_as(models["other"])
    with_options = ModelFile(source.path, {"enable_mem_pattern": False})
    assert not source.same_as(with_options)
    assert source.digest != with_options.digest


@pytest.fixture
def external(tmp_path: Path) -> Path:
    return io.save(builders.mlp(width=512), tmp_path / "external", external=True)


def test_a_model_without_external_data_is_its_graph(tmp_path: Path) -> None:
    path = io.save(builders.mlp(), tmp_path)
    assert size_of(str(path)) == {"graph": path.stat().st_size, "external": 0}


def test_external_data_count_once_and_other_files_do_not(external: Path) -> None:
    (external.parent / "notes.txt").write_text("not part of the model")
    data = external.parent / "model.onnx.data"
    assert size_of(str(external)) == {"graph": external.stat().st_size, "external": data.stat().st_size}


def test_missing_external_data_are_an_error(external: Path) -> None:
    (external.parent / "model.onnx.data").unlink()
    with pytest.raises(FileNotFoundError):
        size_of(str(external))


def test_equal_models_have_equal_digests_wherever_they_lie(external: Path, tmp_path: Path) -> None:
    shutil.copytree(external.parent, tmp_path / "copy")
    assert content_digest(str(external)) == content_digest(str(tmp_path / "copy" / "model.onnx"))


def test_other_weights_are_another_model(external: Path, tmp_path: Path) -> None:
    shutil.copytree(external.parent, tmp_path / "other")
    data = tmp_path / "other" / "model.onnx.data"
    data.write_bytes(bytes(reversed(data.read_bytes())))
    assert content_digest(str(external)) != content_digest(str(tmp_path / "other" / "model.onnx"))


def test_a_changed_file_has_a_new_digest(tmp_path: Path) -> None:
    path = tmp_path / "model.ort"
    path.write_bytes(b"one")
    before = content_digest(str(path))
    path.write_bytes(b"three")
    assert content_digest(str(path)) != before


def test_models_in_ort_format_have_no_external_data(tmp_path: Path) -> None:
    path = tmp_path / "model.ort"
    path.write_bytes(b"12345")
    assert size_of(str(path)) == {"graph": 5, "external": 0}


def test_interpreters_without_onnx_find_external_data_by_name(external: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = size_of(str(external))
    (external.parent / "notes.txt").write_text("not part of the model")
    real_import = builtins.__import__

    def without_onnx(name: str, *arguments: object, **keywords: object) -> object:
        if name == "onnx":
            raise ImportError(name)
        return real_import(name, *arguments, **keywords)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", without_onnx)
    assert size_of(str(external)) == expected


def test_changed_weights_of_the_same_size_have_a_new_digest(external: Path) -> None:
    before = content_digest(str(external))
    data = external.parent / "model.onnx.data"
    data.write_bytes(bytes(reversed(data.read_bytes())))
    assert content_digest(str(external)) != before
