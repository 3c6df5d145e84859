"""Refuse what a DAG may say but this machine's engine cannot do."""

from __future__ import annotations

import shutil

from autoopt.data.config import BUILT_IN, DataConfig, unknown_component
from autoopt.errors import InputError, did_you_mean
from autoopt.measure.settings import SETTINGS, MeasurementSettings
from autoopt.spec import DagSpec
from autoopt.spec.data import WHICH
from autoopt.spec.source import Place


def check_supported(spec: DagSpec) -> None:
    """Check that a run of this DAG can do what it says.

    Raises:
        ConfigError: At the field that it cannot honour.
    """
    _check_measurement(spec)
    _check_data_components(spec)
    _check_interpreters(spec)
    if spec.search.order != "joint":
        return
    for node, pass_spec in spec.passes.items():
        if pass_spec.objectives:
            remedy = "write search: {strategy: per-chain, order: pass-by-pass}"
            raise spec.error(("passes", node, "objectives"), "only a pass-by-pass search uses them", remedy)


def _check_measurement(spec: DagSpec) -> None:
    for name, value in spec.measurement.items():
        if name not in SETTINGS:
            hint = did_you_mean(name, SETTINGS) or f"known: {', '.join(SETTINGS)}"
            raise spec.error(("measurement", name), "unknown field", hint)
        try:
            MeasurementSettings.parse({name: value})
        except InputError as error:
            raise spec.error(("measurement", name), error.what.removeprefix(f"{name}: ")) from None


def _check_data_components(spec: DagSpec) -> None:
    """Check the names of components where no user script can define them."""
    if spec.user_script is not None:
        return
    for which in WHICH:
        value = getattr(spec.data, which)
        if not isinstance(value, dict):
            continue
        config = DataConfig.parse(value)
        if config.user_script is not None:
            continue
        for kind, part in config.components():
            if part.type not in BUILT_IN[kind]:
                error = unknown_component(kind, part.type)
                raise spec.error(("data", which, kind), error.what, error.remedy)


def _check_interpreters(spec: DagSpec) -> None:
    interpreters: list[tuple[Place, str]] = [(("host",), spec.host.python)]
    for node, pass_spec in spec.passes.items():
        if pass_spec.host is not None:
            interpreters.append((("passes", node, "host"), pass_spec.host.python))
    for index, target in enumerate(spec.all_targets):
        place: Place = ("targets", index) if spec.targets else ("target",)
        if not target.python:
            place = (*place, "host")
        if not target.work_pool:  # else it is on another machine
            interpreters.append((place, target.where.python))
    for place, python in interpreters:
        if python and shutil.which(python) is None:
            raise spec.error((*place, "python"), f"no such interpreter: {python}")
