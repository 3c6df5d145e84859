"""dag.yaml as a value."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from autoopt.errors import ConfigError
from autoopt.metrics import Constraint, Objective
from autoopt.spec import DagSpec, load_dag
from autoopt.spec.dag import with_thread_search
from autoopt.spec.nodes import Searched
from autoopt.spec.search import Group, Order
from autoopt.target import Accelerator

GOOD = """\
name: good
passes:
  a: {pass: simplify}
  b: {pass: float16, params: search}
  c:
    pass: dynamic_quantization
    params:
      per_channel: search
      weight_type: QInt8
edges:
  - a -> b
  - a -> c
objectives:
  - {metric: latency_p50, goal: minimize}
constraints:
  - {metric: accuracy, max_drop: 0.01}
search: {trials: 10}
"""


def write(folder: Path, text: str, name: str = "dag.yaml") -> Path:
    file = folder / name
    file.write_text(text)
    return file


def error_of(given: Any) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load_dag(given)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2
    return caught.value


def test_a_file_is_read_with_its_defaults(tmp_path: Path) -> None:
    spec = load_dag(write(tmp_path, GOOD))
    assert list(spec.passes) == ["a", "b", "c"]
    assert spec.passes["b"].searches_all("none")
    assert spec.edges == (("a", "b"), ("a", "c"))
    assert load_dag(write(tmp_path, GOOD.replace("a -> b", "a --> b"))).edges == spec.edges
    assert spec.graph_kind == "edges"
    assert [o.objective() for o in spec.objectives] == [Objective("latency_p50", "minimize")]
    assert [c.constraint() for c in spec.constraints or ()] == [Constraint("accuracy", max_drop=0.01)]
    assert spec.search.trials == 10
    assert spec.search.strategy == "unified"
    assert spec.all_targets[0].accelerator() == Accelerator()
    assert load_dag(spec) is spec


MINIMAL: dict[str, Any] = {"name": "m", "passes": {"a": "simplify"}, "chains": [["a"]]}


def test_constraints_that_are_absent_and_constraints_that_are_none_differ() -> None:
    assert load_dag(MINIMAL).constraints is None
    assert load_dag({**MINIMAL, "constraints": []}).constraints == ()


def test_a_spec_cannot_be_changed() -> None:
    spec = load_dag(MINIMAL)
    with pytest.raises(ValueError, match="frozen"):
        spec.name = "other"  # type: ignore[misc]  # that is the point


@pytest.mark.parametrize(
    ("passes", "name"),
    [
        ({"a": "simplify"}, "simplify"),
        ({"a": {"pass": "simplify"}}, "simplify"),
        ({"a": None}, "a"),
        ({"a": {}}, "a"),
        ({"a": {"params": None}}, "a"),
        ({"a": {"params": {"x": 1}}}, "a"),
        (["a"], "a"),
    ],
)
def test_short_forms_of_passes(passes: Any, name: str) -> None:
    assert load_dag({**MINIMAL, "passes": passes}).passes["a"].pass_name == name


def test_short_forms_of_other_fields() -> None:
    spec = load_dag(
        {**MINIMAL, "target": "gpu", "data": "x.npz", "host": "local", "search": "all", "objectives": ["throughput"]}
    )
    assert spec.all_targets[0].execution_provider == "CUDAExecutionProvider"
    assert spec.data.evaluation == "x.npz"
    assert spec.search.params == "all"
    assert spec.objectives[0].objective() == Objective("throughput", "maximize")


def test_the_device_follows_from_the_execution_provider() -> None:
    spec = load_dag({**MINIMAL, "target": {"execution_provider": "QNNExecutionProvider"}})
    assert spec.all_targets[0].device == "npu"
    assert spec.all_targets[0].target().execution_provider == "QNNExecutionProvider"


def test_paths_are_relative_to_the_file_and_checked_on_request(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"")
    more = "model: m.onnx\ndata:\n  evaluation: e.npz\n  calibration: {path: c.npz, batch_size: 2}\n"
    spec = load_dag(write(tmp_path, GOOD + more))
    assert spec.model_path == str(tmp_path / "m.onnx")
    assert spec.data_json("evaluation") == str(tmp_path / "e.npz")
    assert spec.data_json("calibration") == {"path": str(tmp_path / "c.npz"), "batch_size": 2}
    assert spec.data_json("latency") is None
    spec.check_files(data=False)
    with pytest.raises(ConfigError, match=r"dag\.yaml:20: data\.evaluation: no such file: e\.npz"):
        spec.check_files()


def test_addresses_are_no_paths() -> None:
    spec = load_dag({**MINIMAL, "model": "s3://bucket/m.onnx", "data": "https://host/x.npz"})
    assert spec.model_path == "s3://bucket/m.onnx"
    spec.check_files()


MISTAKES = [line.split(" | ") for line in Path(__file__).with_name("mistakes.txt").read_text().splitlines()]


@pytest.mark.parametrize(("old", "new", "line", "field", "reason"), MISTAKES)
def test_a_mistake_is_told_with_line_field_and_remedy(
    tmp_path: Path, old: str, new: str, line: str, field: str, reason: str
) -> None:
    right, wrong = (text.replace("\\n", "\n") for text in (old, new))
    assert right in GOOD
    file = write(tmp_path, GOOD.replace(right, wrong, 1))
    error = error_of(file)
    assert error.line == int(line)
    assert field in error.field
    assert str(error).startswith(f"{file}:{line}: {error.field}" if field else f"{file}:{line}: ")
    assert reason in str(error)


def test_orders_of_the_search() -> None:
    def order(value: object) -> Order:
        nodes = dict.fromkeys("abcdef", "simplify")
        search = {"strategy": "per-chain", "order": value}
        return load_dag({"name": "m", "passes": nodes, "chains": [list(nodes)], "search": search}).search.parsed_order()

    staged = order(["a", ["b", "c"], {"nested": ["d", ["e", "f"]]}])
    assert staged.groups == (Group((("a",),)), Group((("b", "c"),)), Group((("d",), ("e", "f"))))
    assert staged.stage_of() == {"a": 0, "b": 1, "c": 1, "d": 2, "e": 2, "f": 2}
    nested = order({"nested": ["a", ["b", "c"], {"nested": ["d", "e"]}]})
    assert [group.nodes for group in nested.groups] == [("a",), ("b", "c"), ("d", "e")]
    assert nested.stage_of() == {}


@pytest.mark.parametrize(
    ("value", "values"),
    [
        ({"low": 1, "high": 5, "step": 2}, (1, 3, 5)),
        ({"low": 1, "high": 8, "log": True}, (1, 2, 4, 8)),
        ({"low": 0, "high": 1, "step": 0.5}, (0.0, 0.5, 1.0)),
        ({"low": 1, "high": 100, "count": 3, "log": True}, (1.0, 10.0, 100.0)),
        (["a", "b"], ("a", "b")),
    ],
)
def test_a_parameter_is_searched_over_a_list_or_a_range(value: object, values: tuple[object, ...]) -> None:
    spec = load_dag({**MINIMAL, "passes": {"a": {"pass": "simplify", "params": {"x": {"search": value}}}}})
    setting = spec.passes["a"].settings["x"]
    assert isinstance(setting, Searched)
    assert setting.values.values() == values


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"stages": [[]]}, "has no alternative"),
        ({"stages": ["a", ["a", None]]}, "is in stage 1 already"),
        ({"stages": [None]}, "has no passes"),
        ({"stages": "a"}, "must be a list of stages"),
        ({"stages": [1]}, "write '1' in quotes"),
        ({"chains": []}, "is empty"),
        ({"chains": None}, "is empty"),
        ({"chains": [[]]}, "is empty"),
        ({"chains": ["a"]}, "write [[a]] for one chain"),
        ({"chains": [["a", None]]}, "must be a node id, not None"),
        ({"chains": [["a", "a"]]}, "is in it twice"),
        ({"edges": [["a", True]]}, "must be a node id, not True"),
        ({"edges": [{"a": "b"}]}, "must be a list of node ids or 'a -> b'"),
    ],
)
def test_graphs_that_are_none(fields: dict[str, Any], reason: str) -> None:
    assert reason in str(error_of({"name": "m", "passes": ["a"], **fields}))


def test_any_metric_may_come_from_a_user_script() -> None:
    objectives = [{"metric": "my_score", "goal": "maximize"}]
    assert "unknown metric" in str(error_of({**MINIMAL, "objectives": objectives}))
    spec = load_dag({**MINIMAL, "objectives": objectives, "user_script": "passes.py"})
    assert spec.objectives[0].metric == "my_score"


def test_the_best_scores_of_any_number_count() -> None:
    spec = load_dag({**MINIMAL, "constraints": [{"metric": "top3_accuracy", "max_drop": 0.01}]})
    assert spec.constraints is not None
    assert spec.constraints[0].metric == "top3_accuracy"
    assert "unknown metric" in str(error_of({**MINIMAL, "objectives": ["top0_accuracy"]}))


def test_json_files_say_their_lines_too(tmp_path: Path) -> None:
    text = json.dumps({**MINIMAL, "serach": {}}, indent=1)
    error = error_of(write(tmp_path, text, "dag.json"))
    assert error.field == "serach"
    assert text.splitlines()[error.line - 1].strip().startswith('"serach"')


@pytest.mark.parametrize("text", ["", "- a\n", "just text\n", "3\n", "~\n", "[]", '{"name": 3}'])
def test_documents_that_are_no_dag(tmp_path: Path, text: str) -> None:
    assert str(error_of(write(tmp_path, text))).startswith(f"{tmp_path}/dag.yaml:1: ")


def test_a_file_with_too_many_values_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path, f"[{'1,' * 50_000}1]", "dag.json")
    assert str(error_of(file)) == f"{file}:1: has more than 50000 values"


def bad_files() -> list[str]:
    """A hundred files, each with one mistake: a line dropped, doubled, misspelt, misplaced or of the wrong kind."""
    lines = GOOD.splitlines(keepends=True)
    found = [GOOD.replace(":", old, n) for n in range(1, 6) for old in (" :x", "=", "::")]
    found += [
        "".join([*lines[:i], line.replace("e", "ee", 1), *lines[i + 1 :]])
        for i, line in enumerate(lines)
        if "e" in line
    ]
    found += ["".join([*lines[:i], f"&x{i} ", *lines[i:]]) for i in range(len(lines))]
    found += ["".join([*lines[: i + 1], f"zz{i}: 1\n", *lines[i + 1 :]]) for i in range(len(lines))]
    found += [GOOD.replace("[", "{"), GOOD.replace("{", "["), GOOD.replace("- ", "-"), GOOD * 2, GOOD + "---\n" + GOOD]
    found += [GOOD[:n] + "\x01" + GOOD[n:] for n in range(0, len(GOOD), 8)]
    return found


def refusal(file: Path) -> ConfigError | None:
    try:
        load_dag(file)
    except ConfigError as error:
        return error
    return None


def test_a_hundred_bad_files_are_a_hundred_lines(tmp_path: Path) -> None:
    files = bad_files()
    assert len(files) >= 100
    refused = 0
    for index, text in enumerate(files):
        error = refusal(write(tmp_path, text, f"{index}.yaml"))
        if error is not None:
            refused += 1
            assert str(error).startswith(f"{tmp_path}/{index}.yaml:{error.line}: ")
            assert "\n" not in str(error)
            assert 1 <= error.line <= len(text.splitlines()) + 1
    assert refused >= 100


def test_reading_needs_no_numeric_library() -> None:
    code = "import sys; import autoopt.spec, autoopt.dag; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert not loaded & {"numpy", "onnx", "onnxruntime", "prefect", "sqlalchemy", "sklearn", "optuna", "rich"}


def test_specs_of_one_content_are_equal_whatever_they_were_read_from(tmp_path: Path) -> None:
    from_yaml = load_dag(write(tmp_path, GOOD))
    from_json = load_dag(write(tmp_path, json.dumps(json.loads(json.dumps(_value()))), "dag.json"))
    from_dict = load_dag(_value())
    assert from_yaml.model_dump() == from_json.model_dump() == from_dict.model_dump()


def _value() -> dict[str, Any]:
    return {
        "name": "good",
        "passes": {
            "a": {"pass": "simplify"},
            "b": {"pass": "float16", "params": "search"},
            "c": {"pass": "dynamic_quantization", "params": {"per_channel": "search", "weight_type": "QInt8"}},
        },
        "edges": ["a -> b", ["a", "c"]],
        "objectives": [{"metric": "latency_p50", "goal": "minimize"}],
        "constraints": [{"metric": "accuracy", "max_drop": 0.01}],
        "search": {"trials": 10},
    }


def test_a_spec_dumps_to_what_it_was_read_from() -> None:
    spec = load_dag(_value())
    again = spec.model_dump(by_alias=True, exclude_defaults=True, mode="json")
    assert isinstance(load_dag(again), DagSpec)
    assert load_dag(again).model_dump() == spec.model_dump()


def test_a_wrong_part_of_the_graph_hides_no_mistake_in_another(tmp_path: Path) -> None:
    file = tmp_path / "dag.yaml"
    file.write_text(
        "name: x\n"
        "passes: {simplify: 5, q: {pass: static_quantization}}\n"
        "chains:\n"
        "  - [simplify, 8]\n"
        "  - [q, nowhere]\n"
        "  - [q, simplify]\n"
        "  - [q, q]\n"
    )
    with pytest.raises(ConfigError) as refused:
        load_dag(file)
    assert [(error.line, error.what) for error in (refused.value, *refused.value.others)] == [
        (2, "must be a mapping, not 5"),
        (4, "must be a node id, not the number 8"),
        (5, "unknown node 'nowhere'"),
        (7, "node 'q' is in it twice: q -> q"),
    ]


def test_all_mistakes_of_stages_are_told() -> None:
    stages = [["a", "nowhere"], ["b", "elsewhere", "a"], []]
    with pytest.raises(ConfigError) as refused:
        load_dag({"name": "x", "passes": ["a", "b"], "stages": stages})
    assert {error.what for error in (refused.value, *refused.value.others)} == {
        "unknown node 'nowhere'",
        "unknown node 'elsewhere'",
        "node 'a' is in stage 1 already",
        "has no alternative",
    }


SEARCH = {"search": [1, None]}


def spec(threads: object = (1, "all"), **fields: Any) -> DagSpec:
    dag = {"name": "d", "passes": {"a": "simplify", "b": "constant_folding"}, "target": {"threads": threads}}
    if not {"chains", "stages", "edges"} & set(fields):
        dag["chains"] = [["a", "b"], ["a"]]
    return load_dag({**dag, **fields})


def test_fixed_threads_leave_the_graph_alone() -> None:
    fixed = spec(2)
    assert with_thread_search(fixed) is fixed


def test_each_of_several_targets_is_completed_by_itself() -> None:
    targets = [{"name": "one", "threads": 1}, {"name": "two", "threads": [1, 2]}]
    both = load_dag({"name": "d", "passes": ["simplify"], "chains": [["simplify"]], "targets": targets})
    assert with_thread_search(both) is both
    assert "threads" in with_thread_search(both.for_target("two")).passes


@pytest.mark.parametrize(
    ("graph", "kind", "longer"),
    [
        ([["a", "b"], ["a"]], "chains", (("a", "b", "threads"), ("a", "threads"), ("threads",))),
        ([["a", None], ["b"]], "stages", (("a", None), ("b",), ("threads", None))),
        (["a -> b"], "edges", (("a", "b"), ("b", "threads"))),
    ],
)
def test_a_graph_without_a_session_gets_one_at_the_end(graph: Any, kind: str, longer: Any) -> None:
    searched = with_thread_search(spec(**{kind: graph}))
    assert getattr(searched, kind) == longer
    assert (searched.passes["threads"].pass_name, searched.passes["threads"].params) == (
        "session_tuning",
        {"intra_op_num_threads": SEARCH},
    )
    assert with_thread_search(searched).passes == searched.passes


def test_the_new_node_takes_a_free_name() -> None:
    searched = with_thread_search(
        spec(passes={"a": "simplify", "threads": "constant_folding"}, chains=[["a", "threads"]])
    )
    assert searched.passes["threads_"].pass_name == "session_tuning"


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"execution_mode": "parallel"}, {"execution_mode": "parallel", "intra_op_num_threads": SEARCH}),
        ({}, {"intra_op_num_threads": SEARCH}),
        ("default", {"intra_op_num_threads": SEARCH}),
        ("search", "search"),
        ({"intra_op_num_threads": 3}, {"intra_op_num_threads": 3}),
    ],
)
@pytest.mark.parametrize("name", ["session_tuning", "OrtPerfTuning"])
def test_a_session_of_the_user_searches_them_unless_it_sets_them(name: str, params: Any, expected: Any) -> None:
    passes = {"a": "simplify", "s": {"pass": name, "params": params}}
    searched = with_thread_search(spec(passes=passes, chains=[["a", "s"]]))
    assert searched.passes["s"].params == expected
    assert searched.chains == (("a", "s"),)
