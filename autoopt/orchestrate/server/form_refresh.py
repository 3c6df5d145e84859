"""Keeps the lists in the forms of deployments as the files of a folder are, while `autoopt serve` runs."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from autoopt.errors import AutooptError
from autoopt.orchestrate.forms import candidates, dag_files, only_choices, renew_choices, tags_of, zoo_files
from autoopt.orchestrate.server.rest import PrefectApi
from autoopt.spec.zoo import load_zoo

LOOK_SECONDS: Final = 10.0
"""Interval of looks at the folder."""
MOST_DEPLOYMENTS: Final = 200
"""Prefect's limit of a request."""


@dataclass
class FormRefresh:
    """Looks at a folder now and then, and updates the forms of the server if one of its files has changed."""

    api: str
    folder: Path
    _files: dict[Path, tuple[int, int]] = field(init=False)
    """Time of change and size of each file, as the forms have them."""
    _next: float = field(init=False)

    def __post_init__(self) -> None:
        self._files = _state_of(self.folder)
        self._next = time.monotonic() + LOOK_SECONDS

    def look(self) -> None:
        """Update the forms if it is time and a file has changed; while the server is away, the next look does."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + LOOK_SECONDS
        files = _state_of(self.folder)
        if files == self._files:
            return
        with suppress(OSError):
            refresh_forms(PrefectApi(self.api), self.folder)
            self._files = files


def refresh_forms(api: PrefectApi, folder: Path) -> None:
    """Put the DAGs and zoos of a folder, and the tags of scheduled zoos in it, into the forms of deployments.

    Raises:
        OSError: the server is away or refuses.
    """
    body = {"deployments": {"tags": {"all_": ["autoopt"]}}, "limit": MOST_DEPLOYMENTS}
    deployments: Iterable[Any] = api.post("/deployments/filter", body)
    for deployment in deployments:
        form = deployment["parameter_openapi_schema"]
        properties = _refreshed(form["properties"], folder)
        if properties != form["properties"]:
            changed = {"parameter_openapi_schema": {**form, "properties": properties}}
            api.patch(f"/deployments/{deployment['id']}", changed)


def _refreshed(properties: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The fields of a form with the files of the folder as they are now."""
    dags = dag_files(folder)
    zoo = properties.get("zoo", {}).get("enum")
    if zoo is None:  # for any zoo
        return renew_choices(properties, {"dag": dags, "zoo": zoo_files(folder)})
    if Path(zoo[0]).parent != folder:
        return properties
    properties = renew_choices(properties, {"dag": [str(folder / file) for file in dags]})
    with suppress(AutooptError):  # a file that is being edited
        only_choices(properties, "only", tags_of(load_zoo(Path(zoo[0]))))
    return properties


def _state_of(folder: Path) -> dict[Path, tuple[int, int]]:
    state = {}
    for file in candidates(folder):
        with suppress(OSError):  # it has just been removed
            status = (folder / file).stat()
            state[file] = (status.st_mtime_ns, status.st_size)
    return state
