"""`python -m autoopt` is the same as `autoopt`."""

import sys

from autoopt.cli.app import main

sys.exit(main())
