"""The reference pages of the documentation, as Markdown, made from the code.

`python scripts/docs/reference.py` writes dags/dag.schema.json, which the shipped DAGs name.
"""

from __future__ import annotations

import ast
import io
import json
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import typer
from passes_page import page

from autoopt.cli.app import COMMANDS, build
from autoopt.cli.init import dag_schema, zoo_schema
from autoopt.metrics import METRICS

ROOT = Path(__file__).parents[2]
BAR = "\\|"
"""A bar in the cell of a table."""
RECORDS = {
    "A run": ("run.py", ("RunResult", "PartResult", "ChosenTarget", "WorkCounts")),
    "A model": ("model.py", ("ModelResult",)),
    "Its measurements": ("model.py", ("MeasurementSummary", "ThroughputResult", "ProfileResult")),
    "A sweep": ("sweep.py", ("SweepResult", "SweepEntry", "EntryComparison", "MetricChange")),
}
"""Title -> module of `autoopt.results` and its classes."""


def commands_page() -> str:
    """The help of every command."""
    parts = ["# Commands", "Generated from the command line's own help.", _help_block([], None)]
    for name in COMMANDS:
        parts += [f"## autoopt {name}", _help_block([name], name)]
        command = typer.main.get_command(build(name)).commands[name]
        for sub in sorted(getattr(command, "commands", {})):
            parts += [f"### autoopt {name} {sub}", _help_block([name, sub], name)]
            for leaf in sorted(getattr(command.commands[sub], "commands", {})):
                parts += [f"#### autoopt {name} {sub} {leaf}", _help_block([name, sub, leaf], name)]
    parts += ["## Exit codes", EXIT_CODES]
    return "\n\n".join(parts) + "\n"


EXIT_CODES = """\
| code | meaning |
|---|---|
| 0 | success; also if no candidate is better than the source model |
| 1 | the result falls short: no model meets the constraints, a regression, other bytes in a replay |
| 2 | wrong input; one line for each mistake, with file and line |
| 3 | the machine, the database or Prefect failed, or a bug |
| 130 | interrupted; `autoopt resume` continues |"""


def _help_block(words: list[str], name: str | None) -> str:
    output = io.StringIO()
    command = typer.main.get_command(build(name))
    with redirect_stdout(output):
        command.main(args=[*words, "--help"], prog_name="autoopt", standalone_mode=False, max_content_width=100)
    return f"```text\n{output.getvalue().rstrip()}\n```"


def schema_page(title: str, schema: dict[str, Any]) -> str:
    """A JSON Schema as tables, one for each object."""
    parts = [f"# {title}", "Generated from the JSON Schema that `autoopt init` writes for editors."]
    parts.append(_properties(schema))
    for name, given in schema.get("$defs", {}).items():
        # A section that may also be a single word is one of several forms.
        forms = [form for form in [given, *given.get("anyOf", ())] if "properties" in form]
        for definition in forms:
            parts += [f"## {name}", _text(definition.get("description", "")), _properties(definition)]
    return "\n\n".join(filter(None, parts)) + "\n"


def _properties(definition: dict[str, Any]) -> str:
    required = definition.get("required", ())
    rows = ["| field | type | default | meaning |", "|---|---|---|---|"]
    for name, field in definition.get("properties", {}).items():
        default = "required" if name in required else _default(field)
        rows.append(f"| `{name}` | {_type(field)} | {default} | {_text(field.get('description', ''))} |")
    return "\n".join(rows)


def _default(field: dict[str, Any]) -> str:
    if field.get("default") in (None, "", []) or isinstance(field["default"], dict):
        return ""
    return f"`{json.dumps(field['default'])}`"


