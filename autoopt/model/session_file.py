"""The file `session.json` beside an exported model: everything that its session was measured with.

Names and values are onnxruntime's own, so that any program can apply them without autoopt:

- `session_options`: attributes of `onnxruntime.SessionOptions`; enumerations by the name of the member
- `session_config_entries`: arguments of `SessionOptions.add_session_config_entry`
- `inference_session`: keyword arguments of `onnxruntime.InferenceSession`
- `io_binding`: true if inputs and outputs were bound to the device beforehand (`InferenceSession.io_binding`)
- `affinity`: the cores that the process ran on, for `os.sched_setaffinity` before the session is made; empty if it ran
  on all of them. onnxruntime's `session.intra_op_thread_affinities` would leave out the calling thread.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, cast

from autoopt.errors import InputError
from autoopt.json_codec import JsonTypeError, from_json, to_json
from autoopt.model import model_set
from autoopt.model.model_set import MODEL_SET, ModelSet, ModelSetSession
from autoopt.model.session import check_installed, check_no_fallback, session_document
from autoopt.model.session_options import check_entries, check_provider_options
from autoopt.option_names import option

if TYPE_CHECKING:
    import numpy as np

    Array: TypeAlias = np.ndarray[Any, Any]

SESSION_FILE: Final = "session.json"
RUN_SCRIPT: Final = Path(__file__).with_name("run_package.py")
"""The program that exported packages hold as `run.py`."""
SET_SCRIPTS: Final = {
    "run.py": Path(__file__).with_name("run_set.py"),
    "run_package.py": RUN_SCRIPT,
    "model_set.py": Path(model_set.__file__),
}
"""The programs that the exported package of a model set holds, by their names there."""
PIPELINE: Final = "pipeline.py"
"""The user's script in the package of a set that has a pipeline."""
REPLACING_SECONDS: Final = 0.2
"""More than a run takes to replace the files of a package."""
_SESSION_OPTIONS: Final = tuple(cast("dict[str, object]", session_document({})["session_options"]))
"""Attributes of `onnxruntime.SessionOptions` that a file may set; some others would write files."""
_MAX_NUMBER: Final = 1024
"""The largest number of threads, or of anything else, that a file may ask for."""


@dataclass(frozen=True)
class InferenceArguments:
    """Keyword arguments of `onnxruntime.InferenceSession`."""

    providers: tuple[str, ...]
    provider_options: tuple[Mapping[str, str], ...] = ()
    disabled_optimizers: tuple[str, ...] = ()


@dataclass(frozen=True)
class SessionFile:
    """The content of a `session.json` that a session needs."""

    inference_session: InferenceArguments
    session_options: Mapping[str, str | bool | int] = field(default_factory=dict)
    session_config_entries: Mapping[str, str] = field(default_factory=dict)


def load(folder: str | Path) -> OpenModel:
    """Open the model that a run exported to `folder`, with everything in its `session.json`; of a set, all models.

    The affinity is left to the caller, because it would bind the whole process: see `os.sched_setaffinity`.

    Raises:
        InputError: the folder has no model or no `session.json`, that file is wrong, or the installed runtime lacks the
            execution provider.
        Exception: onnxruntime's own, where it refuses the model.
    """
    folder = Path(folder)
    if (folder / MODEL_SET).is_file():
        if ModelSet.read(folder / MODEL_SET).pipeline is not None:
            raise InputError("the models run in a script", where=str(folder), remedy="see run.py in it")
        return ModelSetSession(folder / MODEL_SET, lambda part, _: load(part.parent))
    content = read_session(folder / SESSION_FILE)
    opened = _open(folder, _model_of(folder), content)
    if read_session(folder / SESSION_FILE) != content:  # a run has replaced the package meanwhile
        return load(folder)
    return opened


def _model_of(folder: Path) -> Path:
    """The model of a package; while a run replaces it, there is none for a moment."""
    for pause in (REPLACING_SECONDS, 0.0):
        for name in ("model.onnx", "model.ort"):
            if (folder / name).is_file():
                return folder / name
        time.sleep(pause)
    raise InputError(
        "has no model.onnx", where=str(folder), remedy=f"name the folder that a run wrote with {option('out')}"
    )


def _open(folder: Path, model: Path, content: SessionFile) -> OpenModel:
    import onnxruntime as ort

    from autoopt.model.run_package import session_arguments

    provider = content.inference_session.providers[0]
    check_installed(provider)
    try:
        options, arguments = session_arguments(to_json(content))
    except (AttributeError, TypeError) as error:
        what = f"has an option that onnxruntime {ort.__version__} does not know: {error}"
        raise InputError(what, where=str(folder / SESSION_FILE)) from None
    session: OpenModel = ort.InferenceSession(str(model), options, **arguments)
    check_no_fallback(session, provider)
    return session


def read_session(file: Path) -> SessionFile:
    """Read a `session.json`.

    Raises:
        InputError: the file cannot be read or is wrong.
    """
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        remedy = f"name the folder that a run wrote with {option('out')}"
        raise InputError(f"cannot be read ({error.strerror})", where=str(file), remedy=remedy) from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"is not JSON ({error})", where=f"{file}:{getattr(error, 'lineno', 1)}") from None
    if not isinstance(document, dict):
        raise InputError("is not a JSON object", where=f"{file}:1")
    try:
        content = from_json(SessionFile, document)
        _check(content)
    except JsonTypeError as error:
        raise InputError(f"is not a valid session: {error}", where=f"{file}:1") from None
    except InputError as error:
        raise InputError(f"is not a valid session: {error.what}", where=f"{file}:1", remedy=error.remedy) from None
    return content


def _check(content: SessionFile) -> None:
    """Check what the types do not say."""
    arguments = content.inference_session
    if not arguments.providers:
        raise JsonTypeError("inference_session.providers: expected at least one")
    if len(arguments.provider_options) not in (0, len(arguments.providers)):
        raise JsonTypeError("inference_session.provider_options: expected one for each provider")
    for provider, options in zip(arguments.providers, arguments.provider_options, strict=False):
        check_provider_options(provider, options)
    check_entries(content.session_config_entries)
    for name, value in content.session_options.items():
        if name not in _SESSION_OPTIONS:
            raise JsonTypeError(f"session_options.{name}: unknown; known: {', '.join(_SESSION_OPTIONS)}")
        if isinstance(value, int) and not 0 <= value <= _MAX_NUMBER:
            raise JsonTypeError(f"session_options.{name}: expected a number from 0 to {_MAX_NUMBER}")


class Argument(Protocol):
    """An input or output of a model: onnxruntime's `NodeArg`."""

    @property
    def name(self) -> str: ...

    @property
    def type(self) -> str:
        """Such as `tensor(float)`."""

    @property
    def shape(self) -> Sequence[int | str | None]:
        """Sizes; a text or None where it is free."""


class OpenModel(Protocol):
    """An `onnxruntime.InferenceSession`, or the sessions of several models that belong together.

    These are the methods that both have. That of a single model is onnxruntime's own and has all others, too.
    """

    def run(self, output_names: Sequence[str] | None, input_feed: Mapping[str, Array], /) -> list[Array]:
        """Run the model on arrays by the names of its inputs; returns the named outputs, or all for None."""

    def get_inputs(self) -> Sequence[Argument]:
        """The inputs of the model."""

    def get_outputs(self) -> Sequence[Argument]:
        """The outputs of the model."""

    def get_providers(self) -> list[str]:
        """The execution providers, the first one preferred."""
