"""The REST API of a Prefect server without Prefect's client, whose import takes a second of CPU time."""

from __future__ import annotations

import base64
import json
import os
import urllib.error
import urllib.request
import uuid
from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

from autoopt.errors import InputError, SystemFailure, one_line
from autoopt.json_codec import JsonObject
from autoopt.orchestrate.server.connection import without_userinfo
from autoopt.settings import redacted

REQUEST_SECONDS = 20.0
FIND_SECONDS = 5.0
"""Time limit of the first request to a server."""


class PrefectApi:
    """A server's API. Requests raise `urllib.error.HTTPError` if the server refuses, and `OSError` if it is away."""

    def __init__(self, url: str) -> None:
        """Take the password and the headers from the same environment variables as Prefect."""
        self.url = without_userinfo(url)
        self._secret_url = url
        parts = urlsplit(url)
        self._base = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl().rstrip("/")
        self._headers = {"Content-Type": "application/json", **_authorization(url)}
        self._headers |= json.loads(os.environ.get("PREFECT_CLIENT_CUSTOM_HEADERS") or "{}")

    def get(self, path: str, seconds: float = REQUEST_SECONDS) -> JsonObject:
        """The answer to a GET request."""
        return self._request("GET", path, None, seconds)

    def post(self, path: str, body: object) -> JsonObject:
        """The answer to a POST request."""
        return self._send("POST", path, body)

    def patch(self, path: str, body: object) -> None:
        """Change some fields of an object."""
        self._send("PATCH", path, body)

    def check(self) -> None:
        """Check that the server answers and accepts the password.

        Raises:
            SystemFailure: it does not answer.
            InputError: it requires another password.
        """
        try:
            self.get("/admin/version", FIND_SECONDS)
        except (OSError, ValueError) as error:
            if isinstance(error, urllib.error.HTTPError) and error.code == 401:
                remedy = "set PREFECT_API_AUTH_STRING (user:password)"
                raise InputError(
                    "the Prefect server requires another password", where=self.url, remedy=remedy
                ) from None
            reason = one_line(redacted(str(error), self._secret_url))
            raise SystemFailure(
                f"the Prefect server does not answer ({reason})",
                where=self.url,
                remedy="start it with 'prefect server start', or run with --engine inline",
            ) from None

    def _send(self, method: str, path: str, body: object) -> JsonObject:
        try:
            return self._request(method, path, body, REQUEST_SECONDS)
        except urllib.error.HTTPError as error:
            if error.code != 403:
                raise
        self._add_token()  # the server asks for one, or the one before has expired
        return self._request(method, path, body, REQUEST_SECONDS)

    def _add_token(self) -> None:
        """Add the token that a server without a password asks for."""
        client = str(uuid.uuid4())
        token = self.get(f"/csrf-token?client={client}")["token"]
        self._headers |= {"Prefect-Csrf-Client": client, "Prefect-Csrf-Token": str(token)}

    def _request(self, method: str, path: str, body: object, seconds: float) -> JsonObject:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self._base}{path}", data, self._headers, method=method)
        with urllib.request.urlopen(request, timeout=seconds) as response:
            content = response.read()
        document: JsonObject = json.loads(content or "null") or {}
        return document


def _authorization(url: str) -> Mapping[str, str]:
    key = os.environ.get("PREFECT_API_KEY")
    if key:
        return {"Authorization": f"Bearer {key}"}
    password = os.environ.get("PREFECT_API_AUTH_STRING") or unquote(urlsplit(url).netloc.rpartition("@")[0])
    if not password:
        return {}
    return {"Authorization": f"Basic {base64.b64encode(password.encode()).decode()}"}
