"""Trials as Prefect task runs, below a flow run for each chain.

A chain's flow run opens at the first trial that the store lacks and ends once the search cannot come back to it. It is
a subflow in a thread of the model's flow run, fed by a queue. The search stays in the main thread, which receives
signals; when a signal or an error ends it, the workers are killed and the queues are closed.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from queue import SimpleQueue
from types import TracebackType
from typing import Final, TypeVar

from prefect import flow, get_run_logger, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.exceptions import TerminationSignal
from prefect.futures import PrefectFuture
from prefect.runtime import flow_run
from prefect.states import Cancelled, Completed, Crashed, Failed

from autoopt.dag.compiler.chain import Chain
from autoopt.engine.run.executor import Work
from autoopt.engine.run.session import Session
from autoopt.errors import AutooptError, SystemFailure, bug_text
from autoopt.metrics import headline_metrics
from autoopt.orchestrate.artifacts import show_chain
from autoopt.orchestrate.names import plain, run_name
from autoopt.outcome import Outcome
from autoopt.report.words.change import trial_changes
from autoopt.report.words.formatting import params_text
from autoopt.results import Trial
from autoopt.workers import Cancelled as CancelledWork

Result = TypeVar("Result")
Body = TypeVar("Body", bound=Callable[..., object])
END_SECONDS: Final = 10.0
"""Time in which a cancelled chain reports its end; its process does not wait longer."""


def call_flow(
    name: str, run_name: str, subject: str, work: Callable[[], Result], state_of: Callable[[Result], State[None]]
) -> Result:
    """Call a function as a flow in this process; returns what it returns and raises what it raises.

    Args:
        name: Name of the flow.
        run_name: Name of the flow run.
        subject: Parameter of the flow run.
        work: The function.
        state_of: Gives the final state for a result.

    Raises:
        SystemFailure: The Prefect server does not answer.
    """
    outcome: Future[Result] = Future()
    outermost = flow_run.id is None

    def body(subject: str) -> State[None]:
        try:
            result = work()
        except (KeyboardInterrupt, TerminationSignal) as signal:
            outcome.set_exception(signal)
            return Cancelled(message="cancelled; the store has what is finished")
        except Exception as error:
            outcome.set_exception(error)
            return failed_state(error)
        outcome.set_result(result)
        return state_of(result)

    make_flow = flow(name=name, flow_run_name=run_name, validate_parameters=False)
    call: Callable[..., object] = make_flow(known_as(f"{name}_{subject}", body))
    reason: object = "it did not begin the flow run"
    try:
        call(subject, return_state=True)
    except Exception as error:
        reason = error
    if not outcome.done():
        raise SystemFailure(f"the Prefect server does not answer ({reason})", remedy="start it again, then resume")
    try:
        return outcome.result()
    except TerminationSignal:  # Prefect's form of SIGTERM
        if outermost:
            raise KeyboardInterrupt from None
        raise


def known_as(name: str, body: Body) -> Body:
    """Name the function of a subflow by its subject.

    A retried flow run finds its earlier subflow runs by this name and their order, in which others may be now.
    """
    body.__qualname__ = name.replace(".", "_")
    return body


def final_state(success: bool, message: str) -> State[None]:
    """Completed, or Failed for a result that falls short."""
    if success:
        return Completed(message=message)
    return Failed(message=message)


def failed_state(error: Exception) -> State[None]:
    """The final state of a flow run that an error ended: Crashed if the machine, the database or Prefect failed."""
    if isinstance(error, SystemFailure):
        return Crashed(message=str(error))
    if isinstance(error, AutooptError):
        return Failed(message=str(error))
    get_run_logger().error("the traceback", exc_info=error)
    return Failed(message=bug_text(error))


@dataclass(frozen=True)
class Job:
    """A trial to execute; the search waits for the future."""

    number: int
    work: Work
    future: Future[Trial] = field(default_factory=Future)

    def execute(self) -> Trial:
        """Execute it. What it raises goes to the future as well."""
        try:
            result = self.work()
        except BaseException as error:
            self.future.set_exception(error)
            raise
        self.future.set_result(result)
        return result


class TrialTasks:
    """The trials of a chain as task runs of the current flow run."""

    def __init__(self, session: Session) -> None:
        goal = session.ctx.problem.goal
        self._metrics = tuple(headline_metrics(goal.objectives, goal.constraints))
        self._jobs: dict[int, Job] = {}
        self._runs: list[PrefectFuture[State[None]]] = []
        self.results: list[Trial] = []

        @task(name="trial", task_run_name="trial {number}", cache_policy=NO_CACHE, persist_result=False)
        def trial(number: int) -> State[None]:
            try:
                result = self._jobs.pop(number).execute()
            except CancelledWork:
                return Cancelled(message="the run was cancelled")
            self.results.append(result)
            get_run_logger().info(params_text(result.point) or "no parameters are searched")
            message = ", ".join([str(result.outcome), *trial_changes(result, self._metrics)])
            if result.explanation:
                message += f": {result.explanation}"
            return final_state(result.outcome is Outcome.OK, message)

        self._trial = trial

    def submit(self, job: Job) -> None:
        """Start a trial and return at once."""
        self._jobs[job.number] = job
        self._runs.append(self._trial.submit(job.number))

    def wait(self) -> None:
        """Wait until all trials have ended."""
        for run in self._runs:
            run.wait()

    def state(self) -> State[None]:
        """The final state of the chain's flow run, which fails if all trials did."""
        good = sum(result.outcome is Outcome.OK for result in self.results)
        executed = sum(result.executed > 0 for result in self.results)
        return final_state(good > 0, f"{good} of {len(self.results)} trials ok, {executed} executed now")


