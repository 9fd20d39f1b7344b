"""What came through the door: a message that was understood, ready for the domains to record."""

from dataclasses import dataclass
from uuid import UUID

from farmiq.messages.bus import BusEvent
from farmiq.messages.telemetry import Reading
from farmiq.messages.topics import Place


@dataclass(frozen=True, slots=True)
class Arrival:
    """`event` is what the cloud will be told; `content_hash` tells a repeat from a conflict."""

    topic: str
    raw: bytes
    place: Place
    reading: Reading
    event: BusEvent
    content_hash: bytes
    clock_suspect: bool

    @property
    def key(self) -> tuple[str, UUID]:
        return self.event.tenant_id, self.event.event_id
