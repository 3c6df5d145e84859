"""Find out by measuring which sequence of ONNX optimization passes makes a model best on your hardware."""

from __future__ import annotations

import importlib
from typing import Any

_EXPORTS = {
    "Pass": "autoopt.passes.base",
    "Retry": "autoopt.passes.base",
    "Refused": "autoopt.passes.base",
    "Sequence": "autoopt.passes.composed.sequence",
    "Repeat": "autoopt.passes.composed.sequence",
    "register": "autoopt.registry",
    "Param": "autoopt.registry",
    "Minimum": "autoopt.registry",
    "Unit": "autoopt.registry",
    "Categorical": "autoopt.space",
    "Boolean": "autoopt.space",
    "Integer": "autoopt.space",
    "Float": "autoopt.space",
    "Conditional": "autoopt.space",
    "ConditionalDefault": "autoopt.space",
    "INVALID": "autoopt.space",
    "IGNORED": "autoopt.space",
    "plan": "autoopt.problem.resolve:make_plan",
    "Dag": "autoopt.spec.builder",
    "run": "autoopt.api",
    "resume": "autoopt.api",
    "Run": "autoopt.stored_runs",
    "runs": "autoopt.stored_runs",
    "load_run": "autoopt.stored_runs",
    "load": "autoopt.model.session_file",
    "register_metric": "autoopt.measure.quality.task",
    "get_pass": "autoopt.engine.tools.apply",
    "get_registered_passes": "autoopt.engine.tools.apply",
}
"""Public name -> its module, or `module:name` if the name differs there; imported at first use, which keeps
`import autoopt` fast."""
_RUNNERS = ("plan", "run", "resume", "runs", "load_run")
"""Functions that run something or look at a run; once a program takes one, messages name its arguments."""

__all__ = sorted(_EXPORTS)


def __getattr__(name: str) -> Any:  # noqa: ANN401  the exports have no common type
    if name not in _EXPORTS:
        raise AttributeError(f"module 'autoopt' has no attribute {name!r}")
    if name in _RUNNERS:
        importlib.import_module("autoopt.option_names").speak_python()
    module, _, attribute = _EXPORTS[name].partition(":")
    return getattr(importlib.import_module(module), attribute or name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_EXPORTS})
