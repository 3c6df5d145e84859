"""Fuzzing: whatever a file holds, its reader accepts it or raises an error of one line."""

from __future__ import annotations

import copy
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pyarrow.parquet
import pytest
from builders import mlp, write
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from outside import DAG
from PIL import Image

from autoopt.data.worker import describe
from autoopt.engine.run.package import RECIPE, with_digest
from autoopt.engine.tools.replay import read_recipe
from autoopt.errors import AutooptError
from autoopt.model.session import session_document
from autoopt.model.session_file import read_session
from autoopt.problem.load import check_supported
from autoopt.problem.resolve import make_plans
from autoopt.problem.run_request import RunRequest
from autoopt.spec import load_dag
from autoopt.spec.zoo import load_zoo

Reader = Callable[[bytes], object]
EXAMPLES = [25, pytest.param(10_000, marks=pytest.mark.soak)]
ODD_TEXTS = ["", "no", "null", "-1", "1e999", ".nan", "0x1F", "\0", "\x1b[2J", "é\u2028", "../..", "/dev/zero"]
ODD_TEXTS += ["file:///", "a" * 300, "*", "{", "[", "}", "]", ":", "- ", "&a", "*a", "!!python/object:os.system"]
ODD_TEXTS += ["%", "\t", "\n", "#"]
ODD_TEXTS += ["9" * 400, "simplify", "accuracy", "latency_p50", "size", "${HOME}", "s3://bucket/x", "__class__"]
ODD_VALUES: list[Any] = [None, True, -1, 0, 2**31, 2**63, 10**400, 0.5, -1e308, "", "x", "a" * 300, [], {}, [[]]]
ODD_VALUES += [{"a": {"b": [1, None]}}, ["x", 7], "\0", "../../x", {"": ""}, [None] * 50, "0" * 64]


def mutants(example: str) -> st.SearchStrategy[bytes]:
    """Texts with parts of the example removed, repeated, moved or replaced by odd ones, and any bytes."""
    position = st.integers(0, len(example))
    edit = st.tuples(position, st.integers(0, 40), st.sampled_from(["cut", "repeat", "replace"]), odd_texts())

    def changed(edits: list[tuple[int, int, str, str]]) -> bytes:
        text = example
        for start, length, kind, odd in edits:
            part = {"cut": "", "repeat": text[start : start + length] * 2, "replace": odd}[kind]
            text = text[:start] + part + text[start + length :]
        return text.encode("utf-8", "surrogatepass")

    return st.lists(edit, min_size=1, max_size=4).map(changed) | st.binary(max_size=200)


def odd_texts() -> st.SearchStrategy[str]:
    return st.sampled_from(ODD_TEXTS) | st.text(max_size=8)


def documents(example: Any) -> st.SearchStrategy[Any]:
    """The JSON document with some of its values, at any depth, replaced or removed."""
    places = list(places_in(example))
    edit = st.tuples(st.sampled_from(places), st.sampled_from(ODD_VALUES), st.booleans())

    def changed(edits: list[tuple[tuple[Any, ...], Any, bool]]) -> Any:
        document = copy.deepcopy(example)
        for place, value, removes in edits:
            change(document, place, copy.deepcopy(value), removes)
        return document

    return st.lists(edit, min_size=1, max_size=3).map(changed)


