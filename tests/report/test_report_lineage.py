import io
from typing import Any

from autoopt.report.lineage import lineage_lines, lineage_table, operator_changes, write_lineage
from autoopt.report.run_facts import ModelContent


def step(name: str, before: str, after: str, **values: Any) -> dict[str, Any]:
    return {"pass": name, "params": {}, "input": before, "output": after, "outcome": "ok", "seconds": 0.5, **values}


ENVIRONMENT = {"os": "Linux", "host": "", "libraries": {"onnx": "1.23.2", "numpy": "2.4.6"}}
DOCUMENT = {
    "artifact": "c" * 64,
    "source": "a" * 64,
    "steps": [
        step("fold", "a" * 64, "b" * 64, environment=ENVIRONMENT),
        step("static", "b" * 64, "c" * 64, environment=ENVIRONMENT, params={"per_channel": True}),
    ],
}


def test_every_step_in_order_with_its_parameters_and_the_environment_once() -> None:
    assert lineage_lines(DOCUMENT) == [
        f"source    {'a' * 12}",
        "  with os Linux, libraries (onnx 1.23.2, numpy 2.4.6)",
        f"  1. fold  {'a' * 12} -> {'b' * 12}  ok, 0.50 s",
        f"  2. static  {'b' * 12} -> {'c' * 12}  ok, 0.50 s  per_channel=true",
        f"artifact  {'c' * 64}",
    ]


def test_reports_of_analyses_are_shown_and_nothing_harms_the_terminal() -> None:
    stream = io.StringIO()
    write_lineage({**DOCUMENT, "steps": [step("x\x1b[2J", "a", "a", reports={"ops": {"Conv": 2}})]}, stream)
    assert '     ops: {"Conv": 2}\n' in stream.getvalue()
    assert "\x1b" not in stream.getvalue()


def test_the_source_alone_has_no_steps() -> None:
    assert lineage_lines({"artifact": "aa", "source": "aa", "steps": []}) == ["source    aa", "artifact  aa"]


def test_conversion_given_up_parameters_and_analyses_are_shown() -> None:
    attempts = [{"params": {"block": 64}, "reason": "64 does not divide 48"}]
    document = {
        **DOCUMENT,
        "converted": step("torch_export", "e" * 64, "a" * 64, reports={"conversion": {"status": "same"}}),
        "steps": [step("blocks", "a" * 64, "c" * 64, params={"block": 16}, attempts=attempts)],
        "analyses": [step("operator_counts", "a" * 64, "a" * 64, reports={"operator_counts": {"Conv": 2}})],
    }
    lines = lineage_lines(document)
    assert lines[1].startswith(f"  converted by torch_export  {'e' * 12} -> {'a' * 12}")
    assert lines[2] == '     conversion: {"status": "same"}'
    assert "     gave up block=64: 64 does not divide 48" in lines
    assert lines[-3:-1] == [f"  operator_counts of {'a' * 12}", '     operator_counts: {"Conv": 2}']


def test_measured_steps_have_their_ratios_and_their_quality() -> None:
    measured = step("fold", "a" * 64, "b" * 64, ratios={"latency_p50": 0.5, "accuracy": 0.99})
    line = "     measured: latency_p50 2.0x faster (first measurement)"
    assert line in lineage_lines({**DOCUMENT, "steps": [measured]})
    judged = {**measured, "metrics": {"latency_p50": 1.0, "accuracy": 0.75}}
    line = "     measured: latency_p50 2.0x faster (first measurement); accuracy 75.0 %"
    assert line in lineage_lines({**DOCUMENT, "steps": [judged]})


def test_operators_that_stay_are_no_change() -> None:
    assert operator_changes({"Conv": 2}, {"Conv": 2}) == ""
    assert operator_changes({}, {"Conv": 2}) == "+2 Conv"


def test_the_table_shows_what_each_step_changed_in_the_model() -> None:
    models = {"a" * 64: ModelContent(2000, {"Conv": 2, "Relu": 1}), "b" * 64: ModelContent(1000, {"Conv": 2})}
    options = step("session", "c" * 64, "c" * 64, session_options={"io_binding": True})
    table = lineage_table({**DOCUMENT, "steps": [*DOCUMENT["steps"], options]}, models)
    assert [row[:5] for row in table.rows] == [
        ("0", "source", "3", "2 kB", ""),
        ("1", "fold", "2", "1 kB", "-1 Relu"),
        ("2", "static", "-", "-", ""),
        ("3", "session", "", "", "session options only: io_binding=true"),
    ]
    assert [row[5] for row in table.rows] == ["", "", "per_channel=true", ""]
