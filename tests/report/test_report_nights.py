"""Nights compared: what counts as a change, and what is inside the noise."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest

from autoopt.report.nights import compare_entry, differences, regressed
from autoopt.report.sweep import summary, sweep_html, sweep_markdown, write_sweep


def entry(
    ratio: float = 0.5, width: float = 0.02, source: float = 1.0, accuracy: float = 0.9, **more: Any
) -> dict[str, Any]:
    best = {
        "artifact": "b" * 64,
        "chain": "tidy -> quant",
        "metrics": {"latency_p50": ratio * source, "accuracy": accuracy},
        "ratios": {"latency_p50": {"value": ratio, "low": ratio - width, "high": ratio + width}},
    }
    baseline = {
        "artifact": "a" * 64,
        "metrics": {"latency_p50": source, "accuracy": 0.9},
        "intervals": {"latency_p50": [source * 0.98, source * 1.02]},
    }
    return {"name": "m", "status": "ok", "run": "r", "best": best, "baseline": baseline, **more}


@pytest.mark.parametrize(
    ("tonight", "verdict"),
    [
        (entry(), "same"),
        (entry(ratio=0.53), "same"),  # the intervals touch
        (entry(ratio=0.6), "worse"),
        (entry(ratio=0.4), "better"),
        (entry(accuracy=0.8), "worse"),
        (entry(ratio=0.4, accuracy=0.89), "better"),  # the objective decides
        (entry(source=1.2), "same"),  # a slow night of the machine
        (entry(source=2.0), "worse"),
        (entry(source=0.4), "better"),
        ({"name": "m", "status": "refused", "reason": "no"}, "fails"),
    ],
)
def test_a_night_against_the_last_good_one(tonight: dict[str, Any], verdict: str) -> None:
    compared = compare_entry(tonight, [("s1", entry())])
    assert compared["verdict"] == verdict
    assert compared["with"] == "s1"
    assert regressed(compared) == (verdict in ("worse", "fails"))
    assert bool(compared["changes"]) == (verdict in ("worse", "better"))


def test_what_was_seen_on_earlier_nights_is_no_change() -> None:
    assert compare_entry(entry(source=1.8), [("s2", entry()), ("s1", entry(source=1.6))])["verdict"] == "same"


def test_first_night_failure_that_stays_and_repair() -> None:
    bad = {"name": "m", "status": "refused", "reason": "no"}
    assert compare_entry(entry(), [])["verdict"] == "new"
    assert compare_entry(bad, [("s1", bad)])["verdict"] == "same"
    assert compare_entry(entry(), [("s1", bad)])["verdict"] == "works again"


def test_a_model_that_vanished_is_a_regression_whatever_it_was() -> None:
    gone = {"name": "m", "status": "missing", "reason": "not in models any more"}
    for earlier in ([], [("s1", entry())], [("s1", {"name": "m", "status": "refused"})]):
        compared = compare_entry(gone, earlier)
        assert compared["verdict"] == "missing"
        assert regressed(compared)


def test_the_environment_is_named_as_the_cause() -> None:
    before, after = ({"cpu": {"model": "x"}, "libraries": {"onnxruntime": v}} for v in ("1.30", "1.31"))
    assert differences(before, after) == ["libraries.onnxruntime 1.30 -> 1.31"]
    compared = compare_entry(entry(ratio=0.6, environment=after), [("s1", entry(environment=before))])
    assert compared["causes"] == ["libraries.onnxruntime 1.30 -> 1.31"]
    assert compare_entry(entry(environment=after), [("s1", entry(environment=before))])["causes"] == []


def test_another_dag_is_named_where_something_moved() -> None:
    before, after = ({"model": "aa", "DAG": digest} for digest in ("b1", "b2"))
    compared = compare_entry(entry(ratio=0.6, inputs=after), [("s1", entry(inputs=before))])
    assert compared["other_inputs"] == ["DAG b1 -> b2"]
    assert compare_entry(entry(inputs=after), [("s1", entry(inputs=before))])["other_inputs"] == []
    assert compare_entry(entry(ratio=0.6, inputs=after), [("s1", entry())])["other_inputs"] == []  # not known then
    document = {"models": [{**entry(), "compared": compared}], "regressions": ["m"], "improvements": []}
    told = "\n".join(summary({**document, "environment_changes": []}))
    assert "m was given something else, which may be the cause: DAG b1 -> b2" in told


def test_text_html_and_markdown_show_the_same() -> None:
    worse = entry(ratio=0.6, name="<b>|", tags=["cnn"])
    worse["compared"] = compare_entry(worse, [("s1", entry())])
    document = {
        "sweep": "0123456789ab",
        "name": "zoo",
        "models": [worse],
        "regressions": ["<b>|"],
        "improvements": [],
        "environment_changes": ["libraries.onnxruntime 1.30 -> 1.31"],
    }
    stream = StringIO()
    write_sweep(document, stream)
    text, html, markdown = stream.getvalue(), sweep_html(document), sweep_markdown(document)
    for shown in (text, html, markdown):
        assert "0.600x (0.580..0.620)" in shown
        assert "0.500x (0.480..0.520)" in shown
        assert "regressions: " in shown
    assert "<b>" not in html.replace("&lt;b&gt;", "")
    assert "<b>\\|" in markdown
