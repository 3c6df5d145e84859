"""`autoopt doctor`: problems of the installation, and their remedies."""

from __future__ import annotations

import typer

from autoopt.cli.option_groups import Runtimes, interpreters
from autoopt.cli.output import AsJson, print_json


def doctor(runtime: Runtimes = None, as_json: AsJson = False) -> int:
    """Check versions, CPU, disk, database, runtime and Prefect, and suggest fixes.

    Exit code 3 if something does not work.
    """
    from autoopt.engine.tools.doctor import examine
    from autoopt.settings import settings

    findings = examine(settings(), interpreters(runtime))
    if as_json:
        print_json([finding.to_json() for finding in findings])
    else:
        for finding in findings:
            line = f"{finding.status:8} {finding.check:9} {finding.message}"
            if finding.remedy:
                line += f"; {finding.remedy}"
            typer.echo(line)
    if any(finding.status == "problem" for finding in findings):
        return 3
    return 0
