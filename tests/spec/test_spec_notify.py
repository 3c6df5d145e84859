"""Addresses that a zoo notifies."""

from __future__ import annotations

from pathlib import Path

import pytest

from autoopt.errors import ConfigError, InputError
from autoopt.spec.zoo import addresses_of, load_zoo


@pytest.mark.parametrize("text", ["https://example.com/x", "mailto://me:x@example.com?to=ops@example.com", "${HOOK}"])
def test_an_address_is_not_shown(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK", "https://example.com/y")
    [address] = addresses_of(load_zoo({"name": "z", "models": ["m"], "notify": text}).notified)
    assert address.get_secret_value() == text.replace("${HOOK}", "https://example.com/y")
    assert "example" not in repr(address)


@pytest.mark.parametrize("text", ["ops@example.com", "https://", "http://[/secret", "$", ""])
def test_other_texts_are_refused_and_not_shown(text: str, tmp_path: Path) -> None:
    file = tmp_path / "zoo.yaml"
    file.write_text(f'name: z\nmodels: [m]\nnotify: [https://example.com/x, "{text}"]\n')
    with pytest.raises(ConfigError, match=r"zoo.yaml:3: notify\[1\]: is no address; write \$VARIABLE") as refused:
        load_zoo(file)
    assert not text or text not in str(refused.value).partition("; write")[0]


def test_a_variable_must_be_set_and_hold_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"notify: \$NOWHERE is not set; write"):
        addresses_of(["$NOWHERE"])
    monkeypatch.setenv("NOWHERE", "secret")
    with pytest.raises(InputError, match=r"notify: \$NOWHERE is no address; write"):
        addresses_of(["$NOWHERE"])
