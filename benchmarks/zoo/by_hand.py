"""Models optimized by hand with the tools of the field: what `autoopt run` has to reach.

    python benchmarks/zoo/by_hand.py FOLDER MODEL... [--autoopt DIR] [--best N] [--blocks N] [--json FILE]

FOLDER is that of run.py. For each model the script works as an expert would in a day: onnxruntime's own defaults, one
thread, simplifiers and fusion, ways to quantize with and without them (`first_recipes`, `SPECIAL`); then other
preparations and methods of calibration for the best of these (`refined_recipes`). All are timed in one process in
turns, in a few blocks each; then the fastest that keep the quality, the defaults and autoopt's model in many blocks.
The script prints a Markdown table: median latency, ratio to the source model (median over turns of the ratio of
neighbouring blocks), size, and quality, judged like a run judges it. With --work, made models are kept for a next time.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
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

from autoopt.measure.quality import task as task_metrics
from autoopt.measure.quality.agreement import compare_parts, estimate
from autoopt.measure.quality.output_kinds import parts_of

Feed = dict[str, np.ndarray]
Outputs = list[list[np.ndarray]]
"""For each output of a model, its value for each item."""
CALIBRATION_ITEMS = 50
COMPARED_ITEMS = 1024
LIMITS = {"accuracy": 0.01, "psnr": 0.5}
AGREEMENT = 0.98
"""The defaults of `autoopt run`: the accepted drop of a metric, and the agreement without labels."""
SCREENING_BLOCKS = 5
BLOCK_SECONDS = 0.02
WARM_SECONDS = 0.005
STEP_SECONDS = 120
REFINED = 3


@dataclass(frozen=True)
class Task:
    """A model with its data."""

    name: str
    path: Path
    evaluation: list[Feed]
    calibration: list[Feed]
    labels: np.ndarray | None


@dataclass(frozen=True)
class Row:
    """One model of the table. Times in ms; size in bytes."""

    model: str
    variant: str
    latency: float
    ratio: float
    size: int
    quality: float
    accepted: bool


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
    "static, per channel": partial(static, per_channel=True, **U8S8),
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
DEFAULTS = ("source", "quantize_dynamic", "quantize_static")


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


def read_task(folder: Path) -> Task:
    """Read a model's folder."""
    path = folder / "model.onnx"
    session = onnxruntime.InferenceSession(path)
    ranks = {value.name: len(value.shape) for value in session.get_inputs()}
    evaluation, labels = _feeds(folder / "evaluation.npz", ranks)
    calibration_file = folder / "calibration.npz"
    calibration = evaluation
    if calibration_file.exists():
        calibration, _ = _feeds(calibration_file, ranks)
    labels = None if labels is None else labels[:COMPARED_ITEMS]
    return Task(folder.name, path, evaluation[:COMPARED_ITEMS], calibration[:CALIBRATION_ITEMS], labels)


def _feeds(file: Path, ranks: Mapping[str, int]) -> tuple[list[Feed], np.ndarray | None]:
    """The items of a file; arrays whose rank is the input's keep axis 0, scalars are the same for all items."""
    arrays = dict(np.load(file))
    count = max(len(arrays[name]) for name in ranks if arrays[name].ndim)
    feeds = []
    for index in range(count):
        feed = {}
        for name, rank in ranks.items():
            array = arrays[name]
            if array.ndim > rank:
                array = array[index]
            elif rank:
                array = array[index : index + 1]
            feed[name] = array
        feeds.append(feed)
    return feeds, arrays.get("labels")


class Variant:
    """A model with its session."""

    def __init__(self, name: str, path: Path, recipe: Recipe) -> None:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.intra_op_num_threads = recipe.threads
        options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, recipe.level)
        # Threads of idle sessions would occupy the cores for longer than a turn of the others takes.
        options.add_session_config_entry("session.intra_op.spin_duration_us", "1000")
        for key, value in recipe.entries.items():
            options.add_session_config_entry(key, value)
        self.name = name
        self.size = path.stat().st_size
        self._session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self._inputs = [value.name for value in self._session.get_inputs()]
        self.output_names = [value.name for value in self._session.get_outputs()]
        self.output_shapes = [value.shape for value in self._session.get_outputs()]

    def run(self, feed: Feed) -> list[np.ndarray]:
        """Run one item."""
        return self._session.run(None, {name: feed[name] for name in self._inputs})

    def outputs(self, feeds: Sequence[Feed]) -> Outputs:
        """Run all items."""
        results = [self.run(feed) for feed in feeds]
        return [[result[index] for result in results] for index in range(len(self.output_names))]

    def block(self, feed: Feed) -> float:
        """Mean time of an inference in a block, in ms; the caches are warm."""
        inputs = {name: feed[name] for name in self._inputs}
        end = time.perf_counter() + WARM_SECONDS
        while True:
            self._session.run(None, inputs)
            if time.perf_counter() > end:
                break
        count = 0
        began = time.perf_counter()
        while True:
            self._session.run(None, inputs)
            count += 1
            elapsed = time.perf_counter() - began
            if elapsed > BLOCK_SECONDS:
                return 1000 * elapsed / count


