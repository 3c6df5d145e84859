"""Calls before there is a run: they read what the user named, and have to succeed for a command to continue.

What was read is stored by content, so that reading the same again needs no worker:
<home>/readings/<key>/reply.json   the reply of the worker, with the files that it wrote beside it
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import autoopt.data
import autoopt.measure
import autoopt.model
from autoopt.data import DataConfig
from autoopt.errors import InputError, SystemFailure
from autoopt.json_codec import JsonValue
from autoopt.model.candidate import digest_json
from autoopt.model.files import digest_file
from autoopt.outcome import Cause, Outcome
from autoopt.problem.quarantine import Subject
from autoopt.problem.resources import Resources
from autoopt.workers import CallResult, WorkerPool, reading_call
from autoopt.workers.pool import READING
from autoopt.working_folder import READINGS, STORE_WORK, working_folder

ADMIT: Final = "autoopt.model.worker:admit"
INSPECT: Final = "autoopt.model.worker:inspect"
LOAD: Final = "autoopt.model.worker:load"
NAME_DATA: Final = "autoopt.model.worker:name_data"
LOCATE: Final = "autoopt.model.worker:locate"
DESCRIBE_DATA: Final = "autoopt.data.worker:describe"
"""The worker functions that read models and data; `registry.DESCRIBE` reads scripts."""
READ_SECONDS: Final = 60.0
"""Time limit of a call that reads a model, data or a script."""
SLOWEST_COPY: Final = 20e6
"""Bytes a second that reading and storing a model gets on a busy machine with a slow disk, at least."""
REPLY = "reply.json"


def admission_seconds(source: str) -> float:
    """Return the time limit of `ADMIT` for a model, a folder or a URL: it grows with the files in a local folder."""
    path = Path(source)
    try:
        with os.scandir(path if path.is_dir() else path.parent) as entries:
            size = sum(entry.stat().st_size for entry in entries if entry.is_file())
    except OSError:  # a URL, or no such folder, which the worker reports
        size = 0
    return READ_SECONDS + size / SLOWEST_COPY


def ask_worker(
    pool: WorkerPool, function: str, payload: Mapping[str, object], where: str, seconds: float = READ_SECONDS
) -> dict[str, Any]:
    """Call a worker function `module:function` that reads `where`; raises the errors of `value_of`.

    It does not wait at the gate, so that the user learns of a wrong label at once.
    """
    pool.warm(READING, workers=1)
    return value_of(reading_call(pool, function, dict(payload), seconds), where, seconds)


def value_of(result: CallResult, where: str, seconds: float = READ_SECONDS) -> dict[str, Any]:
    """Return the value of a call that read `where` within a time limit in seconds.

    Raises:
        InputError: The worker refused it, or reading it broke the worker or a limit.
        SystemFailure: Any other end.
    """
    if result.outcome.good and result.value is not None:
        return result.value
    if result.outcome in (Outcome.REFUSED, Outcome.FAILED) or result.error is not None:
        raise result.to_exception(where)
    match result.outcome:
        case Outcome.OUT_OF_MEMORY:
            reason = "reading it exceeds the memory limit"
        case Outcome.TIMEOUT:
            reason = f"reading it takes more than {seconds:.0f} s"
        case Outcome.CRASHED:
            reason = f"reading it crashes the process ({result.message})"
        case _:
            raise SystemFailure(result.message, where=where)
    raise InputError(reason, where=where)


def first_call(
    resources: Resources,
    function: str,
    payload: dict[str, Any],
    *,
    subject: Callable[[], str],
    limit: float,
    call: Callable[[WorkerPool, str, dict[str, Any], float], CallResult] = reading_call,
) -> CallResult:
    """Call a worker function `module:function` with a model before there is a run.

    `subject` computes the digest of what the worker reads, and is called only if any worker has died before. `limit` is
    in seconds. `call` says how: `repeated_call` or `gated_call` for what is more than reading.
    """
    quarantine = resources.quarantine
    if quarantine.any:
        reason = quarantine.reason(Subject.model(subject()))
        if reason is not None:
            return CallResult(Outcome.CRASHED, message=reason, cause=Cause.MACHINE)
    resources.pool.warm(READING, workers=1)
    result = call(resources.pool, function, payload, limit)
    if result.cause is Cause.FULL_DISK:
        raise result.to_exception()
    if result.died:
        quarantine.note(Subject.model(subject()), result)
    return result


def read_once(
    home: Path, content: object, read: Callable[[Path], Mapping[str, JsonValue]]
) -> tuple[Path, dict[str, JsonValue]]:
    """Look up what was read, or read it.

    The reply depends on `content` alone. `read` may write files to the folder it is given.

    Returns:
        The folder with the files, and the reply.
    """
    folder = home / READINGS / digest_json([content, _reading_code()])
    reply = _stored_reply(folder)
    if reply is None:
        with working_folder(home / STORE_WORK) as scratch:
            part = scratch / "reading"
            part.mkdir()
            reply = dict(read(part))
            (part / REPLY).write_text(json.dumps(reply), encoding="utf-8")
            folder.parent.mkdir(parents=True, exist_ok=True)
            if not folder.exists():  # another process may have read the same meanwhile
                part.rename(folder)
    os.utime(folder)  # `store gc` removes what has not been used for a week
    return folder, reply


def _stored_reply(folder: Path) -> dict[str, JsonValue] | None:
    """The reply in a folder. None if there is none; a damaged one, as a power cut can leave it, is removed."""
    try:
        reply: dict[str, JsonValue] = json.loads((folder / REPLY).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        shutil.rmtree(folder, ignore_errors=True)
        return None
    return reply


@lru_cache(maxsize=1)
def _reading_code() -> str:
    """Digest of the code that reads: its next version may reply in another form."""
    folders = (*autoopt.data.__path__, *autoopt.measure.__path__, *autoopt.model.__path__)
    files = [file for folder in folders for file in sorted(Path(folder).rglob("*.py"))]
    return digest_json(list(map(digest_file, files)))


def is_read_from_files(config: Mapping[str, object] | None) -> bool:
    """True if data depend only on files whose content is known, and on the model; scripts may do anything."""
    if config is None:
        return True
    parsed = DataConfig.parse(config)
    if parsed.user_script:
        return False
    is_synthetic = parsed.load_dataset is not None and parsed.load_dataset.type == "synthetic"
    return is_synthetic or bool(parsed.paths())
