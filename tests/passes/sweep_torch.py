"""Passes that need torch, over every micro-model: `python sweep_torch.py out.jsonl` in an environment that has it."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from micro_models import MODELS
from sweep import Preparations, prepare, step

from autoopt.registry import registry

ASKED = [
    {"algorithm": "hqq"},
    {"algorithm": "hqq", "block_size": 64, "bits": 8},
    {"algorithm": "hqq", "block_size": 16},
]

if __name__ == "__main__":
    info = registry().info("weight_only_quantization")
    with tempfile.TemporaryDirectory() as name, Path(sys.argv[1]).open("w") as out:
        folder = Path(name)
        preparations = Preparations(folder)
        for model in MODELS:
            prepare(model, folder)
            results = (step(info, model, params, preparations) for params in ASKED)
            out.writelines(json.dumps(result) + "\n" for result in results)
