"""Addresses that a zoo notifies: webhooks, and everything else that Apprise knows, such as mail."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

from pydantic import SecretStr

from autoopt.errors import InputError
from autoopt.spec.source import FieldError

VARIABLE: Final = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)|\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
FORMS: Final = "write $VARIABLE, https://... or mailto://..."


def check_addresses(texts: Sequence[str]) -> None:
    """Check that texts are addresses or names of environment variables. An error does not show the text.

    Raises:
        FieldError: one is neither.
    """
    for index, text in enumerate(texts):
        if not VARIABLE.fullmatch(text) and not _is_address(text):
            raise FieldError("is no address", place=(index,) if len(texts) > 1 else (), remedy=FORMS)


def addresses_of(texts: Sequence[str]) -> list[SecretStr]:
    """Read addresses, which are secrets: anyone who knows one can send messages. Those in variables are looked up.

    Raises:
        InputError: a variable is not set, or holds no address.
    """
    addresses = []
    for text in texts:
        match = VARIABLE.fullmatch(text)
        name = match and (match[1] or match[2])
        address = os.environ.get(name, "") if name else text
        if not _is_address(address):
            reason = f"${name} is not set" if name and not address else f"{text} is no address"
            raise InputError(reason, where="notify", remedy=FORMS)
        addresses.append(SecretStr(address))
    return addresses


def _is_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return "://" in text and bool(parts.scheme) and bool(parts.hostname)
