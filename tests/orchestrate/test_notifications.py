"""Messages as webhooks take them; a served zoo sends them in `test_orchestrate_serve.py`."""

from __future__ import annotations

import json

import pytest
from jinja2 import Environment

from autoopt.orchestrate.server.notifications import payload_of
from autoopt.spec.notify import Kind, NotifyAddress


@pytest.mark.parametrize("kind", ["slack", "teams", "webhook"])
def test_any_text_becomes_valid_json(kind: Kind) -> None:
    template = payload_of(NotifyAddress(kind, "https://example.com"), "title", "text")
    document = json.loads(Environment().from_string(template).render(title='a "night"', text="one\ntwo {{ x }}"))
    sent = json.dumps(document)
    assert 'a \\"night\\"' in sent
    assert "two {{ x }}" in sent
