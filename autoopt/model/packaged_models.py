"""Models inside something else: archives (zip, tar and compressed tar), MLflow's folders, checkpoints of transformers.

`unpack` and `export` run in a worker, like everything that opens a user's files. Nothing is unpickled, and code that a
folder brings is never run. Checkpoints are folders of config.json and safetensors, which Optimum exports to ONNX:
decoders with their cache, and all sizes that vary left open. MLflow itself is not needed.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import IO, Final

from autoopt.errors import InputError, one_line
from autoopt.json_codec import JsonObject, JsonValue, read_object
from autoopt.model.fetch import innermost, is_url
from autoopt.outcome import Outcome

SUFFIXES: Final = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
MODELS: Final = (".onnx", ".ort")
RATIO, FLOOR = 200, 1 << 30
"""An archive may unpack to this multiple of its own size, and to `FLOOR` bytes in any case."""
BLOCK = 1 << 20
"""Bytes that are unpacked before the limit is checked again."""


def is_archive(path: str) -> bool:
    """True if a path or URL has the suffix of an archive."""
    name = innermost(path).partition("?")[0] if is_url(path) else path
    return name.lower().endswith(SUFFIXES)


def unpack(payload: JsonObject) -> dict[str, JsonValue]:
    """Unpack the regular files of the archive `source` into the folder `dest`; links and devices are skipped.

    Returns:
        `models`: paths of the models in `dest`, relative to it, sorted.

    Raises:
        InputError: not an archive, a name that leads out of it, or more bytes than its size allows.
    """
    # Imported late, because every run asks `is_archive`.
    import tarfile
    import zipfile

    source, dest = Path(str(payload["source"])), Path(str(payload["dest"]))
    remaining = max(FLOOR, RATIO * source.stat().st_size)
    models = []
    try:
        for name, body in _members(source):
            path = PurePosixPath(name.replace("\\", "/"))
            if path.is_absolute() or ".." in path.parts or not path.name or "\0" in name:
                raise InputError("holds a name that leads out of it", where=str(source))
            target = dest.joinpath(*path.parts)
            target.parent.mkdir(parents=True, exist_ok=True)
            remaining -= _copy(body, target, remaining, source)
            if target.suffix in MODELS:
                models.append(str(target.relative_to(dest)))
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, OSError) as error:
        shutil.rmtree(dest, ignore_errors=True)
        raise InputError(f"cannot be unpacked ({error})", where=str(source)) from error
    return {"models": sorted(models)}


def _copy(body: IO[bytes], target: Path, limit: int, source: Path) -> int:
    """Copy a file of at most `limit` bytes; return its size. The sizes that an archive states may be wrong."""
    size = 0
    with target.open("wb") as file:
        for block in iter(lambda: body.read(BLOCK), b""):
            size += len(block)
            if size > limit:
                raise InputError("unpacks to far more than its own size", where=str(source))
            file.write(block)
    return size


def _members(source: Path) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield names and contents of the regular files in an archive."""
    if source.name.lower().endswith(".zip"):
        import zipfile

        with zipfile.ZipFile(source) as archive:
            for item in archive.infolist():
                if not item.is_dir():
                    with archive.open(item) as body:
                        yield item.filename, body
        return
    import tarfile

    with tarfile.open(source) as tar:
        for member in tar:
            content = tar.extractfile(member) if member.isreg() else None
            if content is not None:
                yield member.name, content


MLMODEL: Final = "MLmodel"
LARGEST: Final = 1 << 20
"""Bytes of an MLmodel file; real ones have a few thousand."""


class NotPackaged(InputError):
    """The folder holds no model that can be taken from it safely."""

    outcome = Outcome.REFUSED


def is_packaged(path: Path) -> bool:
    """True if `path` is a folder in MLflow's format."""
    return (path / MLMODEL).is_file()


def packaged_model(folder: Path) -> Path:
    """Find the model's file: the onnx flavour's, else the exported program (`.pt2`) of the pytorch flavour.

    Raises:
        NotPackaged: there is neither, or the model is pickled; the message says how to save it instead.
    """
    flavors = _flavors(folder)
    if "onnx" in flavors:
        return _inside(folder, str(flavors["onnx"].get("data", "model.onnx")))
    if "pytorch" not in flavors:
        names = ", ".join(sorted(flavors)) or "none"
        reason = f"an MLflow model of another flavour ({names})"
        raise NotPackaged(reason, where=str(folder), remedy="save it with mlflow.onnx.save_model")
    data = str(flavors["pytorch"].get("model_data", "data"))
    if not (folder / data / "model.pt2").is_file():
        remedy = "save it again: mlflow.pytorch.save_model(..., serialization_format='pt2'), or mlflow.onnx.save_model"
        raise NotPackaged("its PyTorch model is pickled, which is unsafe to load", where=str(folder), remedy=remedy)
    return _inside(folder, f"{data}/model.pt2")


