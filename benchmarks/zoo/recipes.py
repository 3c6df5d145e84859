"""Recipes of by_hand.py: what an expert tries on a model, step by step, with the tools of the field."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper
from onnxruntime.quantization import (
    CalibrationDataReader,
    CalibrationMethod,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)
from onnxruntime.quantization.shape_inference import quant_pre_process

Feed = dict[str, np.ndarray]


@dataclass(frozen=True)
class Task:
    """A model with its data."""

    name: str
    path: Path
    evaluation: list[Feed]
    calibration: list[Feed]
    labels: np.ndarray | None


Step = Callable[[Task, Path, Path], None]
"""Reads a model from the first path and writes one to the second."""


@dataclass(frozen=True)
class Recipe:
    """Steps one after the other, then the options of the session."""

    steps: tuple[Step, ...] = ()
    quantization: str = ""
    """Its name in `QUANTIZATIONS`."""
    threads: int = 0
    level: str = "ORT_ENABLE_ALL"
    entries: Mapping[str, str] = field(default_factory=dict)


class Items(CalibrationDataReader):
    """Calibration items, one at a time, with the inputs that a model still has."""

    def __init__(self, model: Path, feeds: Sequence[Feed]) -> None:
        names = {value.name for value in onnx.load(model, load_external_data=False).graph.input}
        self._feeds = iter([{name: feed[name] for name in feed if name in names} for feed in feeds])

    def get_next(self) -> Feed | None:
        return next(self._feeds, None)


def opset(task: Task, source: Path, target: Path) -> None:
    """Convert to opset 17."""
    onnx.save(onnx.version_converter.convert_version(onnx.load(source), 17), target)


def fixed(task: Task, source: Path, target: Path) -> None:
    """Make inputs that never change constant, and the shapes of the others those of the data."""
    model = onnx.load(source)
    first = task.evaluation[0]
    feeds = [*task.evaluation[:50], *task.calibration[:50]]
    for value in list(model.graph.input):
        array = first.get(value.name)
        if array is None:
            continue
        if len(feeds) > 1 and all(np.array_equal(feed[value.name], array) for feed in feeds):
            model.graph.input.remove(value)
            model.graph.initializer.append(numpy_helper.from_array(array, value.name))
            continue
        for dimension, size in zip(value.type.tensor_type.shape.dim, array.shape, strict=True):
            dimension.Clear()
            dimension.dim_value = size
    del model.graph.value_info[:]
    for value in model.graph.output:
        for dimension in value.type.tensor_type.shape.dim:
            if not dimension.dim_value:
                dimension.Clear()
    onnx.save(model, target)


def slim(task: Task, source: Path, target: Path) -> None:
    """Simplify with onnxslim."""
    import onnxslim

    onnx.save(onnxslim.slim(onnx.load(source)), target)


def simplified(task: Task, source: Path, target: Path) -> None:
    """Simplify with onnxsim."""
    import onnxsim

    onnx.save(onnxsim.simplify(onnx.load(source))[0], target)


def stored(level: str, task: Task, source: Path, target: Path) -> None:
    """Store the graph as onnxruntime optimizes it."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    options.optimized_model_filepath = str(target)
    onnxruntime.InferenceSession(source, options)


def fused(task: Task, source: Path, target: Path) -> None:
    """Fuse with onnxruntime's transformer optimizer for BERT."""
    from onnxruntime.transformers.optimizer import optimize_model

    optimize_model(str(source), model_type="bert", opt_level=1).save_model_to_file(str(target))


def fused_by_onnxscript(task: Task, source: Path, target: Path) -> None:
    """Fuse with onnxscript's rules for onnxruntime."""
    import onnx_ir
    from onnxscript.rewriter.ort_fusions import optimize_for_ort

    model = onnx_ir.load(source)
    optimize_for_ort(model)
    onnx_ir.save(model, target)


