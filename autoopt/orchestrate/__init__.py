"""Prefect: runs as flow runs, hosts behind work pools, forms, and the server that `autoopt serve` starts.

The store is the truth; Prefect shows, schedules and retries. Start with `flow_runs`.
"""

from importlib.util import find_spec

from autoopt.errors import InputError

if find_spec("prefect") is None:
    raise InputError("Prefect is not installed", remedy="pip install 'autoopt[prefect]'")
