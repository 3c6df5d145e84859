"""Whole files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from autoopt.errors import ConfigError
from autoopt.spec.dag import load_dag
from autoopt.spec.document import Document
from autoopt.spec.file_model import FileModel
from autoopt.spec.source import Source
from autoopt.spec.zoo import load_zoo


class Shop(FileModel):
    name: str
    size: int = 1


def test_a_file_remembers_where_it_was_written(tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text("name: a\nsize: 3\n")
    shop = Shop.load(file)
    assert shop.model_dump() == {"name": "a", "size": 3}
    assert str(shop.error(("size",), "is too small")) == f"{file}:2: size: is too small"
    assert shop.path("model.onnx") == str(tmp_path / "model.onnx")
    assert shop.path("s3://b/m.onnx") == "s3://b/m.onnx"


def test_mappings_documents_and_models_are_loaded_too() -> None:
    assert Shop.load({"name": "a"}).name == "a"
    assert Shop.load(Document({"name": "a"}, Source("f.yaml"))).source.file == "f.yaml"
    shop = Shop(name="a")
    assert Shop.load(shop) is shop


def test_the_document_loads_again_from_any_folder(tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text("size: 3\nname: a\n")
    shop = Shop.load(file)
    assert shop.document.value == {"name": "a", "size": 3}
    again = Shop.load(shop.document)
    assert again == shop
    assert again.path("x") == shop.path("x")
    source = Source.from_json(json.loads(json.dumps(shop.source.to_json())))
    assert (source.file, source.line(("size",))) == (str(file), 1)


def test_paths_of_data_start_from_the_data_root() -> None:
    shop = Shop(name="a")
    elsewhere = shop.with_data_root("s3://bucket")
    assert elsewhere.data_path("x.npz") == "s3://bucket/x.npz"
    assert shop.data_path("x.npz") == str(Path.cwd() / "x.npz")
    assert elsewhere.path("m.onnx") == shop.path("m.onnx")
    assert shop.with_data_root(None) is shop


@pytest.mark.parametrize(
    ("text", "words"),
    [("- a\n", "1: must be a mapping of fields; start with name:"), ("size: 1\n", "1: name: is required")],
)
def test_the_first_mistake_is_reported_with_its_line(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as refused:
        Shop.load(file)
    assert str(refused.value) == f"{file}:{words}"


def test_all_mistakes_are_reported_with_their_lines(tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text("nme: a\nsize: big\ncolour: 3\n")
    with pytest.raises(ConfigError) as refused:
        Shop.load(file)
    lines = [str(error) for error in (refused.value, *refused.value.others)]
    assert lines == [
        f"{file}:1: nme: unknown field; did you mean 'name'?",
        f"{file}:2: size: must be a whole number, not 'big'",
        f"{file}:3: colour: unknown field; known: name, size",
    ]


@pytest.mark.parametrize(
    ("load", "text", "message"),
    [
        (load_zoo, "name: a\npasses: {}\n", "file.yaml:2: passes: this is a DAG, not a zoo; name it"),
        (load_dag, "models: [a.onnx]\n", "file.yaml:1: models: this is a zoo, not a DAG; run it"),
    ],
)
def test_a_file_of_the_other_kind_is_refused_in_one_line(
    load: Callable[[Path], object], text: str, message: str, tmp_path: Path
) -> None:
    file = tmp_path / "file.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(file)
    assert message in str(caught.value)
    assert caught.value.others == ()
