"""Outages of the Prefect server, with the errors that its clients raise."""

from __future__ import annotations

import httpx
import pytest
from prefect.events.clients import PrefectEventsClient
from prefect.events.worker import EventsWorker
from prefect.exceptions import PrefectException
from prefect.settings import (
    PREFECT_API_REQUEST_TIMEOUT,
    PREFECT_API_URL,
    PREFECT_CLIENT_MAX_RETRIES,
    temporary_settings,
)

from autoopt.errors import SystemFailure
from autoopt.orchestrate.server import outages
from autoopt.orchestrate.server.outages import (
    REQUEST_SECONDS,
    Outage,
    best_effort,
    client_retries,
    keep_events,
    wait_out,
)

REQUEST = httpx.Request("GET", "http://user:canary@host/api")


def refused(status: int) -> httpx.HTTPStatusError:
    return httpx.HTTPStatusError("no", request=REQUEST, response=httpx.Response(status, request=REQUEST))


AWAY = [httpx.ConnectError("connection refused"), httpx.ReadTimeout("slow"), refused(503), refused(429), refused(408)]


@pytest.mark.parametrize("error", AWAY, ids=repr)
def test_requests_fail_silently_while_the_server_is_away(error: Exception) -> None:
    outage = Outage()
    with outage:
        raise error
    assert outage.occurred
    assert not outage.ongoing, "a moment is no outage: the database may be busy"
    assert outage.poll_seconds(0.5) == 0.5


@pytest.mark.parametrize("error", [refused(400), refused(404), PrefectException("odd")], ids=repr)
def test_a_refused_request_is_a_failure(error: Exception) -> None:
    with pytest.raises(SystemFailure, match="the Prefect server refuses a request"), Outage():
        raise error


def test_other_errors_pass() -> None:
    with pytest.raises(KeyError), Outage():
        raise KeyError


def test_a_long_outage_is_reported_with_its_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(outages, "RETRY_SECONDS", -1.0)
    outage = Outage()
    for _ in range(3):
        with outage:
            raise httpx.ConnectError("connection refused")
    assert outage.ongoing
    assert outage.poll_seconds(0.5) == -1.0
    with outage:
        pass
    assert not outage.ongoing
    assert outage.occurred
    first, second = capsys.readouterr().err.splitlines()
    assert first == "the Prefect server does not answer (connection refused); waiting for it"
    assert second.startswith("the Prefect server is back after")


def test_a_server_that_stays_away_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outages, "OUTAGE_SECONDS", -1.0)
    outage = Outage()
    with outage:
        raise httpx.ConnectError("gone")
    with pytest.raises(SystemFailure, match=r"has not answered for 0 s \(gone\); start it again"), outage:
        raise httpx.ConnectError("gone")


def test_work_is_repeated_until_the_server_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outages, "RETRY_SECONDS", 0.0)
    errors = [httpx.ConnectError("gone"), refused(503)]

    def work() -> int:
        if errors:
            raise errors.pop()
        return 42

    assert wait_out(work) == 42


def test_clients_repeat_requests_only_as_often_as_they_are_told() -> None:
    before = PREFECT_CLIENT_MAX_RETRIES.value()
    with client_retries(2):
        assert PREFECT_CLIENT_MAX_RETRIES.value() == 2
        assert PREFECT_API_REQUEST_TIMEOUT.value() == REQUEST_SECONDS
    assert PREFECT_CLIENT_MAX_RETRIES.value() == before


@pytest.mark.parametrize("error", [httpx.ConnectError("gone"), PrefectException("odd")], ids=repr)
def test_showing_something_ends_nothing(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    @best_effort
    def show(text: str) -> None:
        raise error

    show("x")
    assert "the Prefect server does not show everything" in capsys.readouterr().err


def test_a_bug_in_showing_something_is_not_hidden() -> None:
    @best_effort
    def show() -> None:
        raise KeyError

    with pytest.raises(KeyError):
        show()


def test_events_wait_for_the_server_as_long_as_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EventsWorker, "_client_override", None)
    with temporary_settings({PREFECT_API_URL: None}):
        keep_events()
        assert EventsWorker._client_override is None, "there is no server"
    with temporary_settings({PREFECT_API_URL: "http://127.0.0.1:4200/api"}):
        keep_events()
    attempts = (("reconnection_attempts", int(outages.OUTAGE_SECONDS)),)
    assert EventsWorker._client_override == (PrefectEventsClient, attempts)
