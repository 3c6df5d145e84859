"""Flow `remote_call` under the module path that deployments in work pools refer to."""

from autoopt.orchestrate.hosts.remote_call import remote_call

__all__ = ["remote_call"]
