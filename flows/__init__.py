"""The Prefect flows: their parameters, which are the fields of the forms that start them, and what they do.

`optimize_model` searches for one model, `tune_chain` executes the trials of one of its chains, `nightly_sweep` runs a
zoo. Deployments refer to them by name.
"""

import os
import signal

from autoopt.owner import end_with_parent

if "PREFECT__FLOW_RUN_ID" in os.environ:  # the process of a flow run ends with `autoopt serve`, or its worker
    end_with_parent(os.getppid(), signal.SIGKILL)
