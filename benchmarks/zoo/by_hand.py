"""Models optimized by hand with the tools of the field: what `autoopt run` has to reach.

    python benchmarks/zoo/by_hand.py FOLDER MODEL... [--autoopt DIR] [--best N] [--blocks N] [--json FILE]

FOLDER has a folder for each model, with `model.onnx`, `evaluation.npz` (one array per input, optionally `labels`) and,
optionally, `calibration.npz`; public.py makes such folders.

For each model the script works as an expert would in a day: onnxruntime's own defaults, one
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
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import onnxruntime
from recipes import Feed, Recipe, Step, Task, first_recipes, refined_recipes

from autoopt.measure.quality import task as task_metrics
from autoopt.measure.quality.agreement import compare_parts, estimate
from autoopt.measure.quality.output_kinds import parts_of

Outputs = list[list[np.ndarray]]
"""For each output of a model, its value for each item."""
CALIBRATION_ITEMS = 50
COMPARED_ITEMS = 1024
LIMITS = {"accuracy": 0.01, "r2": 0.01, "psnr": 0.5}
AGREEMENT = 0.98
"""The defaults of `autoopt run`: the accepted drop of a metric, and the agreement without labels."""
SCREENING_BLOCKS = 5
BLOCK_SECONDS = 0.02
WARM_SECONDS = 0.005
STEP_SECONDS = 120
LONGEST_SECONDS = 60
"""Time from which no further turn begins."""
REFINED = 3
DEFAULTS = ("source", "quantize_dynamic", "quantize_static")
OLIVE, ONE_THREAD = "olive, ", "one thread"


@dataclass(frozen=True)
class Row:
    """One model of the table. Times in ms; size in bytes."""

    model: str
    variant: str
    latency: float
    ratio: float
    low: float
    high: float
    """Quartiles of the ratio."""
    size: int
    quality: float
    accepted: bool


@dataclass(frozen=True)
class Options:
    """Options of the command line."""

    work: Path
    """Folder for made models."""
    best: int
    blocks: int
    autoopt: Path | None = None
    olive: Path | None = None
    on_one_thread: bool = False
    known: Path | None = None
    """Rows of an earlier run: only their recipes are made."""


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
    """A model with its session; with `on_one_thread`, the time of a block is CPU time of one thread."""

    def __init__(self, name: str, path: Path, recipe: Recipe, *, on_one_thread: bool = False) -> None:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.intra_op_num_threads = 1 if on_one_thread else recipe.threads
        options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, recipe.level)
        # Threads of idle sessions would occupy the cores for longer than a turn of the others takes.
        options.add_session_config_entry("session.intra_op.spin_duration_us", "1000")
        for key, value in recipe.entries.items():
            options.add_session_config_entry(key, value)
        self._clock = time.thread_time if on_one_thread else time.perf_counter
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
        end = self._clock() + WARM_SECONDS
        while True:
            self._session.run(None, inputs)
            if self._clock() > end:
                break
        count = 0
        began = self._clock()
        while True:
            self._session.run(None, inputs)
            count += 1
            elapsed = self._clock() - began
            if elapsed > BLOCK_SECONDS:
                return 1000 * elapsed / count


def judge(task: Task, source: Variant, expected: Outputs, outputs: Outputs) -> tuple[float, bool]:
    """The quality metric that `autoopt run` takes, and if its limit is kept."""
    if task.labels is None:
        masks = [feed["attention_mask"] for feed in task.evaluation if "attention_mask" in feed]
        parts = parts_of(expected, source.output_names, source.output_shapes, masks=masks)
        agreement = estimate(compare_parts(parts, outputs, expected), len(task.evaluation)).value
        return agreement, agreement >= AGREEMENT
    metric = "accuracy"
    if task.labels.ndim > 1:
        metric = "psnr"
    elif task.labels.dtype.kind == "f":
        metric = "r2"
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
    end = time.monotonic() + LONGEST_SECONDS
    for turn in range(blocks):
        if time.monotonic() > end and turn >= SCREENING_BLOCKS:
            break
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

    def __init__(self, task: Task, folder: Path, *, on_one_thread: bool) -> None:
        self._task = task
        self._on_one_thread = on_one_thread
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
            threads = 1 if self._on_one_thread else recipe.threads
            content = (hashlib.sha256(path.read_bytes()).digest(), threads, recipe.level)
            if content in self._contents:
                continue
            self._contents.add(content)
            self.try_to_open(name, path, recipe)

    def try_to_open(self, name: str, path: Path, recipe: Recipe) -> None:
        """Open and judge a finished model, unless the runtime refuses what some tool made."""
        try:
            self.open(name, path, recipe)
        except Exception as error:
            message = f"{self._task.name}, {name}: {type(error).__name__}: {error}"
            print(message[:200].replace("\n", " "), file=sys.stderr)

    def open(self, name: str, path: Path, recipe: Recipe) -> None:
        """Open and judge a finished model."""
        variant = Variant(name, path, recipe, on_one_thread=self._on_one_thread)
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
        """All that keep the quality, the fastest first, after a few blocks of each."""
        times = time_in_turns(list(self.variants.values()), self._task.evaluation[:20], SCREENING_BLOCKS)
        order = sorted(times, key=lambda name: float(np.median(times[name])))
        return [name for name in order if self.quality[name][1] and name not in (*DEFAULTS, "autoopt")]


def _known_recipes(task: Task, rows: Path) -> dict[str, Recipe]:
    """The recipes that an earlier run with --json chose, and these on one thread."""
    recipes = first_recipes(task)
    recipes = {**refined_recipes(recipes), **recipes}
    names = dict.fromkeys(DEFAULTS) | {row["variant"]: None for row in json.loads(rows.read_text())}
    known = {name: recipes[name] for name in names if name in recipes}
    single = {f"{name}, {ONE_THREAD}": replace(recipe, threads=1) for name, recipe in known.items()}
    return {**known, **{name: recipe for name, recipe in single.items() if name.split(", ")[0] not in DEFAULTS[1:]}}


def rows_of(task: Task, options: Options) -> list[Row]:
    """Make, judge and time the variants of a model."""
    bench = Bench(task, options.work, on_one_thread=options.on_one_thread)
    if options.known is None:
        bench.add(first_recipes(task))
        bench.add(refined_recipes({name: bench.recipes[name] for name in bench.ranking()[:REFINED]}))
    else:
        bench.add(_known_recipes(task, options.known))
    chosen = [*DEFAULTS, *bench.ranking()[: options.best], "autoopt"]
    if options.olive is not None:
        for path in sorted((options.olive / task.name).glob("*.onnx")):
            bench.try_to_open(f"{OLIVE}{path.stem}", path, Recipe())
        chosen += [name for name in bench.ranking() if name.startswith(OLIVE)][:1]
    finished = None if options.autoopt is None else options.autoopt / task.name
    if finished is not None and (finished / "model.onnx").exists():
        session = json.loads((finished / "session.json").read_text())["session_options"]
        recipe = Recipe(threads=session["intra_op_num_threads"], level=session["graph_optimization_level"])
        bench.open("autoopt", finished / "model.onnx", recipe)
    finalists = [bench.variants[name] for name in chosen if name in bench.variants]
    times = time_in_turns(finalists, task.evaluation[:20], options.blocks)
    rows = []
    for variant in finalists:
        low, ratio, high = np.quantile(times[variant.name] / times["source"], [0.25, 0.5, 0.75]).tolist()
        value, is_accepted = bench.quality[variant.name]
        latency = float(np.median(times[variant.name]))
        rows.append(Row(task.name, variant.name, latency, ratio, low, high, variant.size, value, is_accepted))
    return rows


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--autoopt", type=Path, metavar="DIR", help="packages of `autoopt run`, DIR/MODEL, to time too")
    parser.add_argument("--olive", type=Path, metavar="DIR", help="models of olive_chains.py, DIR/MODEL, to time too")
    parser.add_argument("--best", type=int, default=5, help="recipes to show, the fastest first")
    parser.add_argument("--blocks", type=int, default=60)
    parser.add_argument("--one-thread", action="store_true", help="compare CPU times of one thread, on a busy machine")
    parser.add_argument("--work", type=Path, metavar="DIR", help="keep models there, and take those that are there")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the rows there")
    parser.add_argument("--known", type=Path, metavar="FILE", help="only the recipes of an earlier run's --json")
    arguments = parser.parse_args()
    rows = []
    print("| model | variant | latency, ms | ratio (quartiles) | size ratio | quality |\n|---|---|---|---|---|---|")
    for model in arguments.models:
        task = read_task(arguments.folder / model)
        with tempfile.TemporaryDirectory() as temporary:
            work = arguments.work or Path(temporary)
            work.mkdir(parents=True, exist_ok=True)
            options = Options(
                work,
                arguments.best,
                arguments.blocks,
                arguments.autoopt,
                arguments.olive,
                arguments.one_thread,
                arguments.known,
            )
            for row in rows_of(task, options):
                print(_markdown(row, task), flush=True)
                rows.append(row)
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(row) for row in rows], indent=2))


def _markdown(row: Row, task: Task) -> str:
    size = row.size / task.path.stat().st_size
    broken = "" if row.accepted else " (too low)"
    ratio = f"{row.ratio:.3f}x ({row.low:.3f} to {row.high:.3f})"
    quality = f"{row.quality:.4f}{broken}"
    return f"| {row.model} | {row.variant} | {row.latency:.3f} | {ratio} | {size:.3f}x | {quality} |"


if __name__ == "__main__":
    main()
