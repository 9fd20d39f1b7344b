"""An arrival: a valid message of a device, ready for the handlers of its domains.

Each domain has `record(tx, arrivals)`: it writes its own tables in the caller's transaction and
returns the events for the cloud. Ingress calls it and appends them to the outbox.
"""

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec

from farmiq.messages.bus import BusEvent
from farmiq.messages.topics import (
    EventTopic,
    Place,
    SessionTopic,
    StatusTopic,
    TelemetryTopic,
)

# A device that replays what it buffered for days is not suspect; one that is far ahead is (C-122).
MAX_AHEAD = timedelta(hours=24)
MAX_BEHIND = timedelta(days=7)

UpTopic = TelemetryTopic | EventTopic | StatusTopic | SessionTopic


def is_clock_suspect(said_at: datetime, received_at: datetime) -> bool:
    """Whether a device's clock cannot be right; what it said is kept as it is (C-44)."""
    return said_at - received_at > MAX_AHEAD or received_at - said_at > MAX_BEHIND


class Arrival(msgspec.Struct, frozen=True):
    """One message. `payload` is of the type that the catalogue names for `kind`.

    `event` says the same as a bus event, under the id that the device gave it; `content_hash`
    tells a repeat from a conflict.
    """

    topic: str
    raw: bytes
    where: UpTopic
    place: Place
    kind: str
    payload: Any
    event: BusEvent
    content_hash: bytes
    received_at: datetime
    clock_suspect: bool
    seq: int | None = None
    boot_id: str | None = None

    @property
    def key(self) -> tuple[str, UUID]:
        return self.event.tenant_id, self.event.event_id
