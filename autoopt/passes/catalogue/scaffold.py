"""`autoopt passes new NAME`: a working pass of one's own, and its test, to start from."""

from __future__ import annotations

import keyword
from pathlib import Path
from string import Template
from typing import Final

from autoopt.errors import InputError
from autoopt.registry import registry

PASS: Final = Template('''"""A pass of my own; `user_script: $name.py` in dag.yaml makes it known."""

from typing import Annotated

from autoopt import Categorical, Pass, register


@register("$name")
class $cls(Pass):
    """Removes nodes of one type that hand their input on unchanged."""

    op_type: Annotated[str, Categorical("Identity", "Dropout"), "type of the nodes to remove"] = "Identity"

    def run(self, model):
        kept, renamed = [], {}
        outputs = {value.name for value in model.graph.output}
        for node in model.graph.node:
            node.input[:] = [renamed.get(name, name) for name in node.input]
            if node.op_type == self.op_type and node.output[0] not in outputs:
                renamed[node.output[0]] = node.input[0]
            else:
                kept.append(node)
        if not renamed:
            return None  # nothing to do
        del model.graph.node[:]
        model.graph.node.extend(kept)
        return model
''')


TEST: Final = Template('''from $name import $cls
from onnx import checker, parser

MODEL = """<ir_version: 8, opset_import: ["": 17]>
g (float[2, 4] x) => (float[2, 4] y) { a = Identity (x)\\n y = Relu (a) }"""


def test_removes_what_hands_on():
    made = $cls()(parser.parse_model(MODEL))
    checker.check_model(made, full_check=True)
    assert [node.op_type for node in made.graph.node] == ["Relu"]


def test_has_nothing_to_do_elsewhere():
    model = parser.parse_model(MODEL)
    assert $cls(op_type="Dropout")(model) is model
''')


def new_pass(name: str, folder: Path) -> list[Path]:
    """Write `NAME.py` and `test_NAME.py` into `folder`; the files written.

    Raises:
        InputError: the name is no Python name or that of a pass, a file of that name is there, or the folder is not.
    """
    if not name.isidentifier() or not name.islower() or keyword.iskeyword(name):
        raise InputError(f"{name!r} cannot be the name of a pass file", remedy="use lower-case letters, digits and _")
    if name in registry().names():
        raise InputError(f"there is a pass {name!r} already", remedy="choose another name")
    if not folder.is_dir():
        raise InputError("no such folder", where=str(folder))
    wanted = {folder / f"{name}.py": PASS, folder / f"test_{name}.py": TEST}
    for path in wanted:
        if path.exists():
            raise InputError("is there already", where=str(path))
    cls = "".join(part.capitalize() for part in name.split("_"))
    for path, template in wanted.items():
        path.write_text(template.substitute(name=name, cls=cls))
    return list(wanted)
