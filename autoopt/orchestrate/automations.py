"""Prefect automations: flow runs that died are marked as crashed, and a zoo's nights that fail are reported.

All of it is stock Prefect: read and change it in the server's pages.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from autoopt.spec.notify import NotifyAddress

if TYPE_CHECKING:
    from prefect.events.schemas.automations import EventTrigger

CRASH: Final = "autoopt: crash flow runs without a heartbeat"
SILENT_SECONDS: Final = 90
"""A flow run that sent heartbeats, one each 30 s, and is silent for this long has died."""
FLOWS: Final = ("optimize_model", "tune_chain", "nightly_sweep")
TAG: Final = "autoopt"
"""Tag of all flow runs of autoopt."""
NIGHT_HOURS: Final = 12
"""A night that fails again within this time sends no further message."""
SUBJECT: Final = "{{ flow_run.name }}: {{ flow_run.state.name }}"
JSON: Final = {
    "webhook": {"title": "{{subject}}", "text": "{{subject}}\n{{body}}"},
    "slack": {"text": "*{{subject}}*\n{{body}}"},  # as Mattermost takes it, too
}
"""The documents that webhooks receive."""
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


def notify(deployment: UUID, name: str, addresses: Sequence[NotifyAddress]) -> None:
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


def _save_block(address: NotifyAddress, name: str) -> UUID:
    """Store an address encrypted in the server; return the block's id."""
    from prefect.blocks.notifications import CustomWebhookNotificationBlock, MicrosoftTeamsWebhook, SlackWebhook

    block: Any
    if address.kind in JSON:
        secrets = {"address": address.url}
        block = CustomWebhookNotificationBlock.model_validate(
            {"name": name, "url": "{{address}}", "json_data": JSON[address.kind], "secrets": secrets}
        )
    elif address.kind == "teams":
        block = MicrosoftTeamsWebhook.model_validate({"url": address.url})
    else:  # this block takes any address of Apprise, such as mailto
        block = SlackWebhook.model_validate({"url": address.url})
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
