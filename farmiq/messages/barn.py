"""Barn records: what people write down about a barn. The same on MQTT and on the bus (C-46)."""

from typing import Literal

import msgspec

from farmiq.messages.ids import Id, Instant
from farmiq.messages.kinds import Name, Text, Unit, require_utc

RECORD_CREATED = "barn.record.created"

RecordType = Literal["mortality", "cull", "water", "temperature", "note"]
_COUNTED = ("mortality", "cull")


class BarnRecordCreated(msgspec.Struct, frozen=True, kw_only=True):
    """The value of a note is its text, of everything else a number (D-22)."""

    record_id: Id
    record_type: RecordType
    value: float | Text
    unit: Unit | None
    recorded_by_ref: Name
    recorded_at: Instant

    def __post_init__(self) -> None:
        require_utc(self.recorded_at)
        if (self.record_type == "note") != isinstance(self.value, str):
            raise ValueError("`value` of a note must be text, of any other record a number")
        if self.record_type in _COUNTED and isinstance(self.value, float) and self.value < 0:
            raise ValueError(f"`value` of {self.record_type} must not be negative")
