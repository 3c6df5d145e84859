"""Models and files that kill, flood or make no sense: each has one outcome, and work on the others goes on."""

from __future__ import annotations

import os
import re
import resource
import zipfile
from pathlib import Path

import builders
import onnx
import pytest
from mutants import mutants
from odd_models import odd_models
from outside import DAG, HANG_SECONDS, RUN, Place, one_line, write_model

pytestmark = pytest.mark.service

QUICK_DAG = """\
name: fuzz
passes: {tidy: {pass: constant_folding}, names: {pass: name_fix}}
chains: [[names, tidy]]
objectives: [{metric: size}]
constraints: []
limits: {pass_seconds: 20, measure_seconds: 20, memory: 1500000000}
measurement: {seconds: 0.02, replicas: 1, target_width: 2.0, rounds: 0}
"""


def swept(place: Place, models: dict[str, bytes]) -> dict[str, str]:
    """The outcome of each model in a sweep over all."""
    folder = place / "models"
    folder.mkdir()
    for name, content in models.items():
        (folder / f"{name}.onnx").write_bytes(content)
    write_model(folder / "good.onnx", width=512)
    place.write("fuzz.yaml", QUICK_DAG)
    place.write("zoo.yaml", "name: z\ndag: fuzz.yaml\nmodels: [models]\n")
    process = place.start("sweep", "zoo.yaml", "--engine", "inline", "--json")
    document = place.finish(process, 0, 1, limit=20 * HANG_SECONDS).document
    found = {entry["name"]: entry["status"] for entry in document["models"]}
    assert len(found) == len(models) + 1
    assert found["good"] == "ok"
    assert all((entry.get("error") or "").isprintable() for entry in document["models"])
    assert "running" not in {one["status"] for one in place.call("runs", "--json", "--limit", "999").document}
    return found


@pytest.mark.parametrize(
    ("count", "seed"), [(20, 1), *(pytest.param(250, seed, marks=pytest.mark.soak) for seed in range(2, 6))]
)
def test_each_mutant_of_a_model_has_an_outcome(count: int, seed: int, place: Place, tmp_path: Path) -> None:
    (tmp_path / "mutants").mkdir()
    found = swept(place, {path.stem: path.read_bytes() for path in mutants(count, seed, tmp_path / "mutants")})
    assert len({*found.values()}) > 1  # some still run, some do not


@pytest.mark.parametrize(
    "part", [slice(0, None, 8), pytest.param(slice(None), marks=pytest.mark.soak)], ids=["an eighth", "all"]
)
def test_each_odd_model_has_an_outcome(part: slice, place: Place) -> None:
    odd = list(odd_models().values())[part]
    swept(place, {str(number): content for number, content in enumerate(odd)})


@pytest.mark.parametrize("killer", [builders.split_abort, builders.endless_loop])
def test_a_source_model_that_kills_is_one_line_and_tried_again(killer: object, place: Place) -> None:
    place.write("model.onnx", killer().SerializeToString())  # type: ignore[operator]
    place.write("dag.yaml", QUICK_DAG.replace("_seconds: 20", "_seconds: 4"))
    for _ in range(2):
        said = place.call(*RUN, "--quiet", "--again", "failed", codes=(2,))
        assert "the source model cannot be measured" in one_line(said)


def test_apply_does_not_say_ok_for_what_no_runtime_loads(place: Place) -> None:
    place.write("cycle.onnx", odd_models()["a cycle"])
    said = place.call("apply", "name_fix", "cycle.onnx", "--out", "made.onnx", codes=(0, 1, 2))
    assert said.code or "cannot load" in said.err
    assert not re.search("(?<!not )checked", said.out)


LINES = DAG.splitlines(keepends=True)


def bad_dags() -> dict[str, str]:
    """Each line of a good file broken in several ways, and files that are something else."""
    found = {}
    for at, line in enumerate(LINES):
        before, after = "".join(LINES[:at]), "".join(LINES[at + 1 :])
        found |= {
            f"anchor {at}": before + f"&x{at} {line}" + after,
            f"unknown key {at}": before + line + f"zz{at}: 1\n" + after,
            f"control character {at}": before + line.replace(":", "\x01:", 1) + after,
            f"object {at}": before + line.replace(": ", ": !!python/name:os.system ", 1) + after,
            f"tab {at}": before + "\t" + line + after,
            f"alias {at}": before + line.replace(": ", ": *x ", 1) + after,
        }
    found = {name: text for name, text in found.items() if text != DAG}
    return found | {
        "twice": DAG * 2, "two documents": DAG + "---\n" + DAG, "braces": DAG.replace("[", "{"), "empty": "",
        "zero": "\0", "a list": "[]", "a number": "3", "other JSON": '{"name": 3}', "deep": "a: " + "[" * 500,
        "long number": "x: " + "9" * 100_000, "infinite": "a: .inf\n", "laughs": "a: &a [x,x]\nb: [*a,*a]\n",
        "repeated": DAG.replace("quant]", "quant, quant]"), "merge": "<<: {a: 1}\n",
        "negative": DAG.replace("trials: 4", "trials: -4"),
        "surrogate": "\ud800".encode("utf-8", "surrogatepass").decode("latin-1"),
        "long name": "name: " + "n" * 200 + "\n",
        "metric": DAG.replace("metric: size", "metric: sice"),
    }  # fmt: skip


