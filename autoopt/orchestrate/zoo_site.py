"""A read-only site of the zoos: pages of nights, sweeps and runs, and metrics for Prometheus.

    python -m autoopt.orchestrate.zoo_site --host 127.0.0.1 --port 4201

`autoopt serve` runs it next to Prefect's server. It asks for the password in PREFECT_SERVER_API_AUTH_STRING.
"""

from __future__ import annotations

import argparse
import base64
import os
import secrets
import socket
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from glob import escape
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final
from urllib.parse import quote, unquote, urlsplit

from autoopt.engine.sweeps.nights import DEFAULT_NIGHTS, newest_nights, stored_nights
from autoopt.engine.sweeps.pages import sweep_facts
from autoopt.engine.sweeps.releases import release_marks
from autoopt.engine.tools.run_report import run_report
from autoopt.errors import InputError, SystemFailure
from autoopt.orchestrate.server.access import is_loopback
from autoopt.report.elements.html import page, section, table_html, text_html
from autoopt.report.elements.table import Table
from autoopt.report.nights.night_history import NightFilter, StoredNight, history_of
from autoopt.report.nights.nights_page import PageLinks, nights_html
from autoopt.report.nights.prometheus import prometheus_text
from autoopt.report.sweeps.sweep import message
from autoopt.report.sweeps.sweep_page import sweep_html
from autoopt.report.words.formatting import day_text
from autoopt.results import SweepResult
from autoopt.store import Store, open_store
from autoopt.store.finished import result_of
from autoopt.workers import Gate

PASSWORD: Final = "PREFECT_SERVER_API_AUTH_STRING"
MOST_PAGES: Final = 50
"""Rendered pages that are kept."""
HTML, TEXT = "text/html; charset=utf-8", "text/plain; version=0.0.4; charset=utf-8"
HEADERS: Final[Mapping[str, str]] = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; form-action 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


@dataclass
class Pages:
    """The pages of the site, rendered from the store when they are first asked for and when they have changed.

    One page is rendered at a time, and none while a latency is measured on this machine.
    """

    prefect: str = ""
    """URL of Prefect's pages; empty without them."""
    _rendered: OrderedDict[str, tuple[object, str]] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def get(self, path: str) -> tuple[str, str]:
        """Render the page at a path.

        Returns:
            Its content type and its text.

        Raises:
            InputError: there is no such page.
            SystemFailure: the store cannot be read.
        """
        kind, _, name = path.strip("/").partition("/")
        with self._lock, open_store() as store:
            if not name and kind == "":
                return HTML, self._zoos(newest_nights(store))
            if not name and kind == "metrics":
                return TEXT, prometheus_text(newest_nights(store))
            if kind == "zoo":
                zoo, _, model = name.partition("/")
                return HTML, self._zoo(store, unquote(zoo), unquote(model))
            if kind == "sweep":
                return HTML, self._sweep(store, name)
            if kind == "run":
                return HTML, self._run(store, name)
        raise InputError("there is no such page", where=path)

    def _zoos(self, nights: list[StoredNight]) -> str:
        links = {night.result.name: f"/zoo/{quote(night.result.name)}" for night in nights}
        rows = [(night.result.name, day_text(night.time), message(night.result).partition("\n")[0]) for night in nights]
        table = table_html(Table(("zoo", "last night", "outcome"), tuple(rows)), links=links)
        body = table or "<p>No sweep has finished. Run 'autoopt sweep zoo.yaml'.</p>"
        return self._with_navigation(page("zoos", ["<h1>Zoos</h1>", section("Last nights", body)]), {})

    def _zoo(self, store: Store, name: str, model: str) -> str:
        """The page of a zoo, or of one of its models."""
        releases = release_marks(store, name)
        newest = next((record for record in store.sweeps.all(name) if record.status == "finished"), None)
        if newest is None:
            raise InputError("there is no such zoo", where=name)
        marks = [mark.time for of_model in releases.values() for mark in of_model]

        def render() -> str:
            only = NightFilter((escape(model),) if model else ())
            history = history_of(name, stored_nights(store, name, DEFAULT_NIGHTS), releases, only)
            if not history.nights:
                raise InputError("there is no such model", where=model)
            place = f"/zoo/{quote(name)}"
            links = PageLinks("/run/", "/sweep/", "" if model else f"{place}/")
            return self._with_navigation(nights_html(history, links), {f"zoo {name}": place} if model else {})

        return self._kept(f"zoo {name}/{model}", (newest.id, newest.finished, marks), render)

    def _sweep(self, store: Store, name: str) -> str:
        record = store.sweeps.get(name)
        if not record.result:
            raise InputError("has not finished", where=f"sweep {record.id}")
        result = SweepResult.from_json(record.result)
        links = {f"zoo {record.name}": f"/zoo/{quote(record.name)}"}

        def render() -> str:
            pages = {entry.run: f"/run/{entry.run}" for entry in result.models if entry.run}
            facts = sweep_facts(store, record.id, result.models, {entry.name: () for entry in result.models})
            return self._with_navigation(sweep_html(result, replace(facts, pages=pages)), links)

        return self._kept(f"sweep {record.id}", record.finished, render)

    def _run(self, store: Store, name: str) -> str:
        record = store.runs.get(name)
        result = result_of(record)
        links = {}
        if record.sweep is not None:
            links["sweep"] = f"/sweep/{record.sweep}"
        if self.prefect:
            links["flow runs"] = f"{self.prefect}/runs?tags={quote(f'run:{record.id}')}"

        def render() -> str:
            return self._with_navigation(run_report(store, record, result), links)

        return self._kept(f"run {record.id}", (record.status, record.finished), render)

    def _kept(self, name: str, version: object, render: Callable[[], str]) -> str:
        """The page that was rendered before, unless its version has changed."""
        known = self._rendered.pop(name, None)
        if known is None or known[0] != version:
            with Gate().working():
                known = version, render()
        self._rendered[name] = known
        if len(self._rendered) > MOST_PAGES:
            self._rendered.popitem(last=False)
        return known[1]

    def _with_navigation(self, text: str, links: Mapping[str, str]) -> str:
        links = {"zoos": "/", **links}
        if self.prefect:
            links.setdefault("Prefect", self.prefect)
        anchors = [f'<a href="{text_html(url)}">{text_html(name)}</a>' for name, url in links.items()]
        return text.replace("<body>\n", f'<body>\n<p class="screen">{" · ".join(anchors)}</p>\n', 1)


