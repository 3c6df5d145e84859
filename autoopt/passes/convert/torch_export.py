"""PyTorch to ONNX: a model of the user's script, an exported program, or a model packaged by MLflow."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from autoopt.model.io import load, parse
from autoopt.model.packaged_models import is_packaged, packaged_model
from autoopt.model.tensors import graphs, nodes, tensors
from autoopt.passes.base import Pass, Refused, SourceFile
from autoopt.passes.convert.torch_archive import load_program
from autoopt.passes.onnx_tools.libraries import quiet
from autoopt.passes.patches.exact_rules import make_rules_exact
from autoopt.passes.verification.equivalence import run_once
from autoopt.passes.verification.output_comparison import compare_outputs
from autoopt.registry import Minimum, Param
from autoopt.space import Categorical

if TYPE_CHECKING:
    import torch
    from onnx import ModelProto

    Source: TypeAlias = torch.nn.Module | torch.export.ExportedProgram
    Tensors: TypeAlias = tuple[torch.Tensor, ...]


class TorchExport(Pass):
    """Exports a PyTorch model to ONNX. A run does so by itself if its source model is a PyTorch one.

    The model comes from a function of the user script (returning the module, the module and its inputs, or an
    exported program), a file of `torch.export.save` (`.pt2`), or an MLflow folder that holds such a file. The source
    model itself may be any of these; of a script, `model` and `example_inputs` are then used. Nothing is ever
    unpickled. Attention fusion recognizes attention in the output of the `dynamo` exporter.
    """

    version = 3
    libraries = ("onnx", "onnxscript", "torch")
    aliases = ("export_pytorch",)

    model: Annotated[Any, Param("object"), "function of the user script that returns the torch.nn.Module"] = None
    example_inputs: Annotated[Any, Param("object"), "function of the user script that returns a tuple of inputs"] = None
    exported_program: Annotated[str, Param("path"), "file of torch.export.save"] = ""
    mlflow_model: Annotated[str, Param("path"), "folder of a model that MLflow saved"] = ""
    exporter: Annotated[Literal["dynamo", "torchscript"], Categorical("dynamo", "torchscript"), "exporter"] = "dynamo"
    opset: Annotated[int, Minimum(1), Categorical(18, 21, 23), "version of the ai.onnx operators"] = 18
    input_names: Annotated[list[str], "names of the inputs"] = []
    output_names: Annotated[list[str], "names of the outputs"] = []
    dynamic_batch: Annotated[
        bool, "leave the first dimension of every input open; an exported program has its own dimensions"
    ] = False

    def run(self, model: SourceFile) -> ModelProto:
        import torch

        source, inputs = self._load_source(model)
        is_program = isinstance(source, torch.export.ExportedProgram)
        if self.exporter == "torchscript" and is_program:
            raise Refused("exporter torchscript does not take exported programs")
        target = self.context.work / "model.onnx"
        options: dict[str, object] = {
            "opset_version": self.opset,
            "input_names": self.input_names or None,
            "output_names": self.output_names or None,
        }
        if self.dynamic_batch and not is_program:
            options |= self._open_batch(inputs)
        make_rules_exact()  # the exporter applies onnxscript's optimizer
        with quiet(), torch.no_grad():
            torch.onnx.export(source, inputs, str(target), dynamo=self.exporter == "dynamo", **options)
            if inputs:
                self._compare_with_source(source, inputs, target)
        return strip_exporter_notes(load(target))

    def _compare_with_source(self, source: Source, inputs: Tensors, path: Path) -> None:
        """Compare the ONNX model with the PyTorch one on the example inputs."""
        import torch

        module = source.module() if isinstance(source, torch.export.ExportedProgram) else source
        leaves = torch.utils._pytree.tree_leaves
        expected = leaves(module(*inputs))
        tensors = list(filter(torch.is_tensor, leaves(inputs)))
        names = [value.name for value in parse(path).graph.input]
        if len(names) != len(tensors) or not all(map(torch.is_tensor, expected)):
            return  # the signature has more than tensors, so inputs cannot be matched by position
        feeds = {name: tensor.detach().cpu().numpy() for name, tensor in zip(names, tensors, strict=True)}
        arrays = [tensor.detach().cpu().numpy() for tensor in expected]
        result = compare_outputs(arrays, run_once(path, feeds), self.tolerance)
        self.context.reports["conversion"] = {"compared_with": "PyTorch, on the example inputs", **result.to_json()}
        if result.status == "different":
            raise ValueError(f"the ONNX model differs from the PyTorch one: {result.reason}")

    def _load_source(self, model: Path) -> tuple[Source, Tensors]:
        """Load the module or exported program, and its example inputs."""
        sources = [name for name in ("model", "exported_program", "mlflow_model") if getattr(self, name)]
        if len(sources) > 1:
            raise Refused(f"{' and '.join(sources)} exclude each other")
        program = self._program_file(model)
        if program is None:
            return self._load_from_script()
        if program.suffix != ".pt2":
            raise Refused(f"{program.name} is not an exported program (.pt2)")
        loaded = load_program(program, self.context.work)
        return loaded, _inputs_of(loaded)

    def _program_file(self, model: Path) -> Path | None:
        """The file of the exported program; None if the user script makes the model."""
        if self.exported_program:
            return Path(self.exported_program)
        if self.mlflow_model:
            return packaged_model(Path(self.mlflow_model))
        if self.model:
            return None
        if is_packaged(model):
            return packaged_model(model)
        if model.suffix == ".pt2":
            return model
        return None

    def _load_from_script(self) -> tuple[Source, Tensors]:
        import torch
        from torch.export import ExportedProgram

        source: Any = self.model or self.context.objects.get("model")
        inputs: Any = self.example_inputs or self.context.objects.get("example_inputs")
        if source is None:
            remedy = "name a function of the user script in model, or a file in exported_program or mlflow_model"
            raise Refused(f"no PyTorch model is given; {remedy}")
        if not isinstance(source, (torch.nn.Module, ExportedProgram)):
            source = source()
        if isinstance(source, ExportedProgram):
            return source, _inputs_of(source)
        if isinstance(source, tuple) and len(source) == 2:
            source, own_inputs = source
            inputs = inputs or own_inputs
        if not isinstance(source, torch.nn.Module):
            raise Refused(f"model must return a torch.nn.Module or an exported program, not {type(source).__name__}")
        return source.eval(), _as_tuple(inputs)

    def _open_batch(self, inputs: Tensors) -> dict[str, object]:
        """Options of the exporter that leave the first dimension of every input open."""
        import torch

        if self.exporter == "dynamo":
            batch = torch.export.Dim("batch")
            return {"dynamic_shapes": tuple({0: batch} for _ in inputs)}
        names = self.input_names or [f"input_{position}" for position in range(len(inputs))]
        return {"input_names": names, "dynamic_axes": {name: {0: "batch"} for name in names}}


def _as_tuple(inputs: Any) -> Tensors:  # noqa: ANN401  an object of the user script
    if inputs is None:
        raise Refused("example_inputs is required: a function of the user script that returns a tuple of tensors")
    if callable(inputs):
        inputs = inputs()
    if not isinstance(inputs, (tuple, list)):
        inputs = (inputs,)
    return tuple(inputs)


def _inputs_of(program: torch.export.ExportedProgram) -> Tensors:
    if not program.example_inputs:
        return ()
    return tuple(program.example_inputs[0])


def strip_exporter_notes(model: ModelProto) -> ModelProto:
    """Remove the exporter's notes, in place. They hold paths and lines of the user's code."""
    annotated = [model, *graphs(model), *nodes(model), *tensors(model), *model.functions]
    for graph in graphs(model):
        annotated += [*graph.input, *graph.output, *graph.value_info]
    for item in annotated:
        item.ClearField("metadata_props")
        item.ClearField("doc_string")
    return model
