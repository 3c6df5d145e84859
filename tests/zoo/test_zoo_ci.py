"""A sweep for continuous integration."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

from nights_cases import entry

from autoopt.metrics import Estimate
from autoopt.results import EntryComparison, MetricChange, SweepResult
from autoopt.zoo.ci import github_annotations, junit_xml

CHANGE = MetricChange("best model", "latency_p50", Estimate(0.5, 0.48, 0.52), Estimate(0.6, 0.58, 0.62), True, "worse")
WORSE = replace(
    entry("<slow>", 0.6), compared=EntryComparison("worse", "s1", (CHANGE,), causes=("onnxruntime 1.30 -> 1.31",))
)
BROKEN = replace(entry("odd", None), compared=EntryComparison("new"), reason="100 %\nunreadable")
RESULT = SweepResult("s2", name="production", models=(entry("good", 0.5), WORSE, BROKEN), seconds=3.0)


def test_junit_has_a_case_for_each_model() -> None:
    suite = ElementTree.fromstring(junit_xml(RESULT))[0]
    assert {name: suite.get(name) for name in ("tests", "failures", "errors")} == {
        "tests": "3",
        "failures": "1",
        "errors": "1",
    }
    good, slow, odd = suite
    assert (good.findtext("system-out") or "").startswith("2.00x faster")
    failure, error = slow.find("failure"), odd.find("error")
    assert failure is not None
    assert error is not None
    assert failure.get("message") == (
        "worse: latency_p50 of the best model 2.0x faster (1.9 to 2.1) -> 1.7x faster (1.6 to 1.7); "
        "possible cause: onnxruntime 1.30 -> 1.31"
    )
    assert error.get("message") == "failed; 100 % unreadable"


def test_annotations_name_the_zoo_file() -> None:
    error, warning = github_annotations(RESULT, "zoo.yaml")
    assert error.startswith("::error file=zoo.yaml,title=autoopt <slow>::worse: latency_p50 of the best model")
    assert warning == "::warning file=zoo.yaml,title=autoopt odd::failed; 100 %25 unreadable"
