"""Passes of a chain that go through one load and save leave what passes that run one at a time leave."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from autoopt.engine.inputs.request import RunRequest
from autoopt.engine.prepare import prepare
from autoopt.engine.run.session import Session
from autoopt.engine.work.pass_runs import run_chain
from autoopt.observer import CallbackObserver
from autoopt.report.lineage import lineage_lines

SCRIPT = """
from typing import Annotated
from autoopt import Param, Pass, Retry, register

@register("halves")
class Halves(Pass):
    '''Asks for a smaller block.'''
    touches = ("metadata",)
    block: int = 64
    def run(self, model):
        if self.block > 16:
            return Retry(f"{self.block} is too large", {"block": self.block // 2})
        model.metadata_props.add(key="block", value=str(self.block))
        return model

@register("noted")
class Noted(Pass):
    '''Puts a file into the model.'''
    touches = ("metadata",)
    file: Annotated[str, Param("path"), "a file"]
    def run(self, model):
        with open(self.file) as file:
            model.metadata_props.add(key="note", value=file.read())
        return model
"""
NODES = ["halves", "noted"]


def lineage_by(count: int, folder: Path, model: Path) -> tuple[list[list[str]], dict[str, Any]]:
    """Which passes began together, and the lineage of what the chain made; `count` passes at a time."""
    begun: list[list[str]] = []

    def heard(event: str, **values: Any) -> None:
        begun.extend([values["passes"]] if event == "pass_begins" else [])

    dag = {
        "name": "d",
        "passes": {"halves": "halves", "noted": {"pass": "noted", "params": {"file": str(folder / "note")}}},
        "chains": [NODES],
        "user_script": str(folder / "mine.py"),
    }
    with prepare(
        RunRequest(dag=dag, model=model, home=folder / str(count), observer=CallbackObserver(heard))
    ) as session:
        assert isinstance(session, Session)
        (chain,) = session.chains.values()
        configs = {node.id: node.space.config({}) for node in chain.nodes}
        for end in range(count, len(NODES) + 1, count):  # what went before is in the store
            made = run_chain(session.ctx, chain.nodes[:end], configs)
        return begun, session.ctx.store.lineage.trace(made.candidate).to_json()


def test_gathered_passes_have_the_lineage_of_single_ones(mlp_file: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(SCRIPT)
    (tmp_path / "note").write_text("told")
    together, gathered = lineage_by(len(NODES), tmp_path, mlp_file)
    alone, single = lineage_by(1, tmp_path, mlp_file)
    assert (together, alone) == ([NODES], [[node] for node in NODES])
    assert [step["attempts"][1]["params"] for step in gathered["steps"] if step["pass"] == "halves"] == [{"block": 32}]
    assert "gave up block=64: 64 is too large" in "\n".join(lineage_lines(gathered))
    for step in (*gathered["steps"], *single["steps"]):
        step.pop("seconds")
    assert gathered == single
