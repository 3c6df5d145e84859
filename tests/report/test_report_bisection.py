"""The outcome of a bisection as a sentence and as tables."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

import pytest

from autoopt.json_codec import from_json, to_json
from autoopt.metrics import Estimate
from autoopt.report.sweeps.bisection import remarks, sentence, tables, write_bisection
from autoopt.report.sweeps.sweep import message, sweep_markdown
from autoopt.report.sweeps.sweep_page import sweep_html
from autoopt.results import EntryComparison, MetricChange, SweepEntry, SweepResult
from autoopt.results.bisection import Bisection, Factor, OperatorDifference, Variant
from autoopt.results.sweep import BESIDE

RUNTIME = Factor("onnxruntime", "1.30.0", "1.31.1")
TOOL = Factor("onnxslim", "0.1.9", "0.2.0")
DAG = Factor("DAG", "aaaa", "bbbb")
SLOWER = Estimate(1.4, 1.35, 1.44)
SAME = Estimate(1.0, 0.99, 1.01)
FOUND = Bisection(
    model="cnn",
    sweep="2" * 12,
    before="1" * 12,
    factors=(RUNTIME, TOOL),
    variants=(
        Variant(("onnxruntime", "onnxslim"), SLOWER),
        Variant(("onnxruntime",), SLOWER),
        Variant(("onnxslim",), SAME),
    ),
    cause=("onnxruntime",),
    operators=(OperatorDifference("MatMulInteger", 520, 740), OperatorDifference("Softmax", 10, 10)),
)


def test_the_cause_is_one_sentence_with_the_interval_and_the_operators() -> None:
    assert sentence(FOUND) == (
        "onnxruntime 1.30.0 -> 1.31.1 makes cnn 1.40x slower (1.35 to 1.44), above all its MatMulInteger "
        "(520 to 740 us); everything else changes nothing."
    )


def test_a_gain_is_a_factor_above_one_too() -> None:
    variant = Variant(("onnxruntime",), Estimate(0.5, 0.4, 0.625))
    gain = replace(FOUND, factors=(RUNTIME,), variants=(variant, variant), operators=())
    assert sentence(gain) == "onnxruntime 1.30.0 -> 1.31.1 makes cnn 2.00x faster (1.60 to 2.50); nothing else changed."


def test_other_effects_are_named() -> None:
    variants = (*FOUND.variants[:2], Variant(("onnxslim",), Estimate(1.1, 1.05, 1.15)))
    assert sentence(replace(FOUND, variants=variants)).endswith(
        "; onnxslim alone makes it 1.10x slower (1.05 to 1.15)."
    )
    variants = (*FOUND.variants[:2], Variant(("onnxslim",), reason="does not run: no such symbol"))
    assert sentence(replace(FOUND, variants=variants)).endswith("; onnxslim could not be measured alone.")


def test_a_pair_is_named_together() -> None:
    pair = replace(FOUND, factors=(RUNTIME, TOOL, DAG), cause=("onnxruntime", "DAG"), operators=())
    assert sentence(pair).startswith("onnxruntime 1.30.0 -> 1.31.1 and DAG aaaa -> bbbb together make cnn 1.40x slower")


@pytest.mark.parametrize(
    ("bisection", "text"),
    [
        (Bisection("cnn", "2", "1"), "Nothing that autoopt records has changed for cnn"),
        (replace(FOUND, cause=()), "cnn is 1.40x slower (1.35 to 1.44), but no single change and no pair of changes"),
        (
            replace(FOUND, cause=(), variants=(Variant(("onnxruntime", "onnxslim"), SAME),)),
            "Measured in turns, cnn is as fast as on the earlier night (1.00x, 0.99 to 1.01)",
        ),
        (
            replace(
                FOUND,
                cause=(),
                variants=(Variant(("onnxruntime", "onnxslim"), SAME),),
                source=Estimate(0.8, 0.75, 0.85),
            ),
            "Measured in turns, cnn is as fast as on the earlier night (1.00x, 0.99 to 1.01), but its source is 1.25x",
        ),
        (
            replace(FOUND, cause=(), variants=(Variant(("onnxruntime", "onnxslim"), Estimate(1.1, 0.6, 1.9)),)),
            "Measured in turns, the ratio of cnn to the earlier night is undecided",
        ),
        (
            replace(FOUND, cause=(), variants=(Variant(("onnxruntime", "onnxslim"), Estimate(1.9, 1.1, 3.2)),)),
            "cnn is slower by an undecided factor",
        ),
        (
            replace(FOUND, cause=(), variants=(Variant(("onnxruntime",), reason="does not run: too old"),)),
            "cnn cannot be compared with the earlier night: does not run: too old.",
        ),
    ],
)
def test_outcomes_without_a_cause(bisection: Bisection, text: str) -> None:
    assert sentence(bisection).startswith(text)


def test_tables_list_combinations_and_operators() -> None:
    variants, operators = tables(FOUND)
    assert [row[0] for row in variants.rows] == ["everything", RUNTIME.text, TOOL.text]
    assert operators.rows[0] == ("MatMulInteger", "520", "740", "220")
    stream = StringIO()
    write_bisection(replace(FOUND, not_varied=("cpu.model a -> b",), busy=True), stream)
    assert stream.getvalue().startswith(sentence(FOUND))
    assert "also changed, and not varied: cpu.model a -> b" in stream.getvalue()
    assert remarks(FOUND) == []


def test_the_night_tells_the_cause_in_its_message_page_and_markdown() -> None:
    change = MetricChange("best model", "latency_p50", Estimate.exact(0.3), SLOWER, True, "worse")
    compared = EntryComparison("worse", sweep="1" * 12, changes=(change,))
    entry = SweepEntry("cnn", "ok", compared=compared, bisection=FOUND)
    night = SweepResult(sweep="2" * 12, name="production", models=(entry,), regressions=("cnn",))
    night = SweepResult.from_json(night.to_json())
    assert message(night).endswith(sentence(FOUND))
    assert sentence(FOUND) in sweep_markdown(night)
    beside = replace(change, what=BESIDE)
    found = replace(entry, compared=replace(compared, changes=(beside,)))
    assert message(replace(night, models=(found,))).splitlines()[1:] == [sentence(FOUND)], (
        "the change is in the sentence"
    )
    page = sweep_html(night)
    assert page.index("Causes, measured") < page.index("MatMulInteger</td>")


def test_json_and_back() -> None:
    assert from_json(Bisection, to_json(FOUND)) == FOUND
