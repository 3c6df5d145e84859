"""A user script with passes for tests, and a helper that runs passes on a micro-model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from micro_models import MODELS

from autoopt.model import io
from autoopt.passes.runner import run

SCRIPT = Path(__file__).with_name("script_passes.txt").read_text()


def steps(
    tmp_path: Path, model: str, *wanted: str | tuple[str, dict[str, Any]], script: str | None = None, **more: Any
) -> list[dict[str, Any]]:
    path = io.save(MODELS[model](), tmp_path / "source")
    listed = [(w, {}) if isinstance(w, str) else w for w in wanted]
    payload = {
        "model": {"path": str(path), "session_options": {"intra_op_num_threads": 1}},
        "steps": [{"node": f"n{i}", "pass": name, "params": params} for i, (name, params) in enumerate(listed)],
        "output": str(tmp_path / "out"),
        "user_script": script,
        **more,
    }
    result: list[dict[str, Any]] = run(payload)["steps"]
    return result
