"""`autoopt data`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from builders import mlp, write


def test_first_item_ranges_and_labels_are_shown(call: Callable[..., Any], tmp_path: Path) -> None:
    model = str(write(mlp(), tmp_path))
    np.savez("data.npz", x=np.arange(64, dtype=np.float32).reshape(8, 8), label=np.arange(8) % 3)
    said = call("data", model, "data.npz")
    assert (said.code, said.err) == (0, "")
    assert "data.npz: 8 items" in said.out
    assert "x: float32 items of 8, values 0 to 63; the first starts with 0 1 2 3 4 5 ..." in said.out
    assert "labels: 3 classes, the rarest 2 times; the first is 0" in said.out
    document = json.loads(call("data", model, "data.npz", "--label", "label", "--json").out)
    assert (document["items"], document["classes"], document["misfit"]) == (8, 3, "")


def test_what_does_not_fit_the_model_is_shown_and_why(call: Callable[..., Any], tmp_path: Path) -> None:
    np.savez("data.npz", x=np.zeros((8, 5), np.float32))
    said = call("data", str(write(mlp(), tmp_path)), "data.npz")
    assert said.code == 1
    assert "x: float32 items of 5" in said.out
    assert "NO FIT: " in said.out.splitlines()[-1]
