"""session.json: opened in a fresh interpreter, a model has the session that was measured."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autoopt
from autoopt.errors import InputError
from autoopt.model.session import make_session, session_document

PAGE = Path(__file__).parents[2] / "docs" / "deploying.md"
SNIPPETS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
OPTIONS: dict[str, Any] = {
    "graph_optimization_level": "layout",
    "execution_mode": "parallel",
    "inter_op_num_threads": 2,
    "enable_mem_pattern": False,
    "config": {"session.intra_op.allow_spinning": "0"},
    "disabled_optimizers": ["ConstantSharing"],
}
REPORT = """
import numpy as np
names = ("graph_optimization_level", "execution_mode", "intra_op_num_threads", "inter_op_num_threads",
         "enable_mem_pattern", "enable_cpu_mem_arena")
in_effect = session.get_session_options()
report = {name: str(getattr(in_effect, name)) for name in names}
report["spinning"] = in_effect.get_session_config_entry("session.intra_op.allow_spinning")
report["providers"] = session.get_providers()
report["outputs"] = session.run(None, {"x": np.arange(6, dtype=np.float32).reshape(2, 3)})[0].tolist()
print(__import__("json").dumps(report))
"""


@pytest.fixture
def folder(model_path: Path) -> Path:
    return model_path.parent


def write(folder: Path, document: object) -> None:
    (folder / "session.json").write_text(json.dumps(document))


def in_fresh_interpreter(code: str, folder: Path) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", code + REPORT], cwd=folder.parent, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


@pytest.mark.parametrize("snippet", SNIPPETS, ids=["autoopt", "plain onnxruntime"])
def test_the_documented_ways_open_the_session_that_was_measured(snippet: str, folder: Path) -> None:
    write(folder, session_document(OPTIONS, threads=3))
    measured = make_session(folder / "model.onnx", OPTIONS, threads=3)
    report = in_fresh_interpreter(snippet, folder)
    expected = measured.get_session_options()
    assert report.pop("spinning") == "0"
    assert report.pop("providers") == measured.get_providers()
    outputs = measured.run(None, {"x": np.arange(6, dtype=np.float32).reshape(2, 3)})[0]
    assert report.pop("outputs") == outputs.tolist()
    assert report == {name: str(getattr(expected, name)) for name in report}
    assert report["intra_op_num_threads"] == "3"


def test_options_of_the_model_come_before_the_threads_of_the_target() -> None:
    document = session_document({"intra_op_num_threads": 2}, threads=4)
    assert document["session_options"]["intra_op_num_threads"] == 2  # type: ignore[index,call-overload]  # an object
    assert session_document({}, threads=0)["session_options"]["intra_op_num_threads"] == 0  # type: ignore[index,call-overload]


def test_a_device_gets_its_options_the_cpu_and_binding() -> None:
    provider = "CUDAExecutionProvider"
    document = session_document({"provider_options": {"use_tf32": "0"}}, provider)
    assert document["inference_session"] == {
        "providers": [provider, "CPUExecutionProvider"],
        "provider_options": [{"use_tf32": "0"}, {}],
        "disabled_optimizers": [],
    }
    assert document["io_binding"] is True
    assert session_document({"io_binding": False}, provider)["io_binding"] is False


def test_a_missing_file_is_named(folder: Path) -> None:
    with pytest.raises(InputError, match=r"session.json: cannot be read .*--out"):
        autoopt.load(folder)
    write(folder, session_document({}))
    (folder / "model.onnx").unlink()
    with pytest.raises(InputError, match=r"out: has no model.onnx"):
        autoopt.load(folder)


@pytest.mark.parametrize(
    ("part", "edit"),
    [
        ("session_options", {"optimized_model_filepath": "written"}),
        ("session_options", {"enable_profiling": True, "profile_file_prefix": "written"}),
        ("session_config_entries", {"session.optimized_model_external_initializers_file_name": "written"}),
        ("session_config_entries", {"session.intra_op.allow_spinning": "often"}),
        ("inference_session", {"providers": ["QNNExecutionProvider"], "provider_options": [{"backend_path": "x.so"}]}),
        ("inference_session", {"providers": ["CPUExecutionProvider"], "provider_options": [{"x": "y"}]}),
    ],
)
def test_an_edited_file_writes_and_loads_nothing(
    part: str, edit: dict[str, Any], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    write(folder, {**session_document({}), part: edit})
    before = sorted(folder.iterdir())
    with pytest.raises(InputError, match=r"session.json:1: is not a valid session: .*(known|must be)"):
        autoopt.load(folder)
    assert sorted(folder.iterdir()) == before


def test_a_wrong_file_is_one_line(folder: Path) -> None:
    (folder / "session.json").write_text("{\n]")
    with pytest.raises(InputError, match=r"session.json:2: is not JSON"):
        autoopt.load(folder)
    write(folder, [])
    with pytest.raises(InputError, match=r"session.json:1: is not a JSON object"):
        autoopt.load(folder)
    document = session_document({})
    write(folder, {**document, "session_options": {"graph_optimization_level": "layout"}})
    with pytest.raises(InputError, match=r"session.json: has an option that onnxruntime .* does not know"):
        autoopt.load(folder)
    write(folder, {**document, "inference_session": {"providers": ["NoneExecutionProvider"]}})
    with pytest.raises(InputError, match="NoneExecutionProvider is not in the installed"):
        autoopt.load(folder)
