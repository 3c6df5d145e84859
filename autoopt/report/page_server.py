"""Serve pages on 127.0.0.1, read-only, to browsers that have opened the server's link."""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final, TypeAlias
from urllib.parse import parse_qsl, urlsplit

from autoopt.errors import AutooptError
from autoopt.report.pages import render

logger = logging.getLogger(__name__)
RENEW_SECONDS: Final = 5
"""A page of a run in progress loads itself again after this time."""
POLICY: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": POLICY,
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


@dataclass(frozen=True)
class Page:
    """A page as HTML."""

    html: str
    live: bool = False
    """True if it will change soon: browsers load it again."""


Pages: TypeAlias = Callable[[str, Mapping[str, str]], Page | None]
"""Makes the page of a path and its query; None if there is none."""


class PageServer(ThreadingHTTPServer):
    """A server of pages. The link has its token, which a browser keeps as a cookie; without it there is no page."""

    daemon_threads = True

    def __init__(self, port: int, pages: Pages) -> None:
        """Listen on a port of 127.0.0.1; 0 for a free one."""
        super().__init__(("127.0.0.1", port), _Handler)
        self.token = secrets.token_urlsafe(24)
        self._pages = pages
        self._one_at_a_time = threading.Lock()  # charts are not made in several threads at once

    @property
    def link(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/?token={self.token}"

    def handle_error(self, request: object, client_address: object) -> None:
        """Log what ended a request, most often a browser that has gone."""
        logger.debug("a request has failed", exc_info=True)

    def page(self, path: str, query: Mapping[str, str]) -> tuple[HTTPStatus, Page]:
        """Make a page, or the one that says why there is none."""
        try:
            with self._one_at_a_time:
                page = self._pages(path, query)
        except AutooptError as error:
            return HTTPStatus.NOT_FOUND, message(str(error))
        if page is None:
            return HTTPStatus.NOT_FOUND, message("There is no such page.")
        return HTTPStatus.OK, page


def message(text: str) -> Page:
    """A page with one sentence."""
    return Page(render("ui.html", title="", lines=[text], sections=[], runs=[]))


class _Handler(BaseHTTPRequestHandler):
    server: PageServer
    server_version, sys_version = "autoopt", ""
    timeout = 30

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        query = dict(parse_qsl(url.query))
        port = self.server.server_port
        cookies = self.headers.get("Cookie", "")
        cookie = f"autoopt-{port}={self.server.token}"
        # A name that leads here from elsewhere is refused, so that no other web page can read these.
        if self.headers.get("Host") not in (f"127.0.0.1:{port}", f"localhost:{port}"):
            self._send(HTTPStatus.FORBIDDEN, message("Open the link that 'autoopt ui' has printed."))
        elif secrets.compare_digest(query.get("token", "").encode(), self.server.token.encode()):
            self.send_response(HTTPStatus.SEE_OTHER)
            self.send_header("Set-Cookie", f"{cookie}; HttpOnly; SameSite=Strict; Path=/")
            self.send_header("Location", "/")
            self.end_headers()
        elif any(secrets.compare_digest(one.strip().encode(), cookie.encode()) for one in cookies.split(";")):
            self._send(*self.server.page(url.path, query))
        else:
            self._send(HTTPStatus.UNAUTHORIZED, message("Open the link that 'autoopt ui' has printed."))

    def _send(self, status: HTTPStatus, page: Page) -> None:
        content = page.html.encode("utf-8", "backslashreplace")
        self.send_response(status)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        if page.live:
            self.send_header("Refresh", str(RENEW_SECONDS))
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: the address may have the token."""
