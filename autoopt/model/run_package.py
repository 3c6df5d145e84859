"""Run this model as it was measured, and time it against the model that it was made from.

Needs only onnxruntime and numpy. The folder of this file holds the model, `session.json` with the session that was
measured, `recipe.json` with how the model was made, and `inputs.npz` with the inputs of one inference.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import pkgutil
import sys
import time
import zipfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent

try:
    import numpy as np
    import onnxruntime as ort
except ModuleNotFoundError as error:
    sys.exit(f"{error.name} is not installed here; run: pip install -r {FOLDER / 'requirements.txt'}")

SESSIONS = {0: 4, 10: 8, 20: 16}
"""Sessions of each model, from these seconds of measuring on. Two sessions of one model differ by a few percent."""
T_QUANTILES = {4: 3.18, 8: 2.36, 16: 2.13}
"""Student's t for 95 %, two-sided, by the number of sessions."""
BLOCK_SECONDS, WARM_UP_SECONDS = 0.003, 0.1
LATENCIES = ("latency_p50", "latency_mean", "latency_p90", "latency_p99")
SAME = 0.1
"""Relative difference up to which two measured gains are the same: machines have moods that outlast a measurement."""
QUIET = 3
"""Level of onnxruntime's log: errors only."""
BUILT_IN = frozenset(ort.get_available_providers())
"""Execution providers that need no plug-in."""
PLUGIN = "onnxruntime_ep_"
"""Start of the name of a plug-in: a package beside onnxruntime that holds one more execution provider."""


def main(arguments: list[str] | None = None) -> int:
    """Run one inference, time it, and report; returns 1 if the model is another one or lacks the recorded gain here."""
    options = parse(arguments)
    os.environ.setdefault("ORT_DISABLE_CPU_AFFINITY_WARNING", "1")
    ort.set_default_logger_severity(QUIET)
    session_file = read(FOLDER / "session.json")
    recipe = read(FOLDER / "recipe.json")
    bind(session_file.get("affinity") or [])
    model = next((path for path in (FOLDER / "model.onnx", FOLDER / "model.ort") if path.is_file()), None)
    if model is None:
        sys.exit(f"{FOLDER}: has no model.onnx; 'autoopt export' writes the package again")
    refuse_other_model(model, recipe)
    feed = read_inputs(options.inputs)
    session = open_session(model, session_file)
    print(f"model    {model}: {recipe['chain']}")
    print(f"session  {', '.join(session.get_providers())}, onnxruntime {ort.__version__}{other_version(recipe)}")
    own_feed = inputs_of(session, feed)
    for name, value in own_feed.items():
        print(f"input    {name}: {described(value)}")
    for output, value in zip(session.get_outputs(), session.run(None, own_feed), strict=True):
        print(f"output   {output.name}: {described(value)}")
    del session
    source, reason = find_source(recipe, options.source)
    if source is None:
        blocks = time_alone(make_call(model, session_file, feed), clock_for(session_file), options.seconds)
        print(f"{milliseconds(blocks)} per inference. {reason}")
        return 0
    print(f"source   {source}")
    source_session = recipe.get("source_session") or session_file
    openers = (partial(make_call, source, source_session, feed), partial(make_call, model, session_file, feed))
    clock = clock_for(source_session, session_file)
    return compare(openers, clock, recorded_ratio(recipe), options.seconds, "this model")


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, help="the model to compare with [default: the one in recipe.json]")
    parser.add_argument("--inputs", type=Path, default=FOLDER / "inputs.npz", help="an .npz file, one array per input")
    parser.add_argument("--seconds", type=float, default=5.0, help="how long to measure [default: 5]")
    return parser.parse_args(arguments)


def read(path: Path) -> dict[str, Any]:
    """Read a JSON file of the package."""
    try:
        document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        sys.exit(f"{path}: cannot be read ({error})")
    return document


def refuse_other_model(model: Path, recipe: Mapping[str, Any]) -> None:
    """Exit unless this is the model that the recipe belongs to."""
    if recipe.get("model_sha256") not in (None, sha256(model)):
        sys.exit(f"{model}: is not the model that was measured; 'autoopt export' writes the package again")


