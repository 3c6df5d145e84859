"""`autoopt passes`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pytest

from autoopt.cli.app import main

SCRIPT = '''"""One pass of my own."""

from autoopt import register


@register("mine")
def mine(model, number: int = 3):
    """Does nothing."""
    return model
'''


def test_the_list_is_one_json_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["passes", "list", "--json"]) == 0
    entries = {entry["name"]: entry for entry in json.loads(capsys.readouterr().out)}
    assert entries["dynamic_quantization"]["aliases"] == [
        "dynamic_int8",
        "OnnxDynamicQuantization",
        "IncDynamicQuantization",
    ]
    assert (
        "pip install 'autoopt[nncf]'" in entries["nncf_quantization"]["missing"]
        or (entries["nncf_quantization"]["available"])
    )


def test_people_see_names_and_what_is_searched(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["passes", "list"]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("bnb4_quantization "))
    assert "quant_type, block_size" in line


def test_one_pass_by_its_alias(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["passes", "show", "static_int8"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("static_quantization (quantize): ")
    assert "requires: quant_pre_process" in text
    assert 'with quant_format = "QDQ", weight_type = "QUInt8": "QUInt8"' in text


def test_passes_of_a_script_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.py").write_text(SCRIPT)
    assert main(["passes", "show", "mine", "--user-script", str(tmp_path / "mine.py"), "--json"]) == 0
    entry = json.loads(capsys.readouterr().out)
    assert (entry["summary"], entry["parameters"][0]["default"]) == ("Does nothing.", 3)
    (tmp_path / "bad.py").write_text("import nothing_of_that_name")
    assert main(["passes", "list", "--user-script", str(tmp_path / "bad.py")]) == 2
    assert "nothing_of_that_name" in capsys.readouterr().err


def test_a_script_may_be_a_url(call: Callable[..., Any]) -> None:
    fsspec.filesystem("memory").pipe("/scripts/mine.py", SCRIPT.encode())
    shown = json.loads(call("passes", "show", "mine", "--user-script", "memory://scripts/mine.py", "--json").out)
    assert shown["family"] == "user script"
    listed = json.loads(call("passes", "list", "--user-script", "memory://scripts/mine.py", "--json").out)
    assert "mine" in [entry["name"] for entry in listed]
    code, _, error = call("passes", "list", "--user-script", "memory://scripts/nowhere.py")
    assert (code, error.count("\n")) == (2, 1)
    assert "memory://scripts/nowhere.py: cannot be fetched" in error


def test_other_products_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["passes", "show", "replace_pow"]) == 0
    assert capsys.readouterr().out == 'replace_pow (PopRT): local_rewrites with rules: ["replace_pow"]\n'
    assert main(["passes", "show", "replace_pow", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["passes"] == ["local_rewrites"]
    assert main(["passes", "show", "replace_powr"]) == 2
    assert "replace_pow" in capsys.readouterr().err.partition("did you mean")[2]


def test_a_new_pass_is_two_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["passes", "new", "my_pass", "--folder", str(tmp_path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [Path(file).name for file in told["files"]] == ["my_pass.py", "test_my_pass.py"]
    assert main(["passes", "new", "my_pass", "--folder", str(tmp_path)]) == 2


def test_the_provider_may_be_short(capsys: pytest.CaptureFixture[str]) -> None:
    shown = []
    for name in ("cuda", "CUDAExecutionProvider"):
        assert main(["passes", "show", "session_tuning", "--ep", name]) == 0
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1]
