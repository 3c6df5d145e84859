"""Source models of other formats, as far as they need no torch; with it: tests/passes/test_torch_export.py."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import builders
import pytest

from autoopt.engine.prepare import prepare
from autoopt.errors import InputError
from autoopt.model.files import split_source
from autoopt.model.worker import admit
from autoopt.problem.plans import make_plan
from autoopt.problem.run_request import RunRequest

DAG = {"name": "d", "passes": {"s": "simplify"}, "chains": [["s"]]}


@pytest.mark.skipif(importlib.util.find_spec("torch") is not None, reason="torch is installed")
def test_without_torch_a_run_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "net.pt2").write_bytes(b"never read")
    with pytest.raises(InputError, match=r"pip install 'autoopt\[torch\]'"):
        prepare(RunRequest(dag=DAG, model=tmp_path / "net.pt2", home=tmp_path / "home"))


def test_the_onnx_flavour_of_mlflow_is_the_model_it_names(tmp_path: Path) -> None:
    folder = builders.write(builders.mlp(), tmp_path / "saved").parent
    (folder / "MLmodel").write_text("artifact_path: model\nflavors:\n  onnx: {data: model.onnx}\n")
    found = admit({"source": str(folder), "dest": str(tmp_path / "dest")})
    assert list(found["files"]) == ["model.onnx"]


def test_a_plan_says_that_the_model_has_to_be_converted(tmp_path: Path) -> None:
    (tmp_path / "net.pt2").write_bytes(b"never read")
    with pytest.raises(InputError, match="autoopt apply torch_export"):
        make_plan(DAG, tmp_path / "net.pt2")


def test_a_source_may_name_a_function_of_a_script() -> None:
    assert split_source("a/net.py:build") == ("a/net.py", "build")
    assert split_source("net.py") == ("net.py", "")
    assert split_source("s3://bucket/net.onnx") == ("s3://bucket/net.onnx", "")
