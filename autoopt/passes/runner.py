"""Worker functions: `run` takes a model through passes, `describe` lists the available passes.

One load of the model serves all steps, and the next call on the same model. Each step that changes the model writes its
own output, so that the lineage has every intermediate model.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from autoopt.json_codec import JsonObject, JsonValue, from_json, to_json
from autoopt.model.candidate import digest_json
from autoopt.passes.execution import user_code
from autoopt.passes.execution.current_model import opened
from autoopt.passes.execution.executor import PassExecutor
from autoopt.passes.execution.heap import reused_memory
from autoopt.passes.request import PassReply, PassRequest, StepReply
from autoopt.registry import DescribeReply, DescribeRequest, registry


def run(payload: JsonObject) -> dict[str, JsonValue]:
    """Run passes: JSON of a `PassRequest` to JSON of a `PassReply`.

    Raises:
        InputError: the user script cannot be read or fails, or a pass is unknown.
    """
    return to_json(execute(from_json(PassRequest, payload)))


def execute(request: PassRequest) -> PassReply:
    """Take a model through the steps, up to the first whose outcome is not good.

    Raises:
        InputError: as in `run`.
    """
    script = user_code.load(request.user_script)
    request.output.mkdir(parents=True, exist_ok=True)
    replies: list[StepReply] = []
    surroundings = digest_json([request.data, request.data_root, script.digest])
    with (
        opened(request.model.path, surroundings) as current,
        reused_memory(current.is_small),
        tempfile.TemporaryDirectory(prefix="autoopt-") as work,
    ):
        executor = PassExecutor(
            current=current,
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
            request.record_step(index)
            reply = executor.execute(step, request.output / str(index))
            replies.append(reply)
            if not reply.outcome.good:
                break
    return PassReply(tuple(replies))


def describe(payload: JsonObject) -> dict[str, JsonValue]:
    """Describe all passes: JSON of a `DescribeRequest` to JSON of a `DescribeReply`.

    Raises:
        InputError: the user script cannot be read or fails.
    """
    request = from_json(DescribeRequest, payload)
    script = user_code.load(request.user_script)
    infos = tuple(script.info(name, request.accelerator) for name in registry().names())
    return DescribeReply(infos, user_code.metrics_of(script), script.digest, tuple(registry().failures)).to_json()
