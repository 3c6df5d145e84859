"""Deployments: names, time zones, refusals and forms, before a server is asked."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path
from typing import Any
from zoneinfo import available_timezones

import pytest
from builders import mlp, write
from children import HANG_SECONDS
from prefect.utilities.callables import parameter_schema
from prefect.utilities.schema_tools import ValidationError, validate

from autoopt import deployments
from autoopt.deployments import Night, choices, dag_files, file_or_content, file_or_path, overriding, with_types
from autoopt.errors import ConfigError, InputError
from autoopt.orchestrate.names import Place
from autoopt.settings import settings
from autoopt.spec.search import SearchFields
from flows.nightly_sweep import nightly_sweep
from flows.optimize_model import optimize_model


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


DAG = "name: d\npasses: [name_fix]\nchains: [[name_fix]]\n"


def model_form(files: list[str]) -> dict[str, Any]:
    types = {"dag": file_or_content(files), "search": overriding(SearchFields) | None}
    form = with_types(optimize_model, types)
    document: dict[str, Any] = form.parameters.model_dump(exclude_unset=True)
    return document


def test_dags_are_found(tmp_path: Path) -> None:
    for name in ("dag.yaml", "more/other.yaml", ".hidden/dag.yaml", "broken.yaml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(DAG if name != "broken.yaml" else "name: [")
    assert dag_files(tmp_path) == [str(tmp_path / "dag.yaml"), str(tmp_path / "more/other.yaml")]


def test_a_dag_is_chosen_typed_or_written() -> None:
    form = model_form(["dag.yaml", "other.yaml"])
    fields = form["properties"]
    assert [one["title"] for one in fields["dag"]["anyOf"]] == ["choose", "path", "content"]
    assert fields["dag"]["anyOf"][0]["enum"] == ["dag.yaml", "other.yaml"]
    assert form["required"] == ["dag"]
    assert [one["title"] for one in model_form([])["properties"]["dag"]["anyOf"]] == ["path", "content"]
    for dag in ("dag.yaml", "/elsewhere/dag.yaml", {"name": "d"}):
        validate({"dag": dag}, form, raise_on_error=True)


def test_the_flow_itself_takes_what_it_took() -> None:
    form = with_types(optimize_model, {"dag": choices(["dag.yaml"])})
    assert (form.name, form.fn.__module__, form.__name__) == (
        "optimize_model",
        "flows.optimize_model",
        "optimize_model",
    )
    before = parameter_schema(optimize_model).model_dump()["properties"]
    after = form.parameters.model_dump()["properties"]
    assert {name for name in before if before[name] != after[name]} == {"dag"}


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"only": "gpu"}, "'gpu' is not one of ['cnn', 'rnn']"),
        ({"zoo": "other.yaml"}, "'zoo.yaml' was expected"),
        ({"trials": 0}, "0 is less than the minimum of 1"),
        ({"workers": "two"}, "'two' is not of type 'integer'"),
    ],
)
def test_a_night_is_refused_in_the_words_of_its_form(values: dict[str, object], reason: str) -> None:
    types = {
        "zoo": choices(["zoo.yaml"]),
        "only": choices(["cnn", "rnn"]) | None,
        "dag": file_or_path(["dag.yaml"]) | None,
    }
    document = with_types(nightly_sweep, types).parameters.model_dump(exclude_unset=True)
    validate({"zoo": "zoo.yaml", "only": "cnn", "dag": "elsewhere.yaml", "trials": 3}, document, raise_on_error=True)
    with pytest.raises(ValidationError) as refused:
        validate({"zoo": "zoo.yaml", **values}, document, raise_on_error=True)
    assert reason in str(refused.value)


def test_a_search_is_typed_in_fields_that_override_nothing_by_themselves() -> None:
    form = model_form(["dag.yaml"])
    validate({"dag": "dag.yaml", "search": {"sampler": "tpe", "trials": 4}}, form, raise_on_error=True)
    with pytest.raises(ValidationError):
        validate({"dag": "dag.yaml", "search": {"trails": 3}}, form, raise_on_error=True)
    assert set(overriding(SearchFields)().model_dump().values()) == {None}
