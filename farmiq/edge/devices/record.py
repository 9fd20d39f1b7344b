"""What devices say of themselves, recorded inside the door's one transaction (C-81)."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from farmiq.edge import losses
from farmiq.edge.arrival import Arrival
from farmiq.edge.devices import command, liveness, store
from farmiq.edge.devices.entry import Device
from farmiq.edge.devices.liveness import Said
from farmiq.messages import device as words
from farmiq.messages import ids
from farmiq.messages.bus import BusEvent
from farmiq.plumbing import db, log


async def statuses(tx: db.Connection, arrivals: Sequence[Arrival]) -> list[BusEvent]:
    """Keep how devices say they are; the cloud is owed the changes, not the heartbeats (C-103)."""
    by_device: dict[store.Key, list[Arrival]] = defaultdict(list)
    for one in arrivals:
        by_device[one.place.tenant_id, one.place.device_id].append(one)
    now, lives = await store.lives(tx, sorted(by_device))
    owed: list[BusEvent] = []
    for key in sorted(by_device):
        life = lives.get(key)
        for one in by_device[key]:
            before, said = life, one.payload
            life = liveness.heard(before, said=said.state, event_id=one.event.event_id, now=now)
            if before is life:
                continue
            await store.keep_status(tx, key, life, said)
            if before is None or before.told_state != said.state:
                owed.append(one.event)
    return owed


async def dropped(tx: db.Connection, arrivals: Sequence[Arrival]) -> list[BusEvent]:
    """What devices had to drop goes on the loss ledger (C-83)."""
    return await losses.enter(tx, [one.event for one in arrivals])


async def answers(tx: db.Connection, arrivals: Sequence[Arrival]) -> list[BusEvent]:
    """What became of commands. A device speaks of its own commands only; the cloud sent none."""
    for one in arrivals:
        key = one.place.tenant_id, one.place.device_id
        said: words.DeviceCommandAnswered = one.payload
        command_id = _uuid(said.command_id)
        state = await store.command_state(tx, command_id, key) if command_id else None
        if command_id is None or state is None:
            log.get("edge-devices-registry").info(
                "devices.answer_to_no_command", event_id=str(one.event.event_id)
            )
        elif command.answered(state, said.outcome) != state:
            message = said.message if isinstance(said.message, str) else None
            await store.keep_answer(tx, command_id, outcome=said.outcome, message=message)
    return []


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


def status_event(
    device: Device,
    state: Said,
    *,
    last_seen_at: datetime,
    now: datetime,
    revoked: bool | None = None,
) -> BusEvent:
    """The edge's own word that a device's state changed; the same change has one id (C-93).

    `revoked` says that the device was revoked (True) or registered again (False).
    """
    said: dict[str, Any] = {"state": state, "last_seen_at": last_seen_at}
    change: str = state
    if revoked is not None:
        said["revoked"] = revoked
        change = "revoked" if revoked else "registered"
    event_id = ids.derived(now, words.STATUS, device.tenant_id, device.device_id, change)
    return BusEvent(
        event_id=event_id,
        event_type=words.STATUS,
        tenant_id=device.tenant_id,
        farm_id=device.farm_id,
        barn_id=device.barn_id,
        device_id=device.device_id,
        session_id=None,
        occurred_at=now,
        trace_id=f"edge-{event_id}",
        payload=msgspec.Raw(msgspec.json.encode(said)),
    )
