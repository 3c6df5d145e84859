"""Looking things up by their id or the beginning of it."""

from __future__ import annotations

from collections.abc import Sequence

from autoopt.errors import InputError


def require_single_match(what: str, name: str, matches: Sequence[str], where: str) -> None:
    """Refuse a name that stands for nothing or for several things.

    Args:
        what: The kind of thing, as a user calls it.
        name: The id, or beginning of an id, that was looked up.
        matches: The ids that it stands for.
        where: The store that was searched.

    Raises:
        InputError: `matches` does not hold exactly one id.
    """
    if not matches:
        raise InputError(f"there is no {what} {name!r} in the store", where=where)
    if len(matches) > 1:
        # Four more digits nearly always make the choice clear.
        beginnings = ", ".join(match[: len(name) + 4] for match in matches)
        raise InputError(f"{what} {name!r} is ambiguous", remedy=f"give more of it: {beginnings}")
