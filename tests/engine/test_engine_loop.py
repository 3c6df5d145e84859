"""The search loop: asks, runs trials in a window, tells in order, and stops at its limits."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

import pytest
from simulation import Simulation, failing, faster, unchanged

from autoopt.engine.run.executor import InlineExecutor
from autoopt.engine.run.loop import MeasuredSource, SearchLoop
from autoopt.engine.work.evaluations import evaluate
from autoopt.engine.work.meter_runs import EvaluationOptions
from autoopt.errors import InputError
from autoopt.observer import Observer
from autoopt.outcome import Outcome
from autoopt.results import Trial
from autoopt.search.factory import create_study
from autoopt.search.trial import ChainSpace
from autoopt.spec.search import SearchConfig

DAG = {
    "passes": {"fold": "identity_elimination", "clean": "remove_unused", "names": "name_fix"},
    "chains": [["fold"], ["clean"], ["names"]],
}


class AtOnce:
    """Executes every trial when it is submitted, like other processes after the source is measured."""

    is_local = False
    ahead = 0

    def __init__(self) -> None:
        self.submitted: list[int] = []
        self.closed: list[tuple[str, int]] = []
        """Chains that are over, with the number of trials submitted before."""

    def submit(self, chain: str, name: str, number: int, work: Callable[[], Trial]) -> Future[Trial]:
        self.submitted.append(number)
        future: Future[Trial] = Future()
        future.set_result(work())
        return future

    def close(self, chain: str) -> None:
        self.closed.append((chain, len(self.submitted)))


class Recorder(Observer):
    def __init__(self) -> None:
        self.events: list[str] = []
        self.incumbents: list[float | None] = []

    def on_trial_start(self, number: int, chain: str, point: object) -> None:
        self.events.append(f"start {number}")

    def on_trial_end(self, trial: Trial, best: float | None) -> None:
        self.events.append(f"end {trial.number}")
        self.incumbents.append(best)


@pytest.fixture
def simulation(tmp_path: Path) -> Simulation:
    simulation = Simulation(tmp_path, dag=DAG)
    simulation.pool.passes = {
        "identity_elimination": faster(0.9),
        "remove_unused": faster(0.5),
        "name_fix": faster(0.7),
    }
    return simulation


def make_loop(
    simulation: Simulation,
    *,
    until: float = float("inf"),
    trials: int | None = None,
    first: str = "",
    **attempt: object,
) -> SearchLoop:
    ctx = simulation.context(**attempt)
    spaces = [
        ChainSpace(c.id, tuple((n.id, n.pass_name) for n in c.nodes), c.space) for c in simulation.chains.values()
    ]
    config = SearchConfig.model_validate({"trials": trials})
    points = [(chain.id, chain.space[0]) for chain in simulation.chains.values() if chain.name == first]
    study = create_study(config, spaces, simulation.objectives, source=simulation.candidate.key, first=points)
    baseline = evaluate(ctx, simulation.candidate, EvaluationOptions(judged=False))
    return SearchLoop(ctx, study, lambda: MeasuredSource(baseline.metrics), until)


def take_time(simulation: Simulation, latency: float = 7.0) -> None:
    """Have every pass take 3 s, and its model this latency."""

    def slow(model: dict[str, object], params: object) -> dict[str, object]:
        simulation.clock.now += 3.0
        return {**model, "latency": latency}

    simulation.pool.passes = dict.fromkeys(simulation.pool.passes, slow)  # type: ignore[dict-item]


def test_every_chain_gets_its_trial(simulation: Simulation) -> None:
    loop = make_loop(simulation)
    trials = loop.run(AtOnce())
    assert sorted(trial.chain for trial in trials) == ["clean", "fold", "names"]
    assert [trial.number for trial in trials] == [0, 1, 2]
    assert all(trial.outcome is Outcome.OK and trial.upto is None for trial in trials)


def test_passes_of_the_first_trial_run_while_the_source_is_measured(simulation: Simulation) -> None:
    has_run = threading.Event()

    def note(model: dict[str, object], params: object) -> dict[str, object]:
        has_run.set()
        return {**model, "latency": 7.0}

    simulation.pool.passes = dict.fromkeys(simulation.pool.passes, note)  # type: ignore[dict-item]
    loop = make_loop(simulation, workers=2)
    measured_before = []

    def measure_source() -> MeasuredSource:
        assert has_run.wait(30)
        measured_before.append(len(simulation.store.trials.all(loop.ctx.run)))
        assert all(trial.status != "done" for trial in simulation.store.trials.all(loop.ctx.run))
        return MeasuredSource({})

    loop.measure_source = measure_source
    with InlineExecutor(2, lambda: None) as executor:
        assert len(loop.run(executor)) == 3
    assert measured_before == [1]


def test_an_error_of_the_source_ends_the_first_trial_too(simulation: Simulation) -> None:
    loop = make_loop(simulation, workers=2)

    def fail() -> MeasuredSource:
        raise InputError("the source model cannot be measured")

    loop.measure_source = fail
    with pytest.raises(InputError), InlineExecutor(2, lambda: None) as executor:
        loop.run(executor)
    assert loop.completed == []


def test_a_search_in_which_nothing_runs_ends_early(simulation: Simulation) -> None:
    simulation.pool.passes = dict.fromkeys(simulation.pool.passes, failing)
    loop = make_loop(simulation)
    loop.measure_source = lambda: MeasuredSource({}, patience=2)
    assert len(loop.run(AtOnce())) == 2
    assert loop.end.text == "the first 2 candidates failed"


def test_one_success_is_reason_enough_to_go_on(simulation: Simulation) -> None:
    simulation.pool.passes |= {"identity_elimination": failing, "name_fix": failing}
    loop = make_loop(simulation)
    loop.measure_source = lambda: MeasuredSource({}, patience=3)
    loop.run(AtOnce())
    assert "failed" not in loop.end.text


def test_trials_are_stored_as_they_end(simulation: Simulation) -> None:
    loop = make_loop(simulation)
    trials = loop.run(AtOnce())
    stored = simulation.store.trials.all(loop.ctx.run)
    assert [record.status for record in stored] == ["done"] * 3
    assert [replace(one, finished=None) for one in stored] == trials


def test_a_number_of_trials_ends_the_search_and_is_named(simulation: Simulation) -> None:
    loop = make_loop(simulation, trials=2)
    assert len(loop.run(AtOnce())) == 2
    assert "2" in loop.end.text


def test_no_trial_starts_that_would_end_after_the_time_limit(simulation: Simulation) -> None:
    loop = make_loop(simulation, until=8.0)
    take_time(simulation)
    assert len(loop.run(AtOnce())) == 2
    assert loop.end.text == "stopped at the time limit (--minutes)"


def test_the_time_of_slow_passes_keeps_no_other_trial_from_starting(tmp_path: Path) -> None:
    passes = {"int8": "static_quantization", "fold": "identity_elimination", "clean": "remove_unused"}
    simulation = Simulation(tmp_path, dag={"passes": passes, "chains": [["int8"], ["fold"], ["clean"]]})

    def taking(seconds: float) -> Callable[[dict[str, object], object], dict[str, object]]:
        def run(model: dict[str, object], params: object) -> dict[str, object]:
            simulation.clock.now += seconds
            return {**model, "latency": 7.0 - seconds}

        return run

    simulation.pool.passes = {"static_quantization": taking(6.0), "identity_elimination": taking(1.0)}
    simulation.pool.passes["remove_unused"] = taking(1.0)
    simulation.pool.passes |= dict.fromkeys(("name_fix", "ir_upgrade", "quant_pre_process"), unchanged)
    loop = make_loop(simulation, until=10.0, first="int8")
    assert [trial.chain for trial in loop.run(AtOnce())] == ["int8", "fold", "clean"]
    assert simulation.clock.now < 10.0


@pytest.mark.parametrize(("latency", "trials"), [(7.0, 2), (13.0, 3)])
def test_the_last_trial_may_lack_time_while_nothing_is_faster(
    simulation: Simulation, latency: float, trials: int
) -> None:
    loop = make_loop(simulation, until=8.0, deadline=8.0)
    take_time(simulation, latency)
    assert len(loop.run(AtOnce())) == trials


@pytest.mark.parametrize(("until", "begun"), [(100.0, [2, 3, 3]), (11.0, [1, 2, 3])])
def test_without_time_for_two_a_trial_gets_all_cores(simulation: Simulation, until: float, begun: list[int]) -> None:
    loop = make_loop(simulation, until=until, workers=2)
    counts: list[int] = []
    loop.after_trial = lambda completed: counts.append(len(simulation.store.trials.all(loop.ctx.run)))
    take_time(simulation)
    loop.run(AtOnce())
    assert counts == begun


def test_the_first_candidate_may_use_the_time_set_aside_for_deciding_and_others_half_of_it(
    simulation: Simulation,
) -> None:
    loop = make_loop(simulation, until=10.0, deadline=30.0)
    simulation.pool.limits.clear()
    assert len(loop.run(AtOnce())) == 3
    first, *later = [limit for limit in simulation.pool.limits if limit is not None]
    assert first > 30.0
    assert 20.0 < later[-1] < 30.0


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(("factor", "trials"), [(0.7, 2), (1.3, 3)])
def test_the_search_uses_all_the_time_while_nothing_is_faster(
    simulation: Simulation, workers: int, factor: float, trials: int
) -> None:
    loop = make_loop(simulation, until=7.0, deadline=10.0, workers=workers)
    take_time(simulation, 10.0 * factor)
    done = loop.run(AtOnce())
    assert [trial.outcome for trial in done] == [Outcome.OK] * trials


def test_the_incumbent_is_the_best_feasible_ratio_so_far(simulation: Simulation) -> None:
    recorder = Recorder()
    loop = make_loop(simulation, observer=recorder)
    trials = loop.run(AtOnce())
    ratios = [trial.ratios["latency_p50"].value for trial in trials]
    assert recorder.incumbents == [pytest.approx(min(ratios[: n + 1])) for n in range(3)]
    later = simulation.store.trials.get(loop.ctx.run, 2)
    assert later.incumbent == pytest.approx(min(ratios[:2]))


def test_an_infeasible_trial_is_no_incumbent(simulation: Simulation) -> None:
    simulation.pool.passes = {name: faster(0.1, accuracy=0.1) for name in simulation.pool.passes}
    loop = make_loop(simulation)
    trials = loop.run(AtOnce())
    assert loop.incumbent() is None
    assert all(not trial.feasible for trial in trials)


def test_failed_trials_do_not_end_the_search(simulation: Simulation) -> None:
    simulation.pool.passes["remove_unused"] = failing
    trials = make_loop(simulation).run(AtOnce())
    assert sorted(str(trial.outcome) for trial in trials) == ["failed", "ok", "ok"]


def test_as_many_trials_start_as_may_run_in_parallel(simulation: Simulation) -> None:
    recorder = Recorder()
    make_loop(simulation, observer=recorder, workers=2).run(AtOnce())
    assert recorder.events == ["start 0", "start 1", "end 0", "start 2", "end 1", "end 2"]


def test_a_trial_is_submitted_ahead_and_says_how_many_may_run_in_parallel(simulation: Simulation) -> None:
    class Ahead(AtOnce):
        ahead = 1

    recorder = Recorder()
    loop = make_loop(simulation, observer=recorder, workers=1)
    loop.run(Ahead())
    assert recorder.events == ["start 0", "start 1", "end 0", "start 2", "end 1", "end 2"]
    rows = loop.ctx.store.trials.all(loop.ctx.run)
    assert [row.parallel for row in rows] == [1, 1, 1]


def test_a_chain_is_closed_once_the_study_cannot_come_back_to_it(tmp_path: Path) -> None:
    dag = {"passes": {"fold": "identity_elimination", "clean": "remove_unused"}, "chains": [["fold"], ["clean"]]}
    simulation = Simulation(tmp_path, dag=dag)
    loop, executor = make_loop(simulation, workers=1), AtOnce()
    loop.run(executor)
    first, second = (trial.chain_id for trial in loop.completed)
    assert executor.closed == [(first, 1), (second, 2)]


def test_trials_are_told_in_the_order_asked_whichever_ended_first(simulation: Simulation) -> None:
    pending: list[tuple[Future[Trial], Callable[[], Trial]]] = []

    class LastFirst(AtOnce):
        def submit(self, chain: str, name: str, number: int, work: Callable[[], Trial]) -> Future[Trial]:
            future: Future[Trial] = Future()
            pending.append((future, work))
            if len(pending) == 3:
                for waiting, execute in reversed(pending):
                    waiting.set_result(execute())
            return future

    recorder = Recorder()
    trials = make_loop(simulation, observer=recorder, workers=3).run(LastFirst())
    assert [trial.number for trial in trials] == [0, 1, 2]


def test_the_time_spent_survives_in_the_store(simulation: Simulation) -> None:
    loop = make_loop(simulation)
    simulation.clock.now = 42.0
    loop.run(AtOnce())
    assert simulation.store.runs.get(loop.ctx.run).seconds == 42.0


def test_without_a_latency_objective_there_is_no_incumbent(simulation: Simulation) -> None:
    simulation.objectives = (replace(simulation.objectives[0], metric="size"),)
    loop = make_loop(simulation)
    loop.run(AtOnce())
    assert loop.incumbent() is None


def test_a_pass_that_does_nothing_does_not_stay_in_the_space(tmp_path: Path) -> None:
    dag = {
        "passes": {"fold": "identity_elimination", "clean": "remove_unused", "names": "name_fix"},
        "chains": [["clean"], ["clean", "fold"], ["clean", "names"], ["fold"], ["names"]],
    }
    simulation = Simulation(tmp_path, dag=dag)
    simulation.pool.passes = {"identity_elimination": faster(0.5), "remove_unused": unchanged, "name_fix": failing}
    trials = make_loop(simulation).run(AtOnce())
    assert len({trial.chain.rpartition(" ")[2] for trial in trials}) == len(trials) <= 3


@pytest.mark.parametrize(("is_rival", "factor", "expected"), [(False, 1.2, None), (True, 1.2, 1.0), (True, 0.5, 1.0)])
def test_the_first_candidate_has_to_beat_the_source_if_that_is_an_answer(
    simulation: Simulation, is_rival: bool, factor: float, expected: float | None
) -> None:
    simulation.pool.passes = dict.fromkeys(simulation.pool.passes, faster(factor))
    loop = make_loop(simulation)
    loop.measure_source = lambda: MeasuredSource({}, is_rival)
    loop.run(AtOnce())
    first, *_, last = simulation.store.trials.all(loop.ctx.run)
    assert first.incumbent == expected
    assert last.incumbent == pytest.approx(min(factor, expected or factor))
    assert last.drops_slow is is_rival
