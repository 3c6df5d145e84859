"""Access to the server of `autoopt serve`: its password, and the web pages that may call its API."""

from __future__ import annotations

import ipaddress
import os
import secrets
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from autoopt.working_folder import replacing

PASSWORD_FILE = "prefect-password"
"""File in the home with the password that was made for the server, as `user:password`."""
USER = "autoopt"
UI_FILES = "PREFECT_UI_STATIC_DIRECTORY"
_ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def read_password(home: Path) -> str | None:
    """The password made for this home, as `user:password`; None if there is none."""
    try:
        return (home / PASSWORD_FILE).read_text().strip() or None
    except OSError:
        return None


def make_password(home: Path) -> str:
    """Make a password and keep it in the home, readable only by this user; returns `user:password`."""
    password = f"{USER}:{secrets.token_urlsafe(24)}"
    with replacing(home / PASSWORD_FILE, mode=0o600) as new:
        new.write_text(password + "\n")
    return password


def is_loopback(host: str) -> bool:
    """True if only this machine reaches the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def local_url(host: str, port: int) -> str:
    """URL of the pages of a server that listens on `host`, for this machine."""
    local = _ANY_ADDRESS.get(host, host)
    if ":" in local:
        local = f"[{local}]"
    return f"http://{local}:{port}"


def page_settings(folder: Path) -> dict[str, str]:
    """Prefect's setting that puts the files of its pages into a folder, if it cannot write where it is installed.

    It would start without pages there, with a line in its log.
    """
    installed = find_spec("prefect")
    if installed is None or os.access(Path(str(installed.origin)).parent / "server", os.W_OK):
        return {}
    return {UI_FILES: os.environ.get(UI_FILES, str(folder))}


def web_settings(pages: str, has_password: bool) -> dict[str, str]:
    """Prefect's settings that let only the server's own pages call the API from a browser.

    PREFECT_UI_URL may name another address of the pages. Without a password, requests that change something also need a
    token that only those pages can read.
    """
    address = urlsplit(pages)
    origins = [pages]
    if is_loopback((address.hostname or "").strip("[]")):
        origins += [f"http://127.0.0.1:{address.port}", f"http://localhost:{address.port}"]
    public = urlsplit(os.environ.get("PREFECT_UI_URL", ""))
    if public.netloc:
        origins.append(f"{public.scheme}://{public.netloc}")
    settings = {"PREFECT_SERVER_CORS_ALLOWED_ORIGINS": ",".join(dict.fromkeys(origins))}
    if not has_password:
        settings["PREFECT_SERVER_CSRF_PROTECTION_ENABLED"] = "true"
    return {name: os.environ.get(name, value) for name, value in settings.items()}  # what the user has set stays
