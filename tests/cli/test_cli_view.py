"""`autoopt view`."""

from __future__ import annotations

import urllib.request
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

Call = Any


def test_what_is_not_there_is_one_line(call: Call, filled: dict[str, Any]) -> None:
    said = call("view", "no_such_model.onnx")
    assert said.code == 2
    assert said.err == "no_such_model.onnx: no such file; name a model file, a run or an artifact\n"
    assert "no run or artifact of this store" in call("view", "feed").err
    if find_spec("netron") is None:
        assert call("view").err == "Netron is not installed; pip install 'autoopt[view]'\n"


def test_the_best_model_of_a_run_is_served_on_this_machine(
    call: Call, filled: dict[str, Any], monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    netron = pytest.importorskip("netron")
    pages = []

    def read_page() -> None:
        ((host, port),) = [thread.address for thread in netron.server._threads()]
        with urllib.request.urlopen(f"http://{host}:{port}/data/model.onnx") as answer:
            pages.append((host, answer.read()))
        netron.stop()

    monkeypatch.setattr(netron, "wait", read_page)
    said = call("view", "--no-browser")
    assert said.code == 0, said.err
    assert said.out.count("\n") == 1
    assert said.out.startswith("best model of run latest at http://localhost:")
    assert "this machine only, no password" in said.out
    assert pages == [("localhost", b"best")]
