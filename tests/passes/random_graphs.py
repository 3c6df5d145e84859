"""Random graphs with adversarial constants: every piece takes one value of shape (2, 3) and makes another one of it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np
import onnx
from micro_models import made
from onnx import helper, numpy_helper

Rng: TypeAlias = np.random.Generator

OPSETS: Final = (13, 15, 17, 18, 21)
LENGTH: Final = 8
CONSTANTS: Final = (0, -0.0, 1, -1, 2, 0.5, 3, 6, 1 / 6, 1e-10, 1e-42, 1 + 2e-7, 0.1, np.inf, -np.inf, np.nan)
SHAPES: Final = ((), (1,), (3,), (2, 1), (1, 1))
UNARY: Final = (
    *("Relu", "Neg", "Abs", "Exp", "Log", "Sqrt", "Sigmoid", "Tanh", "Erf", "Floor", "Identity", "Reciprocal"),
    *("Sign", "Softplus", "Softmax", "Dropout", "Ceil", "Round", "LogSoftmax", "Hardmax", "Softsign", "Atan", "Sin"),
    *("Elu", "Selu", "LeakyRelu", "HardSigmoid", "ThresholdedRelu", "Celu"),
)
BINARY: Final = ("Add", "Sub", "Mul", "Div", "Max", "Min", "Pow", "Add", "Mul", "Div", "PRelu", "Sum", "Mean")
VIEWS: Final = (
    "{0}_t = Transpose ({x})\n {0} = Transpose ({0}_t)",
    "{0}_f = Reshape ({x}, flat)\n {0} = Reshape ({0}_f, shape)",
    "{0}_u = Unsqueeze ({x}, first)\n {0} = Squeeze ({0}_u, first)",
    "{0}_a, {0}_b = Split <axis = 1> ({x}, split)\n {0} = Concat <axis = -1> ({0}_a, {0}_b)",
    "{0}_c = Greater ({x}, one)\n {0} = Where ({0}_c, {x}, one)",
    "{0}_s = Slice ({x}, first, three, second)\n {0} = Add ({x}, {0}_s)",
    "{0}_f = Flatten ({x})\n {0}_d = Shape ({x})\n {0} = Reshape ({0}_f, {0}_d)",
    "{0}_d = Shape ({x})\n {0}_e = Expand (one, {0}_d)\n {0} = Mul ({x}, {0}_e)",
    "{0}_d = Shape ({x})\n {0}_e = ConstantOfShape ({0}_d)\n {0} = Add ({0}_e, {x})",
    "{0}_t = Tile ({x}, twos)\n {0} = Slice ({0}_t, zeros, shape, axes)",
    "{0}_g = Gather <axis = 1> ({x}, turned)\n {0} = Gather <axis = 1> ({0}_g, turned)",
    "{0}_p = Pad ({x}, pads)\n {0} = Slice ({0}_p, ones, ends, axes)",
    '{0}_p = Pad <mode = "reflect"> ({x}, pads)\n {0} = Slice ({0}_p, ones, ends, axes)',
    "{0} = Slice ({x}, last, before, axes, backward)",
    "{0}_l = Slice ({x}, first, one_i, second)\n {0}_r = Slice ({x}, one_i, three, second)\n"
    " {0} = Concat <axis = 1> ({0}_l, {0}_r)",
    "{0}_a, {0}_b, {0}_c = Split <axis = 1> ({x}, thirds)\n {0} = Concat <axis = 1> ({0}_b, {0}_a, {0}_c)",
    "{0}_r = Reshape ({x}, blocks)\n {0}_d = DepthToSpace <blocksize = 1> ({0}_r)\n {0} = Reshape ({0}_d, shape)",
    "{0} = CumSum ({x}, second_axis)",
    '{0} = Einsum <equation = "ij->ij"> ({x})',
    "{0} = Cast <to = 1> ({x})",
    "{0}_w = Cast <to = 11> ({x})\n {0} = Cast <to = 1> ({0}_w)",
    "{0}_h = Cast <to = 10> ({x})\n {0} = Cast <to = 1> ({0}_h)",
)
EMPTY: Final = (
    "{0}_n = Slice ({x}, first, first, second)\n {0} = Concat <axis = 1> ({0}_n, {x})",
    "{0}_n, {0}_a = Split <axis = 1> ({x}, nothing)\n {0}_m = Neg ({0}_n)\n {0} = Concat <axis = 1> ({0}_a, {0}_m)",
    "{0}_n = Slice ({x}, first, first, second)\n {0}_s = ReduceSum <keepdims = 1> ({0}_n, second)\n"
    " {0} = Sub ({x}, {0}_s)",
    "{0}_n = Slice ({x}, first, first, second)\n {0}_m = MatMul ({0}_n, empty)\n {0} = Add ({x}, {0}_m)",
    "{0}_d = Shape ({x})\n {0}_e = Slice ({0}_d, first, first)\n {0}_k = ConstantOfShape ({0}_e)\n"
    " {0} = Add ({x}, {0}_k)",
)
LOGIC: Final = (
    "{0}_c = Less ({x}, one)\n {0}_n = Not ({0}_c)\n {0}_m = Not ({0}_n)\n {0} = Where ({0}_m, {x}, one)",
    "{0}_c = Greater ({x}, one)\n {0}_e = And ({0}_c, yes)\n {0} = Cast <to = 1> ({0}_e)",
    "{0}_c = LessOrEqual ({x}, one)\n {0}_e = Or ({0}_c, yes)\n {0} = Where ({0}_e, {x}, one)",
    "{0}_c = GreaterOrEqual ({x}, one)\n {0}_e = Xor ({0}_c, yes)\n {0}_i = Cast <to = 7> ({0}_e)\n"
    " {0} = Cast <to = 1> ({0}_i)",
    "{0}_c = Equal ({x}, {x})\n {0} = Where ({0}_c, {x}, one)",
    "{0}_c = IsNaN ({x})\n {0} = Where ({0}_c, one, {x})",
    "{0}_c = IsInf ({x})\n {0} = Where ({0}_c, one, {x})",
    "{0}_b = Cast <to = 9> ({x})\n {0}_f = Cast <to = 1> ({0}_b)\n {0} = Mul ({0}_f, {x})",
    "{0}_i = ArgMax <axis = 1> ({x})\n {0}_c = Equal ({0}_i, first)\n {0} = Where ({0}_c, {x}, one)",
    "{0} = Where (yes, {x}, one)",
    "{0} = Where (mixed, {x}, one)",
)
INTEGERS: Final = (
    "{0}_i = ArgMin <axis = 1, keepdims = 0> ({x})\n {0}_o = OneHot (  {0}_i, depth, levels)\n {0} = Add ({x}, {0}_o)",
    "{0}_a = ArgMax <axis = 1> ({x})\n {0}_b = Add ({0}_a, first)\n {0}_d = Mul ({0}_b, one_i)\n"
    " {0}_e = Cast <to = 1> ({0}_d)\n {0} = Sub ({x}, {0}_e)",
    "{0}_a = ArgMax <axis = 1> ({x})\n {0}_b = Div ({0}_a, two_i)\n {0}_d = Mul ({0}_b, two_i)\n"
    " {0}_e = Cast <to = 1> ({0}_d)\n {0} = Sub ({x}, {0}_e)",
    "{0}_a = ArgMax <axis = 1> ({x})\n {0}_m = Mod ({0}_a, two_i)\n"
    " {0}_g = GatherElements <axis = 1> ({x}, {0}_m)\n {0} = Sub ({x}, {0}_g)",
    "{0}_v, {0}_i = TopK <axis = 1> ({x}, three)\n {0} = ScatterElements <axis = 1> ({x}, {0}_i, {0}_v)",
    "{0} = ScatterND ({x}, corner, seven)",
    "{0}_d = Shape ({x})\n {0}_n = Gather ({0}_d, first)\n {0}_f = Cast <to = 1> ({0}_n)\n {0} = Mul ({x}, {0}_f)",
    "{0}_n = NonZero (mixed)\n {0}_s = Shape ({0}_n)\n {0}_f = Cast <to = 1> ({0}_s)\n {0}_m = ReduceMax ({0}_f)\n"
    " {0} = Add ({x}, {0}_m)",
    "{0}_z = Size ({x})\n {0}_r = Range (zero_i, {0}_z, single_i)\n {0}_v = Reshape ({0}_r, shape)\n"
    " {0}_f = Cast <to = 1> ({0}_v)\n {0} = Add ({x}, {0}_f)",
    "{0}_e = EyeLike <dtype = 1> ({x})\n {0} = Add ({x}, {0}_e)",
)
LAYERS: Final = (
    "{0}_m = MatMul ({x}, square)\n {0} = Add ({0}_m, bias)",
    "{0} = Gemm ({x}, square, bias)",
    "{0} = Gemm <alpha = 0.5, beta = 2.0, transB = 1> ({x}, square, bias)",
    "{0}_m = MatMul ({x}, square)\n {0} = Mul ({0}_m, bias)",
    "{0}_m = MatMul ({x}, square)\n {0}_b = BatchNormalization ({0}_m, bias, bias, bias, spread)\n {0} = Relu ({0}_b)",
    "{0}_i = Reshape ({x}, image)\n {0}_c = Conv <pads = [0, 1, 0, 1]> ({0}_i, kernel, bias)\n"
    " {0}_b = BatchNormalization ({0}_c, bias, bias, bias, spread)\n {0}_n = Relu ({0}_b)\n"
    " {0} = Reshape ({0}_n, shape)",
    "{0}_i = Reshape ({x}, image)\n {0}_p = Pad ({0}_i, sides)\n {0}_c = Conv ({0}_p, kernel)\n"
    " {0}_a = Add ({0}_c, columns)\n"
    " {0}_m = Mul ({0}_a, columns)\n {0} = Reshape ({0}_m, shape)",
    "{0}_i = Reshape ({x}, image)\n {0}_c = ConvTranspose <pads = [0, 1, 0, 1]> ({0}_i, kernel)\n"
    " {0} = Reshape ({0}_c, shape)",
    "{0}_i = Reshape ({x}, image)\n {0}_p = MaxPool <kernel_shape = [1, 1]> ({0}_i)\n {0} = Reshape ({0}_p, shape)",
    "{0}_i = Reshape ({x}, image)\n {0}_p = AveragePool <kernel_shape = [1, 3], pads = [0, 1, 0, 1], "
    "count_include_pad = 1> ({0}_i)\n {0} = Reshape ({0}_p, shape)",
    "{0}_i = Reshape ({x}, image)\n {0}_g = GlobalAveragePool ({0}_i)\n {0}_s = Sub ({0}_i, {0}_g)\n"
    " {0} = Reshape ({0}_s, shape)",
    "{0}_i = Reshape ({x}, signal)\n {0}_n = InstanceNormalization ({0}_i, bias, bias)\n {0} = Reshape ({0}_n, shape)",
    "{0}_i = Reshape ({x}, image)\n {0}_n = LRN <size = 3> ({0}_i)\n {0} = Reshape ({0}_n, shape)",
    "{0} = LpNormalization ({x})",
    "{0}_i = Unsqueeze ({x}, first)\n {0}_y, {0}_h = GRU <hidden_size = 3> ({0}_i, gates, recurrence)\n"
    " {0} = Squeeze ({0}_h, first)",
    "{0}_i = Unsqueeze ({x}, first)\n {0}_y, {0}_h = LSTM <hidden_size = 3> ({0}_i, lstm_gates, lstm_recurrence)\n"
    " {0} = Squeeze ({0}_h, first)",
    "{0}_t = Transpose ({x})\n {0}_q = MatMul ({x}, {0}_t)\n {0}_s = Softmax ({0}_q)\n {0} = MatMul ({0}_s, {x})",
    "{0}_d = Div ({x}, root)\n {0}_e = Erf ({0}_d)\n {0}_a = Add ({0}_e, one)\n {0}_m = Mul ({x}, {0}_a)\n"
    " {0} = Mul ({0}_m, half)",
    "{0}_a = Sigmoid ({x})\n {0} = Mul ({x}, {0}_a)",
    "{0}_a = Add ({x}, three_f)\n {0}_c = Clip ({0}_a, zero, six)\n {0}_m = Mul ({x}, {0}_c)\n {0} = Div ({0}_m, six)",
    "{0}_e = Exp ({x})\n {0}_s = ReduceSum ({0}_e, second)\n {0} = Div ({0}_e, {0}_s)",
)
RESIZE_MODES: Final = (
    '<mode = "nearest">',
    '<mode = "linear">',
    '<mode = "cubic", coordinate_transformation_mode = "align_corners">',
    '<mode = "nearest", coordinate_transformation_mode = "asymmetric", nearest_mode = "floor">',
    '<mode = "linear", coordinate_transformation_mode = "pytorch_half_pixel">',
)
RESIZES: Final = (
    "{0}_i = Reshape ({x}, image)\n {0}_r = Resize {mode} ({0}_i, , scales)\n"
    " {0}_b = Resize {mode} ({0}_r, , , image)\n {0} = Reshape ({0}_b, shape)",
    "{0}_i = Reshape ({x}, image)\n {0}_r = Resize {mode} ({0}_i, , no_scale)\n {0} = Reshape ({0}_r, shape)",
)
QUANTIZED: Final = (
    "{0}_q = QuantizeLinear ({x}, tenth, zero_u8)\n {0} = DequantizeLinear ({0}_q, tenth, zero_u8)",
    "{0}_q = QuantizeLinear ({x}, tenth, zero_i8)\n {0}_r = Relu ({x})\n"
    " {0}_d = DequantizeLinear ({0}_q, tenth, zero_i8)\n"
    " {0} = Add ({0}_r, {0}_d)",
    "{0}_q, {0}_s, {0}_z = DynamicQuantizeLinear ({x})\n {0} = DequantizeLinear ({0}_q, {0}_s, {0}_z)",
    "{0}_q, {0}_s, {0}_z = DynamicQuantizeLinear ({x})\n {0}_m = MatMulInteger ({0}_q, bytes, {0}_z)\n"
    " {0}_f = Cast <to = 1> ({0}_m)\n {0} = Mul ({0}_f, {0}_s)",
    "{0}_w = DequantizeLinear (bytes, tenth, zero_i8)\n {0}_q = QuantizeLinear ({x}, tenth, zero_u8)\n"
    " {0}_d = DequantizeLinear ({0}_q, tenth, zero_u8)\n {0} = MatMul ({0}_d, {0}_w)",
    "{0}_q = QuantizeLinear ({x}, tenth, zero_u8)\n"
    " {0}_m = QLinearMatMul ({0}_q, tenth, zero_u8, bytes, tenth, zero_i8, "
    "tenth, zero_u8)\n {0} = DequantizeLinear ({0}_m, tenth, zero_u8)",
)
BODIES: Final = (
    "{0}_m = ReduceMax <keepdims = 0> ({x})\n {0}_c = Greater ({0}_m, one)\n"
    " {0} = If ({0}_c) <then_branch = {0}_then () => (float[2, 3] {0}_p) {{ {0}_k = Constant <value_float = 1.0> ()\n"
    " {0}_p = Mul ({x}, {0}_k) }}, else_branch = {0}_else () => (float[2, 3] {0}_q) {{ {0}_z = Identity ({x})\n"
    " {0}_q = Add ({0}_z, bias) }}>",
    "{0}_c = Equal (zero, one)\n"
    " {0} = If ({0}_c) <then_branch = {0}_then () => (float[2, 3] {0}_p) {{ {0}_p = Neg ({x}) }},"
    " else_branch = {0}_else () => (float[2, 3] {0}_q) {{ {0}_q = Mul ({x}, bias) }}>",
    "{0} = Loop (trips, , {x}) <body = {0}_body (int64 {0}_n, bool {0}_i, float[2, 3] {0}_v)"
    " => (bool {0}_o, float[2, 3] {0}_w) {{ {0}_o = Identity ({0}_i)\n {0}_e = Exp (bias)\n"
    " {0}_w = Add ({0}_v, {0}_e) }}>",
    "{0}_t = Loop (trips, , {x}) <body = {0}_body (int64 {0}_n, bool {0}_i, float[2, 3] {0}_v)"
    " => (bool {0}_o, float[2, 3] {0}_w) {{ {0}_o = Identity ({0}_i)\n {0}_f = Cast <to = 1> ({0}_n)\n"
    " {0}_w = Sub ({0}_v, {0}_f) }}>\n {0} = Mul ({0}_t, one)",
    "{0}_l, {0} = Scan <num_scan_inputs = 1, body = {0}_body (float[3] {0}_v, float[3] {0}_r)"
    " => (float[3] {0}_w, float[3] {0}_y) {{ {0}_w = Add ({0}_v, {0}_r)\n {0}_y = Mul ({0}_w, bias) }}> (bias, {x})",
)
CONSTANT_NODES: Final = (
    ("value_float", "0.5"), ("value_floats", "[0.5, 1.0, 0.0]"), ("value_int", "2"), ("value_ints", "[1, 0, 1]"),
    ("value", "float[3] {0.0, 1.0, 2.0}"),
)  # fmt: skip
FUNCTIONS: Final = """
<domain: "local", opset_import: ["": OPSET]> scaled (v, k) => (w) { h = Mul (v, k)
 o = Constant <value_float = 1.0> ()
 w = Add (h, o) }
