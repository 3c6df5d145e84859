"""Flow `remote_call`, under the name that deployments in work pools have for it."""

from autoopt.orchestrate.hosts.remote_call import remote_call

__all__ = ["remote_call"]
