"""`autoopt ui`: the pages of a store, read-only, on 127.0.0.1, for browsers that have opened the server's link."""

from __future__ import annotations

import logging
import secrets
import threading
import webbrowser
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Annotated, Final
from urllib.parse import parse_qsl, quote, unquote, urlsplit

import typer

from autoopt.cli.store_access import existing_store
from autoopt.engine.tools.run_report import run_report
from autoopt.errors import AutooptError, InputError
from autoopt.report.pages import render
from autoopt.report.run_lists import compare, comparison_lines, comparison_table, runs_table
from autoopt.report.table import Table
from autoopt.report.words.formatting import short
from autoopt.store import Store
from autoopt.store.finished import result_of
from autoopt.stored_runs import run_row
from autoopt.zoo.nights import zoos_with_sweeps
from autoopt.zoo.nights_report import zoo_page
from autoopt.zoo.releases import release_rows, releases_table

logger = logging.getLogger(__name__)
RENEW_SECONDS: Final = 5
"""A page of a run in progress loads itself again after this time."""
NEWEST_RUNS: Final = 100
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


class PageServer(ThreadingHTTPServer):
    """A server of pages. The link has its token, which a browser keeps as a cookie; without it there is no page."""

    daemon_threads = True

    def __init__(self, port: int) -> None:
        """Listen on a port of 127.0.0.1; 0 for a free one."""
        super().__init__(("127.0.0.1", port), _Handler)
        self.token = secrets.token_urlsafe(24)
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
            with self._one_at_a_time, existing_store() as store:
                page = page_of(store, path, query)
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


def page_of(store: Store, path: str, query: Mapping[str, str]) -> Page | None:
    """Make the page of a path: `/`, `/run/ID`, `/zoo/NAME` or `/compare?old=ID&new=ID`; None for any other."""
    kind, _, name = path.strip("/").partition("/")
    if kind == "" and not name:
        return _index(store)
    if kind == "run" and name:
        record = store.runs.get(name)
        return Page(run_report(store, record, result_of(record)), live=record.shown_status == "running")
    if kind == "zoo" and name:
        return Page(zoo_page(store, unquote(name)))
    if kind == "compare" and not name:
        return _comparison(store, query.get("old", ""), query.get("new", ""))
    return None


def _index(store: Store) -> Page:
    rows = [run_row(store, record) for record in store.runs.newest(NEWEST_RUNS)]
    zoos = zoos_with_sweeps(store)
    sections = [
        ("Runs", runs_table(rows), {short(row.run): f"/run/{row.run}" for row in rows}),
        ("Zoos", Table(("zoo",), tuple((name,) for name in zoos)), {name: f"/zoo/{quote(name)}" for name in zoos}),
        ("Releases", releases_table(release_rows(store)), {}),
    ]
    runs = [(row.run, f"{short(row.run)}: {row.model}, {row.dag}") for row in rows if row.result is not None]
    lines = [] if rows else ["No run yet."]
    page = render("ui.html", title="", lines=lines, sections=sections, runs=runs)
    return Page(page, live=any(row.status == "running" for row in rows))


def _comparison(store: Store, old: str, new: str) -> Page:
    comparison = compare(result_of(store.runs.get(old)), result_of(store.runs.get(new)))
    links: dict[str, str] = {}
    sections = [("Best models", replace(comparison_table(comparison), title=""), links)]
    lines = comparison_lines(comparison)
    return Page(render("ui.html", title="two runs compared", lines=lines, sections=sections, runs=[]))


def ui(
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1 [default: a free one].")] = 0,
    open_: Annotated[bool, typer.Option("--open", help="Open the link in a browser.")] = False,
) -> None:
    """Show runs, comparisons, nights and releases as pages on 127.0.0.1, until Ctrl-C.

    The pages only read. They ask for a token, which the printed link has; runs in progress renew themselves.
    """
    with existing_store():
        pass
    try:
        server = PageServer(port)
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(f"cannot listen on port {port}: {reason}", where="--port", remedy="name another one") from None
    with server:
        print(server.link, flush=True)
        if open_:
            webbrowser.open(server.link)
        with suppress(KeyboardInterrupt):
            server.serve_forever()
