"""Olive's passes as nodes of the pass graph, with their parameters by the names and values of autoopt's passes.

`parameters.txt` is the table of parameters; its head says what a line means.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Final, TypeAlias

from autoopt.errors import InputError
from autoopt.json_codec import JsonValue
from autoopt.olive.config import OliveConfig, OlivePass, Remarks, Section, section
from autoopt.registry import PassInfo, registry
from autoopt.registry.compat import Answer, answer
from autoopt.spec.source import Place
from autoopt.spec.strict_model import check_name

Chain: TypeAlias = tuple[str, ...]
"""Node ids that stand for one pass of Olive's, one after the other."""

_TABLE: Final = Path(__file__).with_name("parameters.txt")
_SILENT: Final = ("data_config", "evaluator", "host", "disable_search", "quant_mode", "quant_preprocess", "output_name")
"""Parameters that other parts of the conversion read."""
_OWN_SEARCH: Final = "SEARCHABLE_VALUES"
_OWN_DEFAULT: Final = "DEFAULT_VALUE"
_EXPORTS: Final = ("onnxconversion", "optimumconversion")
_RESOLVED: Final = ("OnnxDynamicQuantization", "OnnxQuantization", "OnnxPeepholeOptimizer", "DynamicToFixedShape")
"""Passes whose remark says what the conversion does by itself."""
_SEARCHED: Final = ("quantization", "quantizer")
"""Ends of the names of passes whose parameters Olive searches unless they are set."""
_TUNES_ITSELF: Final = "session_tuning"
"""The pass for those of Olive's that try session options themselves, also without a search strategy."""
_WITHOUT_EFFECT: Final = {
    "transformer_fusion": ("float16", "keep_io_types", "force_fp32_ops"),
    "dynamic_quantization": (
        "calibrate_method",
        "quant_format",
        "activation_type",
        "activation_symmetric",
        "ActivationSymmetric",
    ),
}
"""Parameters of Olive's that a pass does not need."""


@dataclass
class Graph:
    """Nodes by id, and for each slot of Olive's the paths that are its alternatives."""

    nodes: dict[str, JsonValue] = field(default_factory=dict)
    slots: dict[str, list[Chain]] = field(default_factory=dict)

    def add(self, node: str, pass_name: str, params: dict[str, JsonValue], search: bool = False) -> str:
        """Add a node; returns its id, which is `node` without characters that node ids cannot have."""
        name = "".join(letter if letter.isalnum() or letter in "._-" else "_" for letter in node)
        check_name(name)
        content: dict[str, JsonValue] = {"pass": pass_name}
        if params:
            content["params"] = params
        if search:
            content["search"] = "all"
        self.nodes[name] = content
        return name

    def fields(self, flows: Sequence[Sequence[str]]) -> dict[str, JsonValue]:
        """Return `passes` and one graph: `stages` if the slots form one chain of single nodes, else `chains`."""
        alternatives = [paths for paths in self.slots.values() if any(paths)]
        if not flows and all(map(_is_stage, alternatives)):
            return {"passes": self.nodes, "stages": list(_stages(alternatives))}
        chains = list(dict.fromkeys(self._chains(flows or [list(self.slots)])))
        used = set(itertools.chain.from_iterable(chains))
        passes = {node: content for node, content in self.nodes.items() if node in used}
        return {"passes": passes, "chains": [list[JsonValue](chain) for chain in chains]}

    def _chains(self, flows: Sequence[Sequence[str]]) -> Iterator[Chain]:
        """Yield every combination of alternatives of the slots of each flow, without empty chains."""
        for flow in flows:
            alternatives = [self.slots[slot] for slot in flow if self.slots.get(slot)]
            for paths in itertools.product(*alternatives):
                chain = tuple(itertools.chain.from_iterable(paths))
                if chain:
                    yield chain


def _is_stage(paths: list[Chain]) -> bool:
    """Tell if these alternatives are one path, or single nodes."""
    return len(paths) == 1 or all(len(path) == 1 for path in paths)


def _stages(alternatives: list[list[Chain]]) -> Iterator[JsonValue]:
    for paths in alternatives:
        if len(paths) == 1:
            yield from paths[0]
        else:
            yield [node for path in paths for node in path]


