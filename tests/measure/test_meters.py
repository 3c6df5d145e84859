"""The list of meters, and what each of them asks of the engine."""

from __future__ import annotations

import importlib

import pytest

from autoopt.errors import InputError
from autoopt.measure.meters import CUSTOM, METERS, Meter, latency_seconds, meters_for
from autoopt.measure.settings import MeasurementSettings
from autoopt.metrics import METRICS, Constraint

BY_NAME = {meter.name: meter for meter in METERS}


def test_every_built_in_metric_has_exactly_one_meter() -> None:
    for name in METRICS:
        assert sum(meter.measures(name) for meter in METERS) == 1


@pytest.mark.parametrize("meter", [*METERS, CUSTOM], ids=lambda meter: meter.name)
def test_every_worker_function_exists(meter: Meter) -> None:
    module, _, function = meter.function.partition(":")
    assert callable(getattr(importlib.import_module(module), function))


def test_cheap_meters_come_first_and_exclusive_ones_last() -> None:
    exclusive = [meter.exclusive for meter in METERS]
    assert exclusive == sorted(exclusive)
    names = [meter.name for meter in meters_for(["peak_memory", "mine", "latency_p50", "size"], custom=["mine"])]
    assert names == ["size", "custom", "latency", "memory"]


def test_a_meter_is_selected_once_for_all_its_metrics() -> None:
    (meter,) = meters_for(["f1", "accuracy", "f1"])
    assert meter.name == "task"
    assert meter.metrics == BY_NAME["task"].metrics


def test_top_n_accuracy_exists_for_every_n() -> None:
    (meter,) = meters_for(["top7_accuracy"])
    assert "top7_accuracy" in meter.metrics
    with pytest.raises(InputError, match="nothing measures 'top0_accuracy'"):
        meters_for(["top0_accuracy"])


def test_custom_metrics_go_to_the_meter_of_the_script() -> None:
    (meter,) = meters_for(["mine"], custom=["mine", "unused"])
    assert (meter.name, meter.metrics) == ("custom", ("mine",))


def test_only_the_data_that_a_meter_uses_is_part_of_its_key() -> None:
    assert BY_NAME["size"].data == ()
    assert BY_NAME["latency"].data == ("latency", "evaluation")


def test_settings_of_the_key_lack_the_rounds() -> None:
    measurement = {"rounds": 3, "seconds": 2.0}
    for meter in METERS:
        assert meter.settings_for(measurement) == {"seconds": 2.0}


def test_a_sequential_test_gets_the_constraints_on_its_metrics() -> None:
    constraints = [Constraint("accuracy", max_drop=0.01), Constraint("size", max_ratio=1.0)]
    measurement = {"sequential": True}
    settings = BY_NAME["task"].settings_for(measurement, constraints)
    assert [entry["metric"] for entry in settings["constraints"]] == ["accuracy"]  # type: ignore[index, union-attr]
    assert BY_NAME["task"].settings_for(measurement, None) == measurement
    assert BY_NAME["task"].settings_for({}, constraints) == {}
    assert BY_NAME["latency"].settings_for(measurement, constraints) == measurement


def test_hints_are_those_of_the_meter_that_have_a_value() -> None:
    hints = {"incumbent_ratio": 0.5, "source_ms": None}
    assert BY_NAME["latency"].hints_from(hints) == {"incumbent_ratio": 0.5}
    assert BY_NAME["memory"].hints_from(hints) == {}


def test_a_measurement_has_the_time_that_its_settings_ask_for() -> None:
    meter = BY_NAME["latency"]
    assert meter.time_limit(100.0, {}) == 100.0
    assert meter.time_limit(100.0, {"seconds": 1}) == 100.0
    assert meter.time_limit(100.0, {"seconds": 60}) >= 100.0 + 2 * 55
    assert meter.time_limit(100.0, {"quiet_seconds": 30, "profiles": [{}, {}]}) >= 100.0 + 2 * 30 - 0.5
    assert meter.time_limit(100.0, {"throughput": [{}, {}]}) >= 100.0 + 5
    assert BY_NAME["memory"].time_limit(100.0, {"seconds": 60}) == 100.0


def test_parallel_inferences_take_longer() -> None:
    assert latency_seconds(MeasurementSettings(concurrency=2)) > latency_seconds(MeasurementSettings())


def test_a_first_look_at_a_candidate_is_shorter_unless_nothing_follows_it() -> None:
    latency = BY_NAME["latency"]
    usual = latency.settings_for({"seconds": 2.0})
    assert latency.settings_for({"seconds": 2.0}, screened=True) == {**usual, "target_width": 0.1, "replicas": 2}
    assert latency.settings_for({"target_width": 0.2, "replicas": 2}, screened=True) == {
        "target_width": 0.2,
        "replicas": 2,
    }
    for full in ({"rounds": 0}, {"fixed": True}):
        assert latency.settings_for(full, screened=True) == latency.settings_for(full)
    assert BY_NAME["task"].settings_for({"seconds": 2.0}, screened=True) == {"seconds": 2.0}
