"""The best model so far in the output folder, during a run and after a cancel."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from session_helpers import Notes, chain_in, finish, simulate
from simulation import Simulation, faster

from autoopt.results import RunResult


@pytest.fixture
def simulation(tmp_path: Path) -> Simulation:
    return simulate(tmp_path)


def test_the_best_so_far_is_written_while_the_search_goes_on(simulation: Simulation, tmp_path: Path) -> None:
    out = tmp_path / "out"
    seen: list[str] = []

    class Reader(Notes):
        def on_trial_start(self, number: int, chain: str, point: object) -> None:
            seen.append(chain_in(out))

    notes = Reader()
    session = simulation.session(observer=notes, out=out)
    result = finish(session)
    assert seen[0] == ""
    assert seen[-1] in ("fold", "clean", "names")
    assert chain_in(out) == result.best.chain == "clean"
    assert [note for note in notes.notes if str(out) in note] == [
        f"{out}/ has the best model so far; a better one will replace it"
    ]


def test_nothing_is_written_while_no_candidate_is_better(simulation: Simulation, tmp_path: Path) -> None:
    simulation.pool.passes = {name: faster(0.999, size=5.0) for name in simulation.pool.passes}
    finish(simulation.session(out=tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_written_does_not_end_the_search(simulation: Simulation, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    notes = Notes()
    result = finish(simulation.session(observer=notes, out=tmp_path / "file" / "out"))
    assert result.trial_counts["ok"] == 3
    assert any("the best model so far was not written" in note for note in notes.notes)


def test_a_cancelled_run_keeps_and_exports_the_best_so_far(simulation: Simulation, tmp_path: Path) -> None:
    def interrupted(model: dict[str, object], params: object) -> dict[str, object]:
        raise KeyboardInterrupt

    simulation.pool.passes["remove_unused"] = interrupted  # type: ignore[assignment]
    notes = Notes()
    session = simulation.session(observer=notes)
    with pytest.raises(KeyboardInterrupt):
        finish(session)
    record = simulation.store.runs.get(session.ctx.run)
    assert record.status == "cancelled"
    interim = RunResult.from_json(record.result)
    assert interim.best.chain in ("fold", "names")
    assert interim.is_interim
    session.export_incumbent(tmp_path / "out")
    assert json.loads((tmp_path / "out" / "recipe.json").read_text())["chain"] == interim.best.chain
    assert notes.notes[-1].startswith(f"wrote the best model so far to {tmp_path / 'out'}/: 1.")


def test_without_data_a_lossy_gain_is_named_with_the_command_that_writes_it(tmp_path: Path) -> None:
    class Interrupting(Notes):
        def on_trial_start(self, number: int, chain: str, point: object) -> None:
            if number == 1:
                raise KeyboardInterrupt

    quantization = {"pass": "dynamic_quantization", "params": {"per_channel": {"search": [True, False]}}}
    simulation = Simulation(tmp_path, dag={"passes": {"q": quantization}, "chains": [["q"]]}, unverified=True)
    simulation.pool.passes = {"dynamic_quantization": faster(0.4)}
    out, notes = tmp_path / "out", Interrupting()
    session = simulation.session(observer=notes, out=out)
    with pytest.raises(KeyboardInterrupt):
        finish(session)
    assert not session.export_incumbent(out)
    assert not out.exists()
    during, after = [note for note in notes.notes if "lossy" in note]
    assert during == f"{out}/ gets lossless models only; {after}"
    assert after.startswith("best lossy model so far, unverified: 2.50x faster")
    assert f"; get it with: autoopt export {session.ctx.run} " in after


def test_without_a_gain_nothing_is_exported_after_a_cancel(simulation: Simulation, tmp_path: Path) -> None:
    session = simulation.session()
    with pytest.raises(KeyboardInterrupt), session:
        raise KeyboardInterrupt
    session.export_incumbent(tmp_path / "out")
    assert not (tmp_path / "out").exists()
