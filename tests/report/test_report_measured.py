"""How the best model was measured, in words and tables."""

from __future__ import annotations

import io
from typing import Any

import pytest

from autoopt.report.document import RunDocument
from autoopt.report.html import html_report
from autoopt.report.measured import measured_lines
from autoopt.report.run import write_run


def estimate(value: float) -> dict[str, float]:
    return {"value": value, "low": 0.9 * value, "high": 1.1 * value}


@pytest.fixture
def measured() -> dict[str, Any]:
    return {
        "rounds": 5,
        "disturbed_rounds": 1,
        "counted_rounds": 4,
        "stopped": {"narrow": 4},
        "pairs": 120,
        "threads": 2,
        "affinity": [0, 1],
        "cores": 2,
        "batch_size": 1,
        "throughput": [
            {
                "batch_size": 8,
                "concurrency": 4,
                "source": estimate(500),
                "candidate": estimate(1000),
                "ratio": estimate(2),
            },
            {"batch_size": 3, "concurrency": 1, "refused": "no <batch>"},
        ],
        "profiles": {"short": {"metrics": {"latency_p50": estimate(0.5)}, "ratios": {"latency_p50": estimate(0.25)}}},
        "outputs": {"logits": {"cosine": estimate(0.999)}, "hidden": {"cosine": estimate(0.5)}},
    }


def text_of(data: dict[str, Any]) -> list[str]:
    stream = io.StringIO()
    write_run(RunDocument.from_json(data), stream)
    return stream.getvalue().splitlines()


def test_the_text_says_how_the_best_was_measured(data: dict[str, Any], measured: dict[str, Any]) -> None:
    text = text_of({**data, "best": {**data["best"], "measured": measured}})
    said = "measured: 5 rounds (1 on a disturbed machine), 120 pairs of blocks, 2 threads; stopped when narrow"
    assert said in text
    assert "worst of 2 outputs: hidden, cosine 0.5000" in text
    rows = [" ".join(line.split()) for line in text]
    assert "- 8 4 500 items/s 1000 items/s 2.000x (1.800..2.200)" in rows
    assert "- 3 1 - - refused: no <batch>" in rows
    assert "short 0.5000 ms 0.250x (0.225..0.275)" in rows


def test_one_measurement_on_some_of_the_cores(data: dict[str, Any], measured: dict[str, Any]) -> None:
    once = {**measured, "rounds": 1, "affinity": [1], "batch_size": 8, "stopped": {"narrow": 1, "time": 2}}
    model = RunDocument.from_json({"best": {**data["best"], "measured": once}}).best
    assert measured_lines(model)[0] == (
        "measured: once on a disturbed machine, 120 pairs of blocks, batches of 8, 2 threads, on core 1; "
        "stopped when narrow (1), time was up (2)"
    )


def test_nothing_is_said_of_the_source_and_of_runs_that_do_not_tell(data: dict[str, Any], measured: Any) -> None:
    source = {**data["best"], "chain": "source", "measured": measured}
    assert measured_lines(RunDocument.from_json({"best": source}).best) == []
    assert measured_lines(RunDocument.from_json(data).best) == []
    assert not [line for line in text_of(data) if line.startswith("measured")]


def test_several_targets_each_say_how(data: dict[str, Any], measured: dict[str, Any]) -> None:
    part = {
        **data,
        "best": {**data["best"], "measured": measured},
        "name": "phone",
        "target": {},
        "best_made_on": "phone",
    }
    text = text_of({**data, "targets": [part]})
    assert any(line.startswith("target phone: measured: 5 rounds") for line in text)
    assert any("refused: no <batch>" in line for line in text)


def test_the_page_has_the_tables(data: dict[str, Any], measured: dict[str, Any]) -> None:
    page = html_report(RunDocument.from_json({**data, "best": {**data["best"], "measured": measured}}))
    assert "5 rounds (1 on a disturbed machine)" in page
    assert "refused: no &lt;batch&gt;" in page
    assert "<caption>latency of the best by profile</caption>" in page
    assert "<td>hidden</td><td class=right>0.5000</td>" in page


def test_what_several_models_are_warned_of_is_said_once(data: dict[str, Any]) -> None:
    best, small = ({**m, "flags": ["the machine was busy"]} for m in data["pareto"])
    text = text_of({**data, "best": best, "pareto": [best, small]})
    assert "* best aaaaaaaa, front bbbbbbbb: the machine was busy" in text