def hard_sigmoid(task: Task, source: Path, target: Path) -> None:
    """Replace `y * Clip(x + 3, 0, 6) / 6` with `y * HardSigmoid(x)`."""
    model = onnx.load(source)
    graph = model.graph
    numbers = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    numbers |= {name: float(array.reshape(-1)[0]) for name, array in numbers.items() if array.size == 1}
    producers = {name: node for node in graph.node for name in node.output}
    for division in [node for node in graph.node if node.op_type == "Div" and numbers.get(node.input[1]) == 6]:
        product = producers.get(division.input[0])
        if product is None or product.op_type != "Mul":
            continue
        clips = [name for name in product.input if name in producers and producers[name].op_type == "Clip"]
        if not clips or numbers.get(producers[clips[0]].input[2]) != 6:
            continue
        addition = producers[producers[clips[0]].input[0]]
        x = [name for name in addition.input if name not in numbers]
        if addition.op_type != "Add" or 3 not in [numbers.get(name) for name in addition.input]:
            continue
        producers[clips[0]].CopyFrom(helper.make_node("HardSigmoid", x, [clips[0]], clips[0], alpha=1 / 6, beta=0.5))
        product.output[0] = division.output[0]
        graph.node.remove(division)
    onnx.save(model, target)


def prepared(task: Task, source: Path, target: Path) -> None:
    """Prepare for quantization with onnxruntime's own tool."""
    quant_pre_process(source, target, skip_symbolic_shape=True)


def dynamic(task: Task, source: Path, target: Path, ops: list[str] | None = None, **options: object) -> None:
    """Quantize dynamically; Attention and LSTM too if `ops` says so."""
    quantize_dynamic(source, target, op_types_to_quantize=ops, **options)


def static(
    task: Task,
    source: Path,
    target: Path,
    exclude: str = "",
    ops: list[str] | None = None,
    **options: object,
) -> None:
    """Quantize statically; `exclude` leaves the first or last layer, or both, in float."""
    nodes = [node.name for node in onnx.load(source).graph.node if node.op_type in HEAVY]
    excluded = {"": [], "first": nodes[:1], "last": nodes[-1:], "ends": [*nodes[:1], *nodes[-1:]]}[exclude]
    feeds = Items(source, task.calibration)
    quantize_static(source, target, feeds, op_types_to_quantize=ops, nodes_to_exclude=excluded, **options)


def names(task: Task, source: Path, target: Path) -> None:
    """Give every node a unique name, which exclusions need."""
    model = onnx.load(source)
    for index, node in enumerate(model.graph.node):
        node.name = f"{node.op_type}_{index}"
    onnx.save(model, target)


