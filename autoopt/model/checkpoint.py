"""Models of Hugging Face's transformers as a folder of config.json and safetensors, exported to ONNX by Optimum.

Decoders are exported with their cache, and all sizes that vary are left open. Runs in a worker, like everything that
opens a user's files. Code that a folder brings is never run, and pickled weights are not read.
"""

from __future__ import annotations

from collections.abc import Collection
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from autoopt.errors import InputError, one_line
from autoopt.json_codec import JsonObject, JsonValue, read_object

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
