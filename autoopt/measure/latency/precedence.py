"""Precedence over other programs: real-time priority for the threads of measured models, block by block.

On a busy machine, the threads of a model lose their cores at different times, and no estimator makes up for that. With
real-time priority they keep them: beside 15 runnable threads on two cores, the blocks of a model on two threads were
equal within 1 %. Linux grants it to root, to CAP_SYS_NICE and within the limit that `ulimit -r` shows.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from autoopt.measure.latency.machine import Load, core_count
from autoopt.measure.request import MeasureRequest
from autoopt.model.model_file import ModelFile

PRIORITY: Final = 1
"""The lowest real-time priority: above all usual programs, below what a system itself runs in real time."""
LONGEST: Final = 0.1
"""Seconds of an inference above which models get no precedence: others would wait for too long."""


@dataclass
class Precedence:
    """Precedence for the models of one measurement. Other programs get as much time as it takes from them."""

    active: bool = False
    """False changes nothing."""
    threads: int = 1
    """The smallest number of threads that one of the models runs on."""
    _cores: set[int] = field(init=False, default_factory=set)
    """Cores of this process to which no helper is bound; empty if none is bound."""

    @staticmethod
    def of(request: MeasureRequest, *, busy: bool) -> Precedence:
        """Make the precedence for a request: active for models on several threads of a busy machine, if allowed."""
        models = [*request.models, *([request.source] if request.source else [])]
        counts = [thread_count(request, model) for model in models]
        is_on_cpu = request.target.execution_provider == "CPUExecutionProvider"
        is_wanted = busy and request.settings.precedence and is_on_cpu and max(counts) > 1
        return Precedence(is_wanted and can_have_precedence(), min(counts))

    def include_helpers(self) -> None:
        """Give it to the threads that runtimes have started so far; they run only while a model does."""
        if self.active:
            _set_helpers(os.SCHED_FIFO, PRIORITY)
            self._cores = _cores_without_helpers()

    @contextmanager
    def of_this_thread(self) -> Iterator[None]:
        """Give precedence to the calling thread, then let others run for as long."""
        if not self.active:
            yield
            return
        began = time.monotonic()
        policy, cores = os.sched_getscheduler(0), os.sched_getaffinity(0)
        os.sched_setaffinity(0, self._cores or cores)
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(PRIORITY))
        try:
            yield
        finally:
            os.sched_setscheduler(0, policy, os.sched_param(0))
            os.sched_setaffinity(0, cores)
            time.sleep(time.monotonic() - began)

    def end_if_long(self, seconds: float) -> None:
        """End it if an inference takes so long that other programs would notice."""
        if seconds > LONGEST:
            self._release_helpers()
            self.active = False

    @contextmanager
    def until_the_end(self) -> Iterator[None]:
        """Take it from all helpers in the end."""
        try:
            yield
        finally:
            self._release_helpers()

    def _release_helpers(self) -> None:
        if self.active:
            _set_helpers(os.sched_getscheduler(0), 0)

    def load_beside(self, load: Load) -> Load:
        """Reduce a load to what the models see of it: nothing on their own cores."""
        if not self.active:
            return load
        if self.threads >= core_count():
            return Load(0.0, elsewhere=load.elsewhere, runnable=load.runnable, gave_way=load.busy)
        elsewhere = load.elsewhere + (load.cores or 0.0)
        return Load(0.0, elsewhere=elsewhere, runnable=load.runnable, gave_way=load.busy)


@lru_cache(maxsize=1)
def can_have_precedence() -> bool:
    """Tell if the system lets this process have real-time priority, and nobody made it a polite one (`nice`)."""
    if not hasattr(os, "sched_setscheduler") or not os.path.isdir("/proc/self/task"):
        return False
    policy = os.sched_getscheduler(0)
    if policy != os.SCHED_OTHER or os.getpriority(os.PRIO_PROCESS, 0) > 0:
        return False
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(PRIORITY))
        os.sched_setscheduler(0, policy, os.sched_param(0))
    except OSError:
        return False
    return True


def thread_count(request: MeasureRequest, model: ModelFile | None) -> int:
    """Count the intra-op threads of a model; the runtime's default is one for each core."""
    threads = None if model is None else model.session_options.get("intra_op_num_threads")
    if not isinstance(threads, int):
        threads = request.target.threads
    return threads or core_count()


def _set_helpers(policy: int, priority: int) -> None:
    for thread in _helpers():
        with suppress(OSError):  # it has ended
            os.sched_setscheduler(thread, policy, os.sched_param(priority))


def _cores_without_helpers() -> set[int]:
    """Find the cores to which no helper is bound; empty if none is bound, or some to each.

    The runtime binds its default threads. Real time would leave the calling thread on the core of one of them, and the
    model would run on one thread: a transformer of 0.67 ms took 1.06 ms.
    """
    everywhere = os.sched_getaffinity(0)
    bound: set[int] = set()
    for thread in _helpers():
        with suppress(OSError):  # it has ended
            cores = os.sched_getaffinity(thread)
            bound |= cores if cores < everywhere else set()
    return everywhere - bound if bound else set()


def _helpers() -> list[int]:
    """List the threads of this process that Python has not started."""
    own = {thread.native_id for thread in threading.enumerate()}
    own.add(threading.get_native_id())  # in a fork, the main thread still has the number of its parent
    return [int(name) for name in os.listdir("/proc/self/task") if int(name) not in own]
