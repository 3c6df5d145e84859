"""The trials without a usable model, grouped by reason."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from autoopt.outcome import Outcome
from autoopt.results import Trial

_NUMBERS = re.compile(r"-?\d[\d.]*(e[-+]?\d+)?")
_CLUTTER = re.compile(
    r"\b(?:Fail|Invalid\w+|RuntimeException|NotImplemented|ValidationError|InferenceError|ValueError|RuntimeError): "
    r"|\[(?:ONNXRuntimeError\] : \d+ : [A-Z_]+ :|\w+InferenceError\]) "
    r"|Inference error\(s\): |Load model from \S+ failed:|/project/onnx/\S+:\d+: \w+: Assertion `[^`]*` failed: "
    r"|/onnxruntime_src/\S+:\d+ [^(]*\([^)]*\)(?: const)? "
    r"| ==> Context: .*"
)
"""Classes of exceptions, codes and places in C++ in the messages of onnx and onnxruntime."""
_OTHER_FLOATS = "'autoopt apply float32' converts 16-bit floats, 'autoopt apply float64_to_float32' those of 64 bits"
_WORDS = (
    (
        re.compile(r"Could not find an implementation for (\w+)\(\d+\) node with name '.*?'"),
        rf"onnxruntime has no \1 for this element type; {_OTHER_FLOATS}",
    ),
    (
        re.compile(
            r"(?:This is an invalid model\. )?Type Error: Type 'tensor\((?:b?float16|double)\)' of input parameter "
            r"\(.*?\) of operator \((\w+)\) in node \(.*?\) is invalid\."
        ),
        rf"onnxruntime has no \1 for this element type; {_OTHER_FLOATS}",
    ),
    (
        re.compile(
            r"(?:SerdeError: Error calling \w+ with: .*"
            r"|PassError: An error occurred when running the '.*?' pass after the following passes: \[.*?\])"
        ),
        "onnx-ir cannot read a part of the model; inline_functions or simplify may help",
    ),
    (
        re.compile(r"symbolic shape inference fails: .*"),
        "onnxruntime's symbolic shape inference does not know a part of the model; shape_inference may do",
    ),
    (
        re.compile(r"[^:;]*exceed\w* maximum protobuf size of 2GB[^;]*"),
        " the model is too large for one file; external_data keeps its weights beside it",
    ),
    (
        re.compile(r"Exception during initialization: .*\[OpenVINO-EP\] .*\.cpp:\d+: *"),
        "OpenVINO does not take the model: ",
    ),
    (re.compile(r"AssertionError: scale issue"), "a weight has values that are no numbers"),
    (re.compile(r"/tmp/(?:[^\s/]+/)*"), ""),
)
"""Messages of libraries, and what they mean and which pass helps; temporary files lose their folders."""
_NODE = re.compile(r"Non-zero status code returned while running (\w+) node\. Name:'([^']*)' Status Message: ")


@dataclass(frozen=True)
class FailureGroup:
    """Trials that failed in the same way."""

    outcome: str
    message: str
    """Of the first of them."""
    trials: tuple[Trial, ...]


def plain_reason(message: str) -> str:
    """A message of a library in plain words, without classes, codes and places in its sources."""
    plain = _NODE.sub(r"\1 node '\2': ", _CLUTTER.sub("", message))
    for pattern, words in _WORDS:
        plain = pattern.sub(words, plain)
    return plain


def outcome_text(trial: Trial) -> str:
    """The outcome of a trial; `breaks a constraint` for one that succeeded and does."""
    if trial.outcome is Outcome.OK and not trial.feasible:
        return "breaks a constraint"
    return str(trial.outcome)


def failure_groups(trials: Iterable[Trial]) -> list[FailureGroup]:
    """The infeasible trials by outcome and message, the largest group first; numbers in messages do not count."""
    groups: dict[tuple[str, str], list[Trial]] = {}
    for trial in trials:
        if not trial.feasible:
            message = _NUMBERS.sub("#", trial.explanation)
            groups.setdefault((outcome_text(trial), message), []).append(trial)
    failures = []
    for (outcome, _), members in groups.items():
        failures.append(FailureGroup(outcome, plain_reason(members[0].explanation), tuple(members)))
    return sorted(failures, key=lambda group: -len(group.trials))