def read_inputs(path: Path) -> dict[str, Any]:
    """Read the inputs of one inference; texts as objects, as onnxruntime takes them."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            feed = {name: arrays[name] for name in arrays.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        sys.exit(f"{path}: cannot be read ({error}); name an .npz file with --inputs")
    return {name: value.astype(object) if value.dtype.kind == "U" else value for name, value in feed.items()}


def bind(cores: list[int]) -> None:
    """Bind this process to the cores that the measuring one was bound to, where the system has them."""
    if cores and hasattr(os, "sched_setaffinity") and set(cores) <= os.sched_getaffinity(0):
        os.sched_setaffinity(0, cores)


def open_session(model: Path, document: Mapping[str, Any]) -> ort.InferenceSession:
    """Open a model with everything that its session was measured with."""
    provider = document["inference_session"]["providers"][0]
    if not has_provider(provider):
        sys.exit(f"{provider} is not in the installed onnxruntime {ort.__version__}; {other_runtime()}")
    options, arguments = session_arguments(document)
    options.log_severity_level = QUIET
    return ort.InferenceSession(str(model), options, **arguments)


def session_arguments(document: Mapping[str, Any]) -> tuple[ort.SessionOptions, dict[str, Any]]:
    """The options of a session and the keyword arguments of `InferenceSession`; the options hold a plug-in's device."""
    options = ort.SessionOptions()
    for name, value in document["session_options"].items():
        if isinstance(value, str):
            value = getattr(type(getattr(options, name)), value)
        setattr(options, name, value)
    for name, value in document["session_config_entries"].items():
        options.add_session_config_entry(name, value)
    arguments = dict(document["inference_session"])
    own_options = arguments.pop("provider_options", None) or [{}] * len(arguments["providers"])
    provider = arguments["providers"][0]
    if provider in BUILT_IN:
        arguments["provider_options"] = own_options
    else:
        del arguments["providers"]
        options.add_provider_for_devices(plugin_devices(provider)[:1], own_options[0])
    return options, arguments


def has_provider(provider: str) -> bool:
    """True if the installed onnxruntime or a plug-in beside it has an execution provider."""
    return provider in BUILT_IN or bool(plugin_devices(provider))


def plugin_devices(provider: str) -> list[ort.OrtEpDevice]:
    """The devices of a plug-in's execution provider; registers all plug-ins."""
    for plugin in plugins():
        with suppress(Exception):  # one that does not load has none
            register(plugin)
    return [device for device in ort.get_ep_devices() if device.ep_name == provider]


def plugins() -> list[str]:
    """The plug-ins beside onnxruntime."""
    folder = str(Path(str(ort.__file__)).parents[1])
    return sorted(module.name for module in pkgutil.iter_modules([folder]) if module.name.startswith(PLUGIN))


@cache
def register(plugin: str) -> str:
    """Register the execution provider of a plug-in; returns its name."""
    module = import_module(plugin)
    provider = str(module.get_ep_name())
    if provider not in BUILT_IN:
        ort.register_execution_provider_library(provider, module.get_library_path())
    return provider


def other_runtime() -> str:
    """The way to the runtime that the model was measured with."""
    remedy, recipe = f"pip install -r {FOLDER / 'requirements.txt'}", FOLDER / "recipe.json"
    python = read(recipe)["target"].get("python") if recipe.is_file() else ""
    return f"run it with {python}, or {remedy}" if python else remedy


def find_source(recipe: Mapping[str, Any], given: Path | None) -> tuple[Path | None, str]:
    """Find the source model: the given file, else a recorded one whose bytes have not changed.

    Returns:
        Its path, or None and the reason.
    """
    if given is not None:
        if not given.is_file():
            sys.exit(f"{given}: no such file")
        return given, ""
    if recipe["chain"] == "source":
        return None, "This is the source model itself: nothing was faster."
    recorded = recipe.get("source_files") or []
    for file in recorded:
        path = Path(file["path"])
        if path.is_file() and sha256(path) == file["sha256"]:
            return path, ""
    reason = "The source model is not on this machine"
    if any(Path(file["path"]).is_file() for file in recorded):
        reason = "The source model has changed since"
    return None, f"{reason}, so there is nothing to compare with: name it with --source MODEL."


