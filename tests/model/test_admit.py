"""Admission: a model may not make us read anything but its own files. Each case goes through a worker."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import builders
import numpy as np
import onnx
import pytest
from children import HANG_SECONDS

from autoopt.model import admit as admission
from autoopt.model.io import load, save
from autoopt.outcome import Outcome
from autoopt.workers import CallResult, WorkerPool

WEIGHT = np.arange(64, dtype=np.float32)
SECRET = b"s3cret!!" * 32


def external(folder: Path, *, location: str = "w.bin", offset: str = "0", length: str = "256", **more: Any) -> Path:
    """`folder/model.onnx`: y = x + w, the 256 bytes of w at the given place. Nothing is checked."""
    node = onnx.helper.make_node("Add", ["x", "w"], ["y"])
    made = builders.model([node], [builders.tensor("x", [64])], [builders.tensor("y", [64])], {"w": WEIGHT})
    weight = made.graph.initializer[0]
    weight.ClearField("raw_data")
    weight.data_location = weight.EXTERNAL
    entries = [("location", location), ("offset", offset), ("length", length), *more.pop("entries", [])]
    for key, value in entries:
        if value is not None:
            weight.external_data.add(key=key, value=value)
    for key, value in more.items():
        if key == "dims":
            weight.dims[:] = value
        else:
            setattr(weight, key, value)
    return builders.write(made, folder)


@pytest.fixture(scope="module")
def pool() -> Iterator[WorkerPool]:
    with WorkerPool(size=1) as made:
        yield made


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """The model's folder with its weights; outside it, beside it, a secret that must not get in."""
    (tmp_path / "outside.bin").write_bytes(SECRET)
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "w.bin").write_bytes(WEIGHT.tobytes())
    return folder


def admit(pool: WorkerPool, source: Path, tmp_path: Path) -> CallResult:
    return pool.call(
        "autoopt.model.worker:admit", {"source": str(source), "dest": str(tmp_path / "dest")}, timeout=HANG_SECONDS
    )


def hidden(where: str) -> Callable[[Path], Path]:
    """A model whose weight is in some other place of the graph, and its data outside of the folder."""

    def make(folder: Path) -> Path:
        path = external(folder, location="../outside.bin")
        made = onnx.load(path, load_external_data=False)
        _hide(made, where)
        path.write_bytes(made.SerializeToString())
        return path

    return make


def _hide(made: Any, where: str) -> None:
    weight = onnx.TensorProto()
    weight.CopyFrom(made.graph.initializer[0])
    del made.graph.initializer[:]
    if where == "graph":
        body = onnx.helper.make_graph([], "body", [], [], [weight])
        made.graph.node.append(onnx.helper.make_node("If", ["c"], ["z"], then_branch=body, else_branch=body))
    elif where == "function":
        node = onnx.helper.make_node("Constant", [], ["k"], value=weight)
        made.functions.append(onnx.helper.make_function("f", "F", [], ["k"], [node], made.opset_import))
    elif where == "sparse":
        made.graph.sparse_initializer.add().values.CopyFrom(weight)
    elif where == "attribute":
        made.graph.node.append(onnx.helper.make_node("Constant", [], ["k"], value=weight))
    else:
        made.training_info.add().initialization.initializer.append(weight)


