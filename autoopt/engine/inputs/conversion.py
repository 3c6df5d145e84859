"""Source models that are no ONNX models yet: converted once for each content, in a worker, and recorded as a pass run.

The source is an exported program (`net.pt2`), a folder of MLflow with one in it, or a function of a script (`net.py`
or `net.py:function`). What it is converted to is the source model of the run.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from autoopt.engine.work.calls import first_call
from autoopt.engine.work.context import Limits
from autoopt.engine.work.environment import environment
from autoopt.engine.work.keys import pass_run_key
from autoopt.errors import InputError
from autoopt.model.candidate import Candidate
from autoopt.model.files import digest_file, split_source
from autoopt.outcome import Outcome
from autoopt.passes.base.config import full_config
from autoopt.registry import PassInfo, registry
from autoopt.store import PassRunRecord, Store
from autoopt.target import Accelerator
from autoopt.workers import WorkerPool

CONVERTER: Final = "torch_export"


def convert(store: Store, pool: WorkerPool, name: str, file: Path, scratch: Path) -> str:
    """The digest of the ONNX model that the source gives, converted now or earlier.

    Args:
        name: the source as the user named it.
        file: where it is on this machine: an exported program or a script.

    Raises:
        InputError: torch is not installed, or the conversion did not work; one line.
    """
    function = split_source(name)[1]
    info = registry().info(CONVERTER)
    if info.missing:
        raise InputError(f"a PyTorch model has to be converted first, and {info.missing}", where=name)
    folder = Path(tempfile.mkdtemp(dir=scratch))
    try:
        kept = Path(shutil.copyfile(file, folder / file.name))
        script = file.suffix == ".py"
        if script:
            info = replace(info, source_digest=digest_file(kept))
        config = full_config(info, {"model": function or "model"} if script else {})
        source = Candidate(store.artifacts.put(folder))
        key = pass_run_key(info, config, source, accelerator=Accelerator())
        known = store.results.pass_run(key)
        if known is not None and known.outcome.good and known.output is not None:
            return known.output.artifact
        step = _run(store, pool, name, file if script else kept, source, config, folder / "out")
        made = Candidate(store.artifacts.put(Path(step["path"]), step["digest"]))
        store.claims.acquire("pass_run", key, redo=True)
        store.results.finish_pass_run(_record(key, info, config, source, made, step))
        return made.artifact
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(
    store: Store, pool: WorkerPool, name: str, file: Path, source: Candidate, config: dict[str, Any], output: Path
) -> dict[str, Any]:
    payload = {
        "model": {"path": str(file.absolute()), "session_options": {}},
        "steps": [{"node": CONVERTER, "pass": CONVERTER, "params": config}],
        "output": str(output),
        "user_script": str(file.absolute()) if file.suffix == ".py" else None,
        "check": True,
    }
    limit = Limits().pass_seconds
    called = first_call(store, pool, "autoopt.passes.runner:run", payload, subject=lambda: source.artifact, limit=limit)
    step: dict[str, Any] = {} if called.value is None else called.value["steps"][0]
    if step.get("outcome") != str(Outcome.OK):
        message = step.get("message") or called.message or str(called.outcome)
        raise InputError(f"cannot be converted to ONNX: {message}", where=name)
    return step


def _record(
    key: str, info: PassInfo, config: dict[str, Any], source: Candidate, made: Candidate, step: dict[str, Any]
) -> PassRunRecord:
    return PassRunRecord(
        key=key,
        pass_name=info.name,
        params=config,
        input=source,
        node=CONVERTER,
        outcome=Outcome.OK,
        output=made,
        seconds=float(step.get("seconds", 0.0)),
        environment=environment(),
        reports=dict(step.get("reports", {})),
    )
