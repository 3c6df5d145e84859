from __future__ import annotations

from pathlib import Path

import pytest

from autoopt.model.model_file import ModelFile


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