def linked(name: str, how: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        outside = folder.parent / "outside.bin"
        if how == "symbolic":
            (folder / name).symlink_to(outside)
        elif how == "hard":
            (folder / name).hardlink_to(outside)
        elif how == "pipe":
            os.mkfifo(folder / name)
        elif how == "folder":
            (folder / name).mkdir()
        elif how == "device":
            (folder / name).symlink_to("/dev/zero")
        return external(folder, location=name)

    return make


def linked_folder(folder: Path) -> Path:
    (folder / "sub").symlink_to(folder.parent)
    return external(folder, location="sub/outside.bin")


def absolute(folder: Path) -> Path:
    return external(folder, location=str(folder.parent / "outside.bin"))


def with_(**reference: Any) -> Callable[[Path], Path]:
    return lambda folder: external(folder, **reference)


CASES: dict[str, tuple[Callable[[Path], Path], str]] = {
    "parent folder": (with_(location="../outside.bin"), "leaves the model's folder"),
    "parent within": (with_(location="sub/../../outside.bin"), "leaves the model's folder"),
    "absolute": (absolute, "an absolute path"),
    "absolute system file": (with_(location="/etc/passwd", length=None), "an absolute path"),
    "symbolic link out": (linked("l.bin", "symbolic"), "is a link"),
    "link to a device": (linked("l.bin", "device"), "is a link"),
    "hard link": (linked("l.bin", "hard"), "2 names (hard links)"),
    "link as folder": (linked_folder, "'sub/outside.bin'"),
    "named pipe": (linked("l.bin", "pipe"), "not a regular file"),
    "folder as file": (linked("l.bin", "folder"), "not a regular file"),
    "backslashes": (with_(location="..\\outside.bin"), "a character that file names should not have"),
    "address in memory": (with_(location="*/_ORT_MEM_ADDR_/*", offset="94000000"), "a character"),
    "NUL in the name": (with_(location="w.bin\x00.txt"), "a character"),
    "escape in the name": (with_(location="w\x1b[2J.bin"), "a character"),
    "no location": (with_(location=None), "no location"),
    "missing file": (with_(location="none.bin"), "No such file"),
    "offset beyond the file": (with_(offset="4096"), "of a file of 256"),
    "length beyond the file": (with_(offset="8"), "of a file of 256"),
    "negative offset": (with_(offset="-8"), "offset is not a number"),
    "overflowing offset": (with_(offset="18446744073709551608"), "offset is not a number"),
    "length of another shape": (with_(dims=[32]), "its type and shape need 128"),
    "negative size": (with_(dims=[-64]), "a negative size"),
    "strings": (with_(data_type=8), "strings and undefined types"),
    "two locations": (with_(entries=[("location", "../outside.bin")]), "two entries 'location'"),
    "the graph itself": (with_(location="model.onnx"), "the name of the graph itself"),
    "hidden in a subgraph": (hidden("graph"), "leaves the model's folder"),
    "hidden in a function": (hidden("function"), "leaves the model's folder"),
    "hidden in a sparse tensor": (hidden("sparse"), "leaves the model's folder"),
    "hidden in an attribute": (hidden("attribute"), "leaves the model's folder"),
    "hidden in a training graph": (hidden("training"), "leaves the model's folder"),
}


@pytest.mark.parametrize("case", CASES)
def test_malicious_external_data_is_refused(case: str, pool: WorkerPool, place: Path, tmp_path: Path) -> None:
    make, reason = CASES[case]
    result = admit(pool, make(place), tmp_path)
    assert result.outcome is Outcome.REFUSED
    assert reason in result.message
    assert result.message.isprintable()
    copied = [p.read_bytes() for p in (tmp_path / "dest").rglob("*") if p.is_file() and p.name != "model.onnx"]
    assert copied == []


def test_a_sparse_file_that_would_fill_the_disk_is_not_copied(pool: WorkerPool, place: Path, tmp_path: Path) -> None:
    model = external(place)
    os.truncate(place / "w.bin", 1 << 42)
    result = admit(pool, model, tmp_path)
    assert result.outcome is Outcome.REFUSED
    assert "external data of 4398046511104 bytes; the disk has room" in result.message


def test_good_external_data_is_copied_and_loads(pool: WorkerPool, place: Path, tmp_path: Path) -> None:
    (place / "sub").mkdir()
    (place / "sub" / "w.bin").write_bytes(b"." * 4096 + WEIGHT.tobytes())
    result = admit(pool, external(place, location="sub/w.bin", offset="4096"), tmp_path)
    assert result.value
    assert result.value["files"] == ["model.onnx", "sub/w.bin"]
    assert result.value["bytes"] == (place / "model.onnx").stat().st_size + 4096 + 256
    weight = load(tmp_path / "dest" / "model.onnx").graph.initializer[0]
    assert onnx.numpy_helper.to_array(weight).tolist() == WEIGHT.tolist()


def test_a_location_may_begin_with_the_models_own_folder(pool: WorkerPool, place: Path, tmp_path: Path) -> None:
    (place / "sub").mkdir()
    (place / "sub" / "w.bin").write_bytes(WEIGHT.tobytes())
    result = admit(pool, external(place, location="./sub/./w.bin"), tmp_path)
    assert result.value
    assert result.value["files"] == ["model.onnx", "sub/w.bin"]
    assert result.value["repairs"] == ["external data named without ./"]
    weight = load(tmp_path / "dest" / "model.onnx").graph.initializer[0]
    assert onnx.numpy_helper.to_array(weight).tolist() == WEIGHT.tolist()


def test_files_that_the_graph_does_not_name_stay_outside(pool: WorkerPool, tmp_path: Path) -> None:
    path = builders.write(builders.mlp(), tmp_path / "in")
    (path.parent / "notes.txt").write_text("mine")
    result = admit(pool, path, tmp_path)
    assert result.value
    assert result.value["files"] == ["model.onnx"]


def test_named_model_may_be_a_link(pool: WorkerPool, place: Path, tmp_path: Path) -> None:
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshot"
    blobs.mkdir()
    snapshot.mkdir()
    os.rename(builders.write(builders.mlp(), place), blobs / "4f2a")
    (snapshot / "model.onnx").symlink_to("../blobs/4f2a")
    assert admit(pool, snapshot / "model.onnx", tmp_path).outcome is Outcome.OK


def test_external_data_lies_beside_what_the_link_points_to(pool: WorkerPool, place: Path, tmp_path: Path) -> None:
    external(place)
    (tmp_path / "link.onnx").symlink_to(place / "model.onnx")
    assert admit(pool, tmp_path / "link.onnx", tmp_path).outcome is Outcome.OK


def test_folder_with_one_model_names_it(pool: WorkerPool, tmp_path: Path) -> None:
    path = builders.write(builders.mlp(), tmp_path / "in")
    os.rename(path, path.with_name("classifier.onnx"))
    assert admit(pool, path.parent, tmp_path).outcome is Outcome.OK
    builders.write(builders.cnn(), path.parent)
    builders.write(builders.cnn(), path.parent / "x").rename(path.with_name("other.onnx"))
    os.remove(path)
    result = admit(pool, path.parent, tmp_path)
    assert (result.outcome, result.message) == (
        Outcome.REFUSED,
        f"{path.parent}: a folder with 2 models; name the .onnx file",
    )


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"", "the file is empty; download or export"), (b"\x00\xff" * 9, "not an ONNX model"), (b"\x08\x08", "no graph")],
)
def test_what_is_no_model_is_refused(pool: WorkerPool, tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "bad.onnx"
    path.write_bytes(content)
    result = admit(pool, path, tmp_path)
    assert result.outcome is Outcome.REFUSED
    assert result.message.startswith(f"{path}: ")
    assert reason in result.message


@pytest.mark.parametrize("path", ["/dev/zero", "/nowhere/model.onnx"])
def test_odd_sources_are_refused(pool: WorkerPool, tmp_path: Path, path: str) -> None:
    assert admit(pool, Path(path), tmp_path).outcome is Outcome.REFUSED


def test_pipe_as_model_does_not_wait(pool: WorkerPool, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "model.onnx")
    assert admit(pool, tmp_path / "model.onnx", tmp_path).message.endswith("not a regular file")


def test_admission_is_content_addressed(pool: WorkerPool, tmp_path: Path) -> None:
    save(builders.mlp(width=512), tmp_path / "a", external=True)
    digests = []
    for name in ("x", "y"):
        payload = {"source": str(tmp_path / "a"), "dest": str(tmp_path / name)}
        value = pool.call("autoopt.model.worker:admit", payload).value
        assert value
        digests.append(value["digest"])
    assert digests[0] == digests[1]


def test_a_model_that_is_replaced_while_it_is_copied_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights of one export beside the graph of the other would be a model that nobody made."""
    source = tmp_path / "exported.onnx"

    def export(seed: int) -> None:
        onnx.save(builders.mlp(seed=seed), source, save_as_external_data=True, location="weights", size_threshold=0)

    export(0)
    copy = admission.append_part

    def copy_and_export(*arguments: int) -> object:
        copied = copy(*arguments)
        monkeypatch.setattr(admission, "append_part", copy)
        source.unlink()
        (tmp_path / "weights").unlink()
        export(1)
        return copied

    monkeypatch.setattr(admission, "append_part", copy_and_export)
    with pytest.raises(admission.NotAdmitted, match="changed while it was read"):
        admission.admit_model(source, tmp_path / "copy")
