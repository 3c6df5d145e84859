"""Prefect: runs as flow runs, the forms that start them, and the server that `autoopt serve` starts.

The store is the truth; Prefect shows, schedules, cancels and retries. The flows are in the package `flows`; start with
`executor`, which runs the trials of a search as task runs.
"""

from importlib.util import find_spec

from autoopt.errors import InputError

if find_spec("prefect") is None:
    raise InputError("Prefect is not installed", remedy="pip install 'autoopt[prefect]'")
