"""Hosts behind Prefect work pools.

`work_pool` is the caller's side: a `Host` whose calls are flow runs. `remote_call` is the flow that a worker runs.
"""
