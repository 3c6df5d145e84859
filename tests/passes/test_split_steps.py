"""Passes on split models: the same results as on files, and only what changed is written."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from micro_models import made, normal
from onnx import ModelProto, TensorProto, helper, numpy_helper

from autoopt.model import io, splitting
from autoopt.model.files import bytes_in, digest_folder
from autoopt.model.split import FOLDER, digest_files, is_split, write_files
from autoopt.passes.execution import current_model
from autoopt.passes.onnx_tools import graphs, large_models
from autoopt.passes.runner import run
from autoopt.passes.verification.equivalence import run_once

Place = Callable[[ModelProto], ModelProto]
"""Puts the operators of a model into its graph or into the branches of an If."""
OnFiles = Callable[[Place, bool, str, dict[str, Any]], dict[str, Any]]
WIDTH = 128
LAYERS = 6
WEIGHT = WIDTH * WIDTH * 4
PASSES = (
    "name_fix",
    "shape_inference",
    "constant_folding",
    "common_subexpression_elimination",
    "deduplicate_initializers",
    "opset_conversion",
    "ir_upgrade",
    "simplify",
    "ort_graph_optimization",
    "external_data",
    "quant_pre_process",
    "transformer_fusion",
    "dynamic_quantization",
    "weight_only_quantization",
    "bnb4_quantization",
    "float16",
    "ort_format",
)


@pytest.fixture(autouse=True)
def splits_small_models(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splitting, "SPLIT_ABOVE", WEIGHT)
    monkeypatch.setattr(large_models, "MATRIX_BYTES", WEIGHT)
    monkeypatch.setattr(large_models, "SHAPE_BYTES", WEIGHT // 2)


def layers() -> ModelProto:
    """Matrix products with biases, a constant to fold and an Identity."""
    rng = np.random.default_rng(0)
    nodes, weights, name = [], [], "x"
    for layer in range(LAYERS):
        matrix = rng.standard_normal((WIDTH, WIDTH), np.float32) * np.float32(0.1)
        weights.append(numpy_helper.from_array(matrix, f"w{layer}"))
        weights.append(numpy_helper.from_array(rng.standard_normal(WIDTH).astype(np.float32), f"b{layer}"))
        nodes.append(helper.make_node("Mul", [f"b{layer}", f"b{layer}"], [f"c{layer}"]))
        nodes.append(helper.make_node("MatMul", [name, f"w{layer}"], [f"m{layer}"]))
        nodes.append(helper.make_node("Add", [f"m{layer}", f"c{layer}"], [f"a{layer}"]))
        nodes.append(helper.make_node("Identity", [f"a{layer}"], [f"i{layer}"]))
        nodes.append(helper.make_node("Relu", [f"i{layer}"], [f"y{layer}"]))
        name = f"y{layer}"
    signature = [helper.make_tensor_value_info(value, TensorProto.FLOAT, ["n", WIDTH]) for value in ("x", name)]
    graph = helper.make_graph(nodes, "layers", signature[:1], signature[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def in_graph(model: ModelProto) -> ModelProto:
    return model


def in_branches(model: ModelProto) -> ModelProto:
    """A model whose operators and weights are those of a branch; the other one has only some of them."""
    inner = model.graph
    other = helper.make_graph(inner.node[:3] + [helper.make_node("Relu", ["a0"], ["z"])], "other", [], [])
    other.output.add().CopyFrom(inner.output[0])
    other.output[0].name = "z"
    other.initializer.extend(inner.initializer[:2])
    body = helper.make_graph(inner.node, "body", [], inner.output, inner.initializer)
    nodes = [
        helper.make_node("ReduceMax", ["x"], ["largest"], keepdims=0),
        helper.make_node("Greater", ["largest", "zero"], ["yes"]),
        helper.make_node("If", ["yes"], ["y"], then_branch=body, else_branch=other),
    ]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", WIDTH])]
    zero = numpy_helper.from_array(np.array(0, np.float32), "zero")
    graph = helper.make_graph(nodes, "branches", inner.input, outputs, [zero])
    return helper.make_model(graph, opset_imports=model.opset_import, ir_version=9)


def steps(
    model: Path, output: Path, *names: str, split_folder: Path | None = None, params: dict[str, Any] | None = None
) -> list[dict[str, Any]]:
    return list(
        run({
            "model": {"path": str(model)},
            "steps": [{"pass": name, "params": params or {}} for name in names],
            "output": str(output),
            "data": {"path": str(calibration(output.parent))},
            "split_folder": None if split_folder is None else str(split_folder),
        })["steps"]
    )  # fmt: skip


def calibration(folder: Path) -> Path:
    """Eight items of data."""
    path = folder / "calibration.npz"
    np.savez(path, x=np.random.default_rng(1).standard_normal((8, WIDTH), np.float32))
    return path


def source(
    folder: Path, split_folder: Path, external: bool = False, model: ModelProto | None = None
) -> tuple[Path, Path]:
    """A model, that of `layers` by default, as files and split."""
    path = io.save(model or layers(), folder, external=external)
    graph = splitting.split_folder(folder, split_folder)
    assert graph is not None
    return path, graph


@pytest.fixture(scope="module")
def on_files(tmp_path_factory: pytest.TempPathFactory) -> OnFiles:
    """Return a function that runs a pass on the files of `layers`, once for each place, pass and parameters."""

    @lru_cache
    def run_once_each(place: Place, external: bool, name: str, params: str) -> dict[str, Any]:
        folder = tmp_path_factory.mktemp("files")
        path = io.save(place(layers()), folder / "source", external=external)
        (step,) = steps(path, folder / "whole", name, params=json.loads(params))
        return step

    return lambda place, external, name, params: run_once_each(place, external, name, json.dumps(params))


def facts(step: dict[str, Any]) -> tuple[object, ...]:
    return step["pass"], step["outcome"], step["message"], step["digest"], step["bytes"]


WITH_PARAMETERS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("dynamic_quantization", {"per_channel": True, "weight_type": "QUInt8"}),
    ("dynamic_quantization", {"op_types": []}),
    ("weight_only_quantization", {"algorithm": "rtn"}),
    ("weight_only_quantization", {"algorithm": "k_quant", "bits": 8}),
    ("weight_only_quantization", {"quant_format": "QDQ"}),
    ("static_quantization", {}),
    ("static_quantization", {"quant_format": "QOperator", "weight_type": "QUInt8", "per_channel": True}),
    ("static_quantization", {"calibrate_method": "Percentile", "bias_correction": True}),
    ("static_quantization", {"equalize": "smooth"}),
    ("calibrated_weight_quantization", {}),
    ("calibrated_weight_quantization", {"algorithm": "gptq", "sensitive_share": 0.5}),
    ("simplify", {"engine": "onnxsim"}),
    ("simplify", {"engine": "onnxscript"}),
)
IN_BRANCHES = ("name_fix", "simplify", "quant_pre_process", "dynamic_quantization", "float16")
"""Those to try on weights in branches. The runtime writes the ORT format of branches in another order each time."""


@pytest.mark.parametrize(
    ("name", "params", "place", "external"),
    [
        *((name, {}, in_graph, external) for name in PASSES for external in (False, True)),
        *((name, {}, in_branches, True) for name in IN_BRANCHES),
        *((name, params, in_graph, False) for name, params in WITH_PARAMETERS),
    ],
)
def test_a_pass_makes_the_same_of_a_split_model(
    name: str,
    params: dict[str, Any],
    place: Place,
    external: bool,
    tmp_path: Path,
    on_files: OnFiles,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Models with external data are loaded anew by each call, the others are kept in memory."""
    if external:
        monkeypatch.setattr(current_model, "KEPT_BYTES", 0)
    shared = tmp_path / FOLDER
    _, graph = source(tmp_path / "source", shared, external, place(layers()))
    whole = on_files(place, external, name, params)
    (split,) = steps(graph, tmp_path / "out", name, split_folder=shared, params=params)
    assert facts(split) == facts(whole)
    assert whole["outcome"] in ("ok", "unchanged")
    if split["path"] is not None and is_split(split["path"]):
        assert digest_files(Path(split["path"])) == whole["digest"]
        onnx.checker.check_model(split["path"], full_check=True)
        write_files(Path(split["path"]), tmp_path / "copy")
        assert digest_folder(tmp_path / "copy") == whole["digest"]
    assert not list(shared.glob(".*"))


