"""Runs passes over the micro-models and writes the outcomes as JSON lines.

    python sweep.py [--unchecked] OUT [PASS ...]

A process of its own: the contract suite runs it twice with different hash seeds, and a native crash costs one result.
`--unchecked` leaves the checks of new models out: whether the bytes are the same again can be seen without them.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from micro_models import MODELS
from onnx import helper

from autoopt.model import io
from autoopt.passes.runner import run
from autoopt.passes.verification.synthetic_feeds import synthetic_feeds
from autoopt.registry import REQUIRED, PassInfo, registry
from autoopt.space import ConditionalDefault, NodeSpace

PARAMS: dict[str, Callable[[str, Path], dict[str, Any]]] = {
    "sequence": lambda model, folder: {"passes": ["name_fix", "simplify"]},
    "add_checkpoints": lambda model, folder: {"values": list(MODELS[model]().graph.node[0].output)},
    "merge": lambda model, folder: {"second": follower(model, folder)},
    "rename_inputs_outputs": lambda model, folder: {"names": {MODELS[model]().graph.output[0].name: "renamed"}},
    "remove_outputs": lambda model, folder: {"outputs": [value.name for value in MODELS[model]().graph.output[1:]]},
    "convert_input_output_types": lambda model, folder: {"types": {MODELS[model]().graph.output[0].name: "float16"}},
    "layer_precision_compare": lambda model, folder: {"origin": str(folder / model / "model.onnx")},
}
"""Parameters that a pass cannot do without, by the name of the model and the folder in which the models are."""
BEFORE = {"layer_precision_compare": ["static_quantization"]}
"""Passes that leave what a pass looks for, where its `requires` does not say so."""
CPU = "CPUExecutionProvider"


def main(out: Path, names: list[str], *, check: bool) -> None:
    with tempfile.TemporaryDirectory() as work, out.open("w") as file:
        folder = Path(work)
        for model_name in MODELS:
            prepare(model_name, folder)
        for name in names:
            info = registry().info(name)
            if not info.missing:
                for result in sweep(info, folder, check=check):
                    file.write(json.dumps(result) + "\n")
                    file.flush()


def prepare(name: str, folder: Path) -> None:
    """Save a micro-model with calibration data for it."""
    model = MODELS[name]()
    io.save(model, folder / name)
    feeds = [next(synthetic_feeds(model, seed=seed)) for seed in range(8)]
    items = {k: np.concatenate([f[k] for f in feeds]) if feeds[0][k].ndim else feeds[0][k] for k in feeds[0]}
    np.savez(folder / f"{name}.npz", **items)


def follower(model: str, folder: Path) -> str:
    """A model that takes the first output of another."""
    output = MODELS[model]().graph.output[0]
    source, made = helper.make_value_info("in", output.type), helper.make_value_info("out", output.type)
    graph = helper.make_graph([helper.make_node("Identity", ["in"], ["out"], "hand_on")], "follower", [source], [made])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return str(io.save(proto, folder / f"{model}_follower"))


def sweep(info: PassInfo, folder: Path, *, check: bool) -> Iterator[dict[str, Any]]:
    """Every model with the defaults; then every search value, one at a time, on the first model that changed."""
    needed = PARAMS.get(info.name, lambda model, folder: {})
    changed = ""
    for model in MODELS:
        result = step(info, model, needed(model, folder), folder, check=check)
        changed = changed or (model if result["outcome"] == "ok" else "")
        yield result
    for params in variants(info):
        model = changed or "mlp"
        yield step(info, model, {**needed(model, folder), **params}, folder, check=check)


def variants(info: PassInfo) -> Iterator[dict[str, Any]]:
    """Every value of every search parameter at least once, with what it depends on."""
    search = {p.name: p.search for p in info.parameters if p.search is not None}
    defaults = {p.name: p.default for p in info.parameters if p.default is not REQUIRED}
    space = NodeSpace(search=search, defaults=defaults)
    seen: set[str] = set()
    for point in space.iterate():
        fresh = {f"{k}={json.dumps(v)}" for k, v in point.items()} - seen
        if fresh:
            seen |= fresh
            yield {k: v for k, v in point.items() if not isinstance(v, ConditionalDefault)}


def required(info: PassInfo) -> list[str]:
    """The passes that must have run before, theirs first; analyses are run by the runner itself."""
    found: dict[str, None] = {}
    for name in info.requires:
        needed = registry().info(name)
        found.update(dict.fromkeys([*required(needed), *([] if needed.analysis else [name])]))
    return list(found)


def step(info: PassInfo, model: str, params: dict[str, Any], folder: Path, *, check: bool = True) -> dict[str, Any]:
    """Run the pass behind those that it requires, as a plan would have it."""
    out = Path(tempfile.mkdtemp(dir=folder))
    before = [{"pass": name} for name in [*required(info), *BEFORE.get(info.name, [])]]
    provider = CPU if CPU in (info.accelerators or (CPU,)) else info.accelerators[0]
    payload = {
        "model": {"path": str(folder / model / "model.onnx")},
        "steps": [*before, {"node": "n", "pass": info.name, "params": params}],
        "output": str(out),
        "check": check,
        "data": str(folder / f"{model}.npz"),
        "accelerator": {"device": "cpu" if provider == CPU else "gpu", "execution_provider": provider},
    }
    result = {**run(payload)["steps"][-1], "pass": info.name}
    shutil.rmtree(out)
    return {
        "model": model,
        "asked": params,
        **{k: v for k, v in result.items() if k != "path"},
        "moved": bool(result["path"]),
    }


if __name__ == "__main__":
    arguments = [argument for argument in sys.argv[1:] if argument != "--unchecked"]
    main(Path(arguments[0]), arguments[1:] or list(registry().names()), check="--unchecked" not in sys.argv)
