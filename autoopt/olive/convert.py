"""An Olive configuration as a dag.yaml, with remarks on what has no equivalent.

Evaluators become `objectives:` and `constraints:`, the search strategy `search:`, and data configs `data:`.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from autoopt.errors import ConfigError
from autoopt.json_codec import JsonValue
from autoopt.metrics import Direction, get_metric
from autoopt.olive.config import (
    INPUT_MODEL_DATA,
    OliveConfig,
    Remarks,
    Section,
    flat,
    items,
    section,
    target_and_host,
)
from autoopt.olive.passes import graph_of
from autoopt.spec.dag import load_dag
from autoopt.spec.reader import read_document
from autoopt.spec.source import Place
from autoopt.spec.strict_model import name_from

_PROPOSES: Final = "'autoopt run MODEL' proposes passes for a model"
_NOT_NEEDED: Final = {
    "packaging_config": "out/ is a package, and 'autoopt export' writes one for any trial",
    "azureml_client": "docs/operating.md shows how to use several machines",
    "workflow_host": "docs/operating.md shows how to use several machines",
    "data_root": "pass --data-root where it has an equivalent (sweep), or write absolute paths",
    "auto_optimizer_config": "'autoopt run MODEL' proposes the passes for a model and target",
}
_METRICS: Final = {
    ("accuracy", "accuracy_score"): "accuracy",
    ("accuracy", "accuracy"): "accuracy",
    ("accuracy", "f1_score"): "f1",
    ("accuracy", "f1"): "f1",
    ("accuracy", "auroc"): "auc",
    ("accuracy", "auc"): "auc",
    ("accuracy", "perplexity"): "perplexity",
    ("accuracy", "wer"): "wer",
    ("accuracy", "exact_match"): "exact_match",
    ("latency", "avg"): "latency_mean",
    ("latency", "p50"): "latency_p50",
    ("latency", "p90"): "latency_p90",
    ("latency", "p99"): "latency_p99",
    ("throughput", "avg"): "throughput",
    ("size_on_disk", "bytes"): "size",
}
"""(type, sub-type) -> autoopt's metric."""
_ALWAYS_REPORTED: Final = ("latency", "throughput")
_PLACE: Final[Place] = ("search_strategy",)
_SAMPLERS: Final[dict[str, dict[str, JsonValue]]] = {
    "tpe": {"sampler": "tpe"},
    "random": {"strategy": "per-chain", "sampler": "random"},
    "sequential": {"strategy": "per-chain", "sampler": "exhaustive"},
    "exhaustive": {"strategy": "per-chain", "sampler": "exhaustive"},
}
_TRIALS: Final = ("max_samples", "num_samples", "max_iter")
_NOT_SEARCHED: Final = {
    "output_model_num": "every model stays in the store, and 'autoopt export RUN TRIAL' writes any of them",
    "include_pass_params": "the parameters that a pass does not set are searched as 'search: all' of its node says",
    "multivariate": "the sampler decides itself",
    "group": "the sampler decides itself",
}
_HUB_COMPONENTS: Final = ("huggingface_dataset", "load_dataset", "")
_TEXT_STEPS: Final = (
    "huggingface_pre_process",
    "ner_huggingface_preprocess",
    "text_generation_huggingface_pre_process",
)


@dataclass(frozen=True)
class Conversion:
    """The fields of a dag.yaml, and one line for each part of the configuration that has no equivalent."""

    dag: dict[str, JsonValue]
    remarks: tuple[str, ...]


def convert(file: Path, folder: Path) -> Conversion:
    """Convert a configuration into a dag.yaml in `folder`, which its paths are relative to.

    Raises:
        ConfigError: the file is not JSON or YAML, has no passes, or none of them has an equivalent; it has a value
            that dag.yaml cannot have either, such as a placeholder.
    """
    document = read_document(file)
    config = OliveConfig.read(document.value)
    remarks = Remarks(document.source)
    graph = _graph(config, remarks)
    dag: dict[str, JsonValue] = {"name": name_from(str(config.root.get("workflow_id") or file.stem), "olive")}
    model = _model(config, file, folder, remarks)
    if model:
        dag["model"] = model
    sections = {
        "data": data_settings(config, remarks),
        **target_and_host(config, remarks),
        **graph,
        **goals(config, remarks),
        "search": search_settings(config, remarks),
    }
    dag.update({name: content for name, content in sections.items() if content})
    for name, remedy in _NOT_NEEDED.items():
        if config.root.get(name):
            remarks.add((name,), "has no equivalent", remedy)
    try:
        load_dag(dag)
    except ConfigError as error:
        raise remarks.refusal((), f"gives a wrong {error.field}: {error.what}", error.remedy) from error
    return Conversion(dag, remarks.texts())


