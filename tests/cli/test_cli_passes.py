"""`autoopt passes` and `apply`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import onnx
import pytest
from builders import mlp, write
from onnx import parser

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


TEXT = """<ir_version: 8, opset_import: ["": 17]>
g (float[2, 4] x) => (float[2, 4] y) { a = Identity (x)\n y = Relu (a) }"""


@pytest.fixture
def model(tmp_path: Path) -> str:
    onnx.save(parser.parse_model(TEXT), tmp_path / "in.onnx")
    return str(tmp_path / "in.onnx")


def test_one_pass_from_file_to_file(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.onnx"
    assert main(["apply", "simplify", model, "-o", str(out), "--param", "engine=onnxscript", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["outcome"], told["params"]["engine"], told["files"]) == ("ok", "onnxscript", [str(out)])
    assert [node.op_type for node in onnx.load(out).graph.node] == ["Relu"]


CYCLE = """<ir_version: 8, opset_import: ["": 17]>
g (float[2, 4] x) => (float[2, 4] y) { a = Add (x, b)\n b = Relu (a)\n y = Identity (b) }"""


@pytest.mark.parametrize("name", ["name_fix", "ir_upgrade"])
def test_a_model_that_no_runtime_loads_is_not_called_checked(
    call: Callable[..., Any], tmp_path: Path, name: str
) -> None:
    onnx.save(parser.parse_model(CYCLE), tmp_path / "cycle.onnx")
    code, said, err = call("apply", name, str(tmp_path / "cycle.onnx"), "-o", "out.onnx")
    assert code == 0
    assert "checked" not in said
    assert err.startswith("warning: the runtime cannot load out.onnx: ")
    assert err.endswith("the graph is not acyclic.\n")


def test_session_options_replace_no_file_of_the_user(call: Callable[..., Any], model: str) -> None:
    Path("out.session.json").write_text("my own")
    arguments = ("apply", "session_tuning", model, "-o", "out.onnx", "-p", "allow_spinning=false")
    code, _, err = call(*arguments)
    assert (code, err) == (2, "out.session.json: already exists; use --force to overwrite it\n")
    assert Path("out.session.json").read_text() == "my own"
    assert not Path("out.onnx").exists()
    assert call(*arguments, "--force")[0] == 0


def test_an_existing_file_is_overwritten_only_by_force(model: str, call: Callable[..., Any]) -> None:
    before = Path(model).read_bytes()
    code, _, err = call("apply", "identity_elimination", model, "-o", model)
    assert (code, err) == (2, f"{model}: already exists; use --force to overwrite it\n")
    assert Path(model).read_bytes() == before
    assert call("apply", "identity_elimination", model, "-o", model, "--force")[0] == 0
    assert [node.op_type for node in onnx.load(model).graph.node] == ["Relu"]


def test_a_pass_of_a_script_behind_a_url(model: str, call: Callable[..., Any], tmp_path: Path) -> None:
    script = b"from autoopt import register\n\n@register('mine')\ndef mine(model):\n    return model\n"
    fsspec.filesystem("memory").pipe("/scripts/own.py", script)
    out = str(tmp_path / "out.onnx")
    told = call("apply", "mine", model, "-o", out, "--user-script", "memory://scripts/own.py", "--json").out
    assert (json.loads(told)["pass"], json.loads(told)["files"]) == ("mine", [out])


def test_people_see_what_happened(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["apply", "identity_elimination", model, "-o", str(tmp_path / "out.onnx")]) == 0
    text = capsys.readouterr().out
    assert "identity_elimination: ok" in text
    assert "checked (lossless): same" in text


def test_that_a_lossy_model_runs_is_not_called_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = str(write(mlp(), tmp_path / "mlp"))
    assert main(["apply", "dynamic_quantization", model, "-o", str(tmp_path / "out.onnx")]) == 0
    assert re.search(
        r"checked \(lossy\): it runs, largest difference \S+, which is \S+ % of the largest value\n",
        capsys.readouterr().out,
    )


def test_a_refusal_falls_short(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["apply", "opset_conversion", model, "-o", str(tmp_path / "o"), "-p", "target_opset=13"]) == 1
    assert "loses operators" in capsys.readouterr().err
    assert not (tmp_path / "o").exists()


def test_session_options_are_written_beside_the_model(model: str, tmp_path: Path) -> None:
    out = tmp_path / "out.onnx"
    assert main(["apply", "session_tuning", model, "-o", str(out), "-p", "graph_optimization_level=basic"]) == 0
    session = json.loads((tmp_path / "out.session.json").read_text())
    assert session["session_options"]["graph_optimization_level"] == "ORT_ENABLE_BASIC"


def test_a_report_is_a_table_and_needs_no_output_file(call: Callable[..., Any], tmp_path: Path) -> None:
    said = call("apply", "profile", str(write(mlp(), tmp_path))).out.splitlines()
    assert [line.split() for line in said if line.startswith("op_type")] == [["op_type", "us"]]
    assert [line.split()[0] for line in said if line.startswith("Gemm")] == ["Gemm"]
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".onnx"] == ["model.onnx"]
