"""Prefect automations: flow runs that died are marked as crashed, and a zoo's nights that fail are reported.

All of it is stock Prefect: read and change it in the server's pages.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit
from uuid import UUID

from pydantic import SecretStr

from autoopt.orchestrate.names import TAG

if TYPE_CHECKING:
    from prefect.events.schemas.automations import EventTrigger

CRASH: Final = "autoopt: crash flow runs without a heartbeat"
SILENT_SECONDS: Final = 90
"""A flow run that sent heartbeats, one each 30 s, and is silent for this long has died."""
FLOWS: Final = ("optimize_model", "tune_chain", "nightly_sweep")
NIGHT_HOURS: Final = 12
"""A night that fails again within this time sends no further message."""
SUBJECT: Final = "{{ flow_run.name }}: {{ flow_run.state.name }}"
JSON: Final = {"text": "{{subject}}\n{{body}}"}
"""The document that webhooks receive, as Slack, Mattermost and Google Chat take it."""
TEAMS: Final = (".logic.azure.com", ".powerplatform.com")
"""Ends of the hosts of webhooks that take other documents, which Apprise knows."""
BODY: Final = "{{ flow_run.state.message }}\n{{ flow_run | ui_url }}"


def ensure_crash_automation() -> None:
    """Have the server mark autoopt's flow runs as crashed that fall silent; an existing automation stays as it is."""
    from prefect.client.schemas.objects import StateType
    from prefect.events.actions import ChangeFlowRunState
    from prefect.events.schemas.automations import EventTrigger, Posture

    if _read(CRASH) is not None:
        return
    events = ("heartbeat", "Completed", "Failed", "Crashed", "Cancelled", "Paused", "Suspended")
    related: Any = [  # Prefect's ResourceSpecification
        {"prefect.resource.role": "flow", "prefect.resource.name": list(FLOWS)},
        {"prefect.resource.role": "tag", "prefect.resource.id": f"prefect.tag.{TAG}"},
    ]
    trigger = EventTrigger(
        after={"prefect.flow-run.heartbeat"},
        expect={f"prefect.flow-run.{name}" for name in events},
        match={"prefect.resource.id": ["prefect.flow-run.*"]},
        match_related=related,
        for_each={"prefect.resource.id"},
        posture=Posture.Proactive,
        threshold=1,
        within=timedelta(seconds=SILENT_SECONDS),
    )
    message = f"no heartbeat for {SILENT_SECONDS} s: its process or machine has died"
    crash = ChangeFlowRunState(name=None, state=StateType.CRASHED, message=message, force=False)
    _create(CRASH, trigger, [crash])


def notify(deployment: UUID, name: str, addresses: Sequence[SecretStr]) -> None:
    """Have the server send a message for each flow run of a deployment that fails or crashes.

    Replaces what was set up before under the same name; without addresses, nothing is sent any more.
    """
    from prefect.events.actions import SendNotification
    from prefect.events.schemas.automations import EventTrigger, Posture

    title = f"autoopt: tell that {name} failed"
    existing = _read(title)
    if existing is not None:
        existing.delete()
    if not addresses:
        return
    related: Any = {"prefect.resource.role": "deployment", "prefect.resource.id": f"prefect.deployment.{deployment}"}
    trigger = EventTrigger(
        expect={"prefect.flow-run.Failed", "prefect.flow-run.Crashed"},
        match={"prefect.resource.id": ["prefect.flow-run.*"]},
        match_related=related,
        for_each={"prefect.resource.id"},
        posture=Posture.Reactive,
        threshold=1,
        within=timedelta(hours=NIGHT_HOURS),
    )
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower())
    blocks = [_save_block(address, f"autoopt-notify-{slug}-{number}") for number, address in enumerate(addresses, 1)]
    _create(title, trigger, [SendNotification(block_document_id=one, subject=SUBJECT, body=BODY) for one in blocks])


def _save_block(address: SecretStr, name: str) -> UUID:
    """Store an address encrypted in the server; return the block's id."""
    from prefect.blocks.notifications import CustomWebhookNotificationBlock, SlackWebhook

    url = urlsplit(address.get_secret_value())
    block: Any
    if url.scheme in ("http", "https") and not str(url.hostname).endswith(TEAMS):
        fields = {"name": name, "url": "{{address}}", "json_data": JSON, "secrets": {"address": url.geturl()}}
        block = CustomWebhookNotificationBlock.model_validate(fields)
    else:  # this block takes any address of Apprise
        block = SlackWebhook.model_validate({"url": url.geturl()})
    identity: UUID = block.save(name, overwrite=True)
    return identity


def _read(name: str) -> Any:  # noqa: ANN401  Prefect types the synchronous methods of Automation as coroutines
    """The automation of that name; None if there is none."""
    from prefect.automations import Automation

    try:
        return Automation.read(name=name)
    except ValueError:
        return None


def _create(name: str, trigger: EventTrigger, actions: list[Any]) -> None:
    from prefect.automations import Automation

    automation: Any = Automation(name=name, trigger=trigger, actions=actions)
    automation.create()
