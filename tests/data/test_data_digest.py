"""The identity of data."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

import pytest
from onnx import TensorProto, helper
from onnx.external_data_helper import set_external_data

from autoopt.data import DataConfig, digest
from autoopt.data.digest import digest_path
from autoopt.errors import InputError


def test_a_local_hugging_face_folder_is_part_of_the_datas_identity(tmp_path):
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "a.csv").write_text("x,label\n1,0\n")
    config = DataConfig.parse({"data_name": "set", "split": "train"}).resolved(tmp_path)
    before = digest(config)
    (tmp_path / "set" / "a.csv").write_text("x,label\n2,0\n")
    assert digest(config) != before
    assert DataConfig.parse({"data_name": "some/name"}).resolved(tmp_path).data_name == "some/name"


def test_content_and_options_decide_the_digest_not_the_location(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.bin").write_bytes(b"same")
    one, two = digest("x.bin", tmp_path / "a"), digest({"path": "x.bin", "meta_data": {"by": "me"}}, tmp_path / "b")
    assert one == two == digest(DataConfig.parse("x.bin").resolved(tmp_path / "a"))
    (tmp_path / "b" / "x.bin").write_bytes(b"other")
    assert digest("x.bin", tmp_path / "b") != one
    for changed in ({"limit": 3}, {"batch_size": 8}):
        assert digest({"path": "x.bin", **changed}, tmp_path / "a") != one


def test_the_digest_of_a_folder_covers_names_and_nested_files(tmp_path):
    (tmp_path / "d" / "deep").mkdir(parents=True)
    (tmp_path / "d" / "deep" / "x").write_bytes(b"1")
    before = digest("d", tmp_path)
    (tmp_path / "d" / "deep" / "x").rename(tmp_path / "d" / "deep" / "y")
    assert digest("d", tmp_path) != before


def test_names_of_files_need_not_be_utf_8(tmp_path):
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / os.fsdecode(b"\xe9.png")).write_bytes(b"1")
    before = digest("d", tmp_path)
    (tmp_path / "d" / os.fsdecode(b"\xe9.png")).rename(tmp_path / "d" / os.fsdecode(b"\xe8.png"))
    assert digest("d", tmp_path) != before


def test_a_tokenizer_and_a_script_are_part_of_the_digest(tmp_path):
    for name in ("t.txt", "tok.json", "s.py"):
        (tmp_path / name).write_text("1")
    config = {
        "path": "t.txt",
        "user_script": "s.py",
        "load_dataset": {"type": "text", "params": {"tokenizer": "tok.json"}},
    }
    seen = {digest(config, tmp_path)}
    for name in ("t.txt", "tok.json", "s.py"):
        (tmp_path / name).write_text("22")
        seen.add(digest(config, tmp_path))
    assert len(seen) == 4


@pytest.mark.parametrize("kind", ["load_dataset", "pre_process", "dataloader", "post_process"])
def test_paths_in_parameters_are_resolved_and_part_of_the_digest(tmp_path, kind):
    (tmp_path / "images" / "deep").mkdir(parents=True)
    files = [tmp_path / "a.json", tmp_path / "images" / "deep" / "x", tmp_path / "m.txt"]
    for file in (*files, tmp_path / "x.npz"):
        file.write_text("1")
    params = {"folder": "images", "files": {"boxes": ["a.json", "gone.json"]}, "means": str(files[2]), "sign": "/"}
    config = DataConfig.parse({"path": "x.npz", kind: {"type": "mine", "params": params}}).resolved(tmp_path)
    assert getattr(config, kind).params == {
        "folder": str(tmp_path / "images"),
        "files": {"boxes": [str(files[0]), "gone.json"]},
        "means": str(files[2]),
        "sign": "/",
    }
    assert config.resolved("/") == config
    seen = {digest(config)}
    for file in files:
        file.write_text("22")
        seen.add(digest(config))
    assert len(seen) == 4


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InputError, match=r"gone\.npz"):
        digest("gone.npz", tmp_path)


@pytest.mark.skipif(sys.platform != "linux", reason="needs a file that cannot be read")
def test_a_file_that_cannot_be_read_is_named() -> None:
    with pytest.raises(InputError, match=r"/proc/self/mem: the data cannot be read \(Input/output error\)"):
        digest("/proc/self/mem")


def write_weight(model: Path, location: str) -> None:
    """Write a constant within a body whose value is external data."""
    weight = helper.make_tensor("w", TensorProto.FLOAT, [1], b"1234", raw=True)
    set_external_data(weight, location)
    body = helper.make_graph([helper.make_node("Constant", [], ["y"], value=weight)], "body", [], [])
    branch = helper.make_node("If", ["c"], ["y"], then_branch=body)
    model.write_bytes(helper.make_model(helper.make_graph([branch], "g", [], [])).SerializeToString())


@pytest.mark.parametrize("name", ["weights.bin", "inner/weights.bin", "w" * 200])
def test_a_model_counts_with_its_external_data(name: str, tmp_path: Path) -> None:
    model, weights, other = tmp_path / "model.onnx", tmp_path / name, tmp_path / "other.bin"
    write_weight(model, name)
    weights.parent.mkdir(exist_ok=True)
    weights.write_bytes(b"1234")
    before = digest_path(model)
    other.write_bytes(b"1234")
    assert digest_path(model) == before
    weights.write_bytes(b"12345")
    assert digest_path(model) != before


@pytest.mark.parametrize("location", ["../outside.bin", "/dev/zero", "missing.bin", "folder", "a\0b"])
def test_no_other_file_counts_as_external_data(location: str, tmp_path: Path) -> None:
    (tmp_path / "folder" / "folder").mkdir(parents=True)
    (tmp_path / "outside.bin").write_bytes(b"1234")
    model = tmp_path / "folder" / "model.onnx"
    write_weight(model, location)
    assert digest_path(model) == hashlib.sha256(model.read_bytes()).hexdigest()


def test_the_images_that_a_table_lists_are_part_of_the_datas_identity(tmp_path):
    (tmp_path / "a.png").write_bytes(b"1")
    (tmp_path / "list.csv").write_text("image,label\na.png,0\nmissing.png,1\n")
    before = digest("list.csv", tmp_path)
    (tmp_path / "other.png").write_bytes(b"2")
    assert digest("list.csv", tmp_path) == before
    (tmp_path / "a.png").write_bytes(b"23")
    assert digest("list.csv", tmp_path) != before
