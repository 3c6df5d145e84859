"""What a DAG may say and this machine's engine cannot do: refused with one line, never passed over."""

from __future__ import annotations

import shutil

from autoopt.errors import InputError, did_you_mean
from autoopt.measure.settings import SETTINGS, MeasurementSettings
from autoopt.spec import DagSpec
from autoopt.spec.source import Place


def check_supported(spec: DagSpec) -> None:
    """That a run of this DAG can do what it says.

    Raises:
        ConfigError: at the field that it cannot.
    """
    for name, value in spec.measurement.items():
        if name not in SETTINGS:
            hint = did_you_mean(name, SETTINGS) or f"known: {', '.join(SETTINGS)}"
            raise spec.error(("measurement", name), "unknown field", hint)
        try:
            MeasurementSettings.parse({name: value})
        except InputError as error:
            raise spec.error(("measurement", name), error.what.removeprefix(f"{name}: ")) from None
    hosts = [(("host",), spec.host), *((("passes", n, "host"), p.host) for n, p in spec.passes.items())]
    for place, host in hosts:
        if host is not None and host.python:
            _check_python(spec, place, host.python)
    for index, target in enumerate(spec.all_targets):
        if target.where.python:
            at: Place = ("targets", index) if spec.targets else ("target",)
            _check_python(spec, at if target.python else (*at, "host"), target.where.python)
    own = next((n for n, p in spec.passes.items() if p.objectives), None)
    if own is not None and spec.search.order == "joint":
        remedy = "write search: {strategy: per-chain, order: pass-by-pass}"
        raise spec.error(("passes", own, "objectives"), "only a search pass by pass looks at them", remedy)


def _check_python(spec: DagSpec, place: Place, python: str) -> None:
    if shutil.which(python) is None:
        raise spec.error((*place, "python"), f"no such interpreter: {python}")
