"""Deployments: names, time zones and refusals, before a server is asked."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from zoneinfo import available_timezones

import pytest
from children import HANG_SECONDS

from autoopt import deployments
from autoopt.deployments import check_queues, schedule_sweep
from autoopt.engine.sweeps.request import SweepRequest
from autoopt.errors import ConfigError, InputError
from autoopt.settings import settings


def test_prefect_is_not_imported_before_serve_has_set_its_environment() -> None:
    program = "import sys, autoopt.deployments, autoopt.orchestrate.server.supervisor; print('prefect' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=HANG_SECONDS)
    assert done.stdout == "False\n", done.stderr


@pytest.mark.parametrize("queue", ["cuda", "CPU-1", "a.b_c", "x" * 64])
def test_a_label_can_be_a_work_queue(queue: str) -> None:
    check_queues([queue])


@pytest.mark.parametrize("queue", ["", "a b", "ä", "-x", "x" * 65, "a/b", "autoopt", "optimize-model", "default"])
def test_a_name_that_prefect_or_autoopt_uses_otherwise_is_refused(queue: str) -> None:
    with pytest.raises(InputError, match="cannot be the name of a work queue; use a label"):
        check_queues(["cuda", queue])


@pytest.mark.parametrize(
    ("option", "variable", "zone"),
    [
        ("Europe/Berlin", "UTC", "Europe/Berlin"),
        (None, "Europe/Berlin", "Europe/Berlin"),
        (None, ":Europe/Berlin", "Europe/Berlin"),
        (None, "/usr/share/zoneinfo/Europe/Berlin", "Europe/Berlin"),
    ],
)
def test_the_time_zone_is_that_of_the_option_then_of_the_environment(
    option: str | None, variable: str, zone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", variable)
    assert deployments._timezone(option) == zone


def test_the_machines_time_zone_has_a_name_or_is_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TZ", raising=False)
    assert deployments._timezone(None) in available_timezones()


@pytest.mark.parametrize(("option", "variable", "where"), [("Berlin", "UTC", "--timezone"), (None, "CET-1CEST", "TZ")])
def test_an_unknown_time_zone_names_its_source(
    option: str | None, variable: str, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", variable)
    with pytest.raises(InputError, match=f"{where}: .* is not the name of a time zone"):
        deployments._timezone(option)


@pytest.mark.parametrize("cron", ["", "every night", "61 * * * *", "* * *"])
def test_a_wrong_cron_expression_is_the_users_input(cron: str) -> None:
    with pytest.raises(InputError, match="is not a cron expression; write for example '0 2"):
        deployments._check_cron(cron)


@pytest.fixture
def zoo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AUTOOPT_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    settings.cache_clear()
    (tmp_path / "zoo.yaml").write_text("name: night\nmodels: [m.onnx]\n")
    return tmp_path / "zoo.yaml"


def test_a_schedule_needs_a_permanent_server(zoo: Path) -> None:
    with pytest.raises(InputError, match="a schedule needs a permanent Prefect server"):
        schedule_sweep(SweepRequest(zoo=zoo), "0 2 * * *")
    settings.cache_clear()


@pytest.mark.parametrize("name", ["sweep-zoo", "autoopt"])
def test_a_zoo_cannot_take_the_name_of_the_default_deployment(zoo: Path, name: str) -> None:
    zoo.write_text(f"name: {name}\nmodels: [m.onnx]\n")
    with pytest.raises(InputError, match=f"'{name}' is the name of the default deployment; give the zoo another name"):
        schedule_sweep(SweepRequest(zoo=zoo), "0 2 * * *")


def test_a_wrong_zoo_file_is_named_with_its_line(zoo: Path) -> None:
    zoo.write_text("name: night\nmodls: [m.onnx]\n")
    with pytest.raises(ConfigError, match=r"zoo\.yaml:2: modls"):
        schedule_sweep(SweepRequest(zoo=zoo), "0 2 * * *")
