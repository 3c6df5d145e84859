"""The folder with the best model of a run that was killed while it wrote there."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from outside import RUN, filled

import autoopt
from autoopt.errors import InputError
from autoopt.model.files import digest_file

DAG = """\
name: quantized
passes: {quant: {pass: dynamic_quantization, params: {per_channel: {search: [true, false]}, weight_type: search}}}
chains: [[quant]]
objectives: [{metric: size}]
constraints: [{metric: cosine, min: 0.9}]
measurement: {seconds: 0.05, replicas: 1, target_width: 2.0, rounds: 0}
"""


def check_package(out: Path) -> None:
    """The package in `out` is whole, and smaller than its source."""
    recipe = json.loads((out / "recipe.json").read_text())
    assert recipe["chain"] == "quant"
    assert recipe["result"] == digest_file(out / "model.onnx")
    assert autoopt.load(out).run(None, dict(np.load(out / "inputs.npz")))
    assert not [name for name in os.listdir(out) if name.startswith("autoopt-work")]


def test_a_run_that_is_killed_while_it_replaces_a_package_leaves_no_mixture(tmp_path: Path) -> None:
    place = filled(tmp_path, DAG, width=1024)
    place.call(*RUN)
    place.call(*RUN, "--again", "all", AUTOOPT_FAULT="within package:4", codes=(-9,))
    with pytest.raises(InputError, match=r"has no model\.onnx"):
        autoopt.load(tmp_path / "out")
    place.call(*RUN)
    check_package(tmp_path / "out")