def _graph(config: OliveConfig, remarks: Remarks) -> dict[str, JsonValue]:
    """The passes and their graph."""
    if not config.slots:
        what = "has no passes" if not config.root.get("passes") else "its passes are not an object of names and passes"
        if config.root.get("auto_optimizer_config"):
            what = "has no passes, because Olive chooses them itself"
        raise remarks.refusal((), what, _PROPOSES)
    graph = graph_of(config, remarks)
    if not graph.nodes:
        raise remarks.refusal(("passes",), "none of its passes has an equivalent", _PROPOSES)
    fields = graph.fields(config.flows)
    if not fields["passes"]:
        what = "names no pass that has an equivalent"
        raise remarks.refusal(("pass_flows",), what, "remove it to convert all passes")
    return fields


def _model(config: OliveConfig, file: Path, folder: Path, remarks: Remarks) -> str | None:
    """The path of the source model; None if it is not an ONNX file."""
    model = section(config.root.get("input_model"))
    kind = str(model.get("type") or "").lower()
    path = model.get("model_path")
    if kind == "onnxmodel" and isinstance(path, str):
        if "://" in path or os.path.isabs(path):
            return path
        return os.path.relpath(file.parent / path, folder)
    if kind == "hfmodel" or section(model.get("hf_config")):
        name = path
        if not isinstance(path, str):
            name = section(model.get("hf_config")).get("model_name", "MODEL")
        remedy = f"export it: optimum-cli export onnx --model {name} exported/; then pass --model exported/model.onnx"
        remarks.add(("input_model",), "is not an ONNX model", remedy)
    elif model:
        remedy = "export it with torch.onnx.export and pass --model FILE.onnx; docs/operating.md has PyTorch models"
        remarks.add(("input_model",), f"is not an ONNX model but {model.get('type')}", remedy)
    return None


@dataclass(frozen=True)
class _Goal:
    """A sub-type of a metric with its place in the ranking (0: none) and its limit."""

    metric: str
    priority: int
    limit: Section
    place: Place


def goals(config: OliveConfig, remarks: Remarks) -> dict[str, JsonValue]:
    """Return `objectives` and `constraints`, if the evaluator of the run has any."""
    place, evaluator = config.evaluator()
    if evaluator.get("type"):
        what = f"no evaluator {evaluator['type']!r}"
        remarks.add(place, what, "set objectives and constraints in dag.yaml; docs/quality.md lists the metrics")
        return {}
    constraints: list[JsonValue] = []
    ranked: list[_Goal] = []
    for goal in sorted(_read(place, evaluator, remarks), key=lambda goal: goal.priority or math.inf):
        constraint = _constraint(goal, remarks)
        if constraint:
            constraints.append({"metric": goal.metric, **constraint})
        # A goal that asks for an improvement is an objective here, though Olive does not rank by it.
        if goal.priority > 0 or "improvement" in str(goal.limit.get("type")):
            ranked.append(goal)
    result: dict[str, JsonValue] = {}
    # Two of Olive's metrics may be the same here, such as the latencies with two execution providers.
    objectives: list[JsonValue] = list(dict.fromkeys(goal.metric for goal in _objectives(ranked, remarks)))
    if objectives:
        result["objectives"] = objectives
    if constraints:
        result["constraints"] = constraints
    return result


def _objectives(ranked: list[_Goal], remarks: Remarks) -> list[_Goal]:
    """The metrics to rank by, without those that only have a limit on their loss."""
    free = [goal for goal in ranked if "degradation" not in str(goal.limit.get("type"))]
    if not free:
        return ranked
    for goal in ranked:
        if goal not in free:
            what = f"{goal.metric} becomes a constraint only; {free[0].metric} ranks the candidates that meet it"
            remarks.add(goal.place, what, "to rank by it first, as Olive does, add it to objectives")
    return free


