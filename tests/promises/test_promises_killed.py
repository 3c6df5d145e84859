"""Runs that are killed with all their processes, anywhere, go on where they stood and end as if nothing had been."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import subprocess
import sys
import time
from typing import Any

import pytest
from outside import (
    DAG,
    HANG_SECONDS,
    RUN,
    WAITING_DAG,
    WAITING_SCRIPT,
    Place,
    answer,
    filled,
    kill_group,
    read_until,
    wait_for_file,
    write_model,
)

pytestmark = pytest.mark.service

COUNTING_SCRIPT = """\
from pathlib import Path

from autoopt import register


@register("counts")
def counts(model):
    with Path(__file__).with_name("calls").open("a") as file:
        file.write("call\\n")
    return model
"""
COUNTING = DAG.replace("passes:\n", "user_script: script.py\npasses:\n  count: {pass: counts}\n").replace(
    "[names, tidy, quant]", "[names, tidy, quant, count]"
)
"""The pass `count` runs last, once for each of four quantized models."""
RESUME = ("resume", "--engine", "inline", "--json")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, float]:
    """The answer of a run that nobody kills, and the seconds that it took."""
    place = fill(Place(tmp_path_factory.mktemp("undisturbed") / "user"))
    began = time.monotonic()
    document = place.call(*RUN).document
    return answer(document), time.monotonic() - began


def fill(place: Place) -> Place:
    filled(place.folder, COUNTING, width=512)
    place.write("script.py", COUNTING_SCRIPT)
    return place


def statuses(place: Place) -> list[str]:
    return [one["status"] for one in place.call("runs", "--json").document]


@pytest.mark.parametrize(
    ("kills", "seed"), [(8, 0), *(pytest.param(60, seed, marks=pytest.mark.soak) for seed in range(1, 6))]
)
def test_a_run_killed_anywhere_ends_like_an_undisturbed_one(
    kills: int, seed: int, place: Place, undisturbed: tuple[Any, float]
) -> None:
    expected, seconds = undisturbed
    rng, done = random.Random(seed), 0
    while done < kills:
        fill(place)
        document = None
        while document is None:
            command = (
                RUN if not (place.home / "autoopt.db").exists() or "interrupted" not in statuses(place) else RESUME
            )
            process = place.start(*command)
            try:
                process.wait(rng.uniform(0.1, 0.9) * seconds if done < kills else HANG_SECONDS)
            except subprocess.TimeoutExpired:
                kill_group(process)
                process.communicate()
                done += 1
                continue
            said = place.finish(process).document
            document = said[0] if command == RESUME else said
        place.nothing_left()
        assert answer(document) == expected
        assert statuses(place) == ["finished"]
        assert place.call("store", "verify", "--json").document["ok"]
        shutil.rmtree(place.home)


@pytest.mark.parametrize("again", [RUN, RESUME], ids=["run", "resume"])
def test_what_a_killed_run_has_finished_is_not_done_again(
    again: tuple[str, ...], place: Place, undisturbed: tuple[Any, float]
) -> None:
    fill(place)
    process = place.start(*RUN)
    said = read_until(process, "trial 1:")
    kill_group(process)
    process.communicate()
    assert "trial 2:" not in said
    called = (place / "calls").read_text().count("call")
    document = place.call(*again).document
    document = document[0] if again == RESUME else document
    assert answer(document) == undisturbed[0]
    assert document["pass_runs"]["reused"] >= 2
    assert (place / "calls").read_text().count("call") <= max(4, called + 3)  # at most one was under way


def test_a_run_that_is_killed_leaves_the_best_so_far(place: Place) -> None:
    fill(place)
    place.write("script.py", WAITING_SCRIPT)
    place.write("dag.yaml", WAITING_DAG)
    process = place.start(*RUN, "--workers", "1")
    read_until(process, "out/ has the best model so far")
    kill_group(process)
    process.communicate()
    recipe = json.loads((place / "out" / "recipe.json").read_text())
    assert recipe["result"] == hashlib.sha256((place / "out" / "model.onnx").read_bytes()).hexdigest()
    used = [sys.executable, "out/run.py"]
    assert subprocess.run(used, cwd=place.folder, capture_output=True, timeout=HANG_SECONDS).returncode == 0
    place.write("go", "")
    place.call(*RESUME)


def test_resume_closes_what_cannot_go_on_and_continues_the_rest(place: Place) -> None:
    place.write("other.yaml", DAG.replace("seed: 5", "seed: 6"))
    for dag in ("other.yaml", "dag.yaml"):
        process = place.start("run", dag, *RUN[2:])
        read_until(process, "trial 1:")
        kill_group(process)
        process.communicate()
    place.write("other.yaml", DAG.replace("seed: 5", "seed: 7"))
    said = place.call("resume", "--all", "--engine", "inline", "--json")
    assert "cannot be resumed" in said.err
    (document,) = said.document
    assert document["trials"]["total"] == 4
    assert sorted(statuses(place)) == ["failed", "finished"]


def test_a_sweep_that_is_killed_continues_with_the_model_that_it_had_begun(place: Place) -> None:
    script = COUNTING_SCRIPT.replace(
        "    return model", "    while not Path(__file__).with_name('go').exists(): pass\n    return model"
    )
    fill(place)
    place.write("script.py", script)
    write_model(place / "first" / "model.onnx", seed=1, width=512)
    write_model(place / "second" / "model.onnx", seed=2, width=512)
    place.write("zoo.yaml", "name: z\ndag: dag.yaml\nmodels: [first/model.onnx, second/model.onnx]\n")
    process = place.start("sweep", "zoo.yaml", "--engine", "inline", "--json")
    wait_for_file(place / "calls", process)
    kill_group(process)
    process.communicate()
    place.write("go", "")
    document = place.call("sweep", "zoo.yaml", "--engine", "inline", "--json", "--resume").document
    assert [entry["status"] for entry in document["models"]] == ["ok", "ok"]
