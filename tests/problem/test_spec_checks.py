"""What a DAG asks of the engine and this machine does not have is refused at its field."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from autoopt.errors import ConfigError
from autoopt.problem.spec_checks import check_supported
from autoopt.spec import load_dag

DAG: dict[str, Any] = {"name": "d", "passes": {"a": "name_fix"}, "chains": [["a"]]}
MISSING = {"type": "python_env", "python": "/no/such/python"}


@pytest.mark.parametrize(
    ("section", "field", "message"),
    [
        ({"measurement": {"second": 1}}, "measurement.second", "unknown field; did you mean 'seconds'"),
        ({"measurement": {"seconds": "long"}}, "measurement.seconds", "expected a number"),
        ({"measurement": {"rounds": -1}}, "measurement.rounds", "must be"),
        ({"measurement": {"concurrency": 0}}, "measurement.concurrency", "must be at least 1, not 0"),
        ({"measurement": {"quiet_seconds": False}}, "measurement.quiet_seconds", "expected a number"),
        (
            {"data": {"evaluation": {"path": "x.npz", "pre_process": "normalise"}}},
            "data.evaluation.pre_process",
            "unknown pre_process 'normalise'; did you mean 'normalize'",
        ),
        ({"host": MISSING}, "host.python", "no such interpreter: /no/such/python"),
        ({"passes": {"a": {"pass": "name_fix", "host": MISSING}}}, "passes.a.host.python", "no such interpreter"),
        ({"target": {"host": MISSING}}, "target.host.python", "no such interpreter"),
        ({"target": {"python": "/no/such/python"}}, "target.python", "no such interpreter"),
    ],
)
def test_an_unsupported_field_is_named(section: dict[str, Any], field: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        check_supported(load_dag({**DAG, **section}))
    assert error.value.field == field


def test_the_target_of_several_is_named_by_its_place() -> None:
    targets = [{"name": "one"}, {"name": "two", "python": "/no/such/python"}]
    with pytest.raises(ConfigError) as error:
        check_supported(load_dag({**DAG, "targets": targets}))
    assert error.value.field == "targets[1].python"


def test_objectives_of_a_pass_need_a_search_pass_by_pass() -> None:
    dag = {**DAG, "passes": {"a": {"pass": "name_fix", "objectives": [{"metric": "size"}]}}}
    with pytest.raises(ConfigError, match="only a pass-by-pass search uses them") as error:
        check_supported(load_dag(dag))
    assert error.value.field == "passes.a.objectives"
    check_supported(load_dag({**dag, "search": {"strategy": "per-chain", "order": "pass-by-pass"}}))


def test_a_supported_dag_passes() -> None:
    python = {"type": "python_env", "python": sys.executable}
    check_supported(load_dag({**DAG, "host": python, "measurement": {"seconds": 1, "rounds": 0}}))
