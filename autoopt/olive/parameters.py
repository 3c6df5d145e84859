"""Parameters of Olive's passes by the names and values of autoopt's passes.

A line of the table is `parameter of Olive | parameter of autoopt | values as JSON`. A parameter that has the same name
and values in both needs no line. `-` in place of a parameter means that autoopt needs none, and the rest of the line
says why.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from autoopt.errors import InputError
from autoopt.json_codec import JsonValue
from autoopt.olive.config import Remarks, Section, section
from autoopt.registry import PassInfo
from autoopt.spec.source import Place

_TABLE: Final = r"""
precision | weight_type | {"int8": "QInt8", "uint8": "QUInt8"}
weight_type | weight_type | {"int8": "QInt8", "uint8": "QUInt8"}
activation_type | activation_type | {"int8": "QInt8", "uint8": "QUInt8", "int16": "QInt16", "uint16": "QUInt16"}
op_types_to_quantize | op_types |
MatMulConstBOnly | matmul_const_b_only |
ActivationSymmetric | activation_symmetric |
WeightSymmetric | weight_symmetric |
CalibMovingAverage | moving_average |
sym | is_symmetric |
symmetric | is_symmetric |
group_size | block_size |
algorithm | algorithm | {"DEFAULT": "default", "RTN": "rtn", "HQQ": "hqq", "AWQ": "awq", "GPTQ": "gptq"}
model_type | model_type | {"TRANSFORMER": "transformer"}
execution_mode_list | execution_mode | {"ORT_SEQUENTIAL": "sequential", "ORT_PARALLEL": "parallel"}
opt_level_list | graph_optimization_level | {"0": "disable", "1": "basic", "2": "extended", "99": "all"}
inter_thread_num_list | inter_op_num_threads |
intra_thread_num_list | intra_op_num_threads |
op_block_list | op_block_list |
save_format | file_format |
use_int4 | signed |
lm_head | head_bits | {"true": 0, "false": 32}
embeds | - | embedding_bits has the number of bits for embeddings
use_transpose_op | - | weights are stored as MatMul reads them
add_zero_point | - | zero points are always stored
optional_inputs | defaults | {"true": "empty", "false": "none"}
make_inputs | - | the weights of an adapter always become inputs
dynamic_lora_r | - | the rank of these inputs is always open
adapter_type | - | adapters of all types are extracted
save_as_external_data | - | autoopt stores large weights beside the model itself
all_tensors_to_one_file | - | autoopt stores large weights beside the model itself
external_data_name | - | autoopt stores large weights beside the model itself
size_threshold | - | autoopt stores large weights beside the model itself
convert_attribute | - | autoopt stores large weights beside the model itself
providers_list | - | list the execution providers in targets
device | - | target names the device
io_bind | - | session_tuning searches io_binding where the provider is CUDA
input_names | - | the model has its inputs, and data their values
input_shapes | - | the model has its inputs, and data their values
input_types | - | the model has its inputs, and data their values
only_onnxruntime | - | transformer_fusion of engine onnxruntime has opt_level
batch_size | - | data configs have batch_size
dataloader_func | - | data.calibration is the data of all passes
func_kwargs | - | data.calibration is the data of all passes
data_dir | - | data.calibration is the data of all passes
user_script | - | data.calibration is the data of all passes
max_drop | - | the limit of a run is a constraint: {metric: accuracy, max_drop: 0.01}
drop_type | - | max_drop of a constraint is absolute; min_ratio is relative
validation_func | - | the metrics of the run judge all passes
metric | - | the metrics of the run judge all passes
recipes | - | smooth_quant is the only one that becomes a node of its own
"""
_SILENT: Final = ("data_config", "evaluator", "host", "disable_search", "quant_mode", "quant_preprocess", "output_name")
"""Parameters that other parts of the conversion read."""
_OWN_SEARCH: Final = "SEARCHABLE_VALUES"
_OWN_DEFAULT: Final = "DEFAULT_VALUE"


@dataclass(frozen=True)
class _Line:
    """One line of the table."""

    name: str
    values: Mapping[str, JsonValue]
    reason: str = ""
    """The reason for which autoopt has no such parameter, if it has none."""


@lru_cache(maxsize=1)
def _lines() -> Mapping[str, _Line]:
    lines = {}
    for row in _TABLE.strip().splitlines():
        olive, name, rest = (part.strip() for part in f"{row} ".split(" | "))
        if name == "-":
            lines[olive] = _Line("", {}, rest)
        else:
            lines[olive] = _Line(name, json.loads(rest or "{}"))
    return lines


def parameters(info: PassInfo, params: Section, place: Place, remarks: Remarks) -> dict[str, JsonValue]:
    """Return the parameters of autoopt's pass for those of Olive's; a remark for each that it does not have."""
    result: dict[str, JsonValue] = {}
    names = [parameter.name for parameter in info.parameters]
    fields = dict(params)
    extra = section(fields.pop("extra_options", None))
    for name, value in {**fields, **extra}.items():
        if value is None or name in _SILENT:
            continue
        line = _lines().get(name, _Line(name, {}))
        here = (*place, name)
        if line.reason:
            if value:
                remarks.add(here, "is left out", line.reason)
            continue
        if line.name not in names:
            remarks.add(
                here, f"is left out: {info.name} has no such parameter", f"see 'autoopt passes show {info.name}'"
            )
            continue
        try:
            result[line.name] = _setting(info, line, value)
        except InputError as error:
            remarks.add(here, f"is left out: {error.what}", error.remedy)
    return result


def _setting(info: PassInfo, line: _Line, value: JsonValue) -> JsonValue:
    """A parameter as dag.yaml writes it.

    Raises:
        InputError: the parameter cannot have this value.
    """
    if value == _OWN_SEARCH:
        return "search"
    if value == _OWN_DEFAULT:
        return "default"
    values = _search_values(info, line, value)
    if values is None:
        return _value(info, line, value)
    converted = [_value(info, line, item) for item in values]
    if len(converted) == 1:
        return converted[0]
    return {"search": converted}


def _search_values(info: PassInfo, line: _Line, value: JsonValue) -> Sequence[JsonValue] | None:
    """The values to search; None if the value is a single one."""
    fields = section(value)
    if fields.get("olive_parameter_type") == "SearchParameter":
        support = fields.get("support")
        if fields.get("type") != "Categorical" or not isinstance(support, Sequence):
            raise InputError(f"searches {fields.get('type')} values", remedy="write {search: [...]} in dag.yaml")
        return support
    if not isinstance(value, Sequence) or isinstance(value, str) or not value:
        return None
    if info.parameter(line.name).check(value) is None:
        return None  # the parameter itself is a list
    return value


def _value(info: PassInfo, line: _Line, value: JsonValue) -> JsonValue:
    """One value of a parameter."""
    parameter = info.parameter(line.name)
    converted = value
    if isinstance(value, str):
        converted = line.values.get(value, value)
    elif isinstance(value, int):
        converted = line.values.get(json.dumps(value), value)
    reason = parameter.check(converted)
    if reason:
        raise InputError(f"{line.name} {reason}")
    return converted
