"""What a run leaves in `--out`: the model, its session options and the recipe that makes it again."""

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
from autoopt.results import Choice
from autoopt.store import Store


def export(
    store: Store,
    choice: Choice,
    out: Path,
    *,
    source: str,
    steps: Sequence[Mapping[str, Any]],
    replay_environment: Mapping[str, Any],
) -> Path:
    """Write `model.onnx` (and external data), `session.json` and `recipe.json` into `out`; returns the model's path.

    Files already there under these names are replaced, each at once.

    Args:
        source: digest of the source model.
        steps: the lineage of the choice, from the source on.
        replay_environment: calibration data, user script and accelerator that the passes ran with.

    Raises:
        InputError: the folder cannot be written.
    """
    model = store.artifacts.path(choice.artifact)
    with _writing(out):
        out.mkdir(parents=True, exist_ok=True)
        for file in sorted(model.parent.iterdir(), key=lambda f: f.suffix == ".onnx"):  # external data before the graph
            _replace(out / file.name, file)
        _write(out / "session.json", dict(choice.session_options))
        recipe = {
            "recipe": 1,
            "source": source,
            "result": choice.artifact,
            "chain": choice.chain,
            "steps": [{"pass": s["pass"], "params": s["params"], "output": s["output"]} for s in steps],
            **replay_environment,
            "session_options": dict(choice.session_options),
            "metrics": dict(choice.metrics),
            "ratios": {n: {"value": r.value, "low": r.low, "high": r.high} for n, r in choice.ratios.items()},
            "environment": dict(environment()),
        }
        _write(out / "recipe.json", recipe)
    return out / model.name


def check_out(out: Path) -> None:
    """See before a long run whether there can be such a folder; makes nothing.

    Raises:
        InputError: it is a file, below one, or may not be written.
    """
    there = next(path for path in (out.absolute(), *out.absolute().parents) if path.exists())
    if not there.is_dir():
        raise InputError("is a file, not a folder for results", where=str(there))
    if not os.access(there, os.W_OK | os.X_OK):
        raise InputError("may not be written; results were to be left there", where=str(there))


@contextmanager
def _writing(out: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(f"results cannot be left there ({error.strerror or error})", where=str(out)) from error


def _replace(target: Path, source: Path) -> None:
    handle, name = tempfile.mkstemp(dir=target.parent)
    os.close(handle)
    shutil.copyfile(source, name)
    os.chmod(name, 0o644)
    os.replace(name, target)


def _write(target: Path, value: Any) -> None:
    handle, name = tempfile.mkstemp(dir=target.parent)
    with os.fdopen(handle, "w") as file:
        json.dump(value, file, indent=2)
        file.write("\n")
    os.chmod(name, 0o644)
    os.replace(name, target)
