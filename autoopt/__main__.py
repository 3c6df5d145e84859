"""The `autoopt` command, also as `python -m autoopt`. Signals end it quietly from its first moment."""

import gc
import os
import sys

from autoopt.cli.interrupts import ended_by_signals, leave
from autoopt.errors import EXIT_INTERRUPTED


def main() -> int:
    """Run the command line; returns the exit code, unless a signal ended it."""
    code = _main()
    if code == EXIT_INTERRUPTED:
        leave(code)
    return code


def _main() -> int:
    # Imports allocate what stays: looking for garbage among it takes a tenth of the time of a short command.
    gc.set_threshold(50_000)
    # To look for plug-ins, pydantic reads the metadata of all installed packages.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    try:
        with ended_by_signals():
            # Imported only now, because the parser takes most of the time of a short command.
            from autoopt.cli.app import main as run

            return run()
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
