"""Run these models together as they were measured, and time them against the models that they were made from.

Needs only onnxruntime and numpy. The folder of this file holds a package for each model, `model_set.json` with how they
connect, `result.json` with what was measured, and `inputs.npz` with the inputs of one inference of all together.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import onnxruntime as ort

FOLDER = Path(__file__).resolve().parent

if (FOLDER / "model_set.json").is_file():  # in a package, which needs no autoopt
    sys.path.insert(0, str(FOLDER))
    import model_set  # type: ignore[import-not-found]  # lies beside this file there
    import run_package  # type: ignore[import-not-found]
else:
    from autoopt.model import model_set, run_package


def main(arguments: list[str] | None = None) -> int:
    """Run one inference, time it, and report; returns 1 if the gain is clearly smaller here than the recorded one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=Path, default=FOLDER / "inputs.npz", help="an .npz file, one array per input")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long to measure [default: 10]")
    options = parser.parse_args(arguments)
    os.environ.setdefault("ORT_DISABLE_CPU_AFFINITY_WARNING", "1")
    recorded = run_package.read(FOLDER / "result.json")
    feed = run_package.read_inputs(options.inputs)
    session = load()
    description = session.description
    for name, part in description.parts.items():
        run_package.refuse_other_model(FOLDER / part.file, run_package.read(FOLDER / name / "recipe.json"))
    print(f"models   {recorded['chain']}")
    for value in session.get_inputs():
        print(f"input    {value.name}: {run_package.described(feed[value.name])}")
    for output, value in zip(session.get_outputs(), session.run(None, feed), strict=True):
        print(f"output   {output.name}: {run_package.described(value)}")
    sources, reason = find_sources(description)
    if not sources:
        blocks = run_package.time_alone(make_call(lambda: session, feed), time.perf_counter, options.seconds)
        print(f"{run_package.milliseconds(blocks)} per inference. {reason}")
        return 0
    print(f"source   {', '.join(map(str, sources.values()))}")
    openers = (partial(make_call, partial(source_session, description, sources), feed), partial(make_call, load, feed))
    ratio = run_package.recorded_ratio(recorded)
    code: int = run_package.compare(openers, time.perf_counter, ratio, options.seconds, "these models")
    return code


def make_call(open_session: Callable[[], model_set.ModelSetSession], feed: Mapping[str, Any]) -> Callable[[], Any]:
    """Open a session and warm it up; returns the function that runs it once."""
    call = partial(open_session().run, None, feed)
    run_package.warm_up(call)
    return call


def load() -> model_set.ModelSetSession:
    """Open these models as one session."""
    return open_set(model_set.ModelSet.read(FOLDER / model_set.MODEL_SET), open_part)


def open_part(model: Path, _: Mapping[str, Any]) -> ort.InferenceSession:
    """Open a model of the set with the session of its own package."""
    return run_package.open_session(model, run_package.resting(run_package.read(model.parent / "session.json")))


def find_sources(description: model_set.ModelSet) -> tuple[dict[str, Path], str]:
    """Find the source of each model: by part, or none of them and the reason."""
    sources = {}
    for name in description.parts:
        recipe = run_package.read(FOLDER / name / "recipe.json")
        source = next((Path(file["path"]) for file in recipe["source_files"] if is_unchanged(file)), None)
        if source is None:
            return {}, f"The source of {name} is not on this machine, so there is nothing to compare with."
        sources[name] = source
    return sources, ""


def is_unchanged(file: Mapping[str, str]) -> bool:
    """True if a recorded file is there with the bytes that it had."""
    path = Path(file["path"])
    return path.is_file() and run_package.sha256(path) == file["sha256"]


def open_set(description: model_set.ModelSet, open_model: model_set.OpenPart) -> model_set.ModelSetSession:
    """Open all models, with the pipeline of the user's script if they run in one."""
    function = None
    if description.pipeline is not None:
        function = getattr(importlib.import_module("pipeline"), description.pipeline.function)
    return model_set.ModelSetSession(
        FOLDER / model_set.MODEL_SET, open_model, description=description, run_pipeline=function
    )


def source_session(description: model_set.ModelSet, sources: Mapping[str, Path]) -> model_set.ModelSetSession:
    """Open the source models as one set, each with the session that it was measured with."""
    folders = {str(source): FOLDER / name for name, source in sources.items()}

    def open_source(model: Path, _: Mapping[str, Any]) -> ort.InferenceSession:
        recipe = run_package.read(folders[str(model)] / "recipe.json")
        return run_package.open_session(model, run_package.resting(recipe["source_session"]))

    parts = {name: replace(part, file=str(sources[name])) for name, part in description.parts.items()}
    return open_set(replace(description, parts=parts), open_source)


if __name__ == "__main__":
    sys.exit(main())
