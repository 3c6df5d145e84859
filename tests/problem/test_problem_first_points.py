"""The first points of a plan, in an order from results on other models."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from simulation import INSPECTION

from autoopt.dag import Facts, Plan, compile_plan, pass_infos
from autoopt.metrics import Objective
from autoopt.model.inspection import Inspection
from autoopt.problem.best_candidate import Machine, RunGoal
from autoopt.problem.earlier_examples import Case, taught_plan
from autoopt.problem.first_points import MAX_LEARNED, TRUST_ELSEWHERE, Question, int8_kernels, sources_for
from autoopt.problem.lessons import BUILT_IN, Lesson, Tried
from autoopt.spec import load_dag
from autoopt.target import Accelerator, Target

HERE = Machine("Fast CPU", "1.22.0")
VNNI = frozenset(("avx2", "avx512_vnni"))
CNN = replace(INSPECTION, op_counts={"Conv": 9, "Relu": 9}, layer_work={"Conv": 10**7}, parameters=10**5)
GOAL = RunGoal("latency_p50", "cpu", "CPUExecutionProvider")
PASSES: dict[str, Any] = {
    "simplify": "simplify",
    "static": {"pass": "static_quantization", "params": {"per_channel": {"search": [False, True]}}},
    "dynamic": {"pass": "dynamic_quantization", "params": {"per_channel": {"search": [False, True]}}},
    "weights": "weight_only_quantization",
}
CHAINS = [["simplify"], ["simplify", "weights"], ["simplify", "dynamic"], ["simplify", "static"], ["static"]]
STATIC = {"simplify": {}, "static_quantization": {"per_channel": True}}


def lesson(*tried: tuple[dict[str, Any], float | None], number: int = 0, **changes: Any) -> Lesson:
    """The results of trials on a convolutional model; those without a ratio failed."""
    configurations = tuple(Tried(passes, ratio, rejected=ratio is None) for passes, ratio in tried)
    return replace(Lesson(f"net{number}", CNN, HERE, ("avx512_vnni",), GOAL, configurations), **changes)


TAUGHT = lesson(
    (STATIC, 0.5),
    ({"simplify": {}, "static_quantization": {"per_channel": False}}, 0.8),
    ({"simplify": {}, "dynamic_quantization": {"per_channel": True}}, 1.4),
    ({"simplify": {}, "weight_only_quantization": {}}, None),
)


def question(**changes: Any) -> Question:
    return replace(Question(CNN, Target(), HERE, VNNI), **changes)


def plan(**fields: Any) -> Plan:
    spec = load_dag({"name": "d", "passes": PASSES, "chains": CHAINS, **fields})
    return compile_plan(spec, pass_infos(Accelerator()), Facts(Accelerator(), has_calibration=True))


def taught(
    made: Plan,
    lessons: Sequence[Lesson],
    monkeypatch: pytest.MonkeyPatch,
    inspection: Inspection = CNN,
    home: Path | None = None,
    **case: Any,
) -> Plan:
    """The plan of a model without a store, with these lessons built in."""
    monkeypatch.setattr(
        "autoopt.problem.earlier_examples.all_lessons",
        lambda _, built_in, own: [replace(each, origin=BUILT_IN) for each in lessons] if built_in else [],
    )
    fields = {"objective": Objective("latency_p50", "minimize"), "target": Target(), "machine": HERE, "isa": VNNI}
    return taught_plan(None, made, Case(inspection, **{**fields, **case}), home)


@pytest.mark.parametrize(
    "ratios",
    [(None, None), (None, 0.5), (0.5,), (0.5, 0.5), (1e-5, 1e6)],
    ids=["failures", "one", "few", "equal", "far"],
)
def test_any_measurements_may_teach(ratios: Sequence[float | None], monkeypatch: pytest.MonkeyPatch) -> None:
    configurations = ({"simplify": {}, "static_quantization": {"per_channel": True}}, {"simplify": {}})
    tried = lesson(*zip(configurations, ratios, strict=False))
    learned = taught(plan(), [tried], monkeypatch)
    assert "lessons of earlier runs" not in learned.knowledge
    assert learned.chain_count == plan().chain_count


def test_a_dag_begins_with_what_gained_most_on_other_models(monkeypatch: pytest.MonkeyPatch) -> None:
    learned = taught(plan(), [TAUGHT], monkeypatch).learned
    assert learned[0].chain == ("simplify", "static")
    assert learned[0].point == {"static": {"per_channel": True}}
    assert learned[0].evidence == (
        "static_quantization (per_channel=True) gave 0.50 of the source's latency_p50 on 1 model (built in)"
    )
    assert len(learned) <= MAX_LEARNED
    assert learned[-1].chain != ("static",), "the same precision is tried with one preparation"


def test_the_evidence_is_the_range_of_the_most_similar_models_and_what_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    lessons = [lesson((STATIC, 0.4 + number / 10), number=number) for number in range(5)]
    distant = replace(CNN, parameters=10**9, layer_work={"MatMul": 10**9})
    lessons[4] = replace(lessons[4], inspection=distant)
    lessons[0] = replace(lessons[0], tried=(Tried(STATIC, 0.4, rejected=True),))
    others = [({"simplify": {}, "dynamic_quantization": {"per_channel": False}}, 0.95)]
    learned = taught(plan(), [*lessons, lesson(*others, number=9)], monkeypatch).learned
    (evidence,) = [point.evidence for point in learned if "static" in point.chain]
    assert "gave 0.40 to 0.70 of the source's latency_p50 on the 4 most similar of 5 models (built in)" in evidence
    assert evidence.endswith("; failed or broke a limit on 1 of these 4")


def test_prior_points_are_ordered_and_no_others_are_added(monkeypatch: pytest.MonkeyPatch) -> None:
    prefer = [
        {"chain": ["simplify", "dynamic"], "values": {"dynamic": {"per_channel": True}}},
        {"chain": ["simplify", "static"], "values": {"static": {"per_channel": False}}},
    ]
    learned = taught(plan(prefer=prefer), [TAUGHT], monkeypatch).learned
    assert [(point.chain[-1], point.point[point.chain[-1]]) for point in learned] == [
        ("static", {"per_channel": False}),
        ("dynamic", {"per_channel": True}),
    ]


def test_what_needs_an_analysis_of_the_model_comes_after_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    passes = {**PASSES, "selective": "selective_quantization"}
    chains = [*CHAINS, ["simplify", "selective"]]
    selective = {"simplify": {}, "selective_quantization": {"exclude_worst": 2}}
    best_selective = lesson((selective, 0.3), (STATIC, 0.5))
    learned = taught(plan(passes=passes, chains=chains), [best_selective], monkeypatch).learned
    last_passes = [point.chain[-1] for point in learned]
    assert last_passes[-1] == "selective"
    assert "static" in last_passes


def test_chains_that_the_user_wants_first_stay_first(monkeypatch: pytest.MonkeyPatch) -> None:
    preferred = plan(prefer=[{"chain": ["simplify", "dynamic"], "weight": 2.0}])
    assert taught(preferred, [TAUGHT], monkeypatch).learned == ()
    late = plan(prefer=[{"chain": ["simplify", "static"], "weight": 0.5}])
    assert all(point.chain != ("simplify", "static") for point in taught(late, [TAUGHT], monkeypatch).learned)


@pytest.mark.parametrize(
    "search", [{"built_in_knowledge": False}, {"strategy": "per-chain"}, {"strategy": "unified", "sampler": "tpe"}]
)
def test_nothing_is_learned_where_it_is_off_or_not_followed(
    search: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = taught(plan(search=search), [TAUGHT], monkeypatch)
    assert (made.learned, made.knowledge) == ((), "")


@pytest.mark.parametrize("metric", ["size", "peak_memory", "accuracy"])
def test_latencies_teach_nothing_about_other_goals(metric: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert taught(plan(), [TAUGHT], monkeypatch, objective=Objective(metric, "minimize")).learned == ()


def test_lessons_from_elsewhere_weigh_half_and_that_is_said() -> None:
    lessons = [TAUGHT, lesson((STATIC, 0.5), number=1, machine=Machine("Other CPU", "1.20.0"))]
    sources = sources_for(question(), lessons)
    assert sorted(source.weight for source in sources.used) == [TRUST_ELSEWHERE, 1.0]
    assert "this store: 1 model;" in sources.text
    assert "half weight because measured with Other CPU, onnxruntime 1.20.0" in sources.text


@pytest.mark.parametrize(
    ("isa", "kernels"),
    [
        (VNNI, "vnni"),
        ({"avx2", "amx_int8"}, "vnni"),
        ({"avx2"}, "avx2"),
        ({"asimd", "asimddp"}, "dot product"),
        ((), ""),
    ],
)
def test_integer_kernels_are_those_of_the_fastest_instructions(isa: Any, kernels: str) -> None:
    assert int8_kernels(isa) == kernels


@pytest.mark.parametrize(
    "goal", [{"metric": "size"}, {"device": "gpu"}, {"execution_provider": "QNNExecutionProvider"}]
)
def test_lessons_of_another_goal_or_target_teach_nothing(goal: dict[str, Any]) -> None:
    assert sources_for(question(), [TAUGHT]).used
    assert sources_for(question(), [replace(TAUGHT, goal=replace(GOAL, **goal))]).used == ()


def test_the_same_lessons_give_the_same_order_and_what_a_plan_tells_is_json(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (taught(plan(), [TAUGHT], monkeypatch).to_json() for _ in range(2))
    assert first == second
    assert json.loads(json.dumps(first["learned"]))[0]["name"] == "simplify -> static"


def test_an_order_is_learned_once_for_each_plan_and_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = taught(plan(), [TAUGHT], monkeypatch, home=tmp_path)
    assert first.learned
    again = taught(plan(), [], monkeypatch, home=tmp_path)  # lessons that are not read
    assert (again.learned, again.knowledge) == (first.learned, first.knowledge)
    late = plan(prefer=[{"chain": ["simplify", "static"], "weight": 0.5}])
    assert taught(late, [], monkeypatch, home=tmp_path).learned == ()
    assert taught(plan(), [], monkeypatch, home=tmp_path, isa=frozenset(("avx2",))).learned == ()
    assert taught(plan(), [], monkeypatch, home=tmp_path, target=Target(threads=2)).learned == ()


def test_an_order_is_learned_without_a_folder_to_keep_it_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "readings").write_text("in the way")
    assert taught(plan(), [TAUGHT], monkeypatch, home=tmp_path).learned
    assert taught(plan(), [TAUGHT], monkeypatch, home=tmp_path / "none").learned
    assert not (tmp_path / "none").exists()
