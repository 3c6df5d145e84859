"""Prefect's process worker, with flow runs that are forks. The program takes the options of `prefect worker start`."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any, ClassVar

from prefect.cli import app
from prefect.utilities.processutils import command_to_string
from prefect.workers.process import ProcessJobConfiguration, ProcessWorker

from autoopt.orchestrate.server import forked_flow_run
from autoopt.orchestrate.server.flow_run_forks import fork_server
from autoopt.orchestrate.server.outages import bound_waits


class ForkingConfiguration(ProcessJobConfiguration):
    """The configuration of a flow run's process."""

    forks: ClassVar[str] = ""
    """Folder of the fork server."""

    def prepare_for_flow_run(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401  as Prefect's method has them
        """Have the flow run forked, unless its deployment names a command."""
        super().prepare_for_flow_run(*args, **kwargs)
        # The worker has checked it; each client of a flow run would ask a busy server again.
        self.env.setdefault("PREFECT_CLIENT_SERVER_VERSION_CHECK_ENABLED", "false")
        if not self._command_configured:
            program = [sys.executable, "-I", "-S", str(Path(forked_flow_run.__file__)), self.forks]
            self.command = command_to_string(program)
            self._command_configured = True


def main() -> None:
    """Start a fork server, and a worker with the options of the command line."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it takes the place of Prefect's class, as is intended

        class ForkingWorker(ProcessWorker):
            type = ProcessWorker.type
            job_configuration = ForkingConfiguration

    bound_waits()
    with fork_server() as ForkingConfiguration.forks:
        app()


if __name__ == "__main__":
    main()
