"""Handlers of what devices say about themselves, in the transaction of ingress (C-81)."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from farmiq.edge import losses
from farmiq.edge.arrival import Arrival
from farmiq.edge.devices import rules, store
from farmiq.edge.devices.device import Device
from farmiq.edge.devices.rules import ReportedState
from farmiq.messages import bus, ids
from farmiq.messages import device as messages
from farmiq.messages.bus import BusEvent
from farmiq.plumbing import db, log


async def handle_statuses(tx: db.Connection, arrivals: Sequence[Arrival]) -> list[BusEvent]:
    """Store the status of devices; the cloud gets changes, not heartbeats (C-103)."""
    by_device: dict[store.Key, list[Arrival]] = defaultdict(list)
    for arrival in arrivals:
        by_device[arrival.place.tenant_id, arrival.place.device_id].append(arrival)
    now, states = await store.liveness_of(tx, sorted(by_device))
    outgoing: list[BusEvent] = []
    for key in sorted(by_device):
        after = states.get(key)
        for arrival in by_device[key]:
            before, status = after, arrival.payload
            after = rules.after_status(
                before, reported=status.state, event_id=arrival.event.event_id, now=now
            )
            if before is after:
                continue
            await store.store_status(tx, key, after, status)
            if before is None or before.told_state != status.state:
                outgoing.append(arrival.event)
    return outgoing


async def handle_dropped(tx: db.Connection, arrivals: Sequence[Arrival]) -> list[BusEvent]:
    """Enter what devices dropped into the loss ledger (C-83)."""
    return await losses.enter(tx, [arrival.event for arrival in arrivals])


async def handle_answers(tx: db.Connection, arrivals: Sequence[Arrival]) -> list[BusEvent]:
    """Store the answers to commands; a device answers only its own. The cloud gets nothing."""
    for arrival in arrivals:
        key = arrival.place.tenant_id, arrival.place.device_id
        answer: messages.DeviceCommandAnswered = arrival.payload
        command_id = _uuid(answer.command_id)
        state = await store.command_state(tx, command_id, key) if command_id else None
        if command_id is None or state is None:
            log.get("edge-devices-registry").info(
                "devices.answer_to_no_command", event_id=str(arrival.event.event_id)
            )
        elif rules.after_answer(state, answer.outcome) != state:
            message = answer.message if isinstance(answer.message, str) else None
            await store.store_answer(tx, command_id, outcome=answer.outcome, message=message)
    return []


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


def status_event(
    device: Device,
    state: ReportedState,
    *,
    last_seen_at: datetime,
    now: datetime,
    revoked: bool | None = None,
) -> BusEvent:
    """The event of the edge that the state of a device changed, always with the same id (C-93).

    `revoked`: the device was revoked (True) or registered again (False).
    """
    payload: dict[str, Any] = {"state": state, "last_seen_at": last_seen_at}
    change: str = state
    if revoked is not None:
        payload["revoked"] = revoked
        change = "revoked" if revoked else "registered"
    event_id = ids.derived(now, messages.STATUS, device.tenant_id, device.device_id, change)
    return bus.own_event(messages.STATUS, device, payload, event_id=event_id, occurred_at=now)
