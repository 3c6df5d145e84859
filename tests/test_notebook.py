"""The example notebook in the documentation runs, cell by cell."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from autoopt.settings import settings

ROOT = Path(__file__).parent.parent
NOTEBOOK = ROOT / "docs" / "notebooks" / "python.ipynb"


def code_cells() -> list[dict[str, Any]]:
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


def run_cell(source: str, names: dict[str, object]) -> object:
    """Execute a cell; return the value of its last expression, as a notebook shows it."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), names)
    if last is None:
        return None
    assert isinstance(last, ast.Expr)
    return eval(compile(ast.Expression(last.value), "cell", "eval"), names)


@pytest.mark.service
@pytest.mark.usefixtures("kept_workers")
def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AUTOOPT_HOME", str(tmp_path / "home"))
    settings.cache_clear()
    names: dict[str, object] = {}
    values = [run_cell("".join(cell["source"]), names) for cell in code_cells()]
    shown = [value._repr_html_() for value in values if hasattr(value, "_repr_html_")]
    assert sum("fold -&gt; static" in html for html in shown) >= 3, "plan, run, list of runs"
    assert values[-1] in ("fold -> dynamic", "fold -> static")


def test_the_notebook_is_stored_with_the_outputs_of_a_whole_execution() -> None:
    cells = code_cells()
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    for cell in cells:
        assert not any(output["output_type"] == "error" for output in cell["outputs"])
