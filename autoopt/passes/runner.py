"""Passes executed in a worker: `run` takes a model through a list of steps, `describe` tells what passes there are.

One load serves all steps; every step that changed the model leaves an artifact of its own, so that lineage has each.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from autoopt.json_codec import from_json
from autoopt.passes.execution import user_code
from autoopt.passes.execution.executor import Stepper, StepResult
from autoopt.registry import info_to_json, registry
from autoopt.target import Accelerator


def run(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Take a model through the steps, up to the first that is not good.

    `payload`: `model` {path, session_options}, `steps` [{node, pass, params}], `output` (a folder; step number i
    leaves its model in `<output>/<i>/`), and optionally `accelerator`, `data` (configuration of the calibration
    data), `data_root`, `user_script`, `check` (default true), `reports` (of analyses of the input model).

    Returns `{"steps": [...]}`: of each step `node`, `pass`, `params` (those finally used), `outcome`, `message`,
    `seconds`, `session_options` (after it), `path` (folder of the new model, or null), `digest`, `bytes`, `reports`,
    `attempts` (earlier parameters and why they were given up), `equivalence`.

    Raises:
        InputError: the user script or an unknown pass.
    """
    script = user_code.load(payload.get("user_script"))
    model = payload["model"]
    results: list[StepResult] = []
    with tempfile.TemporaryDirectory(prefix="autoopt-") as work:
        stepper = Stepper(
            path=Path(model["path"]),
            session_options=dict(model.get("session_options") or {}),
            accelerator=from_json(Accelerator, payload.get("accelerator") or {}),
            script=script,
            data=payload.get("data"),
            work=Path(work),
            check=payload.get("check", True),
            data_root=payload.get("data_root", ""),
            reports=dict(payload.get("reports") or {}),
        )
        for index, step in enumerate(payload["steps"]):
            began = time.monotonic()
            result = stepper.step(step["pass"], step.get("params") or {}, Path(payload["output"]) / str(index))
            result.seconds, result.node = time.monotonic() - began, step.get("node", "")
            results.append(result)
            if not result.outcome.good:
                break
    return {"steps": [_to_json(result) for result in results]}


def _to_json(result: StepResult) -> dict[str, Any]:
    plain = asdict(result)
    return {"node": plain.pop("node"), "pass": plain.pop("name"), **plain, "outcome": str(result.outcome)}


def describe(payload: Mapping[str, Any]) -> dict[str, Any]:
    """All passes for an accelerator, those of the user's script included, as JSON.

    Returns `passes`, `metrics` (names the script defines for measuring, see `registry`), `source_digest` (sha256 of
    the script) and `failures` (plug-ins that could not be loaded, with the reason).

    Raises:
        InputError: the user script cannot be read or fails.
    """
    script = user_code.load(payload.get("user_script"))
    accelerator = from_json(Accelerator, payload.get("accelerator") or {})
    infos = [script.info(name, accelerator) for name in registry().names()]
    return {
        "passes": [info_to_json(info) for info in infos],
        "metrics": user_code.metrics_of(script),
        "source_digest": script.digest,
        "failures": [asdict(failure) for failure in registry().failures],
    }
