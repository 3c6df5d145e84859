"""Prefect: runs as flow runs, hosts behind work pools, forms, and the server that `autoopt serve` starts.

The store is the truth; Prefect shows, schedules and retries. Start with `flow_runs`.
"""
