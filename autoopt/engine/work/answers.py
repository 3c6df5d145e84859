"""Answers of commands by their options: the same command again plans nothing and imports no database library.

<home>/readings/<digest of the command>/answer.json

An answer holds while everything that it follows from is unchanged: the files that the command reads and writes, the
installed distributions, the CPU, and the result in the store. Otherwise the command is executed, which always answers.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from autoopt.data.digest import digest_path
from autoopt.engine.work.environment import cpu
from autoopt.errors import InputError
from autoopt.json_codec import JsonTypeError, from_json, read_object, to_json
from autoopt.model.candidate import digest_json
from autoopt.store.finished_search import finished_search
from autoopt.working_folder import READINGS, replacing

ANSWER_FILE: Final = "answer.json"
FORMAT: Final = 1
"""Raised whenever the meaning of an answer changes."""
MAX_DAG_BYTES: Final = 1 << 20
"""No DAG is larger; models are digested only when they are read."""
UNNOTICED_BYTES: Final = 16 << 20
"""Bytes that are read without regard to measurements of other runs."""
PATIENCE: Final = 3.0
"""Seconds to wait for such measurements before reading more."""


@dataclass(frozen=True)
class CommandLine:
    """A command line that is being executed."""

    digest: str
    """Of its options, folder and variables."""
    dag: str
    """Digest of its DAG before that was read; empty for a file that is too large to be one."""

    @staticmethod
    def of(dag: str, options: Sequence[object]) -> CommandLine:
        """The command for a DAG, or for a model in its place, with these options."""
        variables = {name: value for name, value in os.environ.items() if name.startswith("AUTOOPT_")}
        digest = digest_json([FORMAT, dag, repr(options), os.getcwd(), variables])
        is_model = dag.endswith((".onnx", ".ort"))  # its external data may have any size
        may_be_dag = not is_model and os.path.isfile(dag) and os.path.getsize(dag) <= MAX_DAG_BYTES
        return CommandLine(digest, content_digest(dag) if may_be_dag else "")


@dataclass(frozen=True)
class StoredAnswer:
    """The result of a command, and what it follows from."""

    identity: str
    """Key of the search in the store."""
    stored: str
    """Digest of the result of that search in the store."""
    surroundings: str
    contents: Mapping[str, str]
    """Digest of each file and folder that the command reads or writes, by absolute path; empty if it does not exist."""
    result: Mapping[str, object]
    """The document that the command prints."""


def look_up_answer(home: Path, command: CommandLine) -> Mapping[str, object] | None:
    """The result of the same command; None if there is none that still holds."""
    folder = _folder(home, command)
    try:
        answer = from_json(StoredAnswer, read_object(folder / ANSWER_FILE))
    except JsonTypeError:
        return None
    stored = finished_search(home, answer.identity)
    if stored is None or digest_json(stored) != answer.stored or answer.surroundings != surroundings():
        return None
    with _beside_measurements(answer.contents):
        if any(content_digest(path) != digest for path, digest in answer.contents.items()):
            return None
    with suppress(OSError):
        os.utime(folder)  # `store gc` removes what has not been used for a week
    return answer.result


def store_answer(home: Path, command: CommandLine, answer: StoredAnswer) -> None:
    """Store the answer of a command. A disk that is full or read-only only costs the look-up."""
    folder = _folder(home, command)
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        with replacing(folder / ANSWER_FILE) as file:
            file.write_text(json.dumps(to_json(answer)), encoding="utf-8")


def _folder(home: Path, command: CommandLine) -> Path:
    return home / READINGS / command.digest


def _beside_measurements(paths: Iterable[str]) -> AbstractContextManager[None]:
    """A context for reading these files and folders: much of it waits a moment for what is measured on the machine."""
    existing = list(filter(os.path.exists, paths))
    has_folders = any(map(os.path.isdir, existing))
    if not has_folders and sum(map(os.path.getsize, existing)) <= UNNOTICED_BYTES:
        return nullcontext()
    # Imported only now: it takes as long as the rest of a small command.
    from autoopt.workers.gate import Gate, report_waiting

    return Gate(waiting=report_waiting).brief_work(PATIENCE)


def content_digest(path: str) -> str:
    """The digest of a file or folder; empty if it cannot be read."""
    try:
        return digest_path(Path(path))
    except InputError:
        return ""


def surroundings() -> str:
    """Digest of what results depend on besides files: CPU, interpreter and the versions of all installed distributions.

    The names of their metadata folders hold the versions.
    """
    distributions: list[str] = []
    for folder in sys.path:
        with suppress(OSError):
            names = os.listdir(folder or ".")
            distributions += sorted(name for name in names if name.endswith((".dist-info", ".egg-info")))
    return digest_json([cpu()["model"], cpu()["cores"], sys.version, distributions])
