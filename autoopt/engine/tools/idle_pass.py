"""The reason why a pass changes nothing in a model, found by trying it after passes that prepare models for others."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Final

from autoopt.dag.compiler.pruning import Facts, check_model
from autoopt.engine.work.reading import INSPECT, ask_worker
from autoopt.json_codec import from_json, to_json
from autoopt.model.inspection import Inspection
from autoopt.outcome import Outcome
from autoopt.passes.base.config import full_config
from autoopt.passes.request import RUN_PASSES, PassReply, PassRequest, PassStep
from autoopt.registry import PassInfo, registry
from autoopt.workers import WorkerPool, gated_call

PREPARATIONS: Final = ("simplify", "symbolic_shape_inference", "opset_conversion", "inline_functions")
"""Passes that others may need first, the most likely ones first."""
LARGEST_MODEL: Final = 256 << 20
"""Bytes of a model up to which they are tried: each takes about as long as the pass itself."""


def reason_of_no_change(pool: WorkerPool, info: PassInfo, request: PassRequest, seconds: float) -> str:
    """Say why the last step of a request, which is that of this pass, left its model as it is.

    `seconds` is the time limit of each step. The new models of this function lie beside the output of the request.
    """
    path = request.model.path
    inspection = Inspection.from_json(ask_worker(pool, INSPECT, {"path": path}, path, seconds))
    missing = check_model(info, Facts(request.accelerator, inspection))
    if missing is not None:
        return missing.text
    if inspection.bytes > LARGEST_MODEL:
        return "nothing to do on this model as it is"
    tried: list[str] = []
    for name in _preparations([info.name, *(step.pass_name for step in request.steps)], info.conflicts):
        changes = _changes_after(pool, name, request, seconds)
        if changes:
            return f"nothing to do on this model as it is; after {name} it changes the model: apply that first"
        if changes is not None:
            tried.append(name)
    if not tried:
        return "nothing to do on this model as it is"
    return f"nothing to do on this model, also after {', '.join(tried)}"


def _preparations(present: Collection[str], conflicts: Collection[str]) -> list[str]:
    return [name for name in PREPARATIONS if name not in present and name not in conflicts]


def _changes_after(pool: WorkerPool, name: str, request: PassRequest, seconds: float) -> bool | None:
    """Tell if the last step changes the model after one more pass before all steps; None if that cannot be tried."""
    info = registry().info(name, request.accelerator)
    if not info.available:
        return None
    steps = (PassStep(info.name, full_config(info, {}), info.name), *request.steps)
    longer = replace(request, steps=steps, output=request.output.with_name(f"after {name}"))
    reply = gated_call(pool, RUN_PASSES, to_json(longer), seconds * len(steps))
    if reply.value is None:
        return None
    replies = from_json(PassReply, reply.value).steps
    if len(replies) < len(steps):
        return None
    return replies[-1].outcome is Outcome.OK
