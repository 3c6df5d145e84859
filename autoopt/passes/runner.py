"""Worker functions: `run` takes a model through passes, `describe` lists the available passes.

One load of the model serves all steps, and the next call on the same model. Each step that changes the model writes its
own output, so that the lineage has every intermediate model.
"""

from __future__ import annotations

import ctypes
import gc
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from autoopt.distributions import library_version
from autoopt.json_codec import JsonObject, JsonValue, from_json, to_json
from autoopt.memory import data_size, return_unused
from autoopt.model.candidate import digest_json
from autoopt.passes.execution import user_code
from autoopt.passes.execution.current_model import CurrentModel, opened
from autoopt.passes.execution.executor import PassExecutor
from autoopt.passes.request import PassReply, PassRequest, StepReply
from autoopt.registry import DescribeReply, DescribeRequest, registry

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MMAP_MAX = -1, -3, -4
"""Parameters of glibc's mallopt."""
_DEFAULT_MMAP_MAX: Final = 65536
"""glibc's `DEFAULT_MMAP_MAX`: mallopt cannot tell the present value, so this one is set again."""
_ADAPTED_THRESHOLD: Final = 32 << 20
"""The limit that glibc's own mmap threshold grows to in a process that frees large blocks."""
_NEVER: Final = (1 << 31) - 1
"""The largest threshold: mallopt takes an int."""
_WORTH_COLLECTING: Final = 32 << 20
"""Growth of the data in bytes from which a garbage collection, of 1 to 500 ms, pays."""


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
    surroundings = digest_json([request.data, request.data_root, script.digest, dict(request.roles)])
    # Left last, when all that the call needed, the executor too, is free.
    with ExitStack() as memory, opened(Path(request.model.path), surroundings) as current:
        memory.enter_context(reused_memory(current.is_small))
        replies = _execute_steps(request, current, script)
    return PassReply(tuple(replies))


def _execute_steps(request: PassRequest, current: CurrentModel, script: user_code.UserCode) -> list[StepReply]:
    replies: list[StepReply] = []
    with tempfile.TemporaryDirectory(prefix="autoopt-") as work:
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
            roles=request.roles,
            split_folder=request.split_folder,
        )
        for index, step in enumerate(request.steps):
            request.record_step(index)
            reply = executor.execute(step, request.output / str(index))
            replies.append(reply)
            if not reply.outcome.good:
                break
    return replies


def describe(payload: JsonObject) -> dict[str, JsonValue]:
    """Describe all passes: JSON of a `DescribeRequest` to JSON of a `DescribeReply`.

    Raises:
        InputError: the user script cannot be read or fails.
    """
    request = from_json(DescribeRequest, payload)
    script = user_code.load(request.user_script)
    infos = tuple(script.info(name, request.accelerator) for name in registry().names())
    libraries = {library for info in infos for library in info.libraries}
    reply = DescribeReply(
        passes=infos,
        metrics=user_code.metrics_of(script),
        source_digest=script.digest,
        imports=script.imports,
        failures=tuple(registry().failures),
        versions={library: version for library in sorted(libraries) if (version := library_version(library))},
    )
    return reply.to_json()


@contextmanager
def reused_memory(enabled: bool = True) -> Iterator[None]:
    """Let large blocks that are freed during the block be used again, and return them to the system at the end.

    By default, glibc maps each block of a model's size again and the kernel fills it with zeros: on a model of 90 MB a
    third of a pass's CPU time. Blocks of growing size leave gaps, so the process may need half as much memory again:
    disable it for large models. Measurements run with the usual settings.
    """
    libc = ctypes.CDLL(None)
    before = data_size()
    if not enabled or sys.platform != "linux" or not hasattr(libc, "mallopt"):
        try:
            yield
        finally:
            if data_size() - before >= _WORTH_COLLECTING:
                return_unused()
        return
    libc.mallopt(_MMAP_MAX, 0)
    libc.mallopt(_TRIM_THRESHOLD, _NEVER)
    try:
        yield
    finally:
        libc.mallopt(_MMAP_MAX, _DEFAULT_MMAP_MAX)
        libc.mallopt(_MMAP_THRESHOLD, _ADAPTED_THRESHOLD)
        libc.mallopt(_TRIM_THRESHOLD, 2 * _ADAPTED_THRESHOLD)
        if data_size() - before >= _WORTH_COLLECTING:
            gc.collect()  # libraries leave cycles that hold whole models
        libc.malloc_trim(0)
