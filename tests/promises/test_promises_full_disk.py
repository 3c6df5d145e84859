"""Disks that are full or read-only: one line, and afterwards everything goes on as if nothing had been.

The commands see small file systems in a mount namespace of their own, which nobody else sees.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from outside import RUN, Place, Said, answer, write_model

NAMESPACE = ("unshare", "--mount", "--map-root-user")


def can_mount() -> bool:
    try:
        command = [*NAMESPACE, "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


pytestmark = [
    pytest.mark.service,
    pytest.mark.skipif(not can_mount(), reason="needs mount namespaces (Linux, unshare)"),
]


class SmallDisk:
    """A file system on a folder, for the commands that `call` starts."""

    def __init__(self, place: Place, folder: Path, size: str):
        folder.mkdir(exist_ok=True)
        self.place, self.folder = place, folder
        command = [*NAMESPACE, "sh", "-c", f"mount -t tmpfs -o size={size} tmpfs '{folder}' && echo there && exec cat"]
        self.holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.holder.stdout.readline() == "there\n"
        enter = ("nsenter", "--target", str(self.holder.pid), "--user", "--mount", "--preserve-credentials")
        self.wrap = (*enter, "sh", "-c", f"cd '{place.folder}' && exec \"$@\"", "sh")

    def remount(self, options: str) -> None:
        """Change it, which works only if no command has left a file open for writing."""
        subprocess.run([*self.wrap, "mount", "-o", f"remount,{options}", str(self.folder)], check=True)

    def call(self, *arguments: str, codes: tuple[int, ...] = (0,)) -> Said:
        return self.place.call(*arguments, codes=codes, wrap=self.wrap)

    def close(self) -> None:
        self.holder.communicate()


@pytest.fixture(params=["home", "temporary", "out"])
def disk(request: pytest.FixtureRequest, place: Place) -> Iterator[SmallDisk]:
    write_model(place / "model.onnx", width=8192)  # half a megabyte
    folders = {"home": place.home, "temporary": place.temporary, "out": place / "out"}
    made = SmallDisk(place, folders[request.param], "300k")
    yield made
    made.close()


def test_a_full_disk_is_one_line_and_the_run_then_as_if_nothing_had_been(disk: SmallDisk) -> None:
    for size in ("300k", "600k", "1300k"):
        disk.remount(f"size={size}")
        said = disk.call(*RUN, codes=(0, 3))
        if said.code:
            *progress, last = said.err.splitlines()
            assert "full" in last or "No space left" in last
            assert all(line.startswith("[") for line in progress), said.err
    disk.remount("size=100m")
    document = disk.call(*RUN).document
    assert disk.call("store", "verify", "--json").document["ok"]
    roomy = disk.place.call(*RUN, "--out", "roomy", AUTOOPT_HOME=str(disk.place / "roomy-home")).document
    assert answer(document) == answer(roomy)


def test_a_store_on_a_read_only_disk_can_be_read(place: Place) -> None:
    disk = SmallDisk(place, place.home, "100m")
    try:
        disk.call(*RUN)
        disk.remount("ro")
        for words in (
            ("runs", "latest"),
            ("runs",),
            ("lineage",),
            ("report", "--out", "page.html"),
            ("store", "verify"),
        ):
            assert not disk.call(*words).err
        said = disk.call(*RUN, "--again", "all", codes=(3,))
        assert "ead-only" in said.err
        assert said.err.count("\n") == 1
    finally:
        disk.close()
