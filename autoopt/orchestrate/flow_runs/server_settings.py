"""The data root and the keys of object stores, kept in Prefect's server for the workers of all machines."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from prefect.blocks.system import Secret
from prefect.variables import Variable

from autoopt.orchestrate.server.outages import best_effort
from autoopt.settings import settings

DATA_ROOT: Final = "autoopt_data_root"
"""Name of the Prefect variable."""
KEYS: Final = "autoopt-keys"
"""Name of the Secret block: a JSON object of environment variables."""
ALLOWED: Final = frozenset(
    (
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AWS_ENDPOINT_URL",
        "AWS_DEFAULT_REGION",
        "AZURE_STORAGE_ACCOUNT_NAME",
        "AZURE_STORAGE_ACCOUNT_KEY",
        "AZURE_STORAGE_SAS_TOKEN",
        "HF_TOKEN",
        "MLFLOW_TRACKING_USERNAME",
        "MLFLOW_TRACKING_PASSWORD",
        "MLFLOW_TRACKING_TOKEN",
    )
)
"""Variables that the block may set. None of them runs code or lets scripts run, whoever writes the block."""


@best_effort
def use_server_settings() -> None:
    """Set the variables of this process that it lacks; what the machine's own environment has takes precedence."""
    if not os.environ.get("PREFECT_API_URL"):
        return  # outside of a worker
    # Typed as coroutines, but outside of an event loop they run at once.
    root: Any = Variable.get(DATA_ROOT)
    values = {"AUTOOPT_DATA_ROOT": root}
    with suppress(ValueError):  # no such block
        block: Any = Secret.load(KEYS)
        keys = block.get()
        if isinstance(keys, Mapping):
            values |= {name: keys[name] for name in sorted(ALLOWED & keys.keys())}
    for name, value in values.items():
        if isinstance(value, str) and value:
            os.environ.setdefault(name, value)
    settings.cache_clear()
