"""The loss ledger: what was dropped on purpose is written down and told to the cloud (C-83)."""

from collections.abc import Sequence

import msgspec

from farmiq.messages import device
from farmiq.messages.bus import BusEvent
from farmiq.plumbing import db


async def enter(tx: db.Connection, losses: Sequence[BusEvent]) -> list[BusEvent]:
    """Write device.buffer.dropped events down; returns them, for the outbox."""
    for loss in losses:
        said = msgspec.json.decode(loss.payload, type=device.DeviceBufferDropped)
        await tx.execute(
            """
            insert into loss_ledger (loss_id, tenant_id, farm_id, barn_id, device_id, class, count,
              first_seq, last_seq, reason, occurred_at, recorded_at)
            values (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, fn_now())
            on conflict on constraint loss_ledger_pkey do nothing
            """,
            (
                loss.event_id,
                loss.tenant_id,
                loss.farm_id,
                loss.barn_id,
                loss.device_id,
                said.event_class,
                said.count,
                said.first_seq,
                said.last_seq,
                said.reason,
                loss.occurred_at,
            ),
        )
    return list(losses)
