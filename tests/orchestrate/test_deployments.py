"""Deployments: names, time zones and refusals, before a server is asked."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path
from zoneinfo import available_timezones

import pytest
from builders import mlp, write
from children import HANG_SECONDS

from autoopt import deployments
from autoopt.deployments import Night
from autoopt.errors import ConfigError, InputError
from autoopt.orchestrate.names import Place
from autoopt.settings import settings


def test_prefect_is_imported_only_when_its_environment_is_set() -> None:
    program = "import sys, autoopt.deployments, autoopt.orchestrate.serve; print('prefect' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=HANG_SECONDS)
    assert done.stdout == "False\n", done.stderr


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
def zoo(tmp_path: Path) -> Path:
    (tmp_path / "zoo.yaml").write_text("name: night\nmodels: [m.onnx]\n")
    return tmp_path / "zoo.yaml"


def test_a_wrong_zoo_file_is_named_with_its_line(zoo: Path) -> None:
    zoo.write_text("name: night\nmodls: [m.onnx]\n")
    with pytest.raises(ConfigError, match=r"zoo\.yaml:2: modls"):
        Night.of(zoo, "0 2 * * *", "UTC")


def test_an_address_that_the_environment_lacks_is_named(zoo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOOK", raising=False)
    write(mlp(), zoo.parent / "m")
    zoo.write_text("name: night\nnotify: [$HOOK]\nmodels: [m]\ndag: dag.yaml\n")
    (zoo.parent / "dag.yaml").write_text("name: d\npasses: [name_fix]\nchains: [[name_fix]]\n")
    with pytest.raises(InputError, match=r"notify: \$HOOK is not set"):
        Night.of(zoo, "0 2 * * *", "UTC")
    monkeypatch.setenv("HOOK", "https://hooks.example.com/canary")
    night = Night.of(zoo, "0 2 * * *", "Europe/Berlin")
    assert (night.timezone, len(night.addresses)) == ("Europe/Berlin", 1)
    assert "canary" not in repr(night)


def test_a_place_is_this_host_with_this_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places = []
    for home, database in (
        ("a", ""),
        ("b", ""),
        ("a", "postgresql://me:one@host/db"),
        ("a", "postgresql://me:two@host/db"),
    ):
        monkeypatch.setenv("AUTOOPT_HOME", str(tmp_path / home))
        monkeypatch.setenv("AUTOOPT_DB_URL", database)
        settings.cache_clear()
        places.append(Place.here())
    settings.cache_clear()
    assert len({place.name for place in places}) == 3
    assert places[2] == places[3]  # another password is not another store
    assert {place.tags[0] for place in places} == {f"host:{socket.gethostname()}"}
