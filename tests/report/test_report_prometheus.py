"""Metrics for Prometheus."""

from __future__ import annotations

import re
from dataclasses import replace

from nights_cases import entry

from autoopt.report.nights.night_history import StoredNight
from autoopt.report.nights.prometheus import HELP, prometheus_text
from autoopt.results import EntryComparison, SweepResult

SAMPLE = re.compile(r'(autoopt_\w+)\{((?:\w+="(?:[^"\\\n]|\\.)*",?)*)\} ([-+.e\d]+)')


def test_each_line_is_a_sample_or_describes_a_metric_once() -> None:
    worse = replace(entry('a "b"', 0.5), compared=EntryComparison("worse"))
    models = (worse, entry("odd", None))
    result = SweepResult("s", "z", models=models, regressions=('a "b"',), not_run=("c", "d"), seconds=12.5)
    text = prometheus_text([StoredNight(1_700_000_000.25, result)])
    values = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            sample = SAMPLE.fullmatch(line)
            assert sample, line
            values[sample[1], sample[2]] = float(sample[3])
    assert values["autoopt_night_start_time_seconds", 'zoo="z"'] == 1_700_000_000.0
    assert values["autoopt_night_failed", 'zoo="z"'] == 1
    assert values["autoopt_night_models_left_out", 'zoo="z"'] == 2
    assert values["autoopt_model_ok", 'zoo="z",model="odd"'] == 0
    assert values["autoopt_model_regressed", 'zoo="z",model="a \\"b\\""'] == 1
    assert values["autoopt_model_gain_ratio", 'zoo="z",model="a \\"b\\"",metric="latency_p50"'] == 2.0
    assert text.count("# TYPE ") == len(HELP) == len({name for name, _ in values})


def test_without_a_night_there_is_nothing() -> None:
    assert prometheus_text([]) == ""