class ChainRun:
    """The flow run of a chain, in a thread of its own."""

    def __init__(self, session: Session, chain: Chain) -> None:
        self._session = session
        self._chain = chain
        self._queue: SimpleQueue[Job | None] = SimpleQueue()
        self._cancelled = False
        self._error: BaseException | None = None
        # The flow run is to be below that of this thread, which Prefect keeps in a context variable.
        context = contextvars.copy_context()
        self._thread = threading.Thread(target=context.run, args=(self._run,), name=f"chain {chain.id}", daemon=True)
        self._thread.start()

    def add(self, job: Job) -> None:
        """Hand over a trial."""
        self._queue.put(job)
        if self._error is not None:
            self._refuse_rest()

    def end(self, cancelled: bool = False) -> None:
        """Have the flow run end after the trials that it has."""
        self._cancelled = cancelled
        self._queue.put(None)

    def join(self) -> None:
        """Wait until the flow run has ended."""
        self._thread.join(END_SECONDS if self._cancelled else None)

    def _run(self) -> None:
        """Execute the flow, and end the trials that it leaves."""

        def tune_chain(run: str, chain: str) -> State[None]:
            """Execute the trials of a chain that the search asks for."""
            trials = TrialTasks(self._session)
            while (job := self._queue.get()) is not None:
                trials.submit(job)
            trials.wait()
            if self._cancelled:
                return Cancelled(message="the run was cancelled")
            show_chain(self._session.ctx.store, run, chain, run_name(self._session), self._chain.name)
            return trials.state()

        make_flow = flow(name="tune_chain", flow_run_name=plain(self._chain.name))
        try:
            subflow = make_flow(known_as(f"tune_chain_{self._chain.id}", tune_chain))
            state = subflow(self._session.ctx.run, self._chain.id, return_state=True)
            error = SystemFailure(f"its flow run ended {state.name}", where=f"chain {self._chain.name}")
        except Exception as raised:
            error = SystemFailure(f"the Prefect server does not answer ({raised})", remedy="start it again, then retry")
        self._error = error
        self._refuse_rest()

    def _refuse_rest(self) -> None:
        """End the trials that nobody executes any more."""
        while not self._queue.empty():
            job = self._queue.get()
            if job is not None and self._error is not None:
                job.future.set_exception(self._error)


class FlowExecutor:
    """An `Executor` for the current flow run. A context manager; an error that leaves the block ends the trials."""

    is_local = True
    ahead = 0

    def __init__(self, session: Session) -> None:
        self._session = session
        self._open: dict[str, ChainRun] = {}
        self._ended: list[ChainRun] = []
        # Trials that the store answers take milliseconds and get no flow run.
        self._stored = ThreadPoolExecutor(max_workers=session.ctx.attempt.workers, thread_name_prefix="trial")

    def submit(self, chain: str, name: str, number: int, work: Work) -> Future[Trial]:
        job = Job(number, work)
        ctx = self._session.ctx
        if ctx.store.trials.get(ctx.run, number).status == "done":
            self._stored.submit(job.execute)
            return job.future
        if chain not in self._open:
            self._open[chain] = ChainRun(self._session, self._session.ctx.chains[chain])
        self._open[chain].add(job)
        return job.future

    def close(self, chain: str) -> None:
        chain_run = self._open.pop(chain, None)
        if chain_run is not None:
            chain_run.end()
            self._ended.append(chain_run)

    def __enter__(self) -> FlowExecutor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._session.ctx.resources.stop()
        self._stored.shutdown(wait=True, cancel_futures=True)
        runs: Sequence[ChainRun] = [*self._open.values(), *self._ended]
        for chain_run in self._open.values():
            chain_run.end(cancelled=error is not None)
        for chain_run in runs:
            chain_run.join()
