"""The pages of a store: its list of runs, a run, two runs compared, the nights of a zoo."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from urllib.parse import quote, unquote

from autoopt.engine.tools.run_report import run_report
from autoopt.report.page_server import Page
from autoopt.report.pages import render
from autoopt.report.run_comparison import compare, comparison_lines, comparison_table
from autoopt.report.run_list import runs_table
from autoopt.report.table import Table
from autoopt.report.words.formatting import short
from autoopt.store import Store
from autoopt.store.finished import result_of
from autoopt.stored_runs import run_row
from autoopt.zoo.night_history import history_of
from autoopt.zoo.nights_page import nights_html
from autoopt.zoo.releases import release_rows, releases_table
from autoopt.zoo.stored_nights import DEFAULT_NIGHTS, stored_nights, zoo_of, zoos_with_sweeps

NEWEST_RUNS = 100


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


def zoo_page(store: Store, zoo: str) -> str:
    """Render the page of a zoo's nights."""
    return nights_html(history_of(zoo, stored_nights(store, zoo_of(store, zoo), DEFAULT_NIGHTS)))


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
