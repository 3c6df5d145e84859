"""Microsoft Olive on the points of a case. Run it in an environment of its own:

    pip install olive-ai==0.13.0 pydantic==2.11.7 requests onnxruntime
    python -m benchmarks.floor.olive_search FOLDER CASE

Prints the number of models that were measured. The released version fails at the second visit of a model; the line that
its main branch has since added is added here too.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

os.environ["CI"] = "true"  # no telemetry, which waits for minutes without a network

import numpy as np
from olive.data.registry import Registry
from olive.engine.footprint import FootprintNode
from olive.workflows import run

from benchmarks.floor.models import CASES, Case
from benchmarks.floor.script import BATCH, REPEATS, WARM_UPS


class Arrays:
    """The items of an .npz file."""

    def __init__(self, path: str) -> None:
        self.inputs = dict(np.load(path))
        self.labels = self.inputs.pop("labels", None)

    def __len__(self) -> int:
        return len(next(iter(self.inputs.values())))

    def __getitem__(self, index: int) -> tuple[dict[str, np.ndarray], int]:
        label = 0 if self.labels is None else int(self.labels[index])
        return {name: value[index] for name, value in self.inputs.items()}, label


@Registry.register_dataset("arrays")
def arrays(path: str, **_: object) -> Arrays:
    """The data of a case."""
    return Arrays(path)


@Registry.register_post_process("argmax")
def argmax(output: Any, **_: object) -> Any:
    """The class of each item."""
    return output.argmax(-1)


def update(node: FootprintNode, **values: object) -> None:
    """`FootprintNode.update` under the name that the field has."""
    for name, value in values.items():
        setattr(node, "model_config_data" if name == "model_config" else name, value)


def _data(name: str, folder: Path, batch: int) -> dict[str, object]:
    return {
        "name": name,
        "type": "DataContainer",
        "load_dataset_config": {"type": "arrays", "path": str(folder / f"{name}.npz")},
        "pre_process_data_config": {"type": "skip_pre_process"},
        "post_process_data_config": {"type": "argmax"},
        "dataloader_config": {"batch_size": batch},
    }


def config(case: Case, folder: Path) -> dict[str, object]:
    """The points without the pass before quantization, with the floor's parameters."""
    data = [_data("evaluation", folder, BATCH), _data("calibration", folder, 1)]
    accuracy = {"name": "accuracy_score", "priority": 2, "metric_config": {"task": "multiclass", "num_classes": 10}}
    timing = {"warmup_num": WARM_UPS, "repeat_test_num": REPEATS, "sleep_num": 0}
    latency = {"name": "avg", "priority": 1, "metric_config": timing}
    metrics = [{"name": "latency", "type": "latency", "sub_types": [latency], "data_config": "evaluation"}]
    if case.labelled:
        metrics.append({"name": "accuracy", "type": "accuracy", "sub_types": [accuracy], "data_config": "evaluation"})
    common = {"per_channel": "SEARCHABLE_VALUES", "reduce_range": False, "quant_preprocess": True}
    if case.op_types:
        common["op_types_to_quantize"] = list(case.op_types)
    static = {
        "precision": "int8",
        "activation_type": "uint8",
        "quant_format": "QDQ",
        "calibrate_method": "SEARCHABLE_VALUES",
        "data_config": "calibration",
    }
    precision = "SEARCHABLE_VALUES" if len(case.weight_types) > 1 else case.weight_types[0].removeprefix("Q").lower()
    quantize = [{"type": "OnnxDynamicQuantization", **common, "precision": precision}]
    if case.methods:
        quantize.append({"type": "OnnxStaticQuantization", **common, **static})
    accelerator = {"device": "cpu", "execution_providers": ["CPUExecutionProvider"]}
    return {
        "input_model": {"type": "OnnxModel", "model_path": str(folder / "model.onnx")},
        "systems": {"local": {"type": "LocalSystem", "accelerators": [accelerator]}},
        "data_configs": data,
        "evaluators": {"all": {"metrics": metrics}},
        "passes": {"quantize": quantize},
        "search_strategy": {"execution_order": "joint", "sampler": "sequential"},
        "evaluator": "all",
        "host": "local",
        "target": "local",
        "log_severity_level": 3,
        "cache_dir": str(folder / "cache"),
        "output_dir": str(folder / "out"),
    }


def main() -> None:
    """Search all points."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("case", choices=CASES)
    options = parser.parse_args()
    FootprintNode.update = update
    run(config(CASES[options.case], options.folder))
    evaluations = list(options.folder.glob("cache/**/evaluations/*.json"))
    print(json.dumps({"models": len(evaluations)}))


if __name__ == "__main__":
    main()
