"""What flow runs and task runs log: notes, trials with their chain and parameters, causes, the answer."""

from __future__ import annotations

import logging

import pytest
from prefect.exceptions import FailedRun, SignatureMismatchError

from autoopt.metrics import Constraint, Estimate, Objective
from autoopt.orchestrate.flow_runs.run_log import (
    LOGGERS,
    RunLog,
    SweepLog,
    drop_tracebacks,
    log_result,
    log_trial,
)
from autoopt.outcome import Outcome
from autoopt.results import EntryComparison, RunResult, SweepEntry, Trial, TrialResult

CAUSE = "fragile: RuntimeError at script.py:16: the disk it needs is away"
FAILED = Trial(3, "tidy -> weak", TrialResult("c", {"weak": {"size": 4}}, Outcome.FAILED, message=CAUSE))
GOOD = Trial(4, "tidy", TrialResult("c", {}, Outcome.OK, ratios={"size": Estimate.exact(0.5)}, executed=1))


@pytest.fixture
def logger(caplog: pytest.LogCaptureFixture) -> logging.Logger:
    caplog.set_level(logging.INFO)
    return logging.getLogger("test")


def test_a_run_logs_notes_the_source_and_its_trials(logger: logging.Logger, caplog: pytest.LogCaptureFixture) -> None:
    log = RunLog(logger)
    log.on_note("searching 2 configurations\nin 1 chain")
    log.on_search_start((Objective("size", "minimize"),), (Constraint("accuracy", max_drop=0.01),), 40, 600.0)
    log.on_baseline(
        {"size": Estimate.exact(2000.0), "accuracy": Estimate.exact(0.995), "latency_p50": Estimate.exact(1.0)}
    )
    log.on_trial_end(FAILED, None)
    log.on_trial_end(GOOD, None)
    assert caplog.record_tuples == [
        ("test", logging.INFO, "searching 2 configurations in 1 chain"),
        ("test", logging.INFO, "source model: size 2 kB, accuracy 99.5 %"),
        ("test", logging.ERROR, f"1/40: trial 3:   failed: {CAUSE}  tidy -> weak(size=4)"),
        ("test", logging.INFO, "2/40: trial 4:   2.0x smaller                 tidy"),
    ]


def test_a_trial_logs_its_chain_its_parameters_and_the_cause(
    logger: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    log_trial(logger, FAILED, ["size"])
    assert caplog.messages[:2] == ["chain: tidy -> weak", "parameters: weak: size=4"]
    assert CAUSE in caplog.messages[2]
    assert caplog.records[2].levelno == logging.ERROR
    log_trial(logger, GOOD, ["size"])
    assert caplog.messages[4] == "parameters: none are searched"


def test_a_result_is_logged_with_its_notes(logger: logging.Logger, caplog: pytest.LogCaptureFixture) -> None:
    log_result(logger, RunResult("1f2e", "no model", notes=("nothing meets the constraints",)))
    assert caplog.messages == [
        "nothing meets the constraints",
        "run 1f2e: no model. No model meets the constraints.",
    ]


def test_a_note_is_logged_once(logger: logging.Logger, caplog: pytest.LogCaptureFixture) -> None:
    log = RunLog(logger)
    log.on_note("accuracy may drop by at most 0.01")
    log_result(logger, RunResult("1f2e", "no model", notes=("accuracy may drop by at most 0.01",)), log.notes)
    assert caplog.messages.count("accuracy may drop by at most 0.01") == 1


def test_repeats_are_counted_without_the_limit_of_trials(
    logger: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    log = RunLog(logger)
    log.on_search_start((), (), 1, 60.0)
    log.on_trial_end(GOOD, None)
    log.on_trial_end(GOOD, None)
    assert [message.partition(":")[0] for message in caplog.messages] == ["1/1", "2"]


def test_a_sweep_logs_what_changed(logger: logging.Logger, caplog: pytest.LogCaptureFixture) -> None:
    compared = EntryComparison("worse", causes=("onnxruntime 1.30 -> 1.31",), other_inputs=("DAG a -> b",))
    SweepLog(logger).on_model_end(SweepEntry("cnn", "failed", reason="it crashed", compared=compared))
    assert caplog.messages == [
        "cnn: it crashed",
        "cnn: changed since the last good sweep: onnxruntime 1.30 -> 1.31",
        "cnn: changed since the last good sweep: DAG a -> b",
    ]


@pytest.fixture
def prefect_log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """The output of Prefect's own loggers after `drop_tracebacks`, which each import of the flows calls again."""
    drop_tracebacks()
    drop_tracebacks()
    return caplog


@pytest.mark.filterwarnings("ignore:Logger 'prefect.* attempted to send logs")
@pytest.mark.parametrize("name", LOGGERS)
def test_prefects_traceback_of_a_returned_state_is_dropped(name: str, prefect_log: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger(name)
    logger.error("Task run failed with state: %r", "Failed", exc_info=True)
    try:
        raise FailedRun("it failed")
    except FailedRun:
        logger.error("Engine execution exited with unexpected exception", exc_info=True)
    logger.error("Finished in state Failed('it failed')")
    assert prefect_log.messages == ["Finished in state Failed('it failed')"]


@pytest.mark.filterwarnings("ignore:Logger 'prefect.* attempted to send logs")
def test_parameters_that_a_flow_does_not_have_are_one_line(prefect_log: pytest.LogCaptureFixture) -> None:
    try:
        raise SignatureMismatchError.from_bad_params(["run"], ["rum"])
    except SignatureMismatchError:
        logging.getLogger("prefect.flow_runs").error("Engine execution exited", exc_info=True)
    expected = "Function expects parameters ['run'] but was provided with parameters ['rum']"
    assert [(record.getMessage(), record.exc_info) for record in prefect_log.records] == [(expected, None)]


@pytest.mark.filterwarnings("ignore:Logger 'prefect.* attempted to send logs")
def test_other_tracebacks_of_prefect_stay(prefect_log: pytest.LogCaptureFixture) -> None:
    try:
        raise ValueError("a bug")
    except ValueError:
        logging.getLogger("prefect.flow_runs").error("Encountered an exception", exc_info=True)
    assert prefect_log.records[0].exc_info