def places_in(document: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places of all values in a document but the document's own."""
    items = document.items() if isinstance(document, dict) else enumerate(document)
    for name, value in items:
        yield (*place, name)
        if isinstance(value, dict | list):
            yield from places_in(value, (*place, name))


def change(document: Any, place: tuple[Any, ...], value: Any, removes: bool) -> None:
    """Replace or remove the value at a place, if an earlier change has left it there."""
    try:
        for name in place[:-1]:
            document = document[name]
        if removes:
            del document[place[-1]]
        elif isinstance(document, dict) is isinstance(place[-1], str):
            document[place[-1]] = value
    except (KeyError, IndexError, TypeError):
        pass


def check(strategy: st.SearchStrategy[Any], read: Callable[[Any], object], examples: int) -> None:
    """Read many inputs; only errors of one line may be raised."""

    @settings(max_examples=examples, database=None, suppress_health_check=list(HealthCheck))
    @given(strategy)
    def reads_or_refuses(value: Any) -> None:
        refusal = None
        try:
            read(value)
        except AutooptError as error:
            refusal = error
        assert refusal is None or refusal.exit_code == 2
        assert str(refusal).isprintable()

    reads_or_refuses()


def through_file(path: Path, read: Callable[[Path], object]) -> Reader:
    """A reader of bytes from a reader of files."""

    def reader(content: bytes) -> object:
        path.write_bytes(content)
        return read(path)

    return reader


def through_json(reader: Reader) -> Callable[[Any], object]:
    """A reader of documents from a reader of bytes."""
    return lambda document: reader(json.dumps(document).encode())


@pytest.mark.parametrize("examples", EXAMPLES)
def test_dag_files(tmp_path: Path, examples: int) -> None:
    def read(path: Path) -> object:
        check_supported(load_dag(path))
        return make_plans(RunRequest(str(path)))

    check(mutants(DAG), through_file(tmp_path / "dag.yaml", read), examples)


ZOO = "name: z\ndag: dag.yaml\nmodels:\n  - {path: model.onnx, name: a, tags: [x], search: {trials: 3}}\n"


@pytest.mark.parametrize("examples", EXAMPLES)
def test_zoo_files(tmp_path: Path, examples: int) -> None:
    (tmp_path / "dag.yaml").write_text(DAG)
    (tmp_path / "model.onnx").write_bytes(b"")
    check(mutants(ZOO), through_file(tmp_path / "zoo.yaml", load_zoo), examples)


MEASUREMENT: dict[str, Any] = {
    "seconds": 1.0,
    "replicas": 2,
    "rounds": 0,
    "quiet_seconds": 0.5,
    "affinity": [0],
    "throughput": [{"batch_size": 1, "concurrency": 2}],
    "profiles": [{"name": "short", "dimensions": {"n": 1}, "weight": 1.0}],
    "ranges": {"x": [0.0, 1.0]},
    "shapes": {"x": [1, 2]},
    "state": {"a": "b"},
    "task_output": 0,
    "constraints": [{"metric": "accuracy", "max_drop": 0.1}],
}


@pytest.mark.parametrize("examples", EXAMPLES)
def test_measurement_settings(examples: int) -> None:
    dag = {"name": "d", "passes": {"a": "name_fix"}, "chains": [["a"]]}
    check(documents(MEASUREMENT), lambda values: check_supported(load_dag({**dag, "measurement": values})), examples)


RECIPE_DOCUMENT = {
    "recipe": RECIPE,
    "run": "0" * 12,
    "source": "0" * 64,
    "result": "f" * 64,
    "chain": "a -> b",
    "steps": [{"pass": "simplify", "params": {"level": 1}, "output": "f" * 64}],
    "calibration": {"path": "x.npz", "limit": 3},
    "user_script": None,
    "scripts": {},
    "accelerator": {"device": "cpu", "isa": ["avx2"], "threads": [1]},
    "session_options": {"graph_optimization_level": "all", "config": {"a": "b"}},
    "target": {"device": "cpu", "threads": 1},
    "affinity": [0],
    "metrics": {"size": 3.0},
    "ratios": {"size": {"value": 0.5, "low": 0.4, "high": 0.6}},
    "environment": {"libraries": {"onnx": "1"}},
}


@pytest.mark.parametrize("examples", EXAMPLES)
def test_recipes(tmp_path: Path, examples: int) -> None:
    read = through_file(tmp_path / "recipe.json", read_recipe)
    signed = documents(RECIPE_DOCUMENT).map(lambda document: json.dumps(with_digest(document)).encode())
    check(signed | mutants(json.dumps(RECIPE_DOCUMENT)), read, examples)


@pytest.mark.parametrize("examples", EXAMPLES)
def test_session_files(tmp_path: Path, examples: int) -> None:
    read = through_file(tmp_path / "session.json", read_session)
    document = session_document({}, affinity=[0])
    texts = mutants(json.dumps(document))
    check(documents(document).map(lambda value: json.dumps(value).encode()) | texts, read, examples)


def npy() -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, ARRAY)
    return buffer.getvalue()


def npz() -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, x=ARRAY, labels=np.array([0, 1]))
    return buffer.getvalue()


def parquet() -> bytes:
    table = pyarrow.table({"a": [1.0, 2.0], "b": ["x", None], "label": [0, 1]})
    buffer = io.BytesIO()
    pyarrow.parquet.write_table(table, buffer)
    return buffer.getvalue()


def image(kind: str) -> bytes:
    buffer = io.BytesIO()
    pixels = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    Image.fromarray(pixels).save(buffer, kind)
    return buffer.getvalue()


ARRAY = np.arange(6, dtype=np.float32).reshape(2, 3)
DATA: dict[str, Callable[[], bytes]] = {
    "x.npz": npz,
    "x.npy": npy,
    "x.csv": lambda: b"a,b,label\n1,2,0\n3.5,x,1\n",
    "x.parquet": parquet,
    "x.jsonl": lambda: b'{"text": "one", "label": 1}\n{"text": "two", "label": "b"}\n',
    "folder/x.png": lambda: image("png"),
    "folder/x.jpg": lambda: image("jpeg"),
    "folder/x.tif": lambda: image("tiff"),
    "folder/input_0.pb": lambda: onnx.numpy_helper.from_array(ARRAY, "x").SerializeToString(),
}
"""Files of data, alone or in a folder of their own, with a good example of each."""


@pytest.mark.parametrize("name", DATA)
@pytest.mark.parametrize("examples", EXAMPLES)
@pytest.mark.filterwarnings("ignore")
def test_data_files(tmp_path: Path, name: str, examples: int) -> None:
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    path = file if file.parent == tmp_path else file.parent
    model = str(write(mlp(), tmp_path / "mlp"))
    example = DATA[name]()
    edits = st.lists(st.tuples(st.integers(0, len(example)), st.binary(max_size=6), st.integers(0, 8)), max_size=3)

    def changed(damages: list[tuple[int, bytes, int]]) -> bytes:
        content = example
        for start, new, length in damages:
            content = content[:start] + new + content[start + length :]
        return content

    def read(content: bytes) -> object:
        file.write_bytes(content)
        try:
            return describe({"data": str(path), "model": model})
        except MemoryError:  # a header that asks for too much: the worker's limit reports it
            return None

    check(edits.map(changed), read, examples)
