"""Warnings before the search about a source model and data that do not belong together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from autoopt.observer import Observer
from autoopt.space import Point


def test_a_run_warns_before_its_first_trial(go: Any, mlp_file: Path, tmp_path: Path) -> None:
    said: list[str] = []

    class Said(Observer):
        def on_note(self, text: str) -> None:
            said.append(text)

        def on_trial_start(self, number: int, chain: str, point: Point) -> None:
            said.append("trial")

    x = np.random.default_rng(0).normal(size=(20, 8)).astype(np.float32)
    np.savez(tmp_path / "d.npz", x=x, labels=np.full(20, 7))
    dag = {"passes": {"tidy": {"pass": "simplify"}}, "chains": [["tidy"]], "objectives": [{"metric": "size"}]}
    result = go(dag, model=mlp_file, data=str(tmp_path / "d.npz"), observer=Said())
    warning = next(text for text in said if text.startswith("WARNING: labels such as 7 never occur"))
    assert said.index(warning) < said.index("trial")
    assert warning in result.notes
