"""From PyTorch to ONNX: a model of the user's script, an exported program, or a model packaged by MLflow."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from autoopt.passes.base import Pass, Refused
from autoopt.passes.onnx_tools.quiet import quiet
from autoopt.registry import Param
from autoopt.space import Categorical

if TYPE_CHECKING:
    import torch
    from onnx import ModelProto


class TorchExport(Pass):
    """Exports a PyTorch model to ONNX; what a run does by itself where its source model is one.

    The model comes from a function of the user script (which returns the module, the module and its inputs, or an
    exported program), a file of `torch.export.save` (`.pt2`), or a folder of MLflow with one in it. The source model
    itself may be any of these; of a script, `model` and `example_inputs` are taken then. Nothing is ever unpickled.
    Attention fusion finds attention in what the `dynamo` exporter makes.
    """

    family = "convert"
    takes = "path"
    makes_model = True
    version = 2
    libraries = ("onnx", "onnxscript", "torch")
    extra = "torch"
    aliases = ("OnnxConversion", "export_pytorch")

    model: Annotated[Any, Param("object"), "function of the user script that returns the torch.nn.Module"] = None
    example_inputs: Annotated[Any, Param("object"), "function of the user script that returns a tuple of inputs"] = None
    exported_program: Annotated[str, Param("path"), "file of torch.export.save"] = ""
    mlflow_model: Annotated[str, Param("path"), "folder of a model that MLflow saved"] = ""
    exporter: Annotated[Literal["dynamo", "torchscript"], Categorical("dynamo", "torchscript"), "exporter"] = "dynamo"
    opset: Annotated[int, Categorical(18, 21, 23), "version of the ai.onnx operators"] = 18
    input_names: Annotated[list[str], "names of the inputs"] = []
    output_names: Annotated[list[str], "names of the outputs"] = []
    dynamic_batch: Annotated[bool, "leave the first dimension of every input open; an exported program has its own"] = (
        False
    )

    def run(self, model: Path) -> ModelProto:
        import torch

        from autoopt.model.io import load

        source, inputs = self._source(model)
        if self.exporter == "torchscript" and isinstance(source, torch.export.ExportedProgram):
            raise Refused("exporter torchscript does not take exported programs")
        made = self.context.work / "model.onnx"
        options: dict[str, Any] = {
            "opset_version": self.opset,
            "input_names": self.input_names or None,
            "output_names": self.output_names or None,
        }
        if self.dynamic_batch and not isinstance(source, torch.export.ExportedProgram):
            options |= self._open_batch(inputs)
        with quiet(), torch.no_grad():
            torch.onnx.export(source, inputs, str(made), dynamo=self.exporter == "dynamo", **options)
            if inputs:
                self._compare(source, inputs, made)
        return without_notes(load(made))

    def _compare(self, source: Any, inputs: tuple[torch.Tensor, ...], made: Path) -> None:
        """Compare the ONNX model with the PyTorch one on the example inputs.

        Raises:
            ValueError: they do not agree.
        """
        import torch

        from autoopt.model.io import parse
        from autoopt.passes.verification.equivalence import judge, run_once

        module = source.module() if isinstance(source, torch.export.ExportedProgram) else source
        wanted = torch.utils._pytree.tree_leaves(module(*inputs))
        tensors = [t for t in torch.utils._pytree.tree_leaves(inputs) if isinstance(t, torch.Tensor)]
        names = [value.name for value in parse(made).graph.input]
        if len(names) != len(tensors) or not all(isinstance(t, torch.Tensor) for t in wanted):
            return  # a signature of more than tensors: nothing to feed by position
        feeds = {name: tensor.detach().cpu().numpy() for name, tensor in zip(names, tensors, strict=True)}
        found = judge([t.detach().cpu().numpy() for t in wanted], run_once(made, feeds), self.tolerance)
        self.context.reports["conversion"] = {"compared_with": "PyTorch, on the example inputs", **found.to_json()}
        if found.status == "different":
            raise ValueError(f"the ONNX model differs from the PyTorch one: {found.reason}")

    def _source(self, given: Path) -> tuple[Any, tuple[torch.Tensor, ...]]:
        """The module or exported program, and its inputs.

        Raises:
            Refused: not exactly one source is given, or it holds more than a model.
        """
        from autoopt.model.mlflow import is_packaged, packaged_model
        from autoopt.passes.convert.torch_archive import load_program

        named = [name for name in ("model", "exported_program", "mlflow_model") if getattr(self, name)]
        if len(named) > 1:
            raise Refused(f"{' and '.join(named)} exclude each other")
        program = Path(self.exported_program) if self.exported_program else None
        if self.mlflow_model or (not named and is_packaged(given)):
            program = packaged_model(Path(self.mlflow_model) if self.mlflow_model else given)
        elif not named and given.suffix == ".pt2":
            program = given
        if program is None:
            return self._of_script()
        if program.suffix != ".pt2":
            raise Refused(f"{program.name} is no exported program (.pt2)")
        loaded = load_program(program, self.context.work)
        return loaded, _inputs_of(loaded)

    def _of_script(self) -> tuple[Any, tuple[torch.Tensor, ...]]:
        import torch
        from torch.export import ExportedProgram

        made = self.model or self.context.objects.get("model")
        inputs = self.example_inputs or self.context.objects.get("example_inputs")
        if made is None:
            remedy = "name a function of the user script in model, or a file in exported_program or mlflow_model"
            raise Refused(f"no PyTorch model is given; {remedy}")
        if not isinstance(made, (torch.nn.Module, ExportedProgram)):
            made = made()
        if isinstance(made, ExportedProgram):
            return made, _inputs_of(made)
        if isinstance(made, tuple) and len(made) == 2:
            made, inputs = made[0], inputs or made[1]
        if not isinstance(made, torch.nn.Module):
            raise Refused(f"model must give a torch.nn.Module or an exported program, not {type(made).__name__}")
        if inputs is None:
            raise Refused("example_inputs is needed: a function of the user script that returns a tuple of tensors")
        inputs = inputs() if callable(inputs) else inputs
        return made.eval(), tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)

    def _open_batch(self, inputs: tuple[torch.Tensor, ...]) -> dict[str, Any]:
        import torch

        if self.exporter == "dynamo":
            batch = torch.export.Dim("batch")
            return {"dynamic_shapes": tuple({0: batch} for _ in inputs)}
        names = self.input_names or [f"input_{i}" for i in range(len(inputs))]
        return {"input_names": names, "dynamic_axes": {name: {0: "batch"} for name in names}}


def _inputs_of(program: torch.export.ExportedProgram) -> tuple[torch.Tensor, ...]:
    return tuple(program.example_inputs[0]) if program.example_inputs else ()


def without_notes(model: ModelProto) -> ModelProto:
    """`model` without the exporter's notes, which hold paths and lines of the code it came from."""
    from autoopt.model.tensors import graphs, nodes, tensors

    for item in (model, *graphs(model), *nodes(model), *tensors(model)):
        item.ClearField("metadata_props")
        item.ClearField("doc_string")
    for graph in graphs(model):
        for value in (*graph.input, *graph.output, *graph.value_info):
            value.ClearField("metadata_props")
            value.ClearField("doc_string")
    for function in model.functions:
        function.ClearField("metadata_props")
        function.ClearField("doc_string")
    return model
