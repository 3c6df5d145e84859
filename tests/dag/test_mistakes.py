"""All mistakes of a DAG at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from autoopt.dag import check_dag, read_dag
from autoopt.errors import ConfigError
from autoopt.spec import load_dag


def mistakes(error: ConfigError) -> list[str]:
    """The mistakes without the name of the file."""
    return [str(each).partition("d.yaml:")[2] for each in (error, *error.others)]


def test_wrong_fields_do_not_hide_wrong_passes_and_parameters(tmp_path: Path) -> None:
    file = tmp_path / "d.yaml"
    file.write_text(
        "name: my dag\n"
        "passes:\n"
        "  a: {pass: simplfy}\n"
        "  b: {pass: static_quantization, params: {per_chanel: search}}\n"
        "  c: {pass: dynamic_quantization, parms: search}\n"
        "chains: [[a, b, d]]\n"
    )
    with pytest.raises(ConfigError) as caught:
        read_dag(str(file))
    assert mistakes(caught.value) == [
        "1: name: 'my dag' is not a valid name; use letters, digits, '.', '_', '-'",
        "3: passes.a.pass: unknown pass 'simplfy'; did you mean 'simplify'?",
        "4: passes.b.params.per_chanel: pass 'static_quantization' has no parameter 'per_chanel'; "
        "did you mean 'per_channel'?",
        "5: passes.c.parms: unknown field; did you mean 'params'?",
        "6: chains[0][2]: unknown node 'd'; known: a, b, c",
    ]


def test_passes_that_a_script_may_add_are_not_called_unknown(tmp_path: Path) -> None:
    file = tmp_path / "d.yaml"
    (tmp_path / "s.py").touch()
    file.write_text("name: x\nuser_script: s.py\npasses: {a: {pass: own}}\nchains: [[a, b]]\n")
    with pytest.raises(ConfigError) as caught:
        read_dag(str(file))
    assert mistakes(caught.value) == ["4: chains[0][1]: unknown node 'b'; known: a"]


def test_missing_files_are_told_with_wrong_fields(tmp_path: Path) -> None:
    file = tmp_path / "d.yaml"
    file.write_text(
        "name: x\nmodel: m.onnx\ndata: e.npz\nuser_script: s.py\nstages: [a]\npasses: {a: simplify}\nserch: {}\n"
    )
    for options, fields in (
        ({}, ["user_script"]),
        ({"model": True, "data": True}, ["model", "data.evaluation", "user_script"]),
    ):
        with pytest.raises(ConfigError) as caught:
            read_dag(str(file), **options)
        found = [mistake.partition(": no such file")[0] for mistake in mistakes(caught.value)]
        assert [line.partition(": ")[2] for line in found[:-1]] == fields
        assert found[-1].startswith("7: serch")


def test_missing_files_and_wrong_passes_are_told_together(tmp_path: Path) -> None:
    file = tmp_path / "d.yaml"
    file.write_text("name: x\nmodel: m.onnx\npasses: {a: simplfy}\nchains: [[a]]\ndata: {evaluation: e.npz}\n")
    spec = load_dag(str(file))
    with pytest.raises(ConfigError) as caught:
        check_dag(spec, model=True, data=True)
    lines = [mistake.partition(";")[0] for mistake in mistakes(caught.value)]
    assert lines == [
        "2: model: no such file: m.onnx",
        "3: passes.a.pass: unknown pass 'simplfy'",
        "5: data.evaluation: no such file: e.npz",
    ]
    with pytest.raises(ConfigError) as caught:
        check_dag(spec, model=False, data=False)
    assert not caught.value.others


def test_a_right_dag_is_read() -> None:
    spec = read_dag({"name": "x", "passes": {"a": "simplify"}, "chains": [["a"]]})
    assert read_dag(spec) is spec
    check_dag(spec, model=True, data=True)


def test_passes_that_another_host_may_have_are_not_called_unknown(tmp_path: Path) -> None:
    file = tmp_path / "d.yaml"
    file.write_text(
        "name: x\nhost: {type: python_env, python: /lab/python}\n"
        "passes: {a: {pass: own}, c: {pass: own, host: local}}\nchains: [[a, b]]\n"
    )
    with pytest.raises(ConfigError) as caught:
        read_dag(str(file))
    assert [mistake.partition(";")[0] for mistake in mistakes(caught.value)] == [
        "3: passes.c.pass: unknown pass 'own'",
        "4: chains[0][1]: unknown node 'b'",
    ]
