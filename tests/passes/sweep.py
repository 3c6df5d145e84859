"""Runs passes over the micro-models and writes the outcomes as JSON lines.

    python sweep.py OUT [PASS ...]
    python sweep.py --again FIRST OUT

It runs as a process of its own: a native crash costs one result. The second form reads FIRST while another sweep
writes it, and repeats each step that changed a model under another hash seed, without checking the result.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import cache
from itertools import chain
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
from autoopt.target import DEVICE_OF

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
BEFORE = {"layer_precision_compare": ["static_quantization"], "matmul_nbits_to_qdq": ["weight_only_quantization"]}
"""Passes that leave what a pass looks for, where its `requires` does not say so."""
CPU = "CPUExecutionProvider"
GOOD = ("ok", "unchanged")


def main(out: Path, names: list[str], first: Path | None = None) -> None:
    with tempfile.TemporaryDirectory() as work, out.open("w") as file:
        folder = Path(work)
        for model_name in MODELS:
            prepare(model_name, folder)
        preparations = Preparations(folder, check=first is None)
        infos = [info for info in map(registry().info, names) if not info.missing]
        for result in again(first, preparations) if first else sweep(infos, preparations):
            file.write(json.dumps(result) + "\n")
            file.flush()
        file.write("null\n")


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


class Preparations:
    """Runs passes on the models as the passes that must run before leave them, which is done once for each list."""

    def __init__(self, folder: Path, *, check: bool = True, provider: str = CPU) -> None:
        self.folder = folder
        self.check = check
        self.provider = provider
        self._replies: dict[tuple[str, ...], dict[str, Any]] = {}

    def run(self, model: str, names: list[str]) -> dict[str, Any]:
        """Return the `model` of a request, or else, with an outcome, the reply of the pass that failed."""
        prepared: dict[str, Any] = {"path": str(self.folder / model / "model.onnx"), "session_options": {}}
        for count in range(1, len(names) + 1):
            reply = self.reply(model, names[:count])
            if reply["outcome"] not in GOOD:
                return reply
            path = next(Path(reply["path"]).glob("model.*")) if reply["path"] else prepared["path"]
            prepared = {"path": str(path), "session_options": reply["session_options"]}
        return prepared

    def reply(self, model: str, names: list[str]) -> dict[str, Any]:
        """The reply of the last of these passes, behind the others, with its defaults."""
        key = (model, *names)
        if key not in self._replies:
            prepared = self.run(model, names[:-1])
            if "outcome" not in prepared:
                out = Path(tempfile.mkdtemp(dir=self.folder))
                prepared = self.call(registry().info(names[-1]), model, prepared, {}, out)
            self._replies[key] = prepared
        return self._replies[key]

    def call(
        self, info: PassInfo, model: str, prepared: dict[str, Any], params: dict[str, Any], out: Path
    ) -> dict[str, Any]:
        """Run one pass on a model that other passes may have prepared; the reply."""
        provider = self.provider
        if provider not in (info.accelerators or (provider,)):
            provider = info.accelerators[0]
        payload = {
            "model": prepared,
            "steps": [{"node": "n", "pass": info.name, "params": params}],
            "output": str(out),
            "check": self.check,
            "data": str(self.folder / f"{model}.npz"),
            "accelerator": {"device": DEVICE_OF[provider], "execution_provider": provider},
        }
        reply: dict[str, Any] = run(payload)["steps"][-1]
        return reply


def sweep(infos: list[PassInfo], preparations: Preparations) -> Iterator[dict[str, Any]]:
    """Every model with the defaults; then every search value, one at a time, on the first model that changed.

    A model meets all passes in turn, because a worker keeps the model of its last call.
    """
    changed: dict[str, str] = {}
    for model in MODELS:
        for info in infos:
            result = step(info, model, {}, preparations)
            if result["outcome"] == "ok":
                changed.setdefault(info.name, model)
            yield result
    for info in infos:
        for params in variants(info):
            yield step(info, changed.get(info.name, "mlp"), params, preparations)


def again(first: Path, preparations: Preparations) -> Iterator[dict[str, Any]]:
    """Repeat the steps of a sweep that changed a model."""
    for result in followed(first):
        if result["outcome"] == "ok":
            yield step(registry().info(result["pass"]), result["model"], result["searched"], preparations)


def followed(path: Path) -> Iterator[dict[str, Any]]:
    """The results of a sweep as it writes them."""
    with path.open() as file:
        line = ""
        while line != "null\n":
            line += file.readline()
            if not line.endswith("\n"):
                time.sleep(0.05)
            elif line != "null\n":
                yield json.loads(line)
                line = ""


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


@cache
def needed_before() -> frozenset[str]:
    """The passes that others require, whose replies serve as preparations as well."""
    infos = map(registry().info, registry().names())
    return frozenset(chain(*map(required, infos), *BEFORE.values()))


def applied(
    info: PassInfo, model: str, params: dict[str, Any], preparations: Preparations, out: Path
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Run the pass behind those that it requires: its parameters, and the reply."""
    needed = PARAMS.get(info.name, lambda model, folder: {})(model, preparations.folder)
    before = [*required(info), *BEFORE.get(info.name, [])]
    if info.name in needed_before() and not params:
        return needed, preparations.reply(model, [*before, info.name])
    result = preparations.run(model, before)
    if "outcome" not in result:
        result = preparations.call(info, model, result, {**needed, **params}, out)
    return {**needed, **params}, result


def step(info: PassInfo, model: str, params: dict[str, Any], preparations: Preparations) -> dict[str, Any]:
    """Run the pass behind those that it requires, as a plan would have it."""
    out = Path(tempfile.mkdtemp(dir=preparations.folder))
    asked, result = applied(info, model, params, preparations, out)
    shutil.rmtree(out)
    return {
        "model": model,
        "asked": asked,
        "searched": params,
        **{k: v for k, v in result.items() if k != "path"},
        "pass": info.name,
        "moved": bool(result["path"]),
    }


if __name__ == "__main__":
    if sys.argv[1] == "--again":
        main(Path(sys.argv[3]), [], first=Path(sys.argv[2]))
    else:
        main(Path(sys.argv[1]), sys.argv[2:] or list(registry().names()))
