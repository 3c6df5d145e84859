"""`autoopt compare`: the best models of two runs side by side."""

from __future__ import annotations

import sys

from autoopt.cli.output import AsJson, print_json
from autoopt.cli.runs import RunName
from autoopt.cli.store_access import existing_store, result_of


def compare(first: RunName, second: RunName = "latest", as_json: AsJson = False) -> int:
    """Compare the best models of two runs; exit code 1 where the second is worse beyond the noise."""
    from autoopt.report.compare import compare as compare_runs
    from autoopt.report.compare import write_comparison

    with existing_store() as store:
        comparison = compare_runs(result_of(store.runs.get(first)), result_of(store.runs.get(second)))
    if as_json:
        print_json(comparison.to_json())
    else:
        write_comparison(comparison, sys.stdout)
    return 1 if comparison.regressed else 0
