"""Knowledge on its way from one store to another: what a run teaches, the file tells, and a plan makes of it."""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import postgres
import pytest
from knowledge_cases import KNOWLEDGE, LESSON
from simulation import INSPECTION, Model, Simulation, faster

from autoopt.engine.planning.best_candidate import Machine
from autoopt.engine.planning.examples import Case, examples, taught_plan
from autoopt.engine.planning.first_points import Question
from autoopt.engine.planning.imported_knowledge import add_knowledge, imported_knowledge, imported_lessons
from autoopt.engine.planning.lessons import all_lessons, is_public, own_lessons
from autoopt.engine.run.session import search_inline
from autoopt.engine.tools.knowledge import export_knowledge, import_knowledge, known_effects, remove_imported
from autoopt.errors import InputError
from autoopt.metrics import Objective
from autoopt.model.inspection import Inspection
from autoopt.results.knowledge import Knowledge, Lesson, Spread
from autoopt.store import ModelRecord, Store, open_store
from autoopt.store.memory import MemoryStore
from autoopt.target import Target

DAG: dict[str, Any] = {
    "passes": {
        "fold": "identity_elimination",
        "quant": {"pass": "dynamic_quantization", "params": {"per_channel": {"search": [True, False]}}},
    },
    "chains": [["fold"], ["quant"], ["fold", "quant"]],
}
LATENCY = Objective("latency_p50", "minimize")
HERE = Machine.of({})
SECRET = Inspection.from_json({**INSPECTION.to_json(), "op_counts": {"Add": 1, "acme.secret::Kernel": 2}})


def quantized(model: Model, params: Any) -> Model:
    return {**model, "latency": model["latency"] * (0.5 if params["per_channel"] else 0.6), "accuracy": 0.895}


def searched(folder: Path, store: Store | None = None) -> Simulation:
    """A finished run of the model `bert`, whose best candidate has half the latency and less."""
    simulation = Simulation(folder, dag=DAG, store=store)
    simulation.pool.passes = {"identity_elimination": faster(0.9), "dynamic_quantization": quantized}
    simulation.store.models.add(ModelRecord(simulation.candidate.artifact, "bert", SECRET.to_json()))
    with simulation.session() as session:
        session.execute(search_inline)
    return simulation


def case_of(simulation: Simulation) -> Case:
    inputs = simulation.inputs()
    return Case(SECRET, LATENCY, Target(), HERE, inputs.problem.goal.constraints, inputs.search)


def without_built_in(case: Case) -> Case:
    """The case of a run that leaves the built-in lessons out."""
    assert case.search is not None
    return replace(case, search=case.search.overridden({"built_in_knowledge": False}))


def question(inspection: Inspection = INSPECTION) -> Question:
    return Question(inspection, Target(), Machine("Fast CPU", "1.22.0"), ())


@pytest.fixture(autouse=True)
def no_built_in_lessons(monkeypatch: pytest.MonkeyPatch) -> None:
    """Effects of the store's and imported lessons, without the built-in ones."""
    monkeypatch.setattr("autoopt.engine.planning.lessons.built_in_knowledge", lambda: Knowledge.of((), "1.0"))


@pytest.fixture(scope="module")
def simulation(tmp_path_factory: pytest.TempPathFactory) -> Simulation:
    return searched(tmp_path_factory.mktemp("simulation"))


@pytest.fixture
def file(simulation: Simulation, tmp_path: Path) -> Path:
    file = tmp_path / "knowledge.json"
    assert export_knowledge(simulation.store, file).lessons == 1
    return file


@pytest.fixture
def other(tmp_path: Path) -> MemoryStore:
    return MemoryStore(tmp_path / "other")


