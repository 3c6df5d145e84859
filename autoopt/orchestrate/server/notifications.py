"""Messages about nights that fail: Prefect automations with a block for each address."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from autoopt.orchestrate.server.heartbeats import absence_trigger
from autoopt.spec.notify import NotifyAddress

if TYPE_CHECKING:
    from prefect.events.actions import CallWebhook, SendNotification
    from prefect.events.schemas.automations import EventTrigger

FAILED, LOST = "autoopt: tell that {} failed", "autoopt: tell that {} does not continue"
"""Names of the automations of a deployment."""
LOST_SECONDS = 300
"""A night that has crashed and does not run again within this time does not continue by itself."""
SAME_NIGHT_HOURS = 12
"""A flow run that fails again within this time sends no further message, such as a night that two processes end."""
TITLE, BOTH, BOLD_TITLE_AND_TEXT, PARAGRAPHS = "@title", "@both", "@bold", "@paragraphs"
"""Places in the JSON of a webhook."""
CARD_SCHEMA: Final = "http://adaptivecards.io/schemas/adaptive-card.json"
FAILED_TITLE: Final = 'flow_run.name ~ " failed"'
FAILED_TEXT: Final = 'flow_run.state.message ~ "\\n" ~ (flow_run | ui_url)'
LOST_TITLE: Final = 'flow_run.name ~ " crashed and does not continue"'
LOST_TEXT: Final = '"No worker has continued it. Is the machine on?\\n" ~ (flow_run | ui_url)'


def notify_of(deployment: UUID, name: str, addresses: Sequence[NotifyAddress]) -> None:
    """Have the server send one message for each night of a deployment that fails or stays away after a crash.

    Replaces what was set up before; without addresses, nothing is sent any more.
    """
    from prefect.automations import Automation

    # Its methods are typed as coroutines, but run at once outside of an event loop.
    automations: Any = Automation
    for title in (FAILED.format(name), LOST.format(name)):
        with suppress(ValueError):
            automations.read(name=title).delete()
    prefix = f"autoopt-notify-{_slug(name)}"
    _delete_blocks(prefix)
    if not addresses:
        return
    blocks = [(address, _save_block(address, f"{prefix}-{number}")) for number, address in enumerate(addresses, 1)]
    runs = {"prefect.resource.role": "deployment", "prefect.resource.id": f"prefect.deployment.{deployment}"}
    lost = absence_trigger("Crashed", ("Running", "Completed", "Failed", "Cancelled", "Suspended"), LOST_SECONDS, runs)
    for title, trigger, subject, text in (
        (FAILED.format(name), _failed(runs), FAILED_TITLE, FAILED_TEXT),
        (LOST.format(name), lost, LOST_TITLE, LOST_TEXT),
    ):
        actions = [_action(address, block, subject, text) for address, block in blocks]
        description = f"to {', '.join(address.kind for address in addresses)}, as the zoo file says"
        automations(name=title, description=description, trigger=trigger, actions=actions).create()


def _failed(runs: dict[str, str]) -> EventTrigger:
    from prefect.events.schemas.automations import EventTrigger, Posture

    related: Any = runs  # Prefect's ResourceSpecification
    return EventTrigger(
        expect={"prefect.flow-run.Failed"},
        match={"prefect.resource.id": ["prefect.flow-run.*"]},
        match_related=related,
        for_each={"prefect.resource.id"},
        posture=Posture.Reactive,
        threshold=1,
        within=timedelta(hours=SAME_NIGHT_HOURS),
    )


def _save_block(address: NotifyAddress, name: str) -> UUID:
    """Store an address encrypted in the server; return the block's id."""
    from prefect.blocks.notifications import SlackWebhook
    from prefect.blocks.webhook import Webhook

    # Prefect's methods are typed as coroutines, too. Slack's block takes any address of Apprise, such as mailto.
    kind: Any = Webhook if address.kind != "mail" else SlackWebhook
    fields: dict[str, Any] = {"url": address.url}
    if address.kind != "mail":
        fields |= {"method": "POST", "headers": {"Content-Type": "application/json"}}
    identity: UUID = kind(**fields).save(name, overwrite=True)
    return identity


def _delete_blocks(prefix: str) -> None:
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        for document in client.read_block_documents(include_secrets=False):
            name = document.name or ""
            if name.rpartition("-")[0] == prefix:
                client.delete_block_document(document.id)


def _action(address: NotifyAddress, block: UUID, title: str, text: str) -> CallWebhook | SendNotification:
    """Send a message; `title` and `text` are expressions of Jinja."""
    from prefect.events.actions import CallWebhook, SendNotification

    if address.kind == "mail":
        return SendNotification(block_document_id=block, subject=f"{{{{ {title} }}}}", body=f"{{{{ {text} }}}}")
    return CallWebhook(block_document_id=block, payload=payload_of(address, title, text))


def payload_of(address: NotifyAddress, title: str, text: str) -> str:
    """The JSON of a webhook as a Jinja template; `title` and `text` are expressions of Jinja."""
    document: dict[str, object] = {"title": TITLE, "text": BOTH}
    if address.kind == "slack":
        document = {"text": BOLD_TITLE_AND_TEXT}
    elif address.kind == "teams":
        title_block = {"type": "TextBlock", "weight": "Bolder", "wrap": True, "text": TITLE}
        body = [title_block, {"type": "TextBlock", "wrap": True, "text": PARAGRAPHS}]
        card = {"$schema": CARD_SCHEMA, "type": "AdaptiveCard", "version": "1.4", "body": body}
        attachment = {"contentType": "application/vnd.microsoft.card.adaptive", "content": card}
        document = {"type": "message", "attachments": [attachment]}
    template = json.dumps(document)
    expressions = {
        TITLE: title,
        BOTH: f'{title} ~ "\\n" ~ {text}',
        BOLD_TITLE_AND_TEXT: f'"*" ~ {title} ~ "*\\n" ~ {text}',
        PARAGRAPHS: f'({text}) | replace("\\n", "\\n\\n")',  # only an empty line breaks a line in Teams
    }
    for placeholder, expression in expressions.items():
        template = template.replace(f'"{placeholder}"', f"{{{{ ({expression}) | tojson }}}}")
    return template


def _slug(name: str) -> str:
    """The name as Prefect allows it for blocks: lower-case letters, digits and dashes; unequal for unequal names."""
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    if plain == name:
        return plain
    escaped = "".join(f"{ord(letter):x}" for letter in name if not re.match(r"[a-z0-9]", letter))
    return f"{plain}-x{escaped}"
