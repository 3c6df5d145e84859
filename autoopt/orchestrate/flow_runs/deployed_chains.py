"""The deployment of `tune_chain`, which executes the chains of deployed runs."""

from __future__ import annotations

from typing import Final

CHAIN_NAME: Final = "tune-chain"
EARLIER_NAME: Final = "autoopt"
"""Name that version 0.1.0 gave to its deployments."""


def chain_deployment() -> str:
    """Return the full name of the deployment, as this version or an earlier one made it on the server."""
    from prefect.client.orchestration import get_client
    from prefect.exceptions import ObjectNotFound

    current = f"tune_chain/{CHAIN_NAME}"
    with get_client(sync_client=True) as client:
        try:
            client.read_deployment_by_name(current)
        except ObjectNotFound:
            return f"tune_chain/{EARLIER_NAME}"
    return current
