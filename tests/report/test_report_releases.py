"""Releases as text."""

from __future__ import annotations

from nights_cases import entry

from autoopt.report.runs.releases import ReleaseRow, release_text, releases_table
from autoopt.results.release import Release


def test_a_release_names_what_it_gains_and_who_promoted_it() -> None:
    release = Release(
        "production", 3, entry("cnn", 0.5), trial=4, places=("live",), by="ann@forge", time=1_790_000_000.0
    )
    assert release_text(release).startswith("production/cnn 3: 2.00x faster")
    assert release_text(release).endswith("(fold -> static), published to live")
    (row,) = releases_table([ReleaseRow(release, current=False, taken_back_by="bob@forge")]).rows
    assert row[:3] == ("production/cnn", "3", "rolled back by bob@forge")
    assert row[4] == "ann@forge"
    assert row[6:] == ("run-cnn trial 4", "live")