def judge(task: Task, source: Variant, expected: Outputs, outputs: Outputs) -> tuple[float, bool]:
    """The quality metric that `autoopt run` takes, and if its limit is kept."""
    if task.labels is None:
        masks = [feed["attention_mask"] for feed in task.evaluation if "attention_mask" in feed]
        parts = parts_of(expected, source.output_names, source.output_shapes, masks=masks)
        agreement = estimate(compare_parts(parts, outputs, expected), len(task.evaluation)).value
        return agreement, agreement >= AGREEMENT
    metric = "accuracy" if task.labels.ndim == 1 else "psnr"
    labels = task.labels.astype(np.float32) if metric == "psnr" else task.labels
    value = _metric(metric, outputs, labels)
    return value, value >= _metric(metric, expected, labels) - LIMITS[metric]


def _metric(name: str, outputs: Outputs, labels: np.ndarray) -> float:
    return task_metrics.measure(name, [np.concatenate([_row(item) for item in outputs[0]])], labels).value


def _row(item: np.ndarray) -> np.ndarray:
    return item if item.ndim else item[None]


def time_in_turns(variants: Sequence[Variant], feeds: Sequence[Feed], blocks: int) -> dict[str, np.ndarray]:
    """Times of the blocks of each variant, in ms; every turn has one block of each, in changing order."""
    random = np.random.default_rng(0)
    times: dict[str, list[float]] = {variant.name: [] for variant in variants}
    for turn in range(blocks):
        for index in random.permutation(len(variants)):
            variant = variants[index]
            times[variant.name].append(variant.block(feeds[turn % len(feeds)]))
    return {name: np.array(values) for name, values in times.items()}


class Workshop:
    """Carries out recipes, each step in a process of its own, because some tools crash; shared steps run once."""

    def __init__(self, task: Task, folder: Path) -> None:
        self._task = task
        self._folder = folder
        self._paths: dict[tuple[Step, ...], Path | None] = {}

    def make(self, name: str, recipe: Recipe) -> Path | None:
        """The path of the finished model; None if a step fails, which is said once."""
        path: Path | None = self._task.path
        for number in range(1, len(recipe.steps) + 1):
            key = recipe.steps[:number]
            if key not in self._paths:
                self._paths[key] = self._carry_out(f"{self._task.name}, {name}", key, path)
            path = self._paths[key]
            if path is None:
                return None
        return path

    def _carry_out(self, name: str, steps: tuple[Step, ...], source: Path) -> Path | None:
        text = f"{self._task.name} {' '.join(map(_describe, steps))}"
        target = self._folder / f"{hashlib.sha256(text.encode()).hexdigest()[:20]}.onnx"
        failure = target.with_suffix(".failed")
        if target.exists() or failure.exists():
            return target if target.exists() else None
        context = multiprocessing.get_context("forkserver")  # a fork would copy the runtime's locks
        context.set_forkserver_preload(["onnxruntime.quantization", "onnxslim", "onnxsim"])
        process = context.Process(target=_step, args=(name, steps[-1], self._task, source, target))
        process.start()
        process.join(STEP_SECONDS)
        if process.is_alive():
            process.kill()
            process.join()
        if process.exitcode == 0 and target.exists():
            return target
        if process.exitcode != 1:
            print(f"{name}: the process ended with {process.exitcode}", file=sys.stderr)
        target.unlink(missing_ok=True)
        failure.touch()
        return None


def _describe(step: Step) -> str:
    """A text that tells steps with other options apart."""
    if isinstance(step, partial):
        return f"{step.func.__name__}{step.args}{sorted(step.keywords.items())}"
    return step.__name__


def _step(name: str, step: Step, task: Task, source: Path, target: Path) -> None:
    try:
        step(task, source, target)
    except Exception as error:  # tools fail in many ways; the others go on
        print(f"{name}: {type(error).__name__}: {error}"[:200].replace("\n", " "), file=sys.stderr)
        sys.exit(1)