TEXTS = {
    "GELU": """
        m = MatMul (x, w)
        d = Div (m, root)
        e = Erf (d)
        a = Add (e, one)
        p = Mul (m, a)
        h = Mul (p, half)
        y = MatMul (h, v)""",
    "no ranks by ONNX alone": """
        m = MatMul (x, w)
        h = com.microsoft.Gelu (m)
        y = MatMul (h, v)""",
    "symbolic inference fails": """
        m = MatMul (x, w)
        g = com.microsoft.Gelu (m)
        h = ai.onnx.ml.Scaler <offset = [0.5], scale = [2.0]> (g)
        y = MatMul (h, v)""",
    "a constant that the runtime folds": """
        t = Transpose <perm = [1, 0]> (w)
        h = MatMul (x, t)
        y = MatMul (h, v)""",
}


@pytest.mark.parametrize("text", TEXTS)
def test_a_split_model_is_prepared_as_files_are(text: str, tmp_path: Path) -> None:
    weights = {"w": normal(WIDTH, WIDTH), "v": normal(WIDTH, WIDTH)}
    scalars = {name: np.array(value, np.float32) for name, value in (("root", 2**0.5), ("one", 1), ("half", 0.5))}
    signature = f"g (float[N, {WIDTH}] x) => (float[N, {WIDTH}] y)"
    model = made(
        f"{signature} {{{TEXTS[text]}}}", domains=', "com.microsoft": 1, "ai.onnx.ml": 3', **weights, **scalars
    )
    shared = tmp_path / FOLDER
    path, graph = source(tmp_path / "source", shared, model=model)
    (whole,) = steps(path, tmp_path / "whole", "quant_pre_process")
    (split,) = steps(graph, tmp_path / "out", "quant_pre_process", split_folder=shared)
    assert facts(split) == facts(whole)
    assert whole["outcome"] == "ok", whole["message"]


