"""Write the files that a run leaves in `--out`: the model, its session options and the recipe that makes it again."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from autoopt.engine.work.environment import environment
from autoopt.errors import InputError
from autoopt.json_codec import to_json
from autoopt.results import ModelResult
from autoopt.store import Store

RECIPE = 1
"""Version of the recipe's format."""


def export(
    store: Store,
    model: ModelResult,
    out: Path,
    *,
    source: str,
    steps: Sequence[Mapping[str, Any]],
    replay_environment: Mapping[str, object],
) -> Path:
    """Write `model.onnx` (and external data), `session.json` and `recipe.json` into `out`; return the model's path.

    Existing files with these names are replaced, each atomically.

    Args:
        store: The store with the model's files.
        model: The model to export.
        out: The folder.
        source: Digest of the source model.
        steps: The lineage of the model, from the source on.
        replay_environment: Calibration data, user script and accelerator that the passes ran with.

    Raises:
        InputError: the folder cannot be written.
    """
    recipe = {
        "recipe": RECIPE,
        "source": source,
        "result": model.artifact,
        "chain": model.chain,
        "steps": [{"pass": step["pass"], "params": step["params"], "output": step["output"]} for step in steps],
        **replay_environment,
        "session_options": dict(model.session_options),
        "metrics": dict(model.metrics),
        "ratios": to_json(model.ratios),
        "environment": dict(environment()),
    }
    file = store.artifacts.path(model.artifact)
    with _writing(out):
        out.mkdir(parents=True, exist_ok=True)
        # External data comes first, so that a graph never refers to data that is not there yet.
        for part in sorted(file.parent.iterdir(), key=lambda part: part.suffix == ".onnx"):
            with _replacing(out / part.name) as new:
                shutil.copyfile(part, new)
        _write_json(out / "session.json", model.session_options)
        _write_json(out / "recipe.json", recipe)
    return out / file.name


def check_out(out: Path) -> None:
    """Check before a long run that its output folder can be made; make nothing.

    Raises:
        InputError: the path is a file or below one, or is not writable.
    """
    existing = next(path for path in (out.absolute(), *out.absolute().parents) if path.exists())
    if not existing.is_dir():
        raise InputError("is a file, not a folder for results", where=str(existing))
    if not os.access(existing, os.W_OK | os.X_OK):
        raise InputError("is not writable; the results cannot be saved there", where=str(existing))


@contextmanager
def _writing(out: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(f"cannot write the results ({error.strerror or error})", where=str(out)) from error


def _write_json(target: Path, value: Mapping[str, object]) -> None:
    with _replacing(target) as new:
        new.write_text(json.dumps(value, indent=2) + "\n")


@contextmanager
def _replacing(target: Path) -> Iterator[Path]:
    """Yield a new file that takes the place of `target` at the end."""
    handle, name = tempfile.mkstemp(dir=target.parent)
    os.close(handle)
    yield Path(name)
    os.chmod(name, 0o644)  # mkstemp makes it private
    os.replace(name, target)
