"""The folder that a run writes its best model to: a package is replaced by the next one as a whole.

`model.onnx` is the last file to appear and the first to go. While the other files change there is no model, so nobody
reads the model of one package with the weights or the session of another, even if this process is killed meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Any, Final

from autoopt.errors import InputError, one_line, refuse_url
from autoopt.json_codec import JsonTypeError, from_json, read_object
from autoopt.metrics import MEDIAN_LATENCY, Estimate
from autoopt.model.files import MODEL, ORT_MODEL, files_in
from autoopt.model.io import EXTERNAL_NAME
from autoopt.model.model_set import MODEL_SET
from autoopt.model.session_file import PIPELINE, SESSION_FILE
from autoopt.option_names import option
from autoopt.report.words.formatting import short
from autoopt.store import faults
from autoopt.working_folder import working_folder

RECIPE_FILE: Final = "recipe.json"
MODEL_FILES: Final = "model_files"
MODEL_DIGEST: Final = "model_sha256"
"""The field of the recipe that lists the files of the model: external data may have names that the user gave."""
SET_RECORD: Final = "result.json"
"""The file of a model set that says which run made it, and with what gain."""
INPUTS: Final = "inputs.npz"
ENTRIES: Final = (MODEL_SET, MODEL, ORT_MODEL)
"""The files that a reader opens."""
REPLACED: Final = (*ENTRIES, EXTERNAL_NAME, INPUTS)
"""Files that not every package has; those of an earlier one are removed, the entries first."""
RECORDS: Final = (RECIPE_FILE, SET_RECORD)
"""Files by which a folder is known to hold a package of autoopt; a new package begins with them."""
PACKAGE_FILES: Final = (*REPLACED, *RECORDS, SESSION_FILE, PIPELINE, "README.md", "requirements.txt", "run.py")
"""The files that a package may have at its top."""


@contextmanager
def new_package(out: Path) -> Iterator[Path]:
    """Yield an empty folder, whose files replace those of the package in `out` if the block ends without an exception.

    Other files in `out` stay.
    """
    out.mkdir(parents=True, exist_ok=True)
    with working_folder(out) as scratch:
        new = scratch / "package"
        new.mkdir()
        yield new
        files = files_in(new)
        for name in files:
            if PurePosixPath(name).name in ENTRIES:
                remove_package((out / name).parent)
        for name in sorted(files, key=_place_in_order):
            faults.reached("within package")
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            files[name].replace(out / name)


def _place_in_order(name: str) -> tuple[bool, bool, bool]:
    """The key by which the files of a package are sorted: records first, what readers open last."""
    # Within a model set, the parts come before the file that describes the whole.
    return PurePosixPath(name).name in ENTRIES, name == MODEL_SET, name not in RECORDS


def foreign_files(out: Path) -> list[str]:
    """The user's own files in a folder that a package would replace; none if it holds a package of autoopt."""
    if any("run" in read_object(out / name) for name in RECORDS):
        return []
    return [name for name in PACKAGE_FILES if (out / name).exists()]


def shown_folder(out: Path) -> Path:
    """The folder as people read it: relative if it lies below the current one."""
    if out.is_relative_to(Path.cwd()):
        return out.relative_to(Path.cwd())
    return out


def remove_package(out: Path) -> None:
    """Remove the model of a package, and what only that model has."""
    for name in (*REPLACED, *_model_files(out)):
        (out / name).unlink(missing_ok=True)


def _model_files(out: Path) -> list[str]:
    """The files of the model in a folder, as its recipe names them, such as external data under names of the user."""
    names = read_object(out / RECIPE_FILE).get(MODEL_FILES)
    if not isinstance(names, list):
        return []
    # Anyone may have written the recipe: only regular files below `out` count.
    files = {name: out / name for name in names if isinstance(name, str)}
    below = out.resolve()
    return [name for name, file in files.items() if file.is_file() and file.resolve().is_relative_to(below)]


def recipe_in(out: Path) -> dict[str, Any]:
    """The recipe of the package in a folder, or the record of a model set; empty if there is none that can be read."""
    if (out / MODEL_SET).is_file():
        return read_object(out / SET_RECORD)
    return read_object(out / RECIPE_FILE)


def replaced_note(out: Path, run: str) -> str:
    """Say which better model the source model of a run replaces in `out`; empty if it is of no other run."""
    recipe = recipe_in(out)
    other = str(recipe.get("run", ""))
    if not other or other == run or recipe.get("chain") == "source":
        return ""
    description = one_line(str(recipe.get("chain")))
    with suppress(JsonTypeError):  # anyone may have written the file
        ratio = from_json(dict[str, Estimate], recipe.get("ratios") or {}).get(MEDIAN_LATENCY)
        if ratio is not None and ratio.value > 0 and ratio.decided:
            description += f", {1 / ratio.value:.2f}x faster"
    other = short(one_line(other))
    return (
        f"your model replaces that of run {other} in {out}/ ({description}); "
        f"'autoopt export {other} -o DIR' writes it again"
    )


def check_out(out: Path) -> None:
    """Check before a long run that its package can be written to a folder; leave nothing behind.

    Raises:
        InputError: see `check_writable`; or a package would replace files of the user.
    """
    check_writable(out)
    foreign = foreign_files(out)
    if foreign:
        message = f"has files of yours that the results would replace ({', '.join(foreign)})"
        raise InputError(message, where=str(out), remedy="name another folder")


def check_writable(out: Path) -> None:
    """Check that a folder can be made and written to; leave nothing behind.

    Raises:
        InputError: the path is a URL, a file or below one, leads over a link to nothing, or is not writable.
    """
    refuse_url(out, "name a folder; 'autoopt promote MODEL --to URL' publishes a model")
    paths = (out.absolute(), *out.absolute().parents)
    try:
        existing = next(path for path in paths if path.is_symlink() or path.exists())
    except OSError as error:  # such as a name that is too long
        raise InputError(f"cannot be a folder for results: {error.strerror}", where=str(out)) from None
    if not existing.exists():
        raise InputError("is a link to nothing; the results cannot be saved there", where=str(existing))
    if not existing.is_dir():
        raise InputError("is a file, not a folder for results", where=str(existing))
    try:
        with working_folder(existing):  # permissions do not tell of read-only and special file systems
            pass
    except OSError as error:
        message = f"is not writable ({error.strerror}); the results cannot be saved there"
        raise InputError(
            message, where=str(existing), remedy=f"{option('out', of='DIR')} names another folder"
        ) from None