def _read(place: Place, evaluator: Section, remarks: Remarks) -> Iterator[_Goal]:
    for index, item in enumerate(items(evaluator.get("metrics"))):
        metric = flat(item)
        kind = str(metric.get("type"))
        here = (*place, "metrics", index)
        if kind == "custom":
            name = str(metric.get("name"))
            remedy = "write the function as a metric of a user script, see docs/quality.md"
            remarks.add(here, f"the code of the custom metric {name!r} is not converted", remedy)
            continue
        sub_types = metric.get("sub_types", metric.get("sub_type"))
        for sub_index, sub_type in enumerate(items(sub_types)):
            fields = section(sub_type) or {"name": sub_type, "goal": metric.get("goal"), "priority": 1}
            goal = _goal(kind, fields, (*here, "sub_types", sub_index), remarks)
            if goal:
                yield goal


def _goal(kind: str, fields: Section, place: Place, remarks: Remarks) -> _Goal | None:
    name = str(fields.get("name"))
    metric = _METRICS.get((kind, name))
    priority = fields.get("priority")
    limit = section(fields.get("goal"))
    if not isinstance(priority, int):
        priority = 0
    if metric is None:
        if kind not in _ALWAYS_REPORTED or priority > 0 or limit:
            remarks.add(place, f"no metric {kind} {name}", "docs/quality.md lists the metrics")
        return None
    return _Goal(metric, max(priority, 0), limit, place)


def _constraint(goal: _Goal, remarks: Remarks) -> dict[str, JsonValue]:
    """The bound that a goal sets; empty if it sets none."""
    value = goal.limit.get("value")
    if not isinstance(value, int | float):
        return {}
    kind = str(goal.limit.get("type"))
    direction: Direction = get_metric(goal.metric).direction
    maximize = direction == "maximize"
    if kind == "threshold":
        return {"min" if maximize else "max": value}
    if kind == "max-degradation":
        return {"max_drop": value}
    if kind == "percent-max-degradation":
        return _ratio(maximize, -value)
    if kind == "percent-min-improvement":
        return _ratio(maximize, value)
    remarks.add(goal.place, f"no goal {kind!r}", "use min_ratio or max_ratio, which are candidate / source")
    return {}


def _ratio(maximize: bool, percent: float) -> dict[str, JsonValue]:
    """The bound for a metric that becomes better by at least `percent`; a negative number limits how much worse."""
    if maximize:
        return {"min_ratio": round(max(1 + percent / 100, 0.0), 6)}
    return {"max_ratio": round(max(1 - percent / 100, 0.0), 6)}


def search_settings(config: OliveConfig, remarks: Remarks) -> dict[str, JsonValue]:
    """Return the `search:` section; empty if nothing is searched."""
    strategy = config.search
    if strategy is None:
        return {}
    sampler = str(strategy.get("sampler") or strategy.get("search_algorithm") or "sequential").lower()
    if sampler not in _SAMPLERS:
        remarks.add(_PLACE, f"no sampler {sampler!r}", "autoopt's default searches; see docs/searching.md")
    settings = dict(_SAMPLERS.get(sampler, {}))
    order = str(strategy.get("execution_order") or "joint")
    if order != "joint":
        settings |= {"strategy": "per-chain", "order": order}
    settings |= _budget(strategy)
    for name, remedy in _NOT_SEARCHED.items():
        if name in strategy:
            remarks.add((*_PLACE, name), "is not needed", remedy)
    return settings


def _budget(strategy: Section) -> dict[str, JsonValue]:
    """The fields that limit a search, and its seed."""
    budget: dict[str, JsonValue] = {}
    counts = [value for name in _TRIALS if isinstance(value := strategy.get(name), int) and value > 0]
    if counts:
        budget["trials"] = min(counts)
    seconds = strategy.get("max_time")
    if isinstance(seconds, int | float) and seconds > 0:
        budget["minutes"] = round(seconds / 60, 3)
    if strategy.get("seed") is not None:
        budget["seed"] = strategy["seed"]
    if strategy.get("stop_when_goals_met"):
        budget["stop_when_goals_met"] = True
    return budget


