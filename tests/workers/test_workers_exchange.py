"""What a call names travels with it: models, files and folders that parameters of a pass name."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from builders import model, tensor, write

from autoopt.errors import ErrorRecord, InputError, SystemFailure
from autoopt.model.files import digest_folder
from autoopt.model.split import splitting
from autoopt.model.split.graphs import FOLDER
from autoopt.model.split.splitting import split_folder
from autoopt.outcome import Outcome
from autoopt.workers.exchange import (
    CallBegun,
    Exchange,
    RemoteAnswer,
    RemoteCall,
    fetch,
    pack,
    pack_answer,
    unpack,
    unpack_answer,
)


def test_files_and_folders_that_parameters_name_travel_along(tmp_path: Path) -> None:
    here = tmp_path / "here"
    (here / "saved" / "data").mkdir(parents=True)
    (here / "note.txt").write_text("told")
    (here / "saved" / "data" / "part").write_text("deep")
    params = {"file": str(here / "note.txt"), "model": str(here / "saved"), "output": "text", "level": 3}
    own = {"params": {"deep": {"folders": [str(here / "saved")]}, "sign": "/"}}
    data = {"load_dataset": own, "data_name": str(here / "saved"), "state": {"output": "h"}}
    payload = {"steps": [{"pass": "p", "params": params}], "data": data, "output": str(tmp_path / "out")}
    exchange = Exchange(str(tmp_path / "exchange"))
    packed = pack(payload, exchange)
    (tmp_path / "here").rename(tmp_path / "gone")
    found = unpack(packed, exchange, tmp_path / "there")
    got = found["steps"][0]["params"]
    assert Path(got["file"]).read_text() == "told"
    assert (Path(got["model"]) / "data" / "part").read_text() == "deep"
    assert (got["output"], got["level"]) == ("text", 3)
    assert found["output"] == str(tmp_path / "there" / "output")
    there = found["data"]["load_dataset"]["params"]
    for folder in (there["deep"]["folders"][0], found["data"]["data_name"]):
        assert folder != str(here / "saved")
        assert (Path(folder) / "data" / "part").read_text() == "deep"
    assert (there["sign"], found["data"]["state"]) == ("/", {"output": "h"})


@pytest.fixture
def exchange(tmp_path: Path) -> Exchange:
    return Exchange(str(tmp_path / "exchange"))


def test_a_call_and_its_answer_are_read_as_they_were_written(exchange: Exchange) -> None:
    call = RemoteCall("m:f", {"a": [1, None]}, seconds=2.5, memory=100, alone=True)
    exchange.write("c1", call)
    assert exchange.read("c1", RemoteCall) == call
    error = ErrorRecord("InputError", "bad", "here")
    answer = RemoteAnswer(
        Outcome.FAILED, None, {"o": "d" * 64}, "here: bad", 1.5, "trace", {"cpu": {"cores": 2}}, error
    )
    exchange.write("c1", answer)
    assert exchange.read("c1", RemoteAnswer) == answer


def test_an_answer_of_version_0_1_0_is_read(exchange: Exchange, tmp_path: Path) -> None:
    """That version wrote no error record; machines of a pool are not upgraded together."""
    document = {"outcome": "ok", "message": "", "seconds": 0.5, "value": {"x": 1}, "output": {}, "details": ""}
    folder = tmp_path / "exchange" / "calls" / "c1"
    folder.mkdir(parents=True)
    (folder / "answer.json").write_text(json.dumps({**document, "machine": {"cpu": {}, "environment": {}}}))
    answer = exchange.read("c1", RemoteAnswer)
    assert answer is not None
    assert (answer.outcome, answer.value, answer.error) == (Outcome.OK, {"x": 1}, None)


def test_an_unknown_call_is_not_there(exchange: Exchange) -> None:
    assert exchange.read("nowhere", RemoteCall) is None
    assert exchange.read("nowhere", RemoteAnswer) is None
    assert exchange.read("nowhere", CallBegun) is None
    exchange.write("c1", CallBegun())
    assert exchange.read("c1", CallBegun)


def test_clearing_removes_calls_and_blobs(exchange: Exchange, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    exchange.put(tmp_path / "file")
    exchange.write("c1", CallBegun())
    exchange.clear()
    exchange.clear()
    assert not (tmp_path / "exchange").exists()


def test_equal_files_are_one_blob(exchange: Exchange, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text("same")
    assert exchange.put(tmp_path / "a") == exchange.put(tmp_path / "b")
    assert len(list((tmp_path / "exchange" / "blobs").iterdir())) == 1


def test_a_damaged_blob_is_refused(exchange: Exchange, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("good")
    digest = exchange.put(tmp_path / "file")
    (tmp_path / "exchange" / "blobs" / digest).write_text("bad")
    with pytest.raises(SystemFailure, match=f"blob {digest[:12]} is damaged"):
        exchange.get(digest, tmp_path / "copy")


@pytest.mark.parametrize("name", ["../escape", "/etc/passwd", "a/../../b"])
def test_a_file_name_that_leads_out_of_the_folder_is_refused(exchange: Exchange, tmp_path: Path, name: str) -> None:
    with pytest.raises(SystemFailure, match="unsafe file name"):
        fetch({name: "0" * 64}, exchange, tmp_path / "folder")


@pytest.mark.parametrize("digest", ["short", "../" * 20 + "aaaa"])
def test_only_a_digest_names_a_blob(exchange: Exchange, tmp_path: Path, digest: str) -> None:
    with pytest.raises(SystemFailure, match="is not a digest"):
        exchange.get(digest, tmp_path / "copy")


def test_files_in_the_output_folder_come_back(exchange: Exchange, tmp_path: Path) -> None:
    work = tmp_path / "work"
    (work / "output" / "0").mkdir(parents=True)
    (work / "output" / "0" / "model.onnx").write_text("new")
    value, files = pack_answer({"path": str(work / "output" / "0"), "n": 1}, work, exchange)
    assert (value, list(files)) == ({"path": "$output/0", "n": 1}, ["0/model.onnx"])
    result = unpack_answer(RemoteAnswer(Outcome.OK, value, files), str(tmp_path / "here"), exchange)
    assert result == {"path": str(tmp_path / "here" / "0"), "n": 1}
    assert (tmp_path / "here" / "0" / "model.onnx").read_text() == "new"


def test_a_model_travels_with_its_folder(exchange: Exchange, tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "model.onnx").write_text("graph")
    (tmp_path / "m" / "weights.bin").write_text("data")
    packed = pack({"model": {"path": str(tmp_path / "m" / "model.onnx"), "session_options": {}}}, exchange)
    travelled = unpack(packed, exchange, tmp_path / "there")["model"]
    assert isinstance(travelled, dict)
    path = Path(travelled["path"])
    assert (path.name, path.read_text()) == ("model.onnx", "graph")
    assert path.with_name("weights.bin").read_text() == "data"


def test_a_split_model_travels_as_the_files_that_it_was(
    exchange: Exchange, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(splitting, "SPLIT_ABOVE", 4096)
    weights = {f"w{number}": np.full((64, 64), number, np.float32) for number in range(2)}
    source = write(model([], [tensor("x", [1])], [tensor("x", [1])], weights), tmp_path / "source")
    draft = split_folder(source.parent, tmp_path / FOLDER)
    assert draft is not None
    graph = draft.publish(digest_folder(source.parent))
    unpacked = unpack(pack({"candidate": {"path": str(graph)}}, exchange), exchange, tmp_path / "there")
    candidate = unpacked["candidate"]
    assert isinstance(candidate, dict)
    assert Path(candidate["path"]).read_bytes() == source.read_bytes()


def test_an_unknown_file_system_is_the_users_input() -> None:
    with pytest.raises(InputError, match="nosuch://host/x: cannot exchange calls there"):
        Exchange("nosuch://host/x")