class Bench:
    """The variants of a model: made, opened, judged and timed."""

    def __init__(self, task: Task, folder: Path) -> None:
        self._task = task
        self._workshop = Workshop(task, folder)
        self._contents: set[tuple[object, ...]] = set()
        self.recipes: dict[str, Recipe] = {}
        self.variants: dict[str, Variant] = {}
        self.quality: dict[str, tuple[float, bool]] = {}
        self._expected: Outputs | None = None
        self._known = folder / "quality.json"

    def add(self, recipes: Mapping[str, Recipe]) -> None:
        """Make, open and judge the variants; those that fail or repeat another one are left out."""
        paths = {name: self._workshop.make(name, recipe) for name, recipe in recipes.items()}
        for name, path in paths.items():
            if path is None or name in self.variants:
                continue
            recipe = recipes[name]
            content = (hashlib.sha256(path.read_bytes()).digest(), recipe.threads, recipe.level)
            if content in self._contents:
                continue
            self._contents.add(content)
            try:
                self.open(name, path, recipe)
            except Exception as error:  # the runtime refuses what some tools make
                message = f"{self._task.name}, {name}: {type(error).__name__}: {error}"
                print(message[:200].replace("\n", " "), file=sys.stderr)

    def open(self, name: str, path: Path, recipe: Recipe) -> None:
        """Open and judge a finished model."""
        variant = Variant(name, path, recipe)
        variant.run(self._task.evaluation[0])
        known = json.loads(self._known.read_text()) if self._known.exists() else {}
        content = f"{self._task.name} {hashlib.sha256(path.read_bytes()).hexdigest()}"
        self.variants[name] = variant
        self.recipes[name] = recipe
        if content not in known:
            known[content] = self._judged(variant)
            self._known.write_text(json.dumps(known))
        value, is_accepted = known[content]
        self.quality[name] = value, is_accepted

    def _judged(self, variant: Variant) -> tuple[float, bool]:
        source = self.variants["source"]
        if self._expected is None:
            self._expected = source.outputs(self._task.evaluation)
        return judge(self._task, source, self._expected, variant.outputs(self._task.evaluation))

    def ranking(self) -> list[str]:
        """The recipes that keep the quality, the fastest first, after a few blocks of each."""
        times = time_in_turns(list(self.variants.values()), self._task.evaluation[:20], SCREENING_BLOCKS)
        order = sorted(times, key=lambda name: float(np.median(times[name])))
        return [name for name in order if self.quality[name][1] and name not in (*DEFAULTS, "autoopt")]


def rows_of(task: Task, folder: Path, best: int, blocks: int, finished: Path | None) -> list[Row]:
    """Make, judge and time the variants of a model; `finished` is a package of `autoopt run`."""
    bench = Bench(task, folder)
    bench.add(first_recipes(task))
    bench.add(refined_recipes({name: bench.recipes[name] for name in bench.ranking()[:REFINED]}))
    if finished is not None:
        options = json.loads((finished / "session.json").read_text())["session_options"]
        recipe = Recipe(threads=options["intra_op_num_threads"], level=options["graph_optimization_level"])
        bench.open("autoopt", finished / "model.onnx", recipe)
    chosen = [*DEFAULTS, *bench.ranking()[:best], "autoopt"]
    finalists = [bench.variants[name] for name in chosen if name in bench.variants]
    times = time_in_turns(finalists, task.evaluation[:20], blocks)
    rows = []
    for variant in finalists:
        ratio = float(np.median(times[variant.name] / times["source"]))
        value, is_accepted = bench.quality[variant.name]
        latency = float(np.median(times[variant.name]))
        rows.append(Row(task.name, variant.name, latency, ratio, variant.size, value, is_accepted))
    return rows


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--autoopt", type=Path, metavar="DIR", help="packages of `autoopt run`, DIR/MODEL, to time too")
    parser.add_argument("--best", type=int, default=5, help="recipes to show, the fastest first")
    parser.add_argument("--blocks", type=int, default=60)
    parser.add_argument("--work", type=Path, metavar="DIR", help="keep models there, and take those that are there")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the rows there")
    options = parser.parse_args()
    rows = []
    print("| model | variant | latency, ms | ratio | size ratio | quality |\n|---|---|---|---|---|---|")
    for model in options.models:
        task = read_task(options.folder / model)
        finished = None
        if options.autoopt and (options.autoopt / model / "model.onnx").exists():
            finished = options.autoopt / model
        with tempfile.TemporaryDirectory() as temporary:
            work = options.work or Path(temporary)
            work.mkdir(parents=True, exist_ok=True)
            for row in rows_of(task, work, options.best, options.blocks, finished):
                size = row.size / task.path.stat().st_size
                broken = "" if row.accepted else " (too low)"
                print(
                    f"| {row.model} | {row.variant} | {row.latency:.3f} | {row.ratio:.3f}x | {size:.3f}x "
                    f"| {row.quality:.4f}{broken} |",
                    flush=True,
                )
                rows.append(row)
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=2))


if __name__ == "__main__":
    main()
