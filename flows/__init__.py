"""Prefect flows for deployments: parameters and their documentation; the work is done in `autoopt.orchestrate`.

Deployments refer to these modules and functions by name and hold parameters as JSON, so both stay compatible.
"""

from autoopt.orchestrate.flow_runs.run_log import drop_tracebacks
from autoopt.orchestrate.server.outages import bound_waits, keep_events

bound_waits()
drop_tracebacks()
keep_events()
