"""Pure: the events about a batch itself: received, and all of its events confirmed (C-09).

The same batch gives the same events again: their ids are derived from tenant, batch and type, and
the time at which the batch was first received (C-94).
"""

from collections import Counter
from dataclasses import dataclass
from datetime import datetime

import msgspec

from farmiq.messages import ids, sync
from farmiq.messages.bus import BusEvent


@dataclass(frozen=True, slots=True)
class Received:
    """A batch. `counts` are its events by tenant: an event on the bus is of one tenant."""

    batch_id: str
    edge_cluster_id: str
    counts: Counter[str]
    at: datetime
    trace_id: str

    def sent(self) -> list[BusEvent]:
        return [
            self._event(
                tenant_id,
                sync.BATCH_SENT,
                sync.SyncBatchSent(
                    batch_id=self.batch_id,
                    event_count=count,
                    edge_cluster_id=self.edge_cluster_id,
                ),
            )
            for tenant_id, count in sorted(self.counts.items())
        ]

    def acked(self) -> list[BusEvent]:
        return [
            self._event(
                tenant_id,
                sync.BATCH_ACKED,
                sync.SyncBatchAcked(batch_id=self.batch_id, event_count=count, status="acked"),
            )
            for tenant_id, count in sorted(self.counts.items())
        ]

    def _event(self, tenant_id: str, event_type: str, payload: msgspec.Struct) -> BusEvent:
        return BusEvent(
            event_id=ids.derived(self.at, tenant_id, self.batch_id, event_type),
            event_type=event_type,
            tenant_id=tenant_id,
            farm_id=None,
            barn_id=None,
            device_id=None,
            session_id=None,
            occurred_at=self.at,
            trace_id=self.trace_id,
            payload=msgspec.Raw(msgspec.json.encode(payload)),
        )
