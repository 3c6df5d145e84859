"""Models optimized by Microsoft Olive, for by_hand.py. Run it in an environment of its own:

    pip install olive-ai==0.13.0 pydantic==2.11.7 requests onnxruntime onnxscript
    python benchmarks/zoo/olive_chains.py FOLDER OUT MODEL...

FOLDER is that of by_hand.py. Each chain is one workflow without a search, as the released version cannot visit a
model twice, and writes OUT/MODEL/CHAIN.onnx. by_hand.py chooses the fastest that keeps the quality, which Olive would
have to find.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ["CI"] = "true"  # no telemetry, which waits for minutes without a network

import numpy as np
import onnxruntime
from olive.data.registry import Registry
from olive.workflows import run

CALIBRATION_ITEMS = 50
Pass = dict[str, Any]
PEEPHOLE: Pass = {"type": "OnnxPeepholeOptimizer"}
FUSION: Pass = {"type": "OrtTransformersOptimization", "model_type": "bert", "opt_level": 1}
STATIC: Pass = {
    "type": "OnnxStaticQuantization",
    "precision": "int8",
    "activation_type": "uint8",
    "quant_format": "QDQ",
    "data_config": "calibration",
    "quant_preprocess": True,
}
DYNAMIC: Pass = {"type": "OnnxDynamicQuantization", "precision": "int8", "quant_preprocess": True}
LAYERS = {"op_types_to_quantize": ["Conv", "Gemm", "MatMul"]}
PRODUCTS = {"op_types_to_quantize": ["MatMul", "Attention", "LSTM"]}
CHANNELS = {"per_channel": True}
CHAINS: dict[str, list[Pass]] = {
    "peephole": [PEEPHOLE],
    "fusion": [PEEPHOLE, FUSION],
    "dynamic": [PEEPHOLE, DYNAMIC],
    "dynamic_products": [PEEPHOLE, {**DYNAMIC, **PRODUCTS, **CHANNELS}],
    "fusion_dynamic_products": [PEEPHOLE, FUSION, {**DYNAMIC, **PRODUCTS, **CHANNELS}],
    "static": [PEEPHOLE, {**STATIC, **CHANNELS}],
    "static_layers": [PEEPHOLE, {**STATIC, **LAYERS, **CHANNELS}],
}


class Items:
    """The items of an .npz file, each with its batch axis; scalars are the same for all."""

    def __init__(self, path: str, model: str) -> None:
        session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
        self._ranks = {value.name: len(value.shape) for value in session.get_inputs()}
        self._arrays = dict(np.load(path))
        self._count = max(len(self._arrays[name]) for name in self._ranks if self._arrays[name].ndim)

    def __len__(self) -> int:
        return min(CALIBRATION_ITEMS, self._count)

    def __getitem__(self, index: int) -> tuple[dict[str, np.ndarray], int]:
        feed = {}
        for name, rank in self._ranks.items():
            array = self._arrays[name]
            if array.ndim > rank:
                array = array[index]
            elif rank:
                array = array[index : index + 1]
            feed[name] = array
        return feed, 0


@Registry.register_dataset("items")
def items(path: str, model: str, **_: object) -> Items:
    """The calibration data of a model."""
    return Items(path, model)


def config(passes: list[Pass], folder: Path, out: Path) -> dict[str, object]:
    """A workflow of these passes."""
    data = folder / "calibration.npz"
    if not data.exists():
        data = folder / "evaluation.npz"
    model = str(folder / "model.onnx")
    calibration = {
        "name": "calibration",
        "type": "DataContainer",
        "load_dataset_config": {"type": "items", "path": str(data), "model": model},
        "pre_process_data_config": {"type": "skip_pre_process"},
        "post_process_data_config": {"type": "skip_post_process"},
        "dataloader_config": {"type": "no_auto_batch_dataloader"},
    }
    accelerator = {"device": "cpu", "execution_providers": ["CPUExecutionProvider"]}
    return {
        "input_model": {"type": "OnnxModel", "model_path": model},
        "systems": {"local": {"type": "LocalSystem", "accelerators": [accelerator]}},
        "data_configs": [calibration],
        "passes": {f"pass{number}": dict(step) for number, step in enumerate(passes)},
        "host": "local",
        "target": "local",
        "log_severity_level": 3,
        "cache_dir": str(out / "cache"),
        "output_dir": str(out / "model"),
    }


def main() -> None:
    """Run all chains on the models."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("models", nargs="+")
    options = parser.parse_args()
    for name in options.models:
        (options.out / name).mkdir(parents=True, exist_ok=True)
        for chain, passes in CHAINS.items():
            target, failure = (options.out / name / f"{chain}{suffix}" for suffix in (".onnx", ".failed"))
            if target.exists() or failure.exists():
                continue
            with tempfile.TemporaryDirectory() as temporary:
                try:
                    run(config(passes, options.folder / name, Path(temporary)))
                    shutil.copy(next((Path(temporary) / "model").rglob("*.onnx")), target)
                except Exception as error:  # some chains do not fit a model
                    failure.touch()
                    print(f"{name}, {chain}: {type(error).__name__}: {error}"[:200].replace("\n", " "), file=sys.stderr)
        print(name, flush=True)


if __name__ == "__main__":
    main()
