"""Names and ids as they stand in topics and envelopes (C-03, C-93).

Only event, media and session ids are UUIDs. Tenant, farm, barn, device, station, lot and batch
ids are opaque text that is safe inside an MQTT topic level.
"""

import hashlib
from datetime import UTC, datetime, timedelta
from typing import Annotated
from urllib.parse import quote
from uuid import UUID

import msgspec

# The tail stands for `$`, which in Python would let a trailing newline through.
ID_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}(?![\s\S])"

Id = Annotated[str, msgspec.Meta(pattern=ID_PATTERN)]
TraceId = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
Instant = Annotated[datetime, msgspec.Meta(tz=True)]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def derived(occurred_at: datetime, *parts: str) -> UUID:
    """The UUIDv7 of an event computed from others: the same parts always give the same id."""
    millis = (occurred_at - _EPOCH) // timedelta(milliseconds=1)
    digest = hashlib.sha256("\x1f".join(parts).encode()).digest()
    chance = int.from_bytes(digest[:10], "big")
    rand_a = (chance >> 62) & 0xFFF
    rand_b = chance & ((1 << 62) - 1)
    bits = (millis & ((1 << 48) - 1)) << 80 | 0x7 << 76 | rand_a << 64 | 0b10 << 62 | rand_b
    return UUID(int=bits)


def broker_user(tenant_id: str, device_id: str) -> str:
    """A device's login at the broker. An id holds no `/` and no `%`, so no two devices share one.

    A colon ends the name in Mosquitto's password file, so it is written as %3A.
    """
    return f"{quote(tenant_id, safe='')}/{quote(device_id, safe='')}"
