"""The measurements behind the best model, in words and tables."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pytest

from autoopt.metrics import Estimate
from autoopt.outcome import Outcome
from autoopt.report.measurement import measured_lines, measured_tables
from autoopt.report.run_page import html_report
from autoopt.report.run_text import write_run
from autoopt.results import (
    IntermediateResult,
    MeasurementSummary,
    ModelResult,
    PartResult,
    ProfileResult,
    RunResult,
    ThroughputResult,
)


def estimate(value: float) -> Estimate:
    return Estimate(value, 0.9 * value, 1.1 * value)


SUMMARY = MeasurementSummary(
    rounds=5,
    disturbed_rounds=1,
    counted_rounds=4,
    stopped={"narrow": 4},
    pairs=120,
    threads=2,
    affinity=(0, 1),
    cores=2,
    batch_size=1,
    throughput=(
        ThroughputResult(8, 4, candidate=estimate(1000), source=estimate(500), ratio=estimate(2)),
        ThroughputResult(3, 1, refused="no <batch>"),
    ),
    profiles={"short": ProfileResult({"latency_p50": estimate(0.5)}, {"latency_p50": estimate(0.25)})},
    outputs={"logits": {"cosine": estimate(0.999)}, "hidden": {"cosine": estimate(0.5)}},
)
DISTURBED = "other programs or the host disturbed"


def with_summary(result: RunResult, summary: MeasurementSummary = SUMMARY) -> RunResult:
    assert result.best is not None
    return replace(result, best=replace(result.best, measured=summary))


def text_of(result: RunResult) -> list[str]:
    stream = io.StringIO()
    write_run(result, stream)
    return stream.getvalue().splitlines()


def line(**changes: Any) -> str:
    model = ModelResult(chain="a", measured=replace(SUMMARY, outputs={}, **changes))
    return measured_lines(model)[0]


def test_the_text_says_how_the_best_model_was_measured(result: RunResult) -> None:
    text = text_of(with_summary(result))
    assert f"measured 5 times on 2 threads; {DISTURBED} 1 of 5 measurements, which the ranges include" in text
    assert "least faithful of 2 outputs: hidden, cosine 0.5000" in text
    rows = [" ".join(row.split()) for row in text]
    assert "- 8 4 500 items/s 1000 items/s 2.0x higher throughput (1.8 to 2.2)" in rows
    assert "- 3 1 - - refused: no <batch>" in rows
    assert "short 0.5000 ms 4.0x faster (3.6 to 4.4)" in rows


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"disturbed_rounds": 0}, "measured 5 times on 2 threads"),
        (
            {"disturbed_rounds": 3, "counted_rounds": 5},
            f"measured 5 times on 2 threads; {DISTURBED} 3 of 5 measurements, which the ranges include",
        ),
        (
            {"disturbed_rounds": 3, "pace": 1.42},
            f"measured 5 times on 2 threads; {DISTURBED} 3 of 5 measurements (source up to 1.4x slower), "
            "which the ranges include",
        ),
        (
            {"rounds": 1, "threads": 1},
            f"measured once on 1 thread; {DISTURBED} 1 of 1 measurement, which the ranges include",
        ),
        (
            {"disturbed_rounds": 0, "batch_size": 8, "affinity": (1,)},
            "measured 5 times on 2 threads, batches of 8, core 1",
        ),
        ({"disturbed_rounds": 0, "cores": 4}, "measured 5 times on 2 threads, cores 0, 1"),
    ],
)
def test_rounds_threads_batches_and_cores_are_named(changes: dict[str, Any], text: str) -> None:
    assert line(**changes) == text


def test_the_worst_output_of_a_distance_is_the_largest() -> None:
    outputs = {name: {"relative_l2": estimate(value)} for name, value in (("a", 0.5), ("b", 0.1))}
    model = ModelResult(chain="x", measured=MeasurementSummary(outputs=outputs))
    assert measured_lines(model) == ["least faithful of 2 outputs: a, relative_l2 0.5000"]


def test_what_agreement_compares_is_named() -> None:
    kinds = {"h": "token_embedding", "b": "values"}
    model = ModelResult(chain="x", measured=MeasurementSummary(kinds=kinds))
    assert measured_lines(model) == ["agreement compares h as token embedding, b as values"]
    many = MeasurementSummary(kinds=dict.fromkeys("abcdef", "values"))
    assert measured_lines(ModelResult(chain="x", measured=many))[0].endswith("d as values, 2 more")


def test_the_source_model_and_older_runs_have_no_lines(result: RunResult) -> None:
    assert measured_lines(None) == []
    assert measured_lines(ModelResult(chain="source", measured=SUMMARY)) == []
    assert measured_lines(result.best) == []
    assert measured_tables(result.best) == []
    assert measured_tables(None) == []


def test_several_targets_each_have_their_lines(result: RunResult) -> None:
    part = PartResult("phone", with_summary(result), {})
    text = text_of(replace(result, targets=(part,)))
    assert any(row.startswith("target phone: measured 5 times") for row in text)
    assert any("refused: no <batch>" in row for row in text)


def test_the_page_has_the_tables(result: RunResult) -> None:
    page = html_report(with_summary(result))
    assert f"{DISTURBED} 1 of 5 measurements" in page
    assert "refused: no &lt;batch&gt;" in page
    assert "<caption>latency of the best model by profile</caption>" in page
    assert '<td>hidden</td><td class="right">0.5000</td>' in page


def test_a_caveat_of_several_models_is_stated_once(result: RunResult) -> None:
    best, small = (replace(model, flags=("the machine was busy",)) for model in result.front)
    tiny = replace(small, artifact="c" * 64, flags=())
    text = text_of(replace(result, best=best, front=(best, small, tiny)))
    assert "* best aaaaaaaa, front bbbbbbbb: the machine was busy" in text


def test_a_caveat_of_all_models_makes_no_star(result: RunResult) -> None:
    best, small = (replace(model, flags=("the machine was busy",)) for model in result.front)
    text = text_of(replace(result, best=best, front=(best, small)))
    assert "all candidates: the machine was busy" in text
    assert "*" not in text


def test_models_on_the_way_to_the_best_one_are_listed_with_their_figures(result: RunResult) -> None:
    assert result.best is not None
    row = IntermediateResult(
        "fold", "c" * 64, {}, Outcome.OK, {"latency_p50": 2.0, "accuracy": 0.75}, {"latency_p50": estimate(0.5)}
    )
    failed = IntermediateResult("static", "d" * 64, {}, Outcome.FAILED)
    best = replace(result.best, intermediate=(row, failed))
    text = text_of(replace(result, best=best))
    (line_of_fold,) = [line for line in text if line.lstrip().startswith("fold")]
    assert "cccccccccccc" in line_of_fold
    assert "2.0x faster (1.8 to 2.2)" in line_of_fold
    assert any(line.lstrip().startswith("static") and line.rstrip().endswith("failed") for line in text)
    assert "on the way to the best model" in html_report(replace(result, best=best))
    assert RunResult.from_json(replace(result, best=best).to_json()).best == best
