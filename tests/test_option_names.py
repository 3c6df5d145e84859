"""Options in messages: as options of the command line, and as arguments in Python."""

from __future__ import annotations

import pytest

from autoopt.option_names import option, speak_command_line, speak_python


@pytest.mark.parametrize(
    ("name", "value", "command", "argument"),
    [
        ("minutes", None, "--minutes", "minutes"),
        ("max_drop", 0.02, "--max-drop 0.02", "max_drop=0.02"),
        ("label", "my label", "--label 'my label'", "label='my label'"),
        ("grayscale", True, "--grayscale", "grayscale=True"),
        ("image_size", (224, 320), "--image-size 224x320", "image_size=(224, 320)"),
        ("mean", [0.5, 0.25], "--mean 0.5,0.25", "mean=[0.5, 0.25]"),
        ("inputs", {"ids": "a", "mask": "b"}, "--inputs ids=a,mask=b", "inputs={'ids': 'a', 'mask': 'b'}"),
        ("precision", "int8", "--precision int8", "proposal_options=ProposalOptions(precision='int8')"),
        (
            "keep_signature",
            True,
            "--set keep_signature=true",
            "proposal_options=ProposalOptions(keep_signature=True)",
        ),
    ],
)
def test_an_option_in_the_words_of_its_reader(name: str, value: object, command: str, argument: str) -> None:
    assert option(name, value) == command
    speak_python()
    assert option(name, value) == argument
    speak_command_line()
    assert option(name, value) == command


def test_what_stands_for_a_value() -> None:
    assert option("data", of="FILE") == "--data FILE"
    speak_python()
    assert option("data", of="FILE") == "data=FILE"
