"""Folders of models inside Python packages: the model, evaluation and calibration data."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime
from public import Arrays
from public_texts_music import Packages

Generator = np.random.Generator
Items = Callable[[Packages, Path, Generator, int], Arrays]
"""Makes a number of items for a model."""


@dataclass(frozen=True)
class Source:
    """A model file in a package, its data, the number of items, and how it is exported or changed, if it is."""

    file: str
    items: Items
    count: int = 100
    make: Callable[[Packages, Path], None] | None = None
    """Writes the model; else the file is the model."""


def export(network: object, examples: tuple[object, ...], target: Path, inputs: Sequence[str], output: str) -> None:
    """Export a network of PyTorch with an open batch."""
    import torch

    torch.onnx.export(
        network,  # type: ignore[arg-type]
        examples,
        target,
        input_names=list(inputs),
        output_names=[output],
        dynamic_axes={name: {0: "batch"} for name in (*inputs, output)},
        opset_version=17,
        dynamo=False,
    )


def write_folders(description: str | None, sources: Mapping[str, Source]) -> None:
    """Write the folders that the command line names; half as many items calibrate."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packages", type=Path)
    parser.add_argument("zoo", type=Path)
    parser.add_argument("models", nargs="*", default=list(sources))
    options = parser.parse_args()
    packages = Packages(options.packages)
    for name in options.models:
        source = sources[name]
        folder = options.zoo / name
        folder.mkdir(parents=True, exist_ok=True)
        model = folder / "model.onnx"
        if source.make is None:
            model.write_bytes(packages.read(source.file))
        else:
            source.make(packages, model)
        onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
        for part, seed, count in (("evaluation", 1, source.count), ("calibration", 2, source.count // 2)):
            items = source.items(packages, model, np.random.default_rng(seed), count)
            np.savez_compressed(folder / f"{part}.npz", **items)
        print(folder, flush=True)