def data_settings(config: OliveConfig, remarks: Remarks) -> dict[str, JsonValue]:
    """Return the `data:` section: the data of the metrics, and those of the first pass that reads any."""
    by_latency: dict[bool, list[JsonValue]] = {True: [], False: []}
    for metric in map(flat, items(config.evaluator()[1].get("metrics"))):
        by_latency[metric.get("type") == "latency"].append(metric.get("data_config"))
    latency, quality = by_latency[True], by_latency[False]
    if INPUT_MODEL_DATA in config.data:
        latency.append(INPUT_MODEL_DATA)
    passes = itertools.chain.from_iterable(config.slots.values())
    calibration = [each.params.get("data_config") for each in passes if "Tuning" not in each.type]
    names = {"evaluation": _first(quality + latency), "calibration": _first(calibration), "latency": _first(latency)}
    result: dict[str, JsonValue] = {}
    for use, value in names.items():
        if value is None or (use != "evaluation" and value == names["evaluation"]):
            continue
        content = _data_config(config, value, remarks)
        if content:
            result[use] = content
    return result


def _first(values: Iterable[JsonValue]) -> JsonValue:
    return next((value for value in values if value is not None), None)


def _data_config(config: OliveConfig, value: JsonValue, remarks: Remarks) -> Section | None:
    """One data config; None, with a remark, if code or a library of Olive's reads the data."""
    fields = flat(value)
    if isinstance(value, str):
        fields = config.data.get(value, {})
    place = _place_of(config, value)
    load = flat(fields.get("load_dataset_config")) or fields
    script = fields.get("user_script")
    if load.get("data_name") and (load is fields or load.get("type", "") in _HUB_COMPONENTS):
        return _hub(load, fields, place, remarks)
    if "dummy" in str(fields.get("type")).lower():
        remarks.add(place, "random inputs are not data", "autoopt generates inputs itself where there is no data")
    elif script:
        remedy = "register the function with @register_load_dataset (docs/data.md), or save the data as .npz"
        remarks.add(place, f"the data that {script} loads is not converted", remedy)
    else:
        remarks.add(place, "the data is not converted", "save it as .npz, .csv or a folder, and set data.evaluation")
    return None


def _place_of(config: OliveConfig, value: JsonValue) -> Place:
    """The place of a data config, for remarks."""
    if value == INPUT_MODEL_DATA:
        return ("input_model",)
    names = [section(item).get("name") for item in items(config.root.get("data_configs"))]
    if isinstance(value, str) and value in names:
        return ("data_configs", names.index(value))
    return ("data_configs",)


def _hub(load: Section, fields: Section, place: Place, remarks: Remarks) -> Section:
    """A data set of the Hugging Face hub."""
    steps = flat(fields.get("pre_process_data_config"))
    columns = steps.get("input_cols", fields.get("input_cols"))
    stated: dict[str, JsonValue] = {
        "data_name": load["data_name"],
        "subset": load.get("subset"),
        "split": load.get("split"),
        "input_cols": list(items(columns)),
        "label_col": _first(items(steps.get("label_col", steps.get("label_cols", fields.get("label_cols"))))),
        "limit": _at_least(1, steps.get("max_samples", steps.get("size"))),
        "batch_size": _at_least(2, flat(fields.get("dataloader_config")).get("batch_size", fields.get("batch_size"))),
    }
    content = {name: value for name, value in stated.items() if value}
    step, script = str(steps.get("type") or ""), fields.get("user_script")
    if script and step and step not in (*_TEXT_STEPS, "skip_pre_process"):
        remedy = "register it with @register_pre_process (docs/data.md), or save the data as .npz"
        remarks.add(place, f"pre-processing {step!r} of {script} is not converted", remedy)
    elif columns:
        remedy = "for texts add pre_process: {type: tokenize, params: {tokenizer: tokenizer.json}}"
        remarks.add(place, "Olive pre-processes columns by the model's task", remedy)
    return content


def _at_least(least: int, value: JsonValue) -> int | None:
    """A number that is not below `least`; None for anything else."""
    return value if isinstance(value, int) and value >= least else None