def test_a_lesson_has_the_effects_of_each_pass_and_value(simulation: Simulation) -> None:
    (own,) = own_lessons(simulation.store)
    effects = {(effect.pass_name, effect.value): effect for effect in own.lesson.effects}
    fold, quant = effects["identity_elimination", None], effects["dynamic_quantization", None]
    assert fold.latency is not None
    assert quant.latency is not None
    assert quant.quality is not None
    assert fold.latency.mean == pytest.approx(math.log(0.9), abs=0.05)
    by_value = {value: effects["dynamic_quantization", value].latency for value in (True, False)}
    assert by_value[True] is not None
    assert by_value[False] is not None
    assert by_value[True].mean < by_value[False].mean
    assert quant.quality.mean == pytest.approx(-0.005, abs=0.003)
    assert own.lesson.best is not None
    assert set(own.lesson.best.passes) == {"identity_elimination", "dynamic_quantization"}
    assert own.lesson.best.ratios["latency_p50"] == pytest.approx(0.45, rel=0.05)


def test_a_lesson_has_what_each_trial_gave(simulation: Simulation) -> None:
    (own,) = own_lessons(simulation.store)
    tried = {json.dumps(each.passes, sort_keys=True): each for each in own.lesson.configurations}
    best = tried['{"dynamic_quantization": {"per_channel": true}, "identity_elimination": {}}']
    assert best.ratio == pytest.approx(0.45, rel=0.05)
    assert not best.rejected
    assert len(tried) == 5


def test_the_file_names_no_model_operator_path_or_host(simulation: Simulation, file: Path) -> None:
    text = file.read_text()
    secrets = ["bert", "source", "secret", "acme", platform.node(), str(simulation.folder)]
    secrets += [run.id for run in simulation.store.runs.all()]
    secrets += [model.artifact for model in simulation.store.models.all()]
    assert [secret for secret in secrets if secret in text] == []
    assert json.loads(text)["lessons"][0]["model"]["op_counts"] == {"Add": 1, "custom": 2}


def test_values_that_may_name_something_of_the_model_are_not_told() -> None:
    assert is_public("dynamic_quantization", True)
    assert is_public("dynamic_quantization", "QUInt8")
    assert is_public("dynamic_quantization", ["MatMul", "LSTM"])
    assert is_public("static_quantization", ["LSTM"])  # `dynamic_ops`, which proposals take from the model
    assert not is_public("dynamic_quantization", ["/encoder/secret/MatMul"])
    assert not is_public("dynamic_quantization", "/home/ann/data")
    assert not is_public("dynamic_quantization", {"path": "x"})


def test_imported_knowledge_teaches_a_plan_as_own_runs_do_and_says_so(
    simulation: Simulation, file: Path, other: MemoryStore
) -> None:
    knowledge, is_new = import_knowledge(other, file)
    assert is_new
    case = without_built_in(case_of(simulation))
    custom = replace(case, inspection=knowledge.lessons[0].model.inspection)
    own, imported = taught_plan(simulation.store, simulation.plan, case), taught_plan(other, simulation.plan, custom)
    assert own.learned[0].evidence.endswith("on source.onnx (same graph)")
    assert imported.learned[0].point == own.learned[0].point == {"quant": {"per_channel": True}}
    measured = "dynamic_quantization (per_channel=True) gave 0.45 of the source's latency_p50 on 1 model"
    assert imported.learned[0].evidence == f"{measured} (model {knowledge.lessons[0].id[:6]} (imported))"
    assert imported.knowledge == "imported: 1 model"


def test_an_order_that_was_looked_up_follows_what_the_store_knows(
    simulation: Simulation, file: Path, other: MemoryStore, tmp_path: Path
) -> None:
    (tmp_path / "home").mkdir()

    def learned(store: Store) -> int:
        case = replace(case_of(simulation), inspection=INSPECTION)
        return len(taught_plan(store, simulation.plan, case, tmp_path / "home").learned)

    assert learned(other) == 0
    import_knowledge(other, file)
    assert learned(other) == learned(other) > 0
    remove_imported(other, "knowledge.json")
    assert learned(other) == 0
    assert learned(simulation.store) > 0, "finished runs teach too"


def test_a_store_does_not_learn_twice_from_its_own_runs(simulation: Simulation, file: Path, tmp_path: Path) -> None:
    store = searched(tmp_path / "again").store
    export_knowledge(store, file)
    assert import_knowledge(store, file)[1]
    assert not import_knowledge(store, file)[1]
    assert list(imported_lessons(store)) == []
    assert len(list(all_lessons(store, built_in=False))) == 1


