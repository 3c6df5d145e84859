"""The list of meters, and what each of them asks of the engine."""

from __future__ import annotations

import importlib

import pytest

from autoopt.errors import InputError
from autoopt.measure.meters import CUSTOM, METERS, Meter, meters_for
from autoopt.metrics import METRICS

BY_NAME = {meter.name: meter for meter in METERS}


def test_every_built_in_metric_has_exactly_one_meter() -> None:
    for name in METRICS:
        assert sum(meter.measures(name) for meter in METERS) == 1


@pytest.mark.parametrize("meter", [*METERS, CUSTOM], ids=lambda meter: meter.name)
def test_every_worker_function_exists(meter: Meter) -> None:
    module, _, function = meter.function.partition(":")
    assert callable(getattr(importlib.import_module(module), function))


def test_top_n_accuracy_exists_for_every_n() -> None:
    (meter,) = meters_for(["top7_accuracy"])
    assert "top7_accuracy" in meter.metrics
    with pytest.raises(InputError, match="nothing measures 'top0_accuracy'"):
        meters_for(["top0_accuracy"])


def test_only_the_data_that_a_meter_uses_is_part_of_its_key() -> None:
    assert BY_NAME["size"].data == ()
    assert BY_NAME["latency"].data == ("latency", "evaluation")
