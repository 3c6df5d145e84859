"""Kinds of file systems, and durable writing."""

from __future__ import annotations

from pathlib import Path

import pytest

from autoopt.errors import InputError
from autoopt.store.filesystem import NETWORK, filesystem_of, refuse_network_filesystem, sync

MOUNTS = """\
/dev/sda1 / ext4 rw 0 0
server:/home /home nfs4 rw 0 0
/dev/sdb1 /home/me/local\\040disk xfs rw 0 0
//server/share /homes cifs rw 0 0
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/x", "ext4"),
        ("/home/me/x", "nfs4"),
        ("/home/me/local disk/x", "xfs"),
        ("/homes/x", "cifs"),
        ("/homely", "ext4"),
    ],
)
def test_the_deepest_mount_decides_the_file_system(path: str, kind: str) -> None:
    assert filesystem_of(Path(path), MOUNTS) == kind
    if kind in NETWORK:
        with pytest.raises(InputError, match=f"network file system {kind}; set AUTOOPT_HOME"):
            refuse_network_filesystem(Path(path), MOUNTS)
    else:
        refuse_network_filesystem(Path(path), MOUNTS)


def test_files_and_folders_can_be_made_durable(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"content")
    sync(file)
    sync(tmp_path)
    with pytest.raises(FileNotFoundError):
        sync(tmp_path / "gone")
