"""Many runs on one store at the same time: each ends well, and no work is done twice."""

from __future__ import annotations

import pytest
from outside import DAG, RUN, Place, answer, write_model

pytestmark = pytest.mark.service

SCRIPT = """\
import os
from pathlib import Path

from autoopt import register


@register("counts")
def counts(model):
    with Path(__file__).with_name("calls").open("a") as file:
        file.write(f"{os.getpid()}\\n")
    return model
"""
COUNTING = (
    DAG.replace("passes:\n", "user_script: script.py\npasses:\n  count: {pass: counts}\n")
    .replace("[names, tidy, quant]", "[names, tidy, quant, count]")
    .replace("trials: 4", "trials: 5")
)
"""All that there is."""


@pytest.mark.parametrize("count", [4, pytest.param(24, marks=pytest.mark.soak)])
def test_runs_at_the_same_time_share_their_work_and_agree(count: int, place: Place) -> None:
    """All ask the same in different words, so that each searches itself."""
    write_model(place / "model.onnx", width=512)
    place.write("script.py", SCRIPT)
    for number in range(count):
        place.write(f"{number}.yaml", COUNTING.replace("name: small", f"name: small{number}"))
    commands = [("run", f"{n}.yaml", *RUN[2:], "--out", f"out{n}") for n in range(count)]
    documents = [place.finish(process).document for process in [place.start(*command) for command in commands]]
    assert {str(answer(document)) for document in documents} == {str(answer(documents[0]))}
    assert len((place / "calls").read_text().splitlines()) == 4  # one for each quantized model
    assert place.call("store", "verify", "--json").document["ok"]
    runs = place.call("runs", "--json", "--limit", str(2 * count)).document
    assert [one["status"] for one in runs] == ["finished"] * count


def test_the_same_command_at_the_same_time_is_one_search(place: Place) -> None:
    processes = [place.start(*RUN, "--out", f"out{number}") for number in range(3)]
    documents = [place.finish(process).document for process in processes]
    assert {str(answer(document)) for document in documents} == {str(answer(documents[0]))}


def test_gc_beside_a_run_takes_nothing_that_it_needs(place: Place) -> None:
    write_model(place / "old.onnx", width=48)
    old = place.call("run", "dag.yaml", "--model", "old.onnx", *RUN[4:], "--out", "old").document
    running, forgotten = place.start(*RUN), []
    assert running.stderr is not None
    gc = ("store", "gc", "--keep-runs", "1", "--yes", "--json")
    said = ""
    for line in running.stderr:
        said += line
        if "trial" in line:
            forgotten += place.call(*gc).document["runs"]
    document = place.finish(running, before=said).document
    forgotten += place.call(*gc).document["runs"]  # certainly after its end
    assert forgotten == [old["run"]]
    alone = place.call(*RUN, AUTOOPT_HOME=str(place / "alone")).document
    assert answer(document) == answer(alone)
    assert place.call("store", "verify", "--json").document["ok"]


def test_reading_commands_during_a_run_agree_with_it(place: Place) -> None:
    running = place.start(*RUN)
    while running.poll() is None:
        for command in (("runs", "--json"), ("runs", "latest", "--json"), ("store", "verify")):
            place.call(*command, codes=(0, 1, 2))
    assert answer(place.finish(running).document) == answer(place.call("runs", "latest", "--json").document)
