"""Split models as their users will open them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from autoopt.model.files import MODEL
from autoopt.model.split.graphs import came_with_external_data, is_split
from autoopt.model.split.stored import files_of, write_files
from autoopt.model.weight_files import WeightFiles
from autoopt.working_folder import working_folder


@contextmanager
def as_deployed(model: Path) -> Iterator[Path]:
    """A model as its users will open it: a split one without external data as one file, in memory on Linux.

    One that came with external data is as good as it is: the runtime maps the weights in either case.
    """
    if not is_split(model) or came_with_external_data(model):
        yield model
        return
    if sys.platform != "linux":
        with working_folder() as folder:
            write_files(model, folder)
            yield folder / MODEL
        return
    with open(os.memfd_create(MODEL), "wb") as file:
        file.writelines(WeightFiles(model.parent).read(files_of(model)[MODEL]))
        file.flush()
        yield Path(f"/proc/self/fd/{file.fileno()}")
