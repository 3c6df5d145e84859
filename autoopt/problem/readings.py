"""Results of reading the user's files, stored by content: reading the same again needs no worker.

<home>/readings/<key>/reply.json   the reply of the worker, with the files that it wrote beside it
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path

import autoopt.data
import autoopt.measure
import autoopt.model
from autoopt.data import DataConfig
from autoopt.json_codec import JsonValue
from autoopt.model.candidate import digest_json
from autoopt.model.files import digest_file
from autoopt.working_folder import READINGS, STORE_WORK, working_folder

REPLY = "reply.json"


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
