"""The documentation builds as a site without a warning; its reference is made from the code."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from autoopt.cli.app import COMMANDS
from autoopt.metrics import METRICS
from autoopt.registry import registry

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    build = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert build.returncode == 0, build.stdout + build.stderr
    return folder


def test_every_page_is_there(site: Path) -> None:
    for page in (ROOT / "docs").glob("**/*.md"):
        assert (site / page.relative_to(ROOT / "docs").with_suffix(".html")).is_file()
    assert "From a model to a program" not in (site / "index.html").read_text()
    assert 'href="tutorial.html"' in (site / "index.html").read_text()


def test_the_reference_names_commands_fields_and_metrics(site: Path) -> None:
    commands = (site / "reference" / "commands.html").read_text()
    for name in COMMANDS:
        assert f"Usage: autoopt {name}" in commands
    assert "Usage: autoopt store verify" in commands
    dag = (site / "reference" / "dag.html").read_text()
    for field in ("objectives", "stages", "max_drop", "min_expected_improvement"):
        assert f"<code>{field}</code>" in dag
    metrics = (site / "reference" / "metrics.html").read_text()
    assert all(f"<code>{name}</code>" in metrics for name in METRICS)
    passes = (site / "reference" / "passes.html").read_text()
    assert all(f'<h3 id="{name}">{name}' in passes for name in registry().dotted)
    document = (site / "reference" / "json.html").read_text()
    assert "<code>best_lossy</code>" in document
    assert "The best lossy model of a run" in document


def test_the_site_asks_no_other_server_for_fonts(site: Path) -> None:
    assert not re.search(r"fonts\.(googleapis|gstatic)", (site / "index.html").read_text())
