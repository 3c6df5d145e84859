"""What of an exported program reaches torch: names, numbers and tensors, nothing that could be executed."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from autoopt.passes.base import Refused
from autoopt.passes.convert.torch_archive import write_checked_copy

SPEC = json.dumps([1, {"type": "builtins.tuple", "context": "null", "children_spec": []}])


def graph(**changes: Any) -> dict[str, Any]:
    node = {"target": "torch.ops.aten.relu.default", "metadata": {"stack_trace": "File '/home/me/net.py'"}}
    node |= {key: changes.pop(key) for key in ("target", "as_operator") if key in changes}
    size = {"as_expr": {"expr_str": changes.pop("size", "Mul(Integer(2), Symbol('s77', positive=True, integer=True))")}}
    spec = {"in_spec": changes.pop("in_spec", SPEC)}
    return {"graph_module": {"nodes": [node], "sizes": [size], "spec": spec}, "guards_code": ["1/0"], **changes}


def archive(folder: Path, made: dict[str, Any], **more: bytes) -> Path:
    path = folder / "net.pt2"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("net/archive_version", "0")
        file.writestr("net/models/model.json", json.dumps(made))
        for name, content in more.items():
            file.writestr(f"net/{name}", content)
    return path


def test_a_plain_graph_is_copied_without_notes_and_code(tmp_path: Path) -> None:
    copy = write_checked_copy(archive(tmp_path, graph()), tmp_path / "copy.pt2")
    with zipfile.ZipFile(copy) as file:
        made = json.loads(file.read("model/models/model.json"))
    assert made["guards_code"] == []
    assert made["graph_module"]["nodes"] == [{"target": "torch.ops.aten.relu.default", "metadata": {}}]


@pytest.mark.parametrize(
    "changes",
    [
        {"target": "torch.os.system"},
        {"target": "torch.ops.import_module"},
        {"target": "torch.ops.aten.__class__"},
        {"target": "_operator.call"},
        {"as_operator": "torch.load"},
        {"size": "__import__('os').system('true')"},
        {"size": "lambdify('x', 'x')"},
        {"size": "Symbol('a b')"},
        {"size": "(1).__class__"},
        {"name": "x'); import os; ('"},
        {"in_spec": json.dumps([1, {"type": "collections.defaultdict", "context": "{}", "children_spec": []}])},
        {"in_spec": json.dumps([1, {"type": "builtins.dict", "context": '[{"__enum__": 1}]', "children_spec": []}])},
    ],
)
def test_anything_executable_is_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    with pytest.raises(Refused, match="the file is not loaded"):
        write_checked_copy(archive(tmp_path, graph(**changes)), tmp_path / "copy.pt2")


@pytest.mark.parametrize("name", ["data/aotinductor/model/m.so", "data/constants/opaque_obj_0", "code.pkl"])
def test_files_beside_graph_and_tensors_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(Refused, match="may be code"):
        write_checked_copy(archive(tmp_path, graph(), **{name: b"x"}), tmp_path / "copy.pt2")


@pytest.mark.parametrize("payload", [{"path_name": "weight_0", "use_pickle": True}, {"path_name": "opaque_obj_0"}])
def test_pickled_tensors_are_refused(tmp_path: Path, payload: dict[str, Any]) -> None:
    config = json.dumps({"config": {"a": payload}}).encode()
    path = archive(tmp_path, graph(), **{"data/weights/model_weights_config.json": config})
    with pytest.raises(Refused, match="never unpickled"):
        write_checked_copy(path, tmp_path / "copy.pt2")


def test_other_files_are_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "net.pt2").write_bytes(b"no archive")
    with pytest.raises(Refused, match=r"not a readable file of torch\.export\.save"):
        write_checked_copy(tmp_path / "net.pt2", tmp_path / "copy.pt2")