class ZooSite(ThreadingHTTPServer):
    """The server of the site."""

    daemon_threads = True

    def __init__(self, host: str, port: int, pages: Pages, password: str) -> None:
        """Listen.

        Args:
            host: Address.
            port: Port; 0 for any free one.
            pages: The pages.
            password: `user:password`; empty to ask for none, which only a loopback address allows.

        Raises:
            InputError: Others can reach the address, and there is no password.
        """
        if not password and not is_loopback(host):
            raise InputError(f"others can reach {host}, so the site needs a password", where=PASSWORD)
        if ":" in host:
            self.address_family = socket.AF_INET6
        super().__init__((host, port), _Handler)
        self.pages = pages
        self.authorization = f"Basic {base64.b64encode(password.encode()).decode()}" if password else ""


class _Handler(BaseHTTPRequestHandler):
    server: ZooSite
    server_version, sys_version = "autoopt", ""
    timeout = 60

    def do_GET(self) -> None:
        """Answer with a page."""
        if not self._may_read():
            self._answer(HTTPStatus.UNAUTHORIZED, TEXT, "the password is needed\n")
            return
        try:
            kind, text = self.server.pages.get(urlsplit(self.path).path)
            self._answer(HTTPStatus.OK, kind, text)
        except InputError as error:
            self._answer(HTTPStatus.NOT_FOUND, TEXT, f"{error}\n")
        except SystemFailure as error:
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, TEXT, f"{error}\n")

    do_HEAD = do_GET

    def _may_read(self) -> bool:
        if self.server.authorization:
            given = self.headers.get("Authorization", "")
            return secrets.compare_digest(given.encode(), self.server.authorization.encode())
        # A page from elsewhere whose name leads to this machine must not read what needs no password.
        return is_loopback(urlsplit(f"//{self.headers.get('Host', '')}").hostname or "")

    def _answer(self, status: HTTPStatus, kind: str, text: str) -> None:
        content = text.encode("utf-8", "backslashreplace")
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(content)), **HEADERS}.items():
            self.send_header(name, value)
        if status is HTTPStatus.UNAUTHORIZED:
            self.send_header("WWW-Authenticate", 'Basic realm="autoopt"')
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)


def main() -> None:
    """Serve the site until a signal ends the process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=4201)
    options = parser.parse_args()
    os.nice(10)
    pages = Pages(os.environ.get("PREFECT_UI_URL", ""))
    with ZooSite(options.host, options.port, pages, os.environ.get(PASSWORD, "")) as site:
        site.serve_forever()


if __name__ == "__main__":
    main()
