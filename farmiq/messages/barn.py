"""Barn records: what people write down about a barn. The same on MQTT and on the bus (C-46)."""

from typing import ClassVar, Literal

import msgspec

from farmiq.messages.ids import Id, Instant
from farmiq.messages.kinds import Name, Rules, Text, Unit, require_utc

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
        for rule in self.rules:
            if broken := rule(self):
                raise ValueError(broken)

    def _text_or_number(self) -> str | None:
        if (self.record_type == "note") == isinstance(self.value, str):
            return None
        return "`value` of a note must be text, of any other record a number"

    def _not_negative(self) -> str | None:
        if self.record_type in _COUNTED and isinstance(self.value, float) and self.value < 0:
            return f"`value` of {self.record_type} must not be negative"
        return None

    rules: ClassVar[Rules] = (_text_or_number, _not_negative)