HEAVY = ["Conv", "Gemm", "MatMul"]
DENSE = ["MatMul", "Attention", "LSTM"]
U8S8 = {"quant_format": QuantFormat.QDQ, "activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt8}
U8U8 = {**U8S8, "weight_type": QuantType.QUInt8}
"""With signed weights of 8 bits, sums of two products saturate on x86 CPUs without VNNI."""

PREPARATIONS: dict[str, tuple[Step, ...]] = {
    "": (prepared,),
    "opset 17, ": (opset, prepared),
    "fixed, onnxsim, ": (fixed, simplified, names, prepared),
    "fixed, onnxslim, ": (fixed, slim, names, prepared),
    "fixed, stored, ": (fixed, partial(stored, "ORT_ENABLE_BASIC"), names, prepared),
    "fixed, onnxslim, hard sigmoid, ": (fixed, slim, hard_sigmoid, names, prepared),
    "bert fusion, ": (slim, fused),
    "onnxscript fusion, ": (slim, fused_by_onnxscript),
}
FLOATS: dict[str, tuple[Step, ...]] = {
    "fixed, onnxsim": (fixed, simplified),
    "fixed, onnxslim": (fixed, slim),
    "fixed, onnxslim, hard sigmoid": (fixed, slim, hard_sigmoid),
    "fixed, stored extended": (fixed, partial(stored, "ORT_ENABLE_EXTENDED")),
    "bert fusion": (slim, fused),
    "onnxscript fusion": (slim, fused_by_onnxscript),
}
QUANTIZATIONS: dict[str, Step] = {
    "dynamic, products, per channel": partial(dynamic, ops=DENSE, per_channel=True),
    "dynamic, products": partial(dynamic, ops=DENSE),
    "dynamic, products, per channel, 7 bits": partial(dynamic, ops=DENSE, per_channel=True, reduce_range=True),
    "static, per channel": partial(static, per_channel=True, **U8S8),
    "static, per channel, 7 bits": partial(static, per_channel=True, reduce_range=True, **U8S8),
    "static, per channel, unsigned": partial(static, per_channel=True, **U8U8),
    "static, Conv, per channel, 7 bits": partial(static, ops=["Conv"], per_channel=True, reduce_range=True, **U8S8),
    "static": partial(static, **U8S8),
    "static, Conv and products, per channel": partial(static, ops=HEAVY, per_channel=True, **U8S8),
    "static, Conv, per channel": partial(static, ops=["Conv"], per_channel=True, **U8S8),
    "static, per channel, without first and last": partial(static, per_channel=True, exclude="ends", **U8S8),
    "static, per channel, without last": partial(static, per_channel=True, exclude="last", **U8S8),
    "static, Conv and products, per channel, without last": partial(
        static, ops=HEAVY, per_channel=True, exclude="last", **U8S8
    ),
}
VARIATIONS: dict[str, dict[str, object]] = {
    "percentile": {"calibrate_method": CalibrationMethod.Percentile},
    "entropy": {"calibrate_method": CalibrationMethod.Entropy},
    "QOperator": {"quant_format": QuantFormat.QOperator},
    "signed activations": {"activation_type": QuantType.QInt8},
}


FIRST_PREPARATIONS = ("", "fixed, onnxslim, ")


def first_recipes(task: Task) -> dict[str, Recipe]:
    """Recipes that an expert tries on any model."""
    recipes = {
        "source": Recipe(),
        "quantize_dynamic": Recipe((dynamic,)),
        "quantize_static": Recipe((prepared, static)),
        "one thread": Recipe(threads=1),
    }
    for name, steps in FLOATS.items():
        recipes[name] = Recipe(steps)
    for preparation in FIRST_PREPARATIONS:
        for name, step in QUANTIZATIONS.items():
            recipes[preparation + name] = Recipe((*PREPARATIONS[preparation], step), name)
    return {**recipes, **SPECIAL.get(task.name, {})}


def refined_recipes(best: Mapping[str, Recipe]) -> dict[str, Recipe]:
    """Recipes around the best ones: other preparations and methods of calibration, one thread."""
    recipes = {}
    for name, recipe in best.items():
        recipes[f"{name}, one thread"] = replace(recipe, threads=1)
        if recipe.quantization:
            for preparation, steps in PREPARATIONS.items():
                step = QUANTIZATIONS[recipe.quantization]
                recipes[preparation + recipe.quantization] = Recipe((*steps, step), recipe.quantization)
        if recipe.quantization.startswith("static"):
            for variation, options in VARIATIONS.items():
                step = partial(QUANTIZATIONS[recipe.quantization], **options)
                recipes[f"{name}, {variation}"] = Recipe((*recipe.steps[:-1], step))
    return recipes


SPECIAL: dict[str, dict[str, Recipe]] = {
    "dtln_stage1": {
        "fixed, onnxsim, Conv and products static, LSTM dynamic": Recipe(
            (
                *PREPARATIONS["fixed, onnxsim, "],
                partial(static, ops=HEAVY, per_channel=True, **U8S8),
                partial(dynamic, ops=["LSTM"], per_channel=True),
            )
        ),
    },
}
"""Recipes for single models."""
for voice in ("silero_vad", "silero_vad_op15", "silero_vad_ifless", "silero_vad_16k"):
    SPECIAL[voice] = {
        "fixed, onnxsim, Conv static, LSTM dynamic": Recipe(
            (
                *PREPARATIONS["fixed, onnxsim, "],
                partial(static, ops=["Conv"], per_channel=True, **U8S8),
                partial(dynamic, ops=["LSTM", "MatMul"], per_channel=True),
            )
        ),
    }
