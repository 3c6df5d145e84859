"""`autoopt ui`: the pages of the store in a browser."""

from __future__ import annotations

import webbrowser
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote, unquote

import typer

from autoopt.cli.store_access import existing_store, result_of
from autoopt.errors import InputError

if TYPE_CHECKING:
    from autoopt.report.page_server import Page
    from autoopt.report.table import Table
    from autoopt.store import Store

NEWEST_RUNS = 100


def ui(
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1 [default: a free one].")] = 0,
    open_: Annotated[bool, typer.Option("--open", help="Open the link in a browser.")] = False,
) -> None:
    """Show runs, comparisons, nights and releases as pages on 127.0.0.1, until Ctrl-C.

    The pages only read. They ask for a token, which the printed link has; runs in progress renew themselves.
    """
    from autoopt.report.page_server import PageServer

    with existing_store():
        pass
    try:
        server = PageServer(port, _page)
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(f"cannot listen on port {port}: {reason}", where="--port", remedy="name another one") from None
    with server:
        print(server.link, flush=True)
        if open_:
            webbrowser.open(server.link)
        with suppress(KeyboardInterrupt):
            server.serve_forever()


def _page(path: str, query: Mapping[str, str]) -> Page | None:
    """Make the page of a path: `/`, `/run/ID`, `/zoo/NAME` or `/compare?old=ID&new=ID`."""
    kind, _, name = path.strip("/").partition("/")
    with existing_store() as store:
        if kind == "" and not name:
            return _index(store)
        if kind == "run" and name:
            from autoopt.engine.tools.run_report import run_report
            from autoopt.report.page_server import Page

            record = store.runs.get(name)
            page = run_report(store, record, result_of(record))
            return Page(page, live=record.shown_status == "running")
        if kind == "zoo" and name:
            from autoopt.cli.runs import zoo_page
            from autoopt.report.page_server import Page

            return Page(zoo_page(store, unquote(name)))
        if kind == "compare" and not name:
            return _comparison(store, query.get("old", ""), query.get("new", ""))
    return None


def _index(store: Store) -> Page:
    from autoopt.report.page_server import Page
    from autoopt.report.pages import render
    from autoopt.report.run_list import runs_table
    from autoopt.report.table import Table
    from autoopt.report.words.formatting import short
    from autoopt.stored_runs import run_row
    from autoopt.zoo.releases import release_rows, releases_table
    from autoopt.zoo.stored_nights import zoos_with_sweeps

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
    from autoopt.report.page_server import Page
    from autoopt.report.pages import render
    from autoopt.report.run_comparison import compare, comparison_lines, comparison_table

    comparison = compare(result_of(store.runs.get(old)), result_of(store.runs.get(new)))
    sections: list[tuple[str, Table, dict[str, str]]] = [
        ("Best models", replace(comparison_table(comparison), title=""), {})
    ]
    lines = comparison_lines(comparison)
    return Page(render("ui.html", title="two runs compared", lines=lines, sections=sections, runs=[]))
