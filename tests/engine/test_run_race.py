"""The race between the candidates of a run, on a simulated worker pool with noisy measurements."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from simulation import SOURCE, Model, Simulation, faster

from autoopt import json_codec
from autoopt.engine.run.evidence import Evidence
from autoopt.engine.run.race import Race, measure_repeatedly, round_settings
from autoopt.engine.run.session import Session, search_inline
from autoopt.measure.two_ratios import DETAIL, TwoRatios
from autoopt.metrics import Constraint, Estimate
from autoopt.outcome import Outcome
from autoopt.problem.quarantine import Subject
from autoopt.results import RunResult
from autoopt.tuning import RACE, TIMING
from autoopt.workers import CallResult

PASSES = {"fold": "identity_elimination", "clean": "remove_unused", "names": "name_fix"}
DAG = {"passes": PASSES, "chains": [["fold"], ["clean"], ["names"]]}


class Noise:
    """Factors on measured latencies, by the passes of the model: first the given ones, then random ones."""

    def __init__(self, spread: float = 0.0, first: Mapping[str, float] | None = None, seed: int = 0) -> None:
        self.random = random.Random(seed)
        self.spread = spread
        self.first = dict(first or {})

    def __call__(self, model: Model) -> float:
        name = " ".join(model["passes"])
        return self.first.pop(name, None) or self.random.lognormvariate(0, self.spread)


def simulate(
    folder: Path,
    ratios: tuple[float, float, float],
    spread: float = 0.01,
    noise: Noise | None = None,
    **options: Any,
) -> Simulation:
    """Three candidates with these true ratios, `fold`, `clean` and `names`, measured with this spread and noise."""
    simulation = Simulation(folder, dag=DAG, **{"measurement": {"rounds": 5}, **options})
    simulation.pool.spread = spread
    simulation.pool.noise = noise or simulation.pool.noise
    names = ("identity_elimination", "remove_unused", "name_fix")
    simulation.pool.passes = {name: faster(ratio) for name, ratio in zip(names, ratios, strict=True)}
    return simulation


def finish(session: Session) -> RunResult:
    with session:
        return session.execute(search_inline)


def joint(simulation: Simulation) -> list[list[str]]:
    """The passes of the models of each latency measurement."""
    measured = []
    for function, payload in simulation.pool.measured:
        if function.endswith(":latency"):
            files = [payload["candidate"], *payload["rivals"]]
            measured.append([" ".join(_passes(file)) for file in files])
    return measured


def _passes(file: Mapping[str, str]) -> list[str]:
    passes: list[str] = json.loads(Path(file["path"]).read_text())["passes"]
    return passes


def test_a_candidate_that_was_lucky_once_does_not_win(tmp_path: Path) -> None:
    simulation = simulate(tmp_path, (0.5, 0.8, 0.9), noise=Noise(first={"name_fix": 0.4}))
    result = finish(simulation.session())
    assert result.best.chain == "fold"
    assert result.undecided == ""


def test_only_candidates_that_may_win_are_measured_again(tmp_path: Path) -> None:
    simulation = simulate(tmp_path, (0.5, 0.51, 0.9), 0.1)
    finish(simulation.session())
    rounds = joint(simulation)[4:]  # after the baseline and three trials
    assert rounds[0] == ["identity_elimination", "remove_unused"]
    assert all("name_fix" not in models for models in rounds)
    assert RACE.fewest_rounds <= len(rounds) <= RACE.extension * 5


@pytest.mark.parametrize("seed", range(2))
def test_a_plain_gain_is_found_however_noisy_the_machine_is(tmp_path: Path, seed: int) -> None:
    simulation = simulate(tmp_path, (0.6, 0.85, 1.1), 0.2, Noise(spread=0.12, seed=seed))
    result = finish(simulation.session())
    assert result.best.chain == "fold"
    ratio = result.best.ratios["latency_p50"]
    assert ratio.low <= 0.6 <= ratio.high


@pytest.mark.parametrize("seed", range(2))
def test_a_slower_candidate_never_wins(tmp_path: Path, seed: int) -> None:
    simulation = simulate(tmp_path, (1.05, 1.1, 1.2), 0.2, Noise(spread=0.1, seed=seed))
    result = finish(simulation.session())
    assert result.best.is_source


@pytest.mark.parametrize("seed", range(2))
def test_where_no_candidate_promises_a_gain_the_source_is_the_answer(tmp_path: Path, seed: int) -> None:
    simulation = simulate(tmp_path, (1.0, 1.0, 1.005), 0.03, Noise(spread=0.01, seed=seed))
    result = finish(simulation.session())
    assert result.best.is_source
    assert result.undecided == ""
    assert len(joint(simulation)) < 4 + RACE.extension * 5


def test_a_gain_that_a_wide_range_leaves_open_is_undecided(tmp_path: Path) -> None:
    simulation = simulate(tmp_path, (1.01, 1.02, 1.03), 0.2, measurement={"rounds": 1})
    result = finish(simulation.session())
    assert result.best.is_source
    assert result.undecided == "no candidate's gain on the source model is certain"


def test_no_round_starts_when_the_time_of_the_race_is_up(tmp_path: Path) -> None:
    simulation = simulate(tmp_path, (0.8, 0.81, 0.82), 0.3, Noise(spread=0.05, seed=1), measurement={"rounds": 1})
    session = simulation.session()
    finish(session)
    measured = len(joint(simulation))
    race = Race(session.ctx, session.ranking, until=session.ctx.attempt.clock())
    race.run(session.completed_trials())
    assert race.undecided
    assert len(joint(simulation)) == measured


def test_the_next_run_adds_to_what_is_undecided(tmp_path: Path) -> None:
    simulation = simulate(tmp_path, (0.8, 0.81, 0.82), 0.3, Noise(spread=0.05, seed=1), measurement={"rounds": 1})
    first = finish(simulation.session())
    assert "may be more than 2 % better" in first.undecided
    rounds = first.best.measured.rounds
    measured = len(simulation.pool.measured)
    second = finish(simulation.session())
    assert second.run != first.run
    assert not second.reused
    assert second.trial_counts == first.trial_counts
    assert second.stopped == first.stopped
    assert second.pass_runs.executed == 0
    assert {function.split(":")[1] for function, _ in simulation.pool.measured[measured:]} == {"latency"}
    assert second.best.measured.rounds > rounds or second.best.artifact != first.best.artifact


def test_a_run_that_was_interrupted_while_it_measured_on_takes_the_trials_over_again(tmp_path: Path) -> None:
    simulation = simulate(tmp_path, (0.8, 0.81, 0.82), 0.3, Noise(spread=0.05, seed=1), measurement={"rounds": 1})
    first = finish(simulation.session())
    with simulation.session() as interrupted:
        run = interrupted.ctx.run
    second = finish(simulation.session())
    assert second.run == run != first.run
    assert second.trial_counts == first.trial_counts


def test_a_decided_run_answers_and_a_fresh_one_measures_nothing_again(tmp_path: Path) -> None:
    simulation = simulate(tmp_path, (0.5, 0.8, 0.9))
    first = finish(simulation.session())
    assert finish(simulation.session()).reused
    measured = len(joint(simulation))
    again = finish(simulation.session(again="all"))
    assert len(joint(simulation)) == measured
    assert again.best is not None
    assert again.best.ratios == first.best.ratios


def test_all_candidates_are_measured_once_more_on_request(tmp_path: Path) -> None:
    simulation = simulate(tmp_path, (0.5, 0.8, 0.9))
    finish(simulation.session())
    measured = len(joint(simulation))
    finish(simulation.session(again="measurements"))
    assert sorted(joint(simulation)[measured]) == ["identity_elimination", "name_fix", "remove_unused"]


def test_only_uncertain_candidates_are_measured_once_more_on_request(tmp_path: Path) -> None:
    simulation = simulate(tmp_path, (0.5, 0.8, 0.9), 0.04)
    finish(simulation.session())
    measured = len(joint(simulation))
    finish(simulation.session(again="measurements"))
    assert sorted(joint(simulation)[measured]) == ["name_fix", "remove_unused"]


def test_what_a_busy_machine_left_open_is_measured_once_more_on_request(tmp_path: Path) -> None:
    simulation = simulate(tmp_path, (0.5, 0.8, 0.9))
    simulation.pool.on_one_thread = True
    finish(simulation.session())
    measured = len(joint(simulation))
    simulation.pool.on_one_thread = False
    finish(simulation.session(again="measurements"))
    assert sorted(joint(simulation)[measured]) == ["identity_elimination", "name_fix", "remove_unused"]


def test_of_equally_fast_candidates_the_better_one_wins_then_the_smaller_one(tmp_path: Path) -> None:
    simulation = simulate(tmp_path, (0.5, 0.502, 0.501))
    simulation.pool.passes["remove_unused"] = faster(0.502, accuracy=0.95)
    simulation.pool.passes["name_fix"] = faster(0.501, accuracy=0.95, size=500.0)
    result = finish(simulation.session())
    assert result.best.chain == "names"


def test_a_candidate_that_breaks_a_constraint_when_measured_again_does_not_win(tmp_path: Path) -> None:
    bounds = (Constraint("latency_p50", max_ratio=0.6), Constraint("accuracy", max_drop=1))
    simulation = simulate(tmp_path, (0.5, 0.8, 0.9), noise=Noise(first={"remove_unused": 0.4}), constraints=bounds)
    result = finish(simulation.session())
    assert result.best.chain == "fold"
    assert result.trial_counts["infeasible"] == 2
    assert [note for note in result.notes if note.startswith("1 candidate broke a constraint when measured again")]


def test_rivals_are_measured_alone_if_one_of_them_ends_the_joint_measurement(tmp_path: Path) -> None:
    simulation = simulate(tmp_path, (0.5, 0.505, 0.9), 0.1)
    call = simulation.pool.call

    def fails_together(function: str, payload: dict[str, Any], *terms: Any, **named: Any) -> CallResult:
        if payload.get("rivals"):
            return CallResult(Outcome.OUT_OF_MEMORY, message="too many models")
        return call(function, payload, *terms, **named)

    simulation.pool.call = fails_together  # type: ignore[method-assign]
    result = finish(simulation.session())
    assert result.best.chain in ("fold", "clean")
    assert result.best.measured.rounds >= RACE.fewest_rounds


def test_without_rounds_the_trials_decide(tmp_path: Path) -> None:
    simulation = simulate(tmp_path, (0.5, 0.8, 0.9), measurement={"rounds": 0})
    result = finish(simulation.session())
    assert len(joint(simulation)) == 4
    assert result.best.chain == "fold"


def test_a_race_ends_where_no_repetition_helps(tmp_path: Path) -> None:
    simulation = simulate(tmp_path, (0.95, 0.96, 1.3))
    simulation.pool.on_one_thread = True
    result = finish(simulation.session())
    rounds = joint(simulation)[4:]  # after the baseline and three trials
    assert RACE.fewest_rounds <= len(rounds) < 5
    assert result.undecided


@pytest.mark.parametrize("again", [None, "measurements"])
def test_the_next_run_decides_on_a_quieter_machine(tmp_path: Path, again: Any) -> None:
    simulation = simulate(tmp_path, (0.95, 0.96, 1.3))
    simulation.pool.on_one_thread = True
    assert finish(simulation.session()).undecided
    measured = len(joint(simulation))
    simulation.pool.on_one_thread = False
    result = finish(simulation.session(again=again))
    assert "identity_elimination" in joint(simulation)[measured]
    assert result.undecided == ""


def test_one_candidate_is_measured_until_its_ratio_is_known(tmp_path: Path) -> None:
    simulation = simulate(tmp_path, (0.5, 0.8, 0.9))
    ctx = simulation.context()
    evidence = measure_repeatedly(ctx, simulation.candidate, "tonight")
    assert evidence.rounds_of(simulation.candidate.key) == RACE.fewest_rounds
    simulation.pool.noise = Noise(spread=0.3)
    noisy = measure_repeatedly(ctx, simulation.candidate, "another night")
    assert noisy.rounds_of(simulation.candidate.key) == 5


def test_each_round_has_a_seed_of_its_own_and_time_for_every_model(tmp_path: Path) -> None:
    simulation = simulate(tmp_path, (1.0, 1.0, 1.0), measurement={"seconds": 10.0})
    evidence = measure_repeatedly(simulation.context(), simulation.candidate)
    candidates = [simulation.candidate] * 3
    assert round_settings(evidence, candidates[:1], 0)["seconds"] == pytest.approx(4.0)
    assert round_settings(evidence, candidates, 0)["seconds"] == pytest.approx(8.0)
    assert {round_settings(evidence, candidates, number)["seed"] for number in range(5)} == set(range(5))

    key = simulation.candidate.key
    on_one_thread = {DETAIL: json_codec.to_json(TwoRatios(Estimate.exact(0.5), Estimate.exact(0.5)))}
    records = [replace(record, details={**record.details, **on_one_thread}) for record in evidence.records(key)]
    evidence.rounds.records[key] = records
    evidence = Evidence(evidence.rounds)
    assert round_settings(evidence, candidates, 0)["seconds"] == pytest.approx(RACE.busy_factor * 8.0)
    assert round_settings(evidence, candidates, 0, is_certain=True)["seconds"] == pytest.approx(8.0)


@pytest.mark.parametrize(("setting", "expected"), [(0.04, TIMING.screening_width), (0.2, 0.2)])
def test_a_round_is_as_brief_as_a_first_look(tmp_path: Path, setting: float, expected: float) -> None:
    simulation = simulate(tmp_path, (1.0, 1.0, 1.0), measurement={"target_width": setting})
    evidence = measure_repeatedly(simulation.context(), simulation.candidate)
    assert round_settings(evidence, [simulation.candidate], 0)["target_width"] == expected


def test_a_race_that_was_interrupted_goes_on_with_what_it_measured(tmp_path: Path) -> None:
    simulation = simulate(tmp_path, (0.5, 0.505, 0.9), 0.05)
    call = simulation.pool.call
    interrupted = False

    def dies_once(function: str, payload: dict[str, Any], *terms: Any, **named: Any) -> CallResult:
        nonlocal interrupted
        if function.endswith(":latency") and len(joint(simulation)) == 5 and not interrupted:
            interrupted = True
            raise KeyboardInterrupt
        return call(function, payload, *terms, **named)

    simulation.pool.call = dies_once  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        finish(simulation.session())
    measured = joint(simulation)
    result = finish(simulation.session())
    assert interrupted
    assert joint(simulation)[: len(measured)] == measured
    assert len(joint(simulation)) - len(measured) < RACE.extension * 5
    assert result.best.measured.rounds == sum(PASSES[result.best.chain] in models for models in joint(simulation))


def test_a_candidate_that_crashes_when_measured_again_does_not_win_and_takes_no_other_with_it(tmp_path: Path) -> None:
    simulation = simulate(tmp_path, (0.5, 0.51, 0.495), 0.1)
    call = simulation.pool.call

    def crashes_again(function: str, payload: dict[str, Any], *terms: Any, **named: Any) -> CallResult:
        if function.endswith(":latency"):
            files = [payload["candidate"], *payload["rivals"]]
            again = sum("name_fix" in models for models in joint(simulation))
            if again and any("name_fix" in _passes(file) for file in files):
                return CallResult(Outcome.CRASHED, message="the worker died: SIGSEGV", died=True)
        return call(function, payload, *terms, **named)

    simulation.pool.call = crashes_again  # type: ignore[method-assign]
    result = finish(simulation.session())
    assert result.best.chain in ("fold", "clean")
    assert result.best.measured.rounds >= RACE.fewest_rounds
    assert simulation.resources.quarantine.any
    for trial in simulation.store.trials.all(result.run):
        assert simulation.resources.quarantine.reason(Subject.model(trial.candidate.artifact)) is None


def test_a_slower_model_is_measured_no_more_than_needed_where_the_source_breaks_a_constraint(tmp_path: Path) -> None:
    bounds = (Constraint("size", max_ratio=0.6), Constraint("accuracy", max_drop=1))
    simulation = simulate(tmp_path, (1.2, 1.3, 1.4), constraints=bounds)
    for name, ratio in zip(PASSES.values(), (1.2, 1.3, 1.4), strict=True):
        simulation.pool.passes[name] = faster(ratio, size=500.0)
    result = finish(simulation.session())
    assert result.best.chain == "fold"
    assert len(joint(simulation)) == 4 + RACE.fewest_rounds


def test_rivals_that_will_not_be_known_better_are_not_measured_again(tmp_path: Path) -> None:
    """Beside other programs, no number of rounds tells candidates apart that differ by a few percent."""
    simulation = simulate(tmp_path, (0.5, 0.51, 0.52))
    simulation.pool.on_one_thread = True
    finish(simulation.session())
    rounds = joint(simulation)[4:]  # after the baseline and three trials
    assert rounds == RACE.fewest_rounds * [["identity_elimination"]]


@pytest.mark.parametrize("seed", range(2))
def test_equal_candidates_do_not_race_until_one_is_ahead_by_luck(tmp_path: Path, seed: int) -> None:
    simulation = simulate(tmp_path, (0.5, 0.5, 0.5), 0.1, Noise(spread=0.06, seed=seed))
    result = finish(simulation.session())
    assert len(joint(simulation)) - 4 <= 5
    assert not result.best.is_source


@pytest.mark.parametrize("seed", range(2))
def test_what_the_runtime_makes_the_source_of_does_not_race_and_gains_nothing(tmp_path: Path, seed: int) -> None:
    simulation = simulate(tmp_path, (1.0, 0.97, 0.98), source={**SOURCE, "graph": "of the source"})
    simulation.pool.passes["identity_elimination"] = faster(1.0, graph="of the source", size=900.0)
    simulation.pool.passes["remove_unused"] = faster(0.97, graph="another")
    simulation.pool.passes["name_fix"] = faster(0.98, graph="a third")
    simulation.pool.noise = Noise(spread=0.1, seed=seed)
    simulation.pool.spread = 0.02
    result = finish(simulation.session())
    assert not any("identity_elimination" in models for models in joint(simulation)[1:])
    assert result.best.chain != "fold"
