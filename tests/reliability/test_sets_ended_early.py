"""Killed or cancelled runs over several models resume where they stopped and leave no temporary files."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import model_sets
import pytest
from outside import HANG_SECONDS, Command, Place, read_until

from autoopt.engine.tools.stored_models import package_of
from autoopt.errors import InputError
from autoopt.store import Store, open_store
from autoopt.store.finished import result_of
from autoopt.working_folder import READINGS, STORE_WORK

TRIALS = 3
"""Of each model."""
RUN = ("run", "pair.yaml", "--engine", "inline", "--json")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    model_sets.write_pair(tmp_path)
    return tmp_path


KILLS_ITSELF = """
import io, os, signal, sys
from autoopt.cli.app import main

class Last(io.TextIOWrapper):
    def write(self, text):
        if sys.argv[1] in text:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().write(text)

sys.stderr = Last(open(2, "wb", closefd=False), line_buffering=True)
sys.exit(main(sys.argv[2:]))
"""


def killed(folder: Path, *arguments: str, said: str) -> None:
    """A command that kills itself (-9) instead of saying something."""
    command = [sys.executable, "-c", KILLS_ITSELF, said, *arguments]
    done = subprocess.run(
        command, cwd=folder, env=Place(folder).environment, timeout=HANG_SECONDS, stdout=subprocess.DEVNULL
    )
    assert done.returncode == -signal.SIGKILL


def killed_at(folder: Path, fault: str, *arguments: str) -> None:
    """A command that kills itself at a named point."""
    Place(folder).call(*arguments, AUTOOPT_FAULT=fault, codes=(-signal.SIGKILL,))


def pass_run_ends(store: Store) -> dict[str, float]:
    """The time at which each pass run ended that a trial names."""
    keys = [key for run in store.runs.all() for trial in store.trials.all(run.id) for key in trial.pass_runs]
    return {key: record.finished for key, record in store.results.pass_runs(keys).items()}


def test_a_run_killed_at_each_stage_goes_on_and_leaves_nothing_behind(folder: Path, command: Command) -> None:
    home = Place(folder).home
    killed(folder, *RUN, said="to record what reaches each")
    killed_at(folder, f"between ask and tell:{TRIALS + 2}", *RUN)  # in the search of the second model
    with open_store(None, home) as store:
        runs = {run.id for run in store.runs.all()}
        before = pass_run_ends(store)
        assert [run.shown_status for run in store.runs.newest(9)] == ["interrupted"]
    killed(folder, "resume", "--engine", "inline", said="measuring the models together")
    (document,) = json.loads(command(folder, "resume", "--engine", "inline", "--json").out)
    assert document["trials"]["total"] == 2 * TRIALS
    assert document["best"]["chain"] == "first: quant; second: quant"
    with open_store(None, home) as store:
        assert {run.id: run.status for run in store.runs.all()} == dict.fromkeys(runs, "finished")
        after = pass_run_ends(store)
    assert {key: after[key] for key in before} == before  # not one was executed again
    assert list((home / STORE_WORK).iterdir()) == []
    assert len(list((home / READINGS).glob("*/first.npz"))) == 1, "recorded once"


WAITS = """\
import time
from pathlib import Path

from autoopt import register

FIRST, HOLD = (Path(__file__).with_name(name) for name in ("first-has-waited", "hold"))


@register("waits")
def waits(model):
    \"\"\"Waits in its call for the second model while there is a file `hold`.\"\"\"
    while FIRST.exists() and HOLD.exists():
        time.sleep(0.05)
    FIRST.touch()
    return model
"""


def test_ctrl_c_leaves_the_result_so_far_and_the_run_can_be_resumed(folder: Path, command: Command) -> None:
    (folder / "script.py").write_text(WAITS)
    (folder / "hold").touch()
    passes = {**model_sets.PAIR["passes"], "wait": "waits"}
    model_sets.write_pair(folder, user_script="script.py", passes=passes, chains=[["tidy"], ["quant"], ["wait"]])
    process = Place(folder).start(*RUN)
    read_until(process, "model second")
    read_until(process, "trial 0:")
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=HANG_SECONDS)
    assert process.returncode == 130, said
    assert (folder / "out" / "first" / "model.onnx").is_file()
    with open_store(None, Place(folder).home) as store:
        (record,) = store.runs.newest(9)
        assert f"cancelled; continue with: autoopt resume {record.id}" in said
        so_far = result_of(record)
        assert [part.name for part in so_far.parts] == ["first", "second"]
        assert so_far.parts[0].model.chain == "quant"
        with pytest.raises(InputError, match="not measured together yet; name the run of one: "):
            package_of(store, record)
    (folder / "hold").unlink()
    part = so_far.parts[0].result.run  # stands for the whole
    (document,) = json.loads(command(folder, "resume", part, "--engine", "inline", "--json").out)
    assert [part["run"] for part in document["parts"]] == [part.result.run for part in so_far.parts]
    assert document["trials"]["total"] == 2 * (TRIALS + 1)
