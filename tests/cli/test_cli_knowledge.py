"""`autoopt knowledge`: files of knowledge between stores."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
from knowledge_cases import LESSON

from autoopt.model.examine import inspect_model
from autoopt.results.knowledge import Knowledge, ModelFacts

Call = Callable[..., Any]
DIGITS = Path(__file__).parents[2] / "dags/digits/model.onnx"


@pytest.fixture(autouse=True)
def cpu(report_cpu: Callable[[str], None]) -> None:
    """The CPU has the instructions for integers with which all knowledge was measured."""
    report_cpu("avx512_vnni")


@pytest.fixture
def file(home: Path) -> Path:
    """A lesson about a model like that of the digits."""
    inspection = inspect_model(onnx.load(DIGITS), DIGITS)
    facts = ModelFacts(
        op_counts=dict(inspection.op_counts), parameters=inspection.parameters, bytes=inspection.bytes, opset=21
    )
    file = home.parent / "team.json"
    Knowledge.of((LESSON.model_copy(update={"model": facts}),), "1.0").write(file)
    return file


def test_imported_knowledge_is_shown_planned_with_and_removed(call: Call, file: Path) -> None:
    assert call("knowledge", "import", "team.json").out == "imported 1 lesson\n"
    assert call("knowledge", "import", "team.json").out == "the store has this knowledge already\n"
    listed = call("knowledge", "show").out
    assert "imported team.json: 1 lesson," in listed
    assert "dynamic_quantization: 0.50 of latency_p50" in listed
    shown = call("knowledge", "show", str(DIGITS)).out
    assert shown.startswith("from model 012345 (imported), ")
    assert "the most similar first (" in shown
    assert "imported: 1 model, half weight because measured with Fast CPU" in shown
    assert "dynamic_quantization" in shown
    (sources,) = [line for line in call("plan", str(DIGITS)).out.splitlines() if line.startswith("knowledge: ")]
    assert "imported: 1 model, half weight because measured with Fast CPU" in sources
    assert call("knowledge", "remove", "").code == 2, "it is no beginning of a digest"
    assert call("knowledge", "remove", "team.json").out == "removed team.json: 1 lesson\n"
    assert "imported" not in call("plan", str(DIGITS)).out


def test_the_built_in_knowledge_is_shown_and_orders_plans_without_a_store(call: Call) -> None:
    listed = call("knowledge", "show")
    assert listed.code == 0
    assert "(built in)" in listed.out
    assert "(built in)" in call("knowledge", "show", str(DIGITS)).out
    planned = call("plan", str(DIGITS), "--data", str(DIGITS.with_name("evaluation.npz"))).out
    assert "knowledge: built in: " in planned
    assert "learned: " in planned


@pytest.mark.parametrize("name", ["avx2", "arm"])
def test_knowledge_from_cpus_with_other_instructions_is_left_out(
    call: Call, file: Path, report_cpu: Callable[[str], None], name: str
) -> None:
    report_cpu(name)
    call("knowledge", "import", "team.json")
    assert call("knowledge", "show", str(DIGITS)).out == "nothing is known about such models\n"
    planned = call("plan", str(DIGITS), "--data", str(DIGITS.with_name("evaluation.npz"))).out
    assert "left out, measured on a CPU with other instructions for integers" in planned
    assert "learned: " not in planned


def test_a_dag_is_planned_with_it_too(call: Call, file: Path) -> None:
    Path("d.yaml").write_text("name: d\npasses: {q: dynamic_quantization, s: simplify}\nchains: [[q], [s]]\n")
    call("knowledge", "import", "team.json")
    assert "learned: q: dynamic_quantization" in call("plan", "d.yaml", "--model", str(DIGITS)).out
    assert "learned" not in call("plan", "d.yaml").out


def test_json_is_one_document(call: Call, file: Path) -> None:
    assert json.loads(call("knowledge", "import", "team.json", "--json").out)["new"]
    document = json.loads(call("knowledge", "show", "--json").out)
    assert [item["file"] for item in document["imported"]] == ["team.json"]
    assert document["lessons"][0]["name"] == "model 012345 (imported)"
    shown = json.loads(call("knowledge", "show", str(DIGITS), "--json").out)
    assert shown["effects"][0]["pass_name"] == "dynamic_quantization"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("export", "k.json"), "no store here"),
        (("import", "none.json"), "none.json: cannot be read"),
        (("import", "none.txt"), "ends in .json"),
        (("remove", "k.json"), "no store here"),
    ],
)
def test_mistakes_are_one_line(call: Call, arguments: tuple[str, ...], text: str) -> None:
    said = call("knowledge", *arguments)
    assert said.code == 2
    assert said.err.count("\n") == 1
    assert text in said.err


def test_a_bad_file_is_refused_and_nothing_is_imported(call: Call, file: Path) -> None:
    file.write_text(file.read_text().replace("0.5", "1e308"))
    said = call("knowledge", "import", "team.json")
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert "imported" not in call("knowledge", "show").out
