"""The registry of data components."""

from __future__ import annotations

import pytest

from autoopt.data import register_dataloader, register_load_dataset, register_post_process, register_pre_process
from autoopt.data.config import BUILT_IN, component
from autoopt.errors import InputError


@pytest.mark.parametrize(("kind", "name"), [(k, n) for k, names in BUILT_IN.items() for n in names])
def test_every_built_in_component_can_be_imported(kind, name):
    assert callable(component(kind, name))


@pytest.mark.parametrize(
    ("kind", "register"),
    [
        ("load_dataset", register_load_dataset),
        ("pre_process", register_pre_process),
        ("post_process", register_post_process),
        ("dataloader", register_dataloader),
    ],
)
def test_a_registered_function_is_found_by_kind_and_name(kind, register):
    name = f"mine of {kind}"

    @register(name)
    def function():
        """Do nothing."""

    assert component(kind, name) is function
    with pytest.raises(InputError, match="unknown"):
        component("post_process" if kind != "post_process" else "dataloader", name)


def test_an_unknown_component_is_refused_with_the_nearest():
    with pytest.raises(InputError, match="unknown pre_process 'reshpe'; did you mean 'reshape'"):
        component("pre_process", "reshpe")
    with pytest.raises(InputError, match="known: default, shuffle"):
        component("dataloader", "zzzzzz")


def test_built_in_names_cannot_be_registered():
    with pytest.raises(InputError, match="pre_process 'cast' is registered twice"):
        register_pre_process("cast")(lambda data: data)


def test_a_reloaded_script_registers_again_but_another_may_not():
    source = "def twin(data): return data"
    for file, refused in (("one.py", False), ("one.py", False), ("two.py", True)):
        space = {}
        exec(compile(source, file, "exec"), space)
        if refused:
            with pytest.raises(InputError, match="registered twice"):
                register_pre_process("twin")(space["twin"])
        else:
            register_pre_process("twin")(space["twin"])
            assert component("pre_process", "twin") is space["twin"]