def test_a_model_above_two_gigabytes_is_prepared_without_its_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / FOLDER
    path, graph = source(tmp_path / "source", shared, external=True)
    monkeypatch.setattr(graphs, "EXTERNAL_DATA_BYTES", WEIGHT)
    (whole,) = steps(path, tmp_path / "whole", "quant_pre_process")
    written = moved()
    (split,) = steps(graph, tmp_path / "out", "quant_pre_process", split_folder=shared)
    assert moved() - written < 2 * WEIGHT
    assert facts(split)[:3] == facts(whole)[:3] == ("quant_pre_process", "ok", "")
    copy = tmp_path / "copy"
    copy.mkdir()
    write_files(Path(split["path"]), copy)
    feeds = {"x": np.ones((2, WIDTH), np.float32)}
    results = [run_once(folder / "model.onnx", feeds) for folder in (copy, Path(whole["path"]))]
    np.testing.assert_array_equal(results[0], results[1])


@pytest.mark.parametrize(
    "name",
    ["static_quantization", "dynamic_quantization", "weight_only_quantization", "calibrated_weight_quantization"],
)
def test_weights_of_split_models_must_be_finite(name: str, tmp_path: Path) -> None:
    shared, model = tmp_path / "store" / FOLDER, layers()
    weight = next(tensor for tensor in model.graph.initializer if tensor.name == "w1")
    weight.CopyFrom(numpy_helper.from_array(np.full((WIDTH, WIDTH), np.nan, np.float32), "w1"))
    _, graph = source(tmp_path / "source", shared, model=model)
    (step,) = steps(graph, tmp_path / "out", name, split_folder=shared)
    assert (step["outcome"], "'w1' has infinite values or NaN" in step["message"]) == ("refused", True)


def test_steps_of_one_call_build_on_split_models(tmp_path: Path) -> None:
    shared = tmp_path / FOLDER
    path, graph = source(tmp_path / "source", shared)
    names = ("name_fix", "shape_inference", "constant_folding", "simplify")
    whole = steps(path, tmp_path / "whole", *names)
    split = steps(graph, tmp_path / "out", *names, split_folder=shared)
    assert [facts(step) for step in split] == [facts(step) for step in whole]
    assert [step["outcome"] for step in split].count("ok") > 2


def moved() -> int:
    """The bytes that this process has written so far."""
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(fields["wchar"])


@pytest.mark.parametrize("place", [in_graph, in_branches])
@pytest.mark.parametrize("name", ["name_fix", "constant_folding", "simplify"])
def test_a_graph_pass_writes_no_weights(name: str, place: Place, tmp_path: Path) -> None:
    shared = tmp_path / FOLDER
    _, graph = source(tmp_path / "source", shared, model=place(layers()))
    stored, written = bytes_in(shared), moved()
    (step,) = steps(graph, tmp_path / "out", name, split_folder=shared)
    assert step["outcome"] == "ok"
    assert bytes_in(shared) - stored < WEIGHT / 2
    assert moved() - written < 2 * WEIGHT


def test_a_rejected_model_leaves_no_graph(tmp_path: Path) -> None:
    script = tmp_path / "user.py"
    script.write_text(
        "from autoopt import register\n\n@register('breaks')\ndef breaks(model):\n"
        "    '''Computes something else.'''\n    model.graph.node[-1].op_type = 'Neg'\n    return model\n"
    )
    shared = tmp_path / FOLDER
    _, graph = source(tmp_path / "source", shared)
    before = sorted(shared.glob("*.onnx"))
    reply = run({
        "model": {"path": str(graph)},
        "steps": [{"pass": "breaks"}],
        "output": str(tmp_path / "out"),
        "user_script": str(script),
        "split_folder": str(shared),
    })  # fmt: skip
    assert reply["steps"][0]["outcome"] == "failed"
    assert sorted(shared.glob("*.onnx")) == before
    assert not list(shared.glob(".*"))
