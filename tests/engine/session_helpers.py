"""Runs of three passes on a simulated pool, for tests of a session and its output folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from simulation import Simulation, faster

from autoopt.engine.run.session import Session, search_inline
from autoopt.observer import Observer
from autoopt.results import RunResult

DAG = {
    "passes": {"fold": "identity_elimination", "clean": "remove_unused", "names": "name_fix"},
    "chains": [["fold"], ["clean"], ["names"]],
}


def simulate(folder: Path, **options: object) -> Simulation:
    simulation = Simulation(folder, dag=DAG, **options)  # type: ignore[arg-type]
    simulation.pool.passes = {
        "identity_elimination": faster(0.9),
        "remove_unused": faster(0.5),
        "name_fix": faster(0.7),
    }
    return simulation


def finish(session: Session) -> RunResult:
    with session:
        return session.execute(search_inline)


class Notes(Observer):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def on_note(self, text: str) -> None:
        self.notes.append(text)


def lucky_once(passes: str) -> Callable[[dict[str, object]], float]:
    """Noise that makes the first measurement of the model with these passes three times too fast."""
    measured: list[str] = []

    def noise(model: dict[str, object]) -> float:
        name = str(model["passes"])
        measured.append(name)
        return 0.3 if name == passes and measured.count(name) == 1 else 1.0

    return noise


def chain_in(out: Path) -> str:
    """The chain of the package in a folder; empty without a model."""
    if not (out / "model.onnx").exists():
        return ""
    return str(json.loads((out / "recipe.json").read_text())["chain"])
