"""`autoopt view`: show a model's graph in Netron."""

from __future__ import annotations

from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Annotated

import typer

from autoopt.cli.lineage import resolve
from autoopt.cli.store_access import ModelOrRun, TargetName, existing_store, models_of_set
from autoopt.errors import InputError
from autoopt.model.candidate import Candidate


def view(
    what: ModelOrRun = "latest",
    target: TargetName = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the page; 0 chooses a free one.")] = 0,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open a browser.")] = True,
) -> None:
    """Show a model's graph in the browser, with Netron. A run stands for its best model.

    Netron has no password; it listens on this machine only. Needs autoopt[view].
    """
    file, name = Path(what), Path(what).name
    if not file.is_file():
        if file.suffix or file.parent != Path():
            raise InputError("no such file", where=what, remedy="name a model file, a run or an artifact")
        with existing_store() as store:
            models = models_of_set(store, what)
            if models:
                digests = ", ".join(f"{name} {candidate.artifact[:12]}" for name, candidate in models.items())
                raise InputError(f"run {what} has several models", remedy=f"name one by its digest: {digests}")
            artifact = resolve(store, what, target)
            name = f"model {what}"
            if isinstance(artifact, Candidate):
                name = f"best model of run {what}"
                artifact = artifact.artifact
            file = store.artifacts.readable(store.artifacts.get(artifact).digest)
    try:
        import netron
    except ImportError:
        raise InputError("Netron is not installed", remedy="pip install 'autoopt[view]'") from None
    with redirect_stdout(StringIO()), redirect_stderr(StringIO()):  # its line names a file of the store
        host, port = netron.start(str(file), ("localhost", port), browse=False)
    url = f"http://{host}:{port}"
    typer.echo(f"{name} at {url} (this machine only, no password); Ctrl-C ends")
    if browser:
        typer.launch(url)
    netron.wait()
