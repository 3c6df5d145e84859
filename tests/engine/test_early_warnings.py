"""Warnings before the search: a source model and data that do not belong together, a bug in a user's pass."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from autoopt.engine.run.early_warnings import unchecked
from autoopt.errors import InputError
from autoopt.observer import Observer
from autoopt.space import Point


class Said(Observer):
    """Keeps the notes, and the starts of trials, in order."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def on_note(self, text: str) -> None:
        self.said.append(text)

    def on_trial_start(self, number: int, chain: str, point: Point) -> None:
        self.said.append("trial")


def test_a_run_warns_before_its_first_trial(go: Any, mlp_file: Path, tmp_path: Path) -> None:
    observer = Said()
    x = np.random.default_rng(0).normal(size=(20, 8)).astype(np.float32)
    np.savez(tmp_path / "d.npz", x=x, labels=np.where(np.arange(20) < 18, x.argmax(1) % 4, 7))
    dag = {"passes": {"tidy": {"pass": "simplify"}}, "chains": [["tidy"]], "objectives": [{"metric": "size"}]}
    result = go(dag, model=mlp_file, data=str(tmp_path / "d.npz"), observer=observer)
    warning = next(text for text in observer.said if text.startswith("WARNING: labels such as 7 never occur"))
    assert observer.said.index(warning) < observer.said.index("trial")
    assert warning in result.notes


@pytest.mark.parametrize("constraints", [None, [{"metric": "agreement", "min": 0.5}]])
def test_classes_in_another_order_end_the_run_before_its_first_trial_unless_nothing_keeps_the_accuracy(
    go: Any, mlp_file: Path, tmp_path: Path, constraints: list[dict[str, Any]] | None
) -> None:
    x = np.random.default_rng(0).normal(size=(200, 8)).astype(np.float32)
    predicted = onnxruntime.InferenceSession(mlp_file).run(None, {"x": x})[0].argmax(1)
    np.savez(tmp_path / "d.npz", x=x, labels=(predicted + 1) % 4)
    observer = Said()
    dag = {"passes": {"tidy": "simplify"}, "chains": [["tidy"]], "objectives": [{"metric": "size"}]}
    if constraints:
        result = go({**dag, "constraints": constraints}, model=mlp_file, data=str(tmp_path / "d.npz"))
        assert result.best is not None
        return
    with pytest.raises(InputError, match=r"the classes are in another order: .* --metric agreement"):
        go(dag, model=mlp_file, data=str(tmp_path / "d.npz"), observer=observer)
    assert "trial" not in observer.said


def test_a_check_that_is_cut_off_is_told(go: Any, mlp_file: Path, tmp_path: Path) -> None:
    observer = Said()
    np.savez(tmp_path / "d.npz", x=np.zeros((20, 8), np.float32), labels=np.arange(20) % 4)
    dag = {"passes": {"tidy": "simplify"}, "chains": [["tidy"]], "limits": {"measure_seconds": 1e-6}}
    result = go(dag, model=mlp_file, data=str(tmp_path / "d.npz"), observer=observer)
    assert unchecked() in observer.said
    assert unchecked() in result.notes


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("return model.graph.nodes", "wrong: AttributeError at {script}:6: nodes"),
        ("return 'model'", "wrong: returned str, not a model, a path or None ({script})"),
        ("model.graph.node[0].input[0] = 'nowhere'\n    return model", "wrong: the checker rejects the new model: "),
    ],
)
def test_a_bug_in_a_users_pass_is_no_answer_where_nothing_else_ran(
    go: Any, mlp_file: Path, tmp_path: Path, body: str, words: str
) -> None:
    script = tmp_path / "mine.py"
    script.write_text(f"from autoopt import register\n\n\n@register('wrong')\ndef wrong(model):\n    {body}\n")
    passes = {"bug": "wrong", "tidy": "simplify"}
    dag = {"user_script": str(script), "passes": passes, "chains": [["bug"], ["bug", "tidy"]]}
    with pytest.raises(InputError) as refused:
        go({**dag, "objectives": [{"metric": "size"}]}, model=mlp_file)
    assert f"your pass fails in every trial: {words.format(script=script)}" in str(refused.value)


def test_a_bug_in_a_users_pass_is_told_with_its_line_before_the_first_trial(
    go: Any, mlp_file: Path, tmp_path: Path
) -> None:
    script = tmp_path / "mine.py"
    script.write_text(
        "from autoopt import Refused, register\n\n\n"
        "@register('right')\ndef right(model, doc: str = 'x'):\n    model.doc_string = doc\n    return model\n\n\n"
        "@register('refusing')\ndef refusing(model):\n    raise Refused('not for this model')\n\n\n"
        "@register('wrong')\ndef wrong(model):\n    return model.graph.nodes[0]\n"
    )
    passes = {"tidy": "simplify", "right": "right", "no": "refusing", "bug": "wrong"}
    chains = [["tidy", "right"], ["tidy", "no"], ["tidy", "bug"]]
    dag = {"user_script": str(script), "passes": passes, "chains": chains, "objectives": [{"metric": "size"}]}
    observer = Said()
    result = go(dag, model=mlp_file, observer=observer)
    warning = f"WARNING: your pass fails: wrong: AttributeError at {script}:17: nodes"
    assert result.warnings == (warning,)
    assert observer.said.index(warning) < observer.said.index("trial")
    assert result.trial_counts["ok"] >= 1