def graph_of(config: OliveConfig, remarks: Remarks) -> Graph:
    """Convert all passes; those without an equivalent are left out, each with a remark."""
    graph = Graph()
    for slot, passes in config.slots.items():
        graph.slots[slot] = []
        for index, each in enumerate(passes):
            name = slot
            if len(passes) > 1:
                name = f"{slot}_{index + 1}"
            graph.slots[slot] += _paths(graph, name, each, config, remarks)
    if not config.flows:
        _drop_repetitions(graph, remarks)
    return graph


def _drop_repetitions(graph: Graph, remarks: Remarks) -> None:
    """Leave out a node if a pass that it conflicts with stands in every chain before it."""
    passed: dict[str, str] = {}
    for slot, paths in graph.slots.items():
        if len(paths) != 1:
            continue
        for node in paths[0]:
            pass_name = str(section(graph.nodes[node])["pass"])
            earlier = [passed[name] for name in registry().info(pass_name).conflicts if name in passed]
            if earlier:
                what = f"is left out: {pass_name} conflicts with {earlier[0]}"
                remarks.add(("passes", slot), what, f"to try both, make them one stage: [{earlier[0]}, {node}]")
                paths[0] = tuple(other for other in paths[0] if other != node)
                del graph.nodes[node]
            passed.setdefault(pass_name, node)


def _paths(graph: Graph, name: str, each: OlivePass, config: OliveConfig, remarks: Remarks) -> Iterator[Chain]:
    """The alternatives that one pass of Olive's stands for."""
    equivalent = _equivalent(each, remarks)
    if equivalent is None:
        return
    names = _choose(each, equivalent, config)
    if equivalent.remark and equivalent.name not in _RESOLVED:
        remarks.add(each.place, f"{each.type} becomes {' or '.join(names)}: {equivalent.remark}")
    searched = config.search is not None and not each.params.get("disable_search")
    searched = (searched and each.type.lower().endswith(_SEARCHED)) or _TUNES_ITSELF in names
    for pass_name in names:
        node = name
        if len(names) > 1:
            node = f"{name}_{pass_name.removesuffix('_quantization')}"
        params = {**equivalent.presets, **_params(each, pass_name, remarks)}
        path = _before(graph, name, each, pass_name, remarks)
        path += (graph.add(node, pass_name, params, searched),)
        yield path + _after(graph, name, each, remarks)


def _equivalent(each: OlivePass, remarks: Remarks) -> Answer | None:
    """The passes that stand for a pass of Olive's; None, with a remark, if it is left out."""
    if each.type.lower() in _EXPORTS:
        remarks.add(each.place, f"{each.type} is left out", "autoopt takes the exported model")
        return None
    try:
        equivalent = answer(each.type)
    except InputError:
        remarks.add(each.place, f"no pass {each.type!r}", "'autoopt passes list' shows all; it is left out")
        return None
    if not equivalent.passes:
        remarks.add(each.place, f"{each.type} is left out: {equivalent.remark}")
        return None
    if equivalent.example:
        remedy = f"add a node with {' or '.join(equivalent.passes)}, see 'autoopt passes show {equivalent.passes[0]}'"
        remarks.add(each.place, f"{each.type} is left out: its parameters are not portable", remedy)
        return None
    return equivalent


def _choose(each: OlivePass, equivalent: Answer, config: OliveConfig) -> tuple[str, ...]:
    """The passes that stand for one; several are alternatives."""
    if "fix_dim_param" in equivalent.passes:
        if "dim_param" in each.params:
            return ("fix_dim_param",)
        return ("fix_input_shape",)
    return _quantizations(each, equivalent.passes, config)


def _quantizations(each: OlivePass, names: tuple[str, ...], config: OliveConfig) -> tuple[str, ...]:
    """The one of the alternatives that the mode or the precision chooses; all of them where neither does."""
    if {"static_quantization", "dynamic_quantization"}.issubset(names):
        mode = each.params.get("quant_mode")
        if mode is None and config.search is None:
            mode = "static"
        if mode in ("static", "dynamic"):
            return (f"{mode}_quantization",)
    precision = each.params.get("precision")
    if precision and {"static_quantization", "calibrated_weight_quantization"}.issubset(names):
        if precision == "int4":
            return ("calibrated_weight_quantization",)
        return ("static_quantization",)
    return names