def recorded_ratio(document: Mapping[str, Any]) -> dict[str, float] | None:
    """The recorded ratio of a latency: its `value`, `low` and `high`, and `lowest` and `highest` of a single round.

    Rounds differ by more than the interval says, which is that of their centre. None if no latency was recorded.
    """
    ratios: Mapping[str, Mapping[str, float]] = document["ratios"]
    metric = next((name for name in LATENCIES if name in ratios), None)
    if metric is None:
        return None
    ratio = ratios[metric]
    lowest, highest = document.get("round_ratios", {}).get(metric, (ratio["low"], ratio["high"]))
    return {**ratio, "lowest": min(lowest, ratio["low"]), "highest": max(highest, ratio["high"])}


def sha256(path: Path) -> str:
    """Digest of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while True:
            part = file.read(1 << 20)
            if not part:
                return digest.hexdigest()
            digest.update(part)


def inputs_of(session: ort.InferenceSession, feed: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs that a model has; one that was made for constant inputs has fewer than its source."""
    return {spec.name: feed[spec.name] for spec in session.get_inputs() if spec.name in feed}


def make_call(model: Path, document: Mapping[str, Any], feed: Mapping[str, Any]) -> Callable[[], Any]:
    """Open a session and warm it up; returns the function that runs it once."""
    session = open_session(model, resting(document))
    call = caller(session, inputs_of(session, feed), is_bound=bool(document.get("io_binding")))
    warm_up(call)
    return call


def caller(session: ort.InferenceSession, feed: Mapping[str, Any], *, is_bound: bool) -> Callable[[], Any]:
    """Make a function that runs a session once.

    If it is bound, inputs and outputs are bound beforehand; outputs then stay on the device until they are read.
    """
    if not is_bound:
        return partial(session.run, None, dict(feed))
    binding = session.io_binding()
    for name, value in feed.items():
        binding.bind_cpu_input(name, value)
    for output in session.get_outputs():
        binding.bind_output(output.name)

    def run_bound() -> Any:  # noqa: ANN401  outputs of any type
        session.run_with_iobinding(binding)
        return binding.copy_outputs_to_cpu()

    return run_bound


def resting(document: Mapping[str, Any]) -> dict[str, Any]:
    """A session whose idle threads leave the cores to other sessions within a turn."""
    entries = {"session.intra_op.spin_duration_us": "1000", **document["session_config_entries"]}
    return {**document, "session_config_entries": entries}


def warm_up(call: Callable[[], Any]) -> None:
    """Call at least once, and until `WARM_UP_SECONDS` have passed."""
    until = time.perf_counter() + WARM_UP_SECONDS
    call()
    while time.perf_counter() < until:
        call()


def clock_for(*documents: Mapping[str, Any]) -> Callable[[], float]:
    """The clock to time these sessions with.

    Where one thread does all the work, its CPU time: then other programs that take the core away do not count.
    """
    for document in documents:
        is_on_cpu = document["inference_session"]["providers"][0] == "CPUExecutionProvider"
        if not is_on_cpu or document["session_options"].get("intra_op_num_threads") != 1:
            return time.perf_counter
    return time.thread_time


def time_block(call: Callable[[], Any], clock: Callable[[], float]) -> float:
    """Median seconds of an inference in one short block, after one that is not timed."""
    call()
    times: list[float] = []
    until = time.perf_counter() + BLOCK_SECONDS
    while len(times) < 2 or time.perf_counter() < until:
        began = clock()
        call()
        times.append(clock() - began)
    return float(np.median(times))


def time_alone(call: Callable[[], Any], clock: Callable[[], float], seconds: float) -> list[float]:
    """Seconds per inference in each block."""
    blocks: list[float] = []
    until = time.perf_counter() + seconds
    while not blocks or time.perf_counter() < until:
        blocks.append(time_block(call, clock))
    return blocks


