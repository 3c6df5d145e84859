"""Set-up of all tests."""

from __future__ import annotations

import gc
import os
import re
import signal
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator
from functools import lru_cache
from pathlib import Path

import hypothesis
import pytest
from children import kill_started_processes

from autoopt.option_names import speak_command_line
from autoopt.settings import settings

SLOWEST = (
    "promises/test_promises_hostile_files.py",
    "promises/test_promises_damage.py",
    "promises/test_promises_signals.py",
    "promises/test_promises_killed.py",
    "promises/test_promises_limits.py",
    "promises/test_promises_hostile_scripts.py",
    "orchestrate/test_orchestrate_serve.py",
    "problem/test_hosts.py",
    "passes/test_torch_export.py",
    "passes/test_quantize_nncf.py",
    "orchestrate/test_orchestrate_compose.py",
    "passes/test_passes_contract.py",
    "store/test_store_chaos.py",
    "zoo/test_zoo_sweep.py",
    "passes/test_split_steps.py",
    "reliability/test_secrets.py",
    "cli/test_cli_answers.py",
    "engine/test_model_sets_run.py",
    "search/test_search_factory.py",
    "engine/test_run_race.py",
    "cli/test_cli_model_sets.py",
    "cli/test_cli_app.py",
    "cli/test_cli_init.py",
    "test_api.py",
    "reliability/test_sets_ended_early.py",
    "passes/test_verification_equivalence.py",
    "engine/test_run_session.py",
    "report/test_report_run_page.py",
    "reliability/test_output_folder.py",
    "dag/test_propose.py",
    "store/test_store_schema.py",
    "search/test_search_surrogate.py",
    "engine/test_engine_session.py",
    "workers/test_gate.py",
    "passes/test_calibrated_weights.py",
    "workers/test_process.py",
    "measure/test_memory.py",
    "engine/test_engine_hosts.py",
    "engine/test_run_confirmation.py",
)
"""Files that start first, the slowest first, so that no process is left with one of them when the others have ended."""


MARK = "mark.service"
MEMORY = Path("/dev/shm")
ENOUGH_MEMORY = 8 << 30
"""Free bytes; an interpreter with torch takes one GB."""


def _use_memory_for_temporary_files() -> None:
    """Keep temporary files in memory where there is enough: disks are slow to sync and delete many."""
    if "TMPDIR" in os.environ or not MEMORY.is_dir():
        return
    found = os.statvfs(MEMORY)
    if found.f_bavail * found.f_frsize >= ENOUGH_MEMORY and not found.f_flag & os.ST_NOEXEC:
        os.environ["TMPDIR"] = str(MEMORY)
        tempfile.tempdir = None  # to be read again


def _make_properties_reproducible() -> None:
    """Have Hypothesis try the same examples in every execution, however slow the machine is."""
    checks = hypothesis.HealthCheck
    unwanted = [checks.too_slow, checks.function_scoped_fixture]  # time; folders that all examples share
    hypothesis.settings.register_profile(
        "reproducible", deadline=None, derandomize=True, max_examples=50, suppress_health_check=unwanted
    )
    hypothesis.settings.load_profile("reproducible")


def pytest_configure() -> None:
    """Restore the default signal handlers, and let Python cache bytecode, for these tests and the processes they start.

    The parent may ignore signals. Containers often set PYTHONDONTWRITEBYTECODE, but tests start hundreds of
    interpreters, and compiling autoopt takes half of the start of each.
    """
    _use_memory_for_temporary_files()
    _make_properties_reproducible()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out files whose tests would all be deselected: importing Prefect and others for them takes seconds."""
    if not collection_path.name.startswith("test_"):
        return None
    expression = config.option.markexpr
    text = read(collection_path)
    if expression.startswith("not service") and re.search(r"^pytestmark = .*mark\.service", text, re.MULTILINE):
        return True
    if expression.startswith("service") and not any(MARK in read(file) for file in marking_files(collection_path)):
        return True
    return None


def marking_files(path: Path) -> list[Path]:
    """The files that may mark the tests in a file: itself, and the conftest.py beside it."""
    return [file for file in (path, path.with_name("conftest.py")) if file.is_file()]


@lru_cache(maxsize=1000)
def read(file: Path) -> str:
    return file.read_text(encoding="utf-8")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the garbage collector away from modules and tests, which live as long as this process."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Move the slowest files to the front."""
    ranks = {Path(__file__).parent / name: rank for rank, name in enumerate(SLOWEST)}
    items.sort(key=lambda item: ranks.get(item.path, len(SLOWEST)))


@pytest.fixture(autouse=True)
def started_processes_end() -> Iterator[None]:
    """Kill what the test started and did not end: a run would hold the measurement gate of the tests after it."""
    yield
    kill_started_processes()


@pytest.fixture(autouse=True)
def words() -> Iterator[None]:
    """Messages name options of the command line again after a test that has called autoopt as a program does."""
    yield
    speak_command_line()


@pytest.fixture(scope="session", autouse=True)
def gate() -> Iterator[None]:
    """Give each test process its own measurement gate: the tests do not depend on what is measured."""
    with tempfile.TemporaryDirectory(prefix="gate-") as folder:
        os.environ["AUTOOPT_GATE"] = folder
        settings.cache_clear()
        yield
        del os.environ["AUTOOPT_GATE"]


@pytest.fixture
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give the test a home of its own, whatever the environment says."""
    monkeypatch.setenv("AUTOOPT_HOME", str(tmp_path / "own_home"))
    settings.cache_clear()
    yield
    settings.cache_clear()


@pytest.fixture(scope="session")
def workers_end() -> Iterator[None]:
    """End the kept workers after the last test."""
    yield
    from kept_workers import end_workers

    end_workers()


@pytest.fixture
def kept_workers(workers_end: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have each run of this process take over the worker processes of the run before it."""
    from kept_workers import keep_workers

    keep_workers(monkeypatch)


@pytest.fixture
def report_cpu() -> Iterator[Callable[[str], None]]:
    """Return `report_cpu("avx2")`, after which this process takes the CPU for that one of `tests/cpus`.

    `tests/as_cpu.sh` does the same for whole processes.
    """
    from autoopt.problem import environment

    def report(name: str) -> None:
        patch.setattr(environment, "CPUINFO", Path(__file__).parent / "cpus" / f"{name}.txt")
        environment.cpu.cache_clear()

    with pytest.MonkeyPatch.context() as patch:
        yield report
    environment.cpu.cache_clear()