def _flavors(folder: Path) -> dict[str, dict[str, object]]:
    from ruamel.yaml import YAML

    file = folder / MLMODEL
    if file.stat().st_size > LARGEST:
        raise NotPackaged(f"more than {LARGEST} bytes", where=str(file))
    try:
        flavors = YAML(typ="safe", pure=True).load(file.read_text(encoding="utf-8"))["flavors"]
        return {str(name): dict(flavor or {}) for name, flavor in flavors.items()}
    except Exception as error:  # a parser may raise anything on foreign text
        raise NotPackaged(one_line(f"not an MLmodel file of MLflow ({error})"), where=str(file)) from error


def _inside(folder: Path, name: str) -> Path:
    """Return the file `name` of the folder; links out of it are not followed."""
    file = folder / name
    if not file.is_file() or not file.resolve().is_relative_to(folder.resolve()):
        raise NotPackaged(f"its MLmodel file names {name!r}, which is not in it", where=str(folder))
    return file


CONFIG: Final = "config.json"
WEIGHTS: Final = ("model.safetensors", "model.safetensors.index.json")
"""Weights that transformers prefers to pickled ones."""
INSTALL: Final = "pip install 'autoopt[export]'"
TASKS: Final = (
    ("ForCausalLM", "text-generation"),
    ("LMHeadModel", "text-generation"),
    ("ForSpeechSeq2Seq", "automatic-speech-recognition"),
    ("ForCTC", "automatic-speech-recognition"),
    ("ForConditionalGeneration", "text2text-generation"),
    ("ForSequenceClassification", "text-classification"),
    ("ForTokenClassification", "token-classification"),
    ("ForQuestionAnswering", "question-answering"),
    ("ForMultipleChoice", "multiple-choice"),
    ("ForMaskedLM", "fill-mask"),
    ("ForImageClassification", "image-classification"),
    ("ForSemanticSegmentation", "semantic-segmentation"),
    ("ForObjectDetection", "object-detection"),
    ("ForAudioClassification", "audio-classification"),
)
"""Optimum's name of the task by the end of the architecture's name."""
OTHER_TASKS: Final = ("automatic-speech-recognition", "image-to-text", "zero-shot-image-classification")
"""Tasks of architectures whose names state none, or one that they do not have, such as those of Whisper and CLIP."""
PAST: Final = "-with-past"
"""End of the name of a task that takes and returns a cache."""


def is_checkpoint(folder: Path) -> bool:
    """True for a folder with a configuration and weights of transformers, and no ONNX model."""
    if not folder.is_dir() or not (folder / CONFIG).is_file() or not any((folder / name).is_file() for name in WEIGHTS):
        return False
    return not any(folder.glob("*.onnx")) and not any(folder.glob("onnx/*.onnx"))


def export(payload: JsonObject) -> dict[str, JsonValue]:
    """Export the checkpoint in the folder `source` into the empty folder `dest`: `{"task"}`.

    Raises:
        InputError: Optimum is not installed or does not know the architecture, or the export failed; one line.
    """
    source, dest = Path(str(payload["source"])), Path(str(payload["dest"]))
    architecture, model_type = _kind(source)
    if find_spec("optimum") is None or find_spec("optimum.exporters.onnx") is None:
        what = "a Hugging Face model has to be exported to ONNX first, and optimum-onnx is not installed"
        remedy = f"{INSTALL}, or elsewhere: optimum-cli export onnx --model FOLDER --task TASK OUT"
        raise InputError(what, where=str(source), remedy=remedy)
    from optimum.exporters.onnx import main_export
    from optimum.exporters.tasks import TasksManager

    try:
        tasks = TasksManager.get_supported_tasks_for_model_type(model_type, "onnx", library_name="transformers")
    except KeyError as error:
        raise InputError(f"Optimum exports no models of type {model_type}", where=str(source)) from error
    task = task_of(architecture, tasks)
    try:
        options = {"do_validation": False, "local_files_only": True, "trust_remote_code": False}
        main_export(str(source), dest, task=task, library_name="transformers", **options)
    except Exception as error:  # an export may fail in any way
        raise InputError(one_line(f"cannot be exported as {task} ({error})"), where=str(source)) from error
    return {"task": task}


def task_of(architecture: str, supported: Collection[str]) -> str:
    """Optimum's task for an architecture of transformers, with the cache where the model has one."""
    named = next((task for end, task in TASKS if architecture.endswith(end)), "")
    for task in (f"{named}{PAST}", named, *(f"{other}{PAST}" for other in OTHER_TASKS), *OTHER_TASKS):
        if task in supported:
            return task
    return "feature-extraction"


def _kind(folder: Path) -> tuple[str, str]:
    """The architecture and the model type that the configuration of a checkpoint states."""
    file = folder / CONFIG
    config = read_object(file)
    architectures, model_type = config.get("architectures"), config.get("model_type")
    if not isinstance(architectures, list) or not architectures or not isinstance(model_type, str):
        raise InputError("names no architecture", where=str(file), remedy="is this a model of transformers?")
    if "auto_map" in config:
        remedy = "export it yourself: optimum-cli export onnx --trust-remote-code --model FOLDER --task TASK OUT"
        raise InputError("needs code that the folder brings, which is not run", where=str(file), remedy=remedy)
    return str(architectures[0]), model_type
