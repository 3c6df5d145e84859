"""What the operating guide says is true."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from autoopt.cli.app import main
from autoopt.spec.zoo import load_zoo

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "zoos.md").read_text()


def example(name: str, language: str = "yaml") -> str:
    """The example that begins with `# file: name`."""
    found = re.search(rf"```{language}\n# file: {re.escape(name)}\n(.*?)```", GUIDE, re.DOTALL)
    assert found, name
    return found[1]


def test_the_zoo_of_the_guide_is_one() -> None:
    assert len(load_zoo(YAML(typ="safe").load(example("zoo.yaml"))).models) == 5


def test_pictures_are_there() -> None:
    for name in re.findall(r"\]\((images/[^)]+)\)", GUIDE):
        assert (ROOT / "docs" / name).stat().st_size < 100_000


def test_options_of_sweep_are_those_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    main(["sweep", "--help"])
    shown = capsys.readouterr().out
    for option in ("--only", "--resume", "--nightly", "--accept"):
        assert option in shown
        assert f"`{option}" in GUIDE


def test_systemd_takes_the_service(tmp_path: Path) -> None:
    verify = shutil.which("systemd-analyze")
    if verify is None:
        pytest.skip("there is no systemd-analyze")
    service = (ROOT / "scripts" / "systemd" / "autoopt.service").read_text()
    program = shutil.which("true")
    assert program is not None
    # systemd wants the program to exist; this machine has it elsewhere.
    unit = tmp_path / "autoopt.service"
    unit.write_text(service.replace("/srv/autoopt/venv/bin/autoopt", program))
    verified = subprocess.run([verify, "verify", str(unit)], capture_output=True, text=True, check=False)
    assert verified.returncode == 0
    # It may report other units of this machine.
    assert unit.name not in verified.stderr