def _type(field: dict[str, Any]) -> str:
    if "$ref" in field:
        name = field["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    for key in ("anyOf", "oneOf"):
        if key in field:
            kinds = [_type(option) for option in field[key] if option.get("type") != "null"]
            return " or ".join(dict.fromkeys(kinds))
    if "enum" in field:
        values = field["enum"]
        shown = ", ".join(f"`{value}`" for value in values[:6])
        return f"{shown}, ..." if len(values) > 6 else shown
    if "const" in field:
        return f"`{field['const']}`"
    if field.get("type") == "array":
        items = _type(field.get("items", {}))
        return f"list of ({items})" if " or " in items else f"list of {items}"
    kinds = field.get("type", "any value")
    if isinstance(kinds, list):
        return " or ".join(kinds)
    return str(kinds)


def metrics_page() -> str:
    """All built-in metrics."""
    text = "Generated from the list of metrics. [Quality](../quality.md) explains those of quality."
    rows = ["# Metrics", "", text, ""]
    rows += ["| metric | unit | better | kind | meaning |", "|---|---|---|---|---|"]
    for metric in METRICS.values():
        better = "lower" if metric.direction == "minimize" else "higher"
        rows.append(f"| `{metric.name}` | {metric.unit} | {better} | {metric.kind} | {_text(metric.summary)} |")
    return "\n".join(rows) + "\n"


def json_page() -> str:
    """The records behind the JSON documents, from the fields and docstrings of their classes."""
    parts = [
        "# JSON documents",
        "Generated from the records in `autoopt/results`. `autoopt run --json` and `runs RUN --json` print a run, "
        "`autoopt sweep --json` a sweep. In a sweep, the fields of a model's run stand beside those of its entry. "
        'An `Estimate` is `{"value", "low", "high"}`: the value and its 95 % interval. New versions may add fields.',
    ]
    for title, (module, names) in RECORDS.items():
        parts.append(f"## {title}")
        tree = ast.parse((ROOT / "autoopt" / "results" / module).read_text(encoding="utf-8"))
        classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
        for name in names:
            parts += [f"### {name}", _text(ast.get_docstring(classes[name]) or ""), _fields(classes[name])]
    return "\n\n".join(parts) + "\n"


def _fields(record: ast.ClassDef) -> str:
    rows = ["| field | type | meaning |", "|---|---|---|"]
    for name, kind, meaning in _documented(record):
        rows.append(f"| `{name}` | `{kind.replace('|', BAR)}` | {_text(meaning)} |")
    return "\n".join(rows)


def _documented(record: ast.ClassDef) -> Iterator[tuple[str, str, str]]:
    """(JSON key, type, docstring) of each field."""
    for node, following in zip(record.body, [*record.body[1:], ast.Pass()], strict=True):
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        meaning = ""
        if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
            meaning = str(following.value.value)
        yield _json_key(node.value) or node.target.id, ast.unparse(node.annotation), meaning


def _json_key(default: ast.expr | None) -> str:
    """The key in `field(metadata={"json": KEY})`, which the JSON codec reads too; empty without one."""
    if isinstance(default, ast.Call):
        for keyword in default.keywords:
            if keyword.arg == "metadata":
                return str(ast.literal_eval(keyword.value).get("json", ""))
    return ""


def notebook_page() -> str:
    """The example notebook with its outputs."""
    notebook = json.loads((ROOT / "docs" / "notebooks" / "python.ipynb").read_text(encoding="utf-8"))
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        parts += [_output(output) for output in cell["outputs"]]
    parts.append("[Download the notebook](../notebooks/python.ipynb)")
    return "\n\n".join(filter(None, parts)) + "\n"


def _output(output: dict[str, Any]) -> str:
    data = output.get("data", {})
    if "text/html" in data and "<script" not in "".join(data["text/html"]):
        lines = "".join(data["text/html"]).splitlines()
        return "<div>" + "".join(line.strip() for line in lines) + "</div>"
    text = data.get("text/plain") or output.get("text") or ""
    return f"```text\n{''.join(text).rstrip()}\n```"


def _text(text: str) -> str:
    return " ".join(text.split()).replace("|", BAR).replace("<", "&lt;")


PAGES: dict[str, Callable[[], str]] = {
    "reference/commands.md": commands_page,
    "reference/dag.md": lambda: schema_page("dag.yaml", json.loads(dag_schema())),
    "reference/zoo.md": lambda: schema_page("zoo.yaml", json.loads(zoo_schema())),
    "reference/passes.md": page,
    "reference/metrics.md": metrics_page,
    "reference/json.md": json_page,
    "reference/notebook.md": notebook_page,
}
"""Path in the site -> the function that makes the page."""

if __name__ == "__main__":
    (ROOT / "dags" / "dag.schema.json").write_text(dag_schema(with_passes=False), encoding="utf-8")
