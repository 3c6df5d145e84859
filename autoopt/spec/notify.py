"""Addresses that a zoo notifies: Slack, Teams, webhooks, mail."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias
from urllib.parse import urlsplit

from autoopt.errors import InputError
from autoopt.spec.source import FieldError

Kind: TypeAlias = Literal["slack", "teams", "webhook", "mail"]
WEB_KINDS: Final[tuple[Kind, ...]] = ("slack", "teams", "webhook")
VARIABLE: Final = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)|\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
HOSTS: Final[tuple[tuple[str, Kind], ...]] = (
    ("hooks.slack.com", "slack"),
    ("hooks.slack-gov.com", "slack"),
    (".logic.azure.com", "teams"),
    (".powerplatform.com", "teams"),
    (".webhook.office.com", "teams"),
)
"""Ends of host names whose webhooks need no prefix."""
FORMS: Final = "write $VARIABLE, https://..., slack:https://..., teams:https://... or mailto://..."


@dataclass(frozen=True)
class NotifyAddress:
    """Address that messages go to. The URL is a secret: anyone who knows it can send messages."""

    kind: Kind
    url: str = field(repr=False)


def check_addresses(texts: Sequence[str]) -> None:
    """Check that texts are addresses or names of environment variables. An error does not show the text.

    Raises:
        FieldError: one is neither.
    """
    for index, text in enumerate(texts):
        if not VARIABLE.fullmatch(text) and _address(text) is None:
            raise FieldError("is no address", place=(index,) if len(texts) > 1 else (), remedy=FORMS)


def addresses_of(texts: Sequence[str]) -> list[NotifyAddress]:
    """Read addresses; those in environment variables are looked up.

    Raises:
        InputError: a variable is not set, or holds no address.
    """
    addresses = []
    for text in texts:
        match = VARIABLE.fullmatch(text)
        name = match and (match[1] or match[2])
        value = os.environ.get(name, "") if name else text
        address = _address(value)
        if address is None:
            reason = f"${name} is not set" if name and not value else f"{text} is no address"
            raise InputError(reason, where="notify", remedy=FORMS)
        addresses.append(address)
    return addresses


def _address(text: str) -> NotifyAddress | None:
    """Read one address; None if it is none."""
    prefix, _, rest = text.partition(":")
    for kind in WEB_KINDS:
        if prefix == kind:
            return NotifyAddress(kind, rest) if _is_web(rest) else None
    if prefix in ("mailto", "mailtos") and rest.startswith("//"):
        return NotifyAddress("mail", text)
    if not _is_web(text):
        return None
    host = urlsplit(text).hostname or ""
    for end, kind in HOSTS:
        if host.endswith(end):
            return NotifyAddress(kind, text)
    return NotifyAddress("webhook", text)


def _is_web(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)
