"""Results of reading the user's files, stored by content: whoever reads the same again needs no worker.

<home>/readings/<key>/reply.json       the reply of the worker, with the files that it wrote beside it
<home>/readings/<digest of words>/     empty: a command that named its files so has been answered
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from autoopt.data import DataConfig
from autoopt.json_codec import JsonValue
from autoopt.model.candidate import digest_json
from autoopt.working_folder import READINGS, STORE_WORK, working_folder

REPLY = "reply.json"


def read_once(
    home: Path, content: object, read: Callable[[Path], Mapping[str, JsonValue]]
) -> tuple[Path, dict[str, Any]]:
    """Look up what was read, or read it.

    Args:
        home: Folder of the store.
        content: All that the reply depends on, as JSON.
        read: Reads and returns the reply; may write files to the folder it is given.

    Returns:
        The folder with the files, and the reply.
    """
    folder = home / READINGS / digest_json(content)
    if not (folder / REPLY).is_file():
        with working_folder(home / STORE_WORK) as scratch:
            part = scratch / "reading"
            part.mkdir()
            reply = read(part)
            (part / REPLY).write_text(json.dumps(reply), encoding="utf-8")
            folder.parent.mkdir(parents=True, exist_ok=True)
            if not folder.exists():  # another process may have read the same meanwhile
                part.rename(folder)
    _touch(folder)
    value: dict[str, Any] = json.loads((folder / REPLY).read_text(encoding="utf-8"))
    return folder, value


def is_read_from_files(config: Mapping[str, object] | None) -> bool:
    """True if data depend only on files whose content is known, and on the model; scripts may do anything."""
    if config is None:
        return True
    parsed = DataConfig.parse(config)
    if parsed.user_script:
        return False
    is_synthetic = parsed.load_dataset is not None and parsed.load_dataset.type == "synthetic"
    return is_synthetic or bool(parsed.paths())


def note_answered(home: Path, words: Sequence[str]) -> None:
    """Note that the command with these words has been answered, so that `home` holds what its files say."""
    folder = home / READINGS / digest_json(words)
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        _touch(folder)


def was_answered(home: Path, words: Sequence[str]) -> bool:
    """True if the command with these words has been answered, and the files among the words are no newer."""
    folder = home / READINGS / digest_json(words)
    if not folder.is_dir():
        return False
    files = [Path(word) for word in words if os.path.isfile(word)]
    return all(file.stat().st_mtime <= folder.stat().st_mtime for file in files)


def _touch(folder: Path) -> None:
    os.utime(folder)  # `store gc` removes what has not been used for a week
