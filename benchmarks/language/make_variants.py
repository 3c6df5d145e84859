"""Quantize the weights of a decoder in several ways, for a comparison by by_hand.py.

python benchmarks/language/make_variants.py MODEL.onnx CALIBRATION.npz OUT [--only NAME ...]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

PLAIN, CALIBRATED = "weight_only_quantization", "calibrated_weight_quantization"
VARIANTS = {
    "rtn8": (PLAIN, {"bits": "8"}),
    "rtn4": (PLAIN, {}),
    "rtn8-embeddings8": (PLAIN, {"bits": "8", "embedding_bits": "8"}),
    "rtn4-head8": (PLAIN, {"head_bits": "8"}),
    "rtn4-embeddings8-head8": (PLAIN, {"embedding_bits": "8", "head_bits": "8"}),
    "rtn4-embeddings4": (PLAIN, {"embedding_bits": "4"}),
    "rtn4-asymmetric": (PLAIN, {"is_symmetric": "false"}),
    "k_quant4": (PLAIN, {"algorithm": "k_quant"}),
    "hqq4": (PLAIN, {"algorithm": "hqq"}),
    "awq4": (CALIBRATED, {"algorithm": "awq"}),
    "gptq4": (CALIBRATED, {"algorithm": "gptq"}),
    "awq_gptq4": (CALIBRATED, {"algorithm": "awq_gptq"}),
    "awq_gptq4-asymmetric": (CALIBRATED, {"algorithm": "awq_gptq", "is_symmetric": "false"}),
    "rtn4-25%8": (CALIBRATED, {"algorithm": "nearest", "sensitive_share": "0.25"}),
    "awq_gptq4-25%8": (CALIBRATED, {"algorithm": "awq_gptq", "sensitive_share": "0.25"}),
    "awq_gptq4-embeddings8-head8": (CALIBRATED, {"algorithm": "awq_gptq", "embedding_bits": "8", "head_bits": "8"}),
    "awq_gptq4-50%8": (CALIBRATED, {"algorithm": "awq_gptq", "sensitive_share": "0.5"}),
}
"""Pass and parameters by name; all with blocks of 32, and products in int8 where the algorithm can (accuracy_level)."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("calibration", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", nargs="+", default=list(VARIANTS))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.only:
        pass_name, params = VARIANTS[name]
        target = options.out / f"{name}.onnx"
        command = [sys.executable, "-m", "autoopt", "apply", pass_name, options.model, "-o", target, "--force"]
        for parameter, value in {"accuracy_level": "4", **params}.items():
            command += ["-p", f"{parameter}={value}"]
        began = time.monotonic()
        done = subprocess.run([*command, "--data", options.calibration], check=False)
        if done.returncode == 0:
            size = sum(path.stat().st_size for path in options.out.glob(f"{target.name}*"))
            print(f"{name}: {size / 1e6:.2f} MB, made in {time.monotonic() - began:.1f} s", flush=True)


if __name__ == "__main__":
    main()
