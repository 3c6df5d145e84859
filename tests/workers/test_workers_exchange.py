"""What a call names travels with it: models, files and folders that parameters of a pass name."""

from __future__ import annotations

from pathlib import Path

from autoopt.workers.exchange import Exchange, pack, unpack


def test_files_and_folders_of_parameters_travel(tmp_path: Path) -> None:
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
