"""`autoopt doctor`: what is wrong with the installation, and what to do."""

from __future__ import annotations

import typer

from autoopt.cli.output import AsJson, print_json


def doctor(as_json: AsJson = False) -> int:
    """Check versions, CPU, disk, database, runtime and Prefect; exit code 3 where something does not work."""
    from autoopt.engine.tools.doctor import examine
    from autoopt.settings import settings

    findings = examine(settings())
    if as_json:
        print_json([finding.to_json() for finding in findings])
    else:
        for finding in findings:
            remedy = f"; {finding.remedy}" if finding.remedy else ""
            typer.echo(f"{finding.status:8} {finding.check:9} {finding.message}{remedy}")
    return 3 if any(finding.status == "problem" for finding in findings) else 0