BAD = bad_dags()
FIFTH = list(BAD)[::5]


@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name in FIFTH else pytest.mark.soak) for name in BAD])
def test_a_bad_dag_is_a_line_for_each_mistake(name: str, place: Place) -> None:
    place.write("bad.yaml", BAD[name])
    said = place.call("plan", "bad.yaml", codes=(2,))
    assert said.out == ""
    for line in said.err.splitlines():
        assert re.match(r"bad\.yaml:\d+: ", line)
        assert line.isprintable()
    assert said.err
    assert not place.home.exists()


ZOO = "name: z\ndag: dag.yaml\nmodels:\n  - {path: model.onnx, name: a}\n"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("models:", "modles:"),
        ("model.onnx", "nowhere.onnx"),
        ("name: a", "name: '../a'"),
        ("- {", "- &a {"),
        ("model.onnx", "no*thing.onnx"),
        ("name: a}", "name: a}\n  - {path: model.onnx, name: a}"),
    ],
)
def test_a_bad_zoo_is_one_line(old: str, new: str, place: Place) -> None:
    place.write("zoo.yaml", ZOO.replace(old, new, 1))
    assert re.match(r"zoo\.yaml:\d+: ", place.refused("sweep", "zoo.yaml"))


BOMBS = ("a: " + "[" * 100_000, "x: " + "9" * 1_000_000, "- a\n" * 500_000, '{"a":' * 100_000)


@pytest.mark.parametrize("text", BOMBS, ids=["deep", "long", "many", "deep JSON"])
def test_a_bomb_is_refused_before_it_grows(text: str, place: Place) -> None:
    place.write("bomb.yaml", text)
    process = place.start("plan", "bomb.yaml")
    assert process.stdout is not None
    err = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert (process.returncode, process.stdout.read(), err.count("\n")) == (2, "", 1)
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # a child's peak includes this process before `exec`
    assert usage.ru_maxrss <= max(200_000, own)  # kilobytes


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("data.npz", b"PK\x03\x04" + b"\0" * 60),
        ("data.npz", b"\x80\x04\x95" + b"\0" * 20),
        ("data.npy", b"\x93NUMPY\x01\0v\0{'descr': '|O', 'fortran_order': False, 'shape': (3,), }" + b" " * 50 + b"\n"),
        ("data.csv", b"a,b\n1,2,3,4\n\xff\xfe\n"),
        ("data.npz", b""),
    ],
    ids=["an archive", "a pickle", "an array of objects", "a table", "nothing"],
)
def test_bad_data_is_one_line(name: str, content: bytes, place: Place) -> None:
    place.write(name, content)
    assert name in one_line(place.call(*RUN, "--data", name, "--quiet", codes=(2,)))


def test_a_hostile_archive_writes_nothing_outside(place: Place) -> None:
    with zipfile.ZipFile(place / "models.zip", "w") as archive:
        archive.write(place / "model.onnx", "../../outside.onnx")
        archive.write(place / "model.onnx", "/tmp/outside.onnx")
    place.write("zoo.yaml", "name: z\ndag: dag.yaml\nmodels: [models.zip]\n")
    place.call("sweep", "zoo.yaml", "--engine", "inline", codes=(1, 2))
    assert not list(place.folder.parent.rglob("outside*"))


def test_external_data_is_read_from_the_folder_of_the_model_only(place: Place) -> None:
    secret = place.write("secret", b"s3cret!!" * 4096)
    model = builders.mlp(width=512)
    for location in ("../secret", str(secret), "link"):
        folder = place / "linked"
        folder.mkdir(exist_ok=True)
        (folder / "link").unlink(missing_ok=True)
        (folder / "link").symlink_to(secret)
        made = onnx.ModelProto()
        made.CopyFrom(model)
        weight = made.graph.initializer[0]
        weight.ClearField("raw_data")
        weight.data_location = weight.EXTERNAL
        weight.external_data.add(key="location", value=location)
        (folder / "model.onnx").write_bytes(made.SerializeToString())
        place.refused("apply", "name_fix", "linked/model.onnx", "--out", "made.onnx", codes=(1, 2))
        assert not (place / "made.onnx").exists()
