"""`autoopt passes new NAME`: a working pass and its test, written from a template."""

from __future__ import annotations

import keyword
from pathlib import Path
from string import Template
from typing import Final

from autoopt.errors import InputError
from autoopt.registry import registry

TEMPLATES: Final = {"$name.py": "pass_template.txt", "test_$name.py": "pass_test_template.txt"}
"""Name of a new file -> its template, beside this module."""


def new_pass(name: str, folder: Path) -> list[Path]:
    """Write `NAME.py` and `test_NAME.py` into `folder`; returns both files.

    Raises:
        InputError: the name is not a lower-case Python name or belongs to a pass, the folder does not exist, or a file
            of that name does.
    """
    if not name.isidentifier() or not name.islower() or keyword.iskeyword(name):
        raise InputError(f"{name!r} cannot name a pass file", remedy="use lower-case letters, digits and _")
    if name in registry().names():
        raise InputError(f"pass {name!r} already exists", remedy="choose another name")
    if not folder.is_dir():
        raise InputError("no such folder", where=str(folder))
    values = {"name": name, "class_name": "".join(part.capitalize() for part in name.split("_"))}
    files = {folder / Template(file).substitute(values): template for file, template in TEMPLATES.items()}
    taken = next(filter(Path.exists, files), None)
    if taken is not None:
        raise InputError("already exists", where=str(taken), remedy="choose another name or folder")
    for path, template in files.items():
        path.write_text(Template(Path(__file__).with_name(template).read_text()).substitute(values))
    return list(files)