def _params(each: OlivePass, pass_name: str, remarks: Remarks) -> dict[str, JsonValue]:
    fields = dict(each.params)
    for name in _WITHOUT_EFFECT.get(pass_name, ()):
        fields.pop(name, None)
    if pass_name == "fix_dim_param":
        fields = _dimensions(each)[-1]
    elif pass_name == "fix_input_shape":
        names, shapes = fields.get("input_name"), fields.get("input_shape")
        if isinstance(names, Sequence) and isinstance(shapes, Sequence):
            fields = {"shapes": dict(zip(map(str, names), shapes, strict=False))}
    elif pass_name == "transformer_fusion":
        fields.update(_fusions(section(fields.pop("optimization_options", None))))
    elif pass_name == "calibrated_weight_quantization" and fields.get("precision") == "int4":
        del fields["precision"]
    fields["recipes"] = _other_recipes(each)
    return parameters(registry().info(pass_name), fields, each.place, remarks)


def _fusions(options: Section) -> dict[str, JsonValue]:
    """Parameters of `transformer_fusion` for onnxruntime's options; those that are on stay so without a parameter."""
    own = ("enable_gelu", "enable_gelu_approximation", "use_multi_head_attention")
    fields = {name: value for name, value in options.items() if name in own}
    disabled: list[JsonValue] = []
    for name, value in options.items():
        if value is False and name not in own and name.startswith("enable_"):
            disabled.append(name.removeprefix("enable_"))
    if disabled:
        fields["disabled_fusions"] = disabled
    return fields


def _other_recipes(each: OlivePass) -> Section:
    """The recipes of neural-compressor besides smooth quantization, which becomes a node."""
    recipes = section(each.params.get("recipes"))
    return {name: value for name, value in recipes.items() if not name.startswith("smooth_quant")}


def _dimensions(each: OlivePass) -> list[dict[str, JsonValue]]:
    """Parameters of `fix_dim_param` for each open dimension that the pass fixes; at least one."""
    names, sizes = (_as_list(each.params.get(name)) for name in ("dim_param", "dim_value"))
    return [{"dim_param": name, "value": size} for name, size in itertools.zip_longest(names, sizes)]


def _as_list(value: JsonValue) -> Sequence[JsonValue]:
    if isinstance(value, Sequence) and not isinstance(value, str) and value:
        return value
    return [value]


def _before(graph: Graph, name: str, each: OlivePass, pass_name: str, remarks: Remarks) -> Chain:
    """Nodes for all dimensions but the last, for smooth quantization, and for `quant_preprocess`.

    Static quantization gets the latter anyway.
    """
    if pass_name == "fix_dim_param":
        info, dimensions = registry().info(pass_name), _dimensions(each)[:-1]
        return tuple(
            graph.add(f"{name}_{fields['dim_param']}", pass_name, parameters(info, fields, each.place, remarks))
            for fields in dimensions
        )
    recipes = section(each.params.get("recipes"))
    if recipes.get("smooth_quant") and pass_name == "static_quantization":
        alpha = section(recipes.get("smooth_quant_args")).get("alpha")
        params = parameters(registry().info("smooth_quant"), {"alpha": alpha}, each.place, remarks)
        return (graph.add(f"{name}_smooth", "smooth_quant", params),)
    if each.params.get("quant_preprocess") and pass_name == "dynamic_quantization":
        return (graph.add(f"{name}_pre", "quant_pre_process", {}),)
    return ()


def _after(graph: Graph, name: str, each: OlivePass, remarks: Remarks) -> Chain:
    """A node for `float16: true` of the fusion of transformers."""
    if each.params.get("float16") is not True:
        return ()
    fields: dict[str, JsonValue] = {
        "keep_io_types": each.params.get("keep_io_types"),
        "op_block_list": each.params.get("force_fp32_ops"),
    }
    params = parameters(registry().info("float16"), fields, each.place, remarks)
    return (graph.add(f"{name}_float16", "float16", params),)


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
    rows = [row for row in _TABLE.read_text(encoding="utf-8").splitlines() if row and not row.startswith("#")]
    for row in rows:
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
