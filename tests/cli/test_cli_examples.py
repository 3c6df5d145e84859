"""`autoopt init --examples`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

Call = Any


def test_the_copied_dags_plan_where_they_are(call: Call, home: Path) -> None:
    said = call("init", "--examples", "-o", "mine")
    assert said.code == 0, said.err
    assert said.out.endswith("next: autoopt run mine/quickstart.yaml\n")
    assert Path("mine/digits/evaluation.npz").is_file()
    planned = json.loads(call("plan", "mine/quickstart.yaml", "--json").out)
    assert planned["chain_count"] == 6
    assert Path("mine/dag.schema.json").is_file(), "the first line of each file names it"


def test_nothing_is_overwritten(call: Call, home: Path) -> None:
    Path("dags").mkdir()
    said = call("init", "--examples")
    assert (said.code, said.err) == (2, "dags: already exists; name another folder with -o\n")


def test_it_needs_a_model_or_the_option(call: Call, home: Path) -> None:
    assert call("init") == (2, "", "MODEL: name a model; or copy examples with --examples\n")
    said = call("init", "m.onnx", "--examples")
    assert (said.code, said.err) == (2, "m.onnx: has no use with --examples; omit one of them\n")
