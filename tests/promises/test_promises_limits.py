"""Absurd values of options and odd paths: one line at once, or a run like any other."""

from __future__ import annotations

import os
import signal

import pytest
from outside import DAG, HANG_SECONDS, RUN, Place, write_model

pytestmark = pytest.mark.service

HUGE = "9" * 30
SAID = [word for word in RUN if word != "--json"]
ABSURD = [
    *((*RUN, "--trials", value) for value in ("0", "-1", "1.5", "many", "")),
    *((*RUN, "--minutes", value) for value in ("0", "-1", "nan", "inf", "1e999", "soon")),
    *((*RUN, "--workers", value) for value in ("0", "-3", "two")),
    *((*RUN, "--set", f"search.seed={value}") for value in ("-1", HUGE)),
    *(("run", "model.onnx", "--threads", value) for value in ("-1", "100000", HUGE, "1,,2")),
    *(("run", "model.onnx", "--max-drop", value) for value in ("-1", "nan")),
    *(("run", "model.onnx", "--set", f"target.memory={value}") for value in ("0", "-1")),
    *(("run", "model.onnx", "--set", f"level={value}") for value in ("-1", "4", HUGE)),
    *(("plan", "model.onnx", "--limit", value) for value in ("-1", "x")),
    *(("store", "gc", "--keep-runs", value) for value in ("-1", "all", "")),
    ("runs", HUGE),
    ("runs", "../../etc"),
    ("export", "latest", HUGE),
    ("run", "/dev/zero"),
    ("run", "/dev/null"),
    ("apply", "shape_inference", "/dev/zero", "--out", "made.onnx"),
    (*RUN, "--data", "/dev/urandom"),
    ("run", "no such.onnx"),
    ("plan", "/"),
    *((*RUN, "--workers", value) for value in ("100000", HUGE)),
    ("run", ""),
    ("plan", ""),
]
QUICK = 3
"""Every third of these is tried in the quick form, and all with a mark."""


@pytest.mark.parametrize(
    "words",
    [case if number % QUICK == 0 else pytest.param(case, marks=pytest.mark.soak) for number, case in enumerate(ABSURD)],
    ids=str,
)
def test_an_absurd_value_is_one_line(words: tuple[str, ...], place: Place) -> None:
    process = place.start(*words)
    try:
        out, err = process.communicate(timeout=HANG_SECONDS)  # only one that begins to work takes so long
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            process.communicate()
    assert (process.returncode, out, err.count("\n")) == (2, "", 1), err
    assert err[:-1].isprintable()


@pytest.mark.parametrize("words", [("--trials", HUGE), ("--minutes", "1e300")], ids=str)
def test_a_limit_that_is_never_reached_is_none(words: tuple[str, ...], place: Place) -> None:
    assert place.call(*RUN, *words).document["status"] == "finished"


NAMES = {
    "a space": "a b", "quotes": "it's \"so\"", "a substitution": "$(touch pwned)", "a separator": "a;touch pwned",
    "a pattern": "*", "brackets": "[a-z]", "a home": "~", "an escape": "%41", "an address": "http:", "a query": "a#b?c",
    "an option": "--help", "an assignment": "a=b", "a line break": "new\nline", "no UTF-8": os.fsdecode(b"\xff\xfe"),
    "an emoji": "\U0001f600", "a field": "{x}", "a colour": "\x1b[31m", "the longest": "l" * 240, "a backslash": "a\\b",
}  # fmt: skip
MARKS = dict.fromkeys(NAMES, pytest.mark.soak)
for quick in ("quotes", "a substitution", "a pattern", "a line break", "no UTF-8"):
    del MARKS[quick]


@pytest.mark.parametrize("name", [pytest.param(name, marks=MARKS.get(name, ())) for name in NAMES])
def test_any_name_of_a_file_is_only_a_name(name: str, place: Place) -> None:
    """As the name of the folder, the model, the data, the script, the DAG and the output."""
    inner = Place(place / NAMES[name])
    inner.environment["AUTOOPT_HOME"] = str(place.home)  # a database has an address, which is Unicode
    write_model(inner / f"{NAMES[name]}.onnx", width=512)
    inner.write(f"{NAMES[name]}.yaml", DAG)
    run = ("run", f"./{NAMES[name]}.yaml", "--model", f"./{NAMES[name]}.onnx", "--engine", "inline")
    document = inner.call(*run, "--json", "--out", f"./{NAMES[name]}").document
    assert document["best"]["metrics"]["size"] < document["baseline"]["metrics"]["size"]
    assert (inner / NAMES[name] / "model.onnx").is_file()
    for words in (("report", "--out", f"./{NAMES[name]}.html"), ("lineage", f"./{NAMES[name]}/model.onnx")):
        inner.call(*words)
    assert not list(place.folder.rglob("pwned"))
    inner.nothing_left()


def test_a_folder_that_may_not_be_read_or_written_is_one_line(place: Place) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may read and write everything")
    place.write("closed/model.onnx", b"")
    (place / "closed").chmod(0)
    try:
        place.refused("run", "dag.yaml", "--model", "closed/model.onnx", "--engine", "inline", "--quiet")
        place.refused(*SAID, "--quiet", "--out", "closed/out")
    finally:
        (place / "closed").chmod(0o700)


def test_a_model_whose_name_no_terminal_shows_is_one_line(place: Place) -> None:
    write_model(place / "a\x1b[31m.onnx")
    assert "a\\x1b[31m.onnx: its path holds the character U+001B" in place.refused("plan", "a\x1b[31m.onnx")


def test_a_link_in_a_circle_is_one_line(place: Place) -> None:
    (place / "circle.onnx").symlink_to("circle.onnx")
    assert "circle.onnx" in place.refused("run", "circle.onnx", "--quiet")


def test_a_pattern_in_a_zoo_does_not_hold_its_folder(place: Place) -> None:
    inner = Place(place / "work [1]")
    write_model(inner / "first" / "model.onnx")
    inner.write("dag.yaml", DAG)
    inner.write("zoo.yaml", "name: z\ndag: dag.yaml\nmodels: ['*/model.onnx']\n")
    inner.call("sweep", "zoo.yaml", "--engine", "inline")
