"""`autoopt passes new NAME`: a working pass and its test, written from a template."""

from __future__ import annotations

import keyword
from pathlib import Path
from string import Template
from typing import Final

from autoopt.errors import InputError
from autoopt.registry import registry

PASS: Final = Template('''"""A custom pass. To use it, set `user_script: $name.py` in dag.yaml."""

from typing import Annotated

from autoopt import Categorical, Pass, register


@register("$name")
class $class_name(Pass):
    """Removes nodes of one type that return their input unchanged."""

    op_type: Annotated[str, Categorical("Identity", "Dropout"), "type of the nodes to remove"] = "Identity"

    def run(self, model):
        remaining, renamed = [], {}
        outputs = {value.name for value in model.graph.output}
        for node in model.graph.node:
            node.input[:] = [renamed.get(name, name) for name in node.input]
            if node.op_type == self.op_type and node.output[0] not in outputs:
                renamed[node.output[0]] = node.input[0]
            else:
                remaining.append(node)
        if not renamed:
            return None  # nothing to do
        del model.graph.node[:]
        model.graph.node.extend(remaining)
        return model
''')
TEST: Final = Template('''from $name import $class_name
from onnx import checker, parser

MODEL = """<ir_version: 8, opset_import: ["": 17]>
g (float[2, 4] x) => (float[2, 4] y) { a = Identity (x)\\n y = Relu (a) }"""


def test_removes_nodes_that_return_their_input():
    result = $class_name()(parser.parse_model(MODEL))
    checker.check_model(result, full_check=True)
    assert [node.op_type for node in result.graph.node] == ["Relu"]


def test_leaves_other_models_unchanged():
    model = parser.parse_model(MODEL)
    assert $class_name(op_type="Dropout")(model) is model
''')


def new_pass(name: str, folder: Path) -> list[Path]:
    """Write `NAME.py` and `test_NAME.py` into `folder`; returns both files.

    Raises:
        InputError: the name is not a lower-case Python name or belongs to a pass, the folder does not exist, or a file
            of that name does.
    """
    if not name.isidentifier() or not name.islower() or keyword.iskeyword(name):
        raise InputError(f"{name!r} cannot name a pass file", remedy="use lower-case letters, digits and _")
    if name in registry().names():
        raise InputError(f"pass {name!r} already exists", remedy="choose another name")
    if not folder.is_dir():
        raise InputError("no such folder", where=str(folder))
    files = {folder / f"{name}.py": PASS, folder / f"test_{name}.py": TEST}
    for path in files:
        if path.exists():
            raise InputError("already exists", where=str(path), remedy="choose another name or folder")
    class_name = "".join(part.capitalize() for part in name.split("_"))
    for path, template in files.items():
        path.write_text(template.substitute(name=name, class_name=class_name))
    return list(files)