def test_removed_knowledge_teaches_nothing_and_can_be_imported_again(other: MemoryStore, file: Path) -> None:
    import_knowledge(other, file)
    assert remove_imported(other, "knowledge.json").file == "knowledge.json"
    assert imported_knowledge(other) == []
    with pytest.raises(InputError, match="no such imported knowledge"):
        remove_imported(other, "knowledge.json")
    assert import_knowledge(other, file)[1]
    assert len(imported_knowledge(other)) == 1


@pytest.mark.parametrize(
    "goal",
    [{"metric": "size"}, {"device": "gpu"}, {"execution_provider": "QNNExecutionProvider"}],
)
def test_knowledge_of_another_goal_or_target_teaches_nothing(
    goal: dict[str, Any], simulation: Simulation, other: MemoryStore
) -> None:
    lesson = LESSON.model_copy(update={"goal": LESSON.goal.model_copy(update=goal)})
    add_knowledge(other, Knowledge.of((lesson,), "1.0"), "k.json")
    assert taught_plan(other, simulation.plan, replace(case_of(simulation), inspection=INSPECTION)).learned == ()


def test_known_effects_are_told_with_their_trials(other: MemoryStore) -> None:
    add_knowledge(other, KNOWLEDGE, "k.json")
    known = known_effects(other, question())
    first = known.effects[0]
    assert (first.pass_name, first.parameter, first.models, first.trials, first.rejected) == (
        "dynamic_quantization",
        None,
        1,
        8,
        1,
    )
    assert first.ratio is not None
    assert first.quality is not None
    assert first.ratio[1] < first.ratio[0] < first.ratio[2]
    assert first.quality[0] < 0
    distant = replace(INSPECTION, op_counts={"Conv": 3})
    assert known_effects(other, question(distant)).effects == ()


def test_effects_on_similar_models_count_most(other: MemoryStore) -> None:
    lessons: list[Lesson] = []
    for number, (counts, mean) in enumerate((({"MatMul": 4, "Conv": 40}, -0.9), ({"MatMul": 40, "Conv": 4}, -0.1))):
        model = LESSON.model.model_copy(update={"op_counts": counts})
        effect = LESSON.effects[0].model_copy(update={"latency": Spread(mean=mean, deviation=0.01)})
        lessons.append(LESSON.model_copy(update={"id": f"{number:012}", "model": model, "effects": (effect,)}))
    add_knowledge(other, Knowledge.of(tuple(lessons), "1.0"), "k.json")
    convolutional = replace(INSPECTION, op_counts={"MatMul": 3, "Conv": 30})
    known = known_effects(other, question(convolutional))
    (known_effect,) = known.effects
    assert (known_effect.models, [named.lesson.id for named in known.used]) == (2, [lesson.id for lesson in lessons])
    assert known_effect.ratio is not None
    assert math.exp(-0.9) < known_effect.ratio[0] < math.exp(-0.5)


def test_a_store_without_runs_and_a_wrong_name_are_refused(other: MemoryStore, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no finished run"):
        export_knowledge(other, tmp_path / "k.json")
    for function in (export_knowledge, import_knowledge):
        with pytest.raises(InputError, match=r"ends in \.json"):
            function(other, tmp_path / "k.txt")
    with pytest.raises(InputError, match="must be a file in a folder that exists"):
        export_knowledge(other, tmp_path / "none" / "k.json")


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.service)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/shared/autoopt.db"
        return
    with postgres.empty_schema() as address:
        yield address


def test_machines_that_share_a_database_learn_from_each_other(url: str, tmp_path: Path) -> None:
    home = tmp_path / "shared"
    with open_store(url, home) as first:
        simulation = searched(tmp_path / "first", first)
        add_knowledge(first, KNOWLEDGE, "k.json")
    with open_store(url, home) as second:
        (own, imported) = all_lessons(second)
        assert own.model == "source.onnx"
        assert imported.lesson == LESSON
        (example,) = examples(second, simulation.plan, case_of(simulation))
        assert example.ratio == pytest.approx(0.45, rel=0.05)
        assert export_knowledge(second, tmp_path / "k.json").lessons == 1
        assert remove_imported(second, KNOWLEDGE.digest[:8]).file == "k.json"
        assert len(list(all_lessons(second))) == 1