def compare(
    openers: Sequence[Callable[[], Callable[[], Any]]],
    clock: Callable[[], float],
    ratio: Mapping[str, float] | None,
    seconds: float,
    noun: str,
) -> int:
    """Time source and model in turns, in several sessions each, and say if the recorded gain shows.

    `openers` open a session of the source and of the model, and return what runs it once. `ratio` is that of
    `recorded_ratio`. `noun` is what the text calls the model.

    Returns:
        The exit code: 1 if the recorded gain does not show here.
    """
    sources: list[float] = []
    models: list[float] = []
    factors: list[float] = []
    print(f"timing   both in turns, for at least {seconds:g} s", flush=True)
    sessions = max(count for least, count in SESSIONS.items() if seconds >= least)
    for _ in range(sessions):
        source, model = (opener() for opener in openers)
        first = len(sources)
        until = time.perf_counter() + seconds / sessions
        while len(sources) < first + 3 or time.perf_counter() < until:
            sources.append(time_block(source, clock))
            models.append(time_block(model, clock))
        factors.append(float(np.median(np.array(sources[first:]) / np.array(models[first:]))))
    print(f"median   source {milliseconds(sources)}, {noun} {milliseconds(models)} per inference")
    sentence, shows = judge(*interval_of(factors), ratio)
    print(sentence)
    return 0 if shows else 1


def interval_of(factors: Sequence[float]) -> tuple[float, float, float]:
    """The geometric mean of the sessions' factors, and the ends of its 95 % confidence interval."""
    logs = np.log(factors)
    half = T_QUANTILES[len(factors)] * float(np.std(logs, ddof=1)) / len(factors) ** 0.5
    centre = float(np.mean(logs))
    return float(np.exp(centre)), float(np.exp(centre - half)), float(np.exp(centre + half))


def judge(factor: float, low: float, high: float, ratio: Mapping[str, float] | None) -> tuple[str, bool]:
    """Compare the gain here, with its interval, with the recorded rounds.

    Returns:
        A sentence, and False if the recorded gain does not show.
    """
    text = f"Here {speed(factor)} ({low:.2f} to {high:.2f})"
    if ratio is None:
        return f"{text}; no latency was recorded.", True
    slowest, fastest = 1 / ratio["highest"], 1 / ratio["lowest"]
    text += f"; autoopt measured {speed(1 / ratio['value'])} ({slowest:.2f} to {fastest:.2f} in its rounds):"
    if ratio["high"] >= 1:
        return f"{text} no gain there, none needed here.", True
    # The mood of a machine explains a tenth less, but never that most of a small gain is gone.
    reaches = high >= max(slowest * (1 - SAME), slowest**0.5)
    if low <= 1 <= high:
        return f"{text} cannot tell from no gain; repeat it with --seconds 30.", reaches
    if not reaches or high < 1:
        return f"{text} no such gain on this machine.", False
    more = ", or more" if low > fastest * (1 + SAME) else ""
    return f"{text} the same gain{more}.", True


def speed(factor: float) -> str:
    """`1.58x faster`, `1.20x slower`."""
    if factor >= 1:
        return f"{factor:.2f}x faster"
    return f"{1 / factor:.2f}x slower"


def milliseconds(blocks: list[float]) -> str:
    """The median of the blocks, as the factor between two models is one too."""
    return f"{1000 * float(np.median(blocks)):.4g} ms"


def described(value: object) -> str:
    """Type and shape of an array: `float32 [1, 10]`."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {list(value.shape)}"
    return type(value).__name__


def other_version(recipe: Mapping[str, Any]) -> str:
    """A remark if the model was measured with another version of onnxruntime."""
    for name, version in (recipe.get("runtime") or {}).items():
        is_runtime = name.startswith("onnxruntime") and not name.startswith("onnxruntime-ep-")
        if is_runtime and version not in ("", ort.__version__):
            return f" (measured with {name} {version})"
    return ""


if __name__ == "__main__":
    sys.exit(main())
