"""Hooks of mkdocs: the README is the first page, the reference is made from the code, links leave the site as text."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

sys.path.insert(0, str(Path(__file__).parent))
from reference import PAGES, ROOT
from results_chart import results_chart

OUTSIDE = re.compile(r"\[([^\]]+)\]\(((?:CONTRIBUTING|CHANGELOG|benchmarks)[^)]*)\)")
"""A link of the README to a file that is not part of the site."""
CHART = "<!-- chart of results.csv -->"
"""Mark of the chart in docs/results.md, which exists only in the site."""
LINK = re.compile(r"\[([^\]]+)\]\(((?:\.\./)+)([^)#]+)(#[^)]*)?\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the README and the generated pages."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8").replace("](docs/", "](")
    readme = OUTSIDE.sub(r"\1 (`\2` in the repository)", readme)
    files.append(File.generated(config, "index.md", content=readme))
    for path, make in PAGES.items():
        files.append(File.generated(config, path, content=make()))
    files.append(File.generated(config, "images/results.svg", content=results_chart()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Name files of the repository that are not part of the site instead of linking to them."""
    folder = (ROOT / "docs" / page.file.src_uri).parent
    markdown = markdown.replace(CHART, "![Times as fast as the source, by model](images/results.svg)")

    def replace(match: re.Match[str]) -> str:
        label, up, path, _anchor = match.groups()
        target = (folder / up / path).resolve()
        if target.is_relative_to(ROOT / "docs"):
            return match[0]
        if not target.exists():
            raise ValueError(f"{page.file.src_uri}: {path} does not exist")
        return f"{label} (`{target.relative_to(ROOT)}` in the repository)"

    return LINK.sub(replace, markdown)
