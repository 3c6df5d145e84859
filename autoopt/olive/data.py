"""Olive's data configs as `data:`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from autoopt.json_codec import JsonValue
from autoopt.olive.config import INPUT_MODEL_DATA, OliveConfig, Remarks, Section, flat, items, section
from autoopt.spec.source import Place

_HUB_COMPONENTS: Final = ("huggingface_dataset", "load_dataset", "")
_TEXT_STEPS: Final = (
    "huggingface_pre_process",
    "ner_huggingface_preprocess",
    "text_generation_huggingface_pre_process",
)


def data_settings(config: OliveConfig, remarks: Remarks) -> dict[str, JsonValue]:
    """Return the `data:` section: the data of the metrics, and those of the first pass that reads any."""
    quality: list[JsonValue] = []
    latency: list[JsonValue] = []
    for metric in map(flat, items(config.evaluator()[1].get("metrics"))):
        named = latency if metric.get("type") == "latency" else quality
        named.append(metric.get("data_config"))
    calibration: list[JsonValue] = []
    for passes in config.slots.values():
        calibration += [each.params.get("data_config") for each in passes if "Tuning" not in each.type]
    if INPUT_MODEL_DATA in config.data:
        latency.append(INPUT_MODEL_DATA)
    names = {"evaluation": _first(quality + latency), "calibration": _first(calibration), "latency": _first(latency)}
    result: dict[str, JsonValue] = {}
    for use, value in names.items():
        is_repeated = use != "evaluation" and value == names["evaluation"]
        content = None if value is None or is_repeated else _convert(config, value, remarks)
        if content:
            result[use] = content
    return result


def _first(values: Iterable[JsonValue]) -> JsonValue:
    return next((value for value in values if value is not None), None)


def _convert(config: OliveConfig, value: JsonValue, remarks: Remarks) -> Section | None:
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
    }
    content = {name: value for name, value in stated.items() if value}
    count = steps.get("max_samples", steps.get("size"))
    if isinstance(count, int) and count > 0:
        content["limit"] = count
    batch = flat(fields.get("dataloader_config")).get("batch_size", fields.get("batch_size"))
    if isinstance(batch, int) and batch > 1:
        content["batch_size"] = batch
    step, script = str(steps.get("type") or ""), fields.get("user_script")
    if script and step and step not in (*_TEXT_STEPS, "skip_pre_process"):
        remedy = "register it with @register_pre_process (docs/data.md), or save the data as .npz"
        remarks.add(place, f"pre-processing {step!r} of {script} is not converted", remedy)
    elif columns:
        remedy = "for texts add pre_process: {type: tokenize, params: {tokenizer: tokenizer.json}}"
        remarks.add(place, "Olive pre-processes columns by the model's task", remedy)
    return content
