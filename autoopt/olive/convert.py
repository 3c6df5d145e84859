"""An Olive configuration as a dag.yaml, with remarks on what has no equivalent."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from autoopt.errors import ConfigError
from autoopt.json_codec import JsonValue
from autoopt.olive.config import OliveConfig, Remarks, section
from autoopt.olive.data import data_settings
from autoopt.olive.goals import goals, search_settings
from autoopt.olive.passes import graph_of
from autoopt.olive.systems import target_and_host
from autoopt.spec.dag import load_dag
from autoopt.spec.reader import read_document
from autoopt.spec.strict_model import name_from

_PROPOSES: Final = "'autoopt run MODEL' proposes passes for a model"
_NOT_NEEDED: Final = {
    "packaging_config": "out/ is a package, and 'autoopt export' writes one for any trial",
    "azureml_client": "docs/operating.md shows how to use several machines",
    "workflow_host": "docs/operating.md shows how to use several machines",
    "data_root": "pass --data-root where it has an equivalent (sweep), or write absolute paths",
    "auto_optimizer_config": "'autoopt run MODEL' proposes the passes for a model and target",
}


@dataclass(frozen=True)
class Conversion:
    """The fields of a dag.yaml, and one line for each part of the configuration that has no equivalent."""

    dag: dict[str, JsonValue]
    remarks: tuple[str, ...]


def convert(file: Path, folder: Path) -> Conversion:
    """Convert a configuration into a dag.yaml in `folder`, which its paths are relative to.

    Raises:
        ConfigError: the file is not JSON or YAML, has no passes, or none of them has an equivalent; it has a value
            that dag.yaml cannot have either, such as a placeholder.
    """
    document = read_document(file)
    config = OliveConfig.read(document.value)
    remarks = Remarks(document.source)
    if not config.slots:
        what = "has no passes" if not config.root.get("passes") else "its passes are not an object of names and passes"
        if config.root.get("auto_optimizer_config"):
            what = "has no passes, because Olive chooses them itself"
        raise remarks.refusal((), what, _PROPOSES)
    graph = graph_of(config, remarks)
    if not graph.nodes:
        raise remarks.refusal(("passes",), "none of its passes has an equivalent", _PROPOSES)
    fields = graph.fields(config.flows)
    if not fields["passes"]:
        what = "names no pass that has an equivalent"
        raise remarks.refusal(("pass_flows",), what, "remove it to convert all passes")
    dag: dict[str, JsonValue] = {"name": _name(config, file)}
    model = _model(config, file, folder, remarks)
    if model:
        dag["model"] = model
    sections = {
        "data": data_settings(config, remarks),
        **target_and_host(config, remarks),
        **fields,
        **goals(config, remarks),
        "search": search_settings(config, remarks),
    }
    dag.update({name: content for name, content in sections.items() if content})
    for name, remedy in _NOT_NEEDED.items():
        if config.root.get(name):
            remarks.add((name,), "has no equivalent", remedy)
    try:
        load_dag(dag)
    except ConfigError as error:
        raise remarks.refusal((), f"gives a wrong {error.field}: {error.what}", error.remedy) from error
    return Conversion(dag, remarks.texts())


def _name(config: OliveConfig, file: Path) -> str:
    return name_from(str(config.root.get("workflow_id") or file.stem), "olive")


def _model(config: OliveConfig, file: Path, folder: Path, remarks: Remarks) -> str | None:
    """The path of the source model; None if it is not an ONNX file."""
    model = section(config.root.get("input_model"))
    kind = str(model.get("type") or "").lower()
    path = model.get("model_path")
    if kind == "onnxmodel" and isinstance(path, str):
        if "://" in path or os.path.isabs(path):
            return path
        return os.path.relpath(file.parent / path, folder)
    if kind == "hfmodel" or section(model.get("hf_config")):
        name = path
        if not isinstance(path, str):
            name = section(model.get("hf_config")).get("model_name", "MODEL")
        remedy = f"export it: optimum-cli export onnx --model {name} exported/; then pass --model exported/model.onnx"
        remarks.add(("input_model",), "is not an ONNX model", remedy)
    elif model:
        remedy = "export it with torch.onnx.export and pass --model FILE.onnx; docs/operating.md has PyTorch models"
        remarks.add(("input_model",), f"is not an ONNX model but {model.get('type')}", remedy)
    return None
