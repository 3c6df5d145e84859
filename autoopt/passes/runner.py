"""Worker functions: `run` takes a model through passes, `describe` lists the available passes.

One load of the model serves all steps. Each step that changes the model writes its own output, so that the lineage
has every intermediate model.
"""

from __future__ import annotations

import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import cast

from autoopt.json_codec import JsonObject, JsonValue, from_json
from autoopt.passes.execution import user_code
from autoopt.passes.execution.executor import PassExecutor
from autoopt.passes.request import PassReply, PassRequest, StepReply
from autoopt.registry import info_to_json, registry
from autoopt.target import Accelerator


def run(payload: JsonObject) -> dict[str, JsonValue]:
    """Run passes: JSON of a `PassRequest` to JSON of a `PassReply`.

    Raises:
        InputError: the user script cannot be read or fails, or a pass is unknown.
    """
    return execute(PassRequest.from_json(payload)).to_json()


def execute(request: PassRequest) -> PassReply:
    """Take a model through the steps, up to the first whose outcome is not good.

    Raises:
        InputError: as in `run`.
    """
    script = user_code.load(request.user_script)
    replies: list[StepReply] = []
    with tempfile.TemporaryDirectory(prefix="autoopt-") as work:
        executor = PassExecutor(
            path=request.model.path,
            session_options=request.model.session_options,
            accelerator=request.accelerator,
            script=script,
            data=request.data,
            work=Path(work),
            check=request.check,
            data_root=request.data_root,
            reports=dict(request.reports),
        )
        for index, step in enumerate(request.steps):
            reply = executor.execute(step, request.output / str(index))
            replies.append(reply)
            if not reply.outcome.good:
                break
    return PassReply(tuple(replies))


def describe(payload: JsonObject) -> dict[str, JsonValue]:
    """Describe all passes for an accelerator, including those of the user's script.

    Args:
        payload: `user_script` (path or null) and `accelerator`; both optional.

    Returns:
        `passes`, `metrics` (those that the script defines), `source_digest` (sha256 of the script) and `failures`
        (plug-ins that could not be loaded, with the reason).

    Raises:
        InputError: the user script cannot be read or fails.
    """
    script = user_code.load(cast("str | None", payload.get("user_script")))
    accelerator = from_json(Accelerator, payload.get("accelerator") or {})
    infos = [script.info(name, accelerator) for name in registry().names()]
    return {
        "passes": [info_to_json(info) for info in infos],
        "metrics": user_code.metrics_of(script),
        "source_digest": script.digest,
        "failures": [asdict(failure) for failure in registry().failures],
    }
