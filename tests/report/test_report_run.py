import io
from typing import Any

from autoopt.report.document import RunDocument
from autoopt.report.run import run_table, summary, verdict, write_run


def test_the_table_has_source_best_and_front_with_ratios(document: RunDocument) -> None:
    table = run_table(document)
    assert table.columns == ("model", "latency_p50", "ratio", "size", "ratio", "accuracy", "chain and its parameters")
    assert table.rows[0] == ("source", "0.1780 ms", "1.000x", "409 kB", "1.000x", "0.9950", "source")
    assert table.rows[1] == (
        "best aaaaaaaa",
        "0.0500 ms",
        "0.300x (0.290..0.310)",
        "123 kB",
        "0.302x",
        "0.9950",
        "fold -> static [static: per_channel=true]",
    )
    assert table.rows[2][-1] == "fold -> weights *"
    assert table.strong == 1


def test_the_summary_says_what_was_done(document: RunDocument) -> None:
    said = "\n".join(summary(document))
    assert "* front bbbbbbbb: accuracy cannot be told" in said
    assert "note: no quality constraint given" in said
    assert "trials 3: 2 ok, 1 refused (16 trials); pass runs 4 executed, 1 reused; evaluations 6 executed" in said
    assert "prefect 9.8" in said


def test_a_reused_run_says_so(data: dict[str, Any]) -> None:
    assert any("nothing was executed" in line for line in summary(RunDocument.from_json({**data, "reused": True})))


def test_the_verdict_for_each_kind_of_end(data: dict[str, Any]) -> None:
    assert verdict(RunDocument.from_json({**data, "best": None})) == "no model meets the constraints"
    source = {**data["best"], "chain": "source"}
    assert "source model is the best" in verdict(RunDocument.from_json({**data, "best": source}))
    assert run_table(RunDocument.from_json({**data, "best": source})).strong == 0
    assert verdict(RunDocument.from_json(data)) == (
        "best: fold -> static, latency_p50 0.300x (0.290..0.310), size 0.302x, 3.3 times as fast"
    )
    even = {**data["best"], "ratios": {"latency_p50": {"value": 0.98, "low": 0.96, "high": 1.01}}}
    assert "times as fast" not in verdict(RunDocument.from_json({**data, "best": even}))


def test_without_a_source_latency_the_table_still_stands(data: dict[str, Any]) -> None:
    document = RunDocument.from_json(
        {**data, "baseline": {"metrics": {}}, "best": {**data["best"], "ratios": {}}, "pareto": []}
    )
    stream = io.StringIO()
    write_run(document, stream)
    assert stream.getvalue().splitlines()[2].split() == ["source", "-", "-", "-", "source"]