<domain: "local", opset_import: ["": OPSET, "local": 1]> twice <slope: float = 0.5> (v) => (w) {
 a = LeakyRelu <alpha: float = @slope> (v)
 one = Constant <value_float = 1.0> ()
 w = local.scaled (a, one) }
"""
CALLS: Final = ("{0} = local.scaled ({x}, bias)", "{0} = local.twice <slope = 0.25> ({x})", "{0} = local.twice ({x})")
NEWER: Final = (
    (14, "{0} = HardSwish ({x})"),
    (14, "{0} = Trilu ({x})"),
    (14, "{0}_r = Reshape <allowzero = 1> ({x}, shape)\n {0} = Identity ({0}_r)"),
    (17, "{0} = LayerNormalization ({x}, bias, bias)"),
    (18, "{0} = Mish ({x})"),
    (20, "{0} = Gelu ({x})"),
    (20, '{0} = Gelu <approximate = "tanh"> ({x})'),
    (
        21,
        "{0}_i = Reshape ({x}, signal)\n {0}_n = GroupNormalization <num_groups = 3> ({0}_i, bias, bias)\n"
        " {0} = Reshape ({0}_n, shape)",
    ),
)
"""Pieces with the opset that brought their operator."""
WEIGHTS: Final[dict[str, Any]] = {
    "flat": np.array([-1]),
    "shape": np.array([2, 3]),
    "image": np.array([2, 3, 1, 1]),
    "signal": np.array([2, 3, 1]),
    "blocks": np.array([1, 1, 2, 3]),
    "first": np.array([0]),
    "split": np.array([1, 2]),
    "thirds": np.array([1, 1, 1]),
    "nothing": np.array([0, 3]),
    "second": np.array([1]),
    "three": np.array([3]),
    "twos": np.array([2, 2]),
    "zeros": np.array([0, 0]),
    "ones": np.array([1, 1]),
    "ends": np.array([3, 4]),
    "axes": np.array([0, 1]),
    "last": np.array([-1, -1]),
    "before": np.array([-9, -9]),
    "backward": np.array([-1, -1]),
    "pads": np.array([1, 1, 1, 1]),
    "sides": np.array([0, 0, 0, 1, 0, 0, 0, 1]),
    "turned": np.array([2, 1, 0]),
    "second_axis": np.array(1),
    "one_i": np.array([1]),
    "two_i": np.array([2]),
    "single_i": np.int64(1),
    "zero_i": np.int64(0),
    "depth": np.array([3]),
    "trips": np.int64(3),
    "levels": np.array([0, 1], np.float32),
    "corner": np.array([[1, 2]]),
    "seven": np.array([7], np.float32),
    "one": np.float32(1),
    "zero": np.float32(0),
    "six": np.float32(6),
    "three_f": np.float32(3),
    "half": np.float32(0.5),
    "root": np.float32(np.sqrt(2)),
    "tenth": np.float32(0.1),
    "zero_u8": np.uint8(128),
    "zero_i8": np.int8(0),
    "yes": np.bool_(True),
    "mixed": np.array([[True, False, True], [False, True, True]]),
    "square": np.array([[1, 0.5, 0], [-0.25, 1, 2], [0, 1e-3, -1]], np.float32),
    "bytes": np.array([[1, 2, 3], [-4, 5, 6], [7, -8, 9]], np.int8),
    "empty": np.zeros((0, 3), np.float32),
    "bias": np.array([0.5, -0.0, 1], np.float32),
    "spread": np.array([1, 0.25, 0], np.float32),
    "columns": np.array([[[1]], [[0.5]], [[-2]]], np.float32),
    "kernel": np.linspace(-1, 1, 27, dtype=np.float32).reshape(3, 3, 1, 3),
    "scales": np.array([1, 1, 2, 3], np.float32),
    "no_scale": np.ones(4, np.float32),
    "gates": np.linspace(-1, 1, 27, dtype=np.float32).reshape(1, 9, 3),
    "recurrence": np.linspace(1, -1, 27, dtype=np.float32).reshape(1, 9, 3),
    "lstm_gates": np.linspace(-1, 1, 36, dtype=np.float32).reshape(1, 12, 3),
    "lstm_recurrence": np.linspace(1, -1, 36, dtype=np.float32).reshape(1, 12, 3),
}
TABLES: Final = (VIEWS, EMPTY, LOGIC, INTEGERS, LAYERS, RESIZES, QUANTIZED, BODIES, CALLS)
REDUCTIONS: Final = (
    *("ReduceMean", "ReduceMax", "ReduceMin", "ReduceSum", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceLogSum"),
    *("ReduceLogSumExp", "ReduceSumSquare"),
)
AXES_AS_INPUT: Final = 18
"""Opset from which all reductions take their axes as an input; ReduceSum does since 13."""
SPARSE: Final = ("square", "bias")
SPARSE_SHARE: Final = 0.1


def chosen(rng: Rng, items: Any) -> Any:
    return items[int(rng.integers(len(items)))]


@dataclass
class _Writer:
    """Writes the pieces of one graph."""

    rng: Rng
    opset: int
    values: list[str] = field(default_factory=lambda: ["x"])
    weights: dict[str, Any] = field(default_factory=lambda: dict(WEIGHTS))

    def piece(self, name: str) -> str:
        """The text of a random piece that makes the value `name`."""
        x = chosen(self.rng, self.values[-2:])
        draw = self.rng.random()
        if draw < 0.2:
            text = f"{name} = {chosen(self.rng, UNARY)} ({x})"
        elif draw < 0.3:
            text = f"{name} = {chosen(self.rng, BINARY)} ({x}, {chosen(self.rng, self.values)})"
        elif draw < 0.45:
            text = self._with_constants(name, x)
        elif draw < 0.52:
            text = self._reduction(name, x)
        elif draw < 0.55:
            text = self._constant_node(name, x)
        elif draw < 0.6:
            text = self._newer(name, x)
        else:
            text = self._from_table(name, x)
        self.values.append(name)
        return text

    def _with_constants(self, name: str, x: str) -> str:
        bounds = [f"{name}_k", f"{name}_l"]
        is_clip = self.rng.random() < 0.25
        for bound in bounds:
            shape = () if is_clip else chosen(self.rng, SHAPES)
            self.weights[bound] = np.full(shape, chosen(self.rng, CONSTANTS), np.float32)
        if is_clip:
            return f"{name} = Clip ({x}, {', '.join(bounds)})"
        first, second = chosen(self.rng, BINARY[:10]), chosen(self.rng, BINARY)
        return f"{name}_h = {first} ({x}, {bounds[0]})\n {name} = {second} ({name}_h, {bounds[1]})"

    def _reduction(self, name: str, x: str) -> str:
        op = chosen(self.rng, REDUCTIONS)
        if self.opset >= AXES_AS_INPUT or op == "ReduceSum":
            reduced = f"{name}_m = {op} <keepdims = 1> ({x}, second)"
        else:
            reduced = f"{name}_m = {op} <axes = [-1]> ({x})"
        return f"{reduced}\n {name} = {chosen(self.rng, ('Sub', 'Add', 'Div'))} ({x}, {name}_m)"

    def _constant_node(self, name: str, x: str) -> str:
        attribute, value = chosen(self.rng, CONSTANT_NODES)
        constant = f"{name}_n = Constant <{attribute} = {value}> ()\n {name}_k = Cast <to = 1> ({name}_n)"
        return f"{constant}\n {name} = {chosen(self.rng, BINARY)} ({x}, {name}_k)"

    def _newer(self, name: str, x: str) -> str:
        since, text = chosen(self.rng, NEWER)
        if since > self.opset:
            return f"{name} = Relu ({x})"
        return str(text).format(name, x=x)

    def _from_table(self, name: str, x: str) -> str:
        text = str(chosen(self.rng, chosen(self.rng, TABLES)))
        return text.format(name, x=x, mode=chosen(self.rng, RESIZE_MODES))


def random_graph(rng: Rng) -> onnx.ModelProto:
    """A model with one input `x` of shape (2, 3), whose first dimension may be open, and two outputs."""
    opset = int(chosen(rng, OPSETS))
    writer = _Writer(rng, opset)
    text = "\n".join([writer.piece(f"v{number}") for number in range(LENGTH)])
    ends = ", ".join(f"float[2, 3] {value}" for value in writer.values[-2:])
    used = {name: value for name, value in writer.weights.items() if re.search(rf"\b{name}\b", text)}
    functions = FUNCTIONS.replace("OPSET", str(opset)) if "local." in text else ""
    domains = ', "local": 1' if functions else ""
    rows = chosen(rng, (2, "N"))
    model = made(
        f"g (float[{rows}, 3] x) => ({ends}) {{ {text} }}\n{functions}", opset=opset, domains=domains, ir=10, **used
    )
    for name in SPARSE:
        if name in used and rng.random() < SPARSE_SHARE:
            _make_sparse(model.graph, name)
    return model


def _make_sparse(graph: onnx.GraphProto, name: str) -> None:
    """Store an initializer as a sparse one, in place."""
    tensor = next(tensor for tensor in graph.initializer if tensor.name == name)
    dense = numpy_helper.to_array(tensor)
    positions = np.flatnonzero(dense)
    values = numpy_helper.from_array(dense.reshape(-1)[positions], name)
    indices = numpy_helper.from_array(positions.astype(np.int64))
    graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, dense.shape))
    graph.initializer.remove(tensor)
