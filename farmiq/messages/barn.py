"""Barn records: what people write down about a barn. The same on MQTT and on the bus (C-111)."""

from typing import Annotated, ClassVar, Literal

import msgspec

from farmiq.messages.ids import Id, Instant
from farmiq.messages.kinds import Name, Rules, Text, Unit, require_utc
from farmiq.messages.wording import worded

RECORD_CREATED = "barn.record.created"

RecordType = Literal[
    "mortality", "cull", "water", "temperature", "note",
    "head_count", "treatment", "vaccination", "welfare", "housing",
]  # fmt: skip
TEXTS = ("note", "welfare", "housing")
ANIMALS = ("mortality", "cull", "head_count", "treatment", "vaccination")
MEDICINES = ("treatment", "vaccination")
# Litres in one of these; a water record without a unit is in litres.
LITRES_OF = {"l": 1.0, "L": 1.0, "m3": 1000.0}

# More than any barn holds; the sum of a batch's records is still an exact number.
MAX_ANIMALS = 10_000_000
MAX_LITRES = 1e7
MAX_DOSE = 1e6
# In whatever unit: no barn with animals is colder or hotter.
MIN_TEMPERATURE, MAX_TEMPERATURE = -100.0, 200.0

Dose = Annotated[float, msgspec.Meta(gt=0, le=MAX_DOSE)]
WithdrawalDays = Annotated[int, msgspec.Meta(ge=0, le=3650)]


class RecordContent(msgspec.Struct, frozen=True, kw_only=True):
    """What a record says: the value of a note is its text, of a measurement a number (D-22).

    `product`, `dose`, `dose_unit` and `withdrawal_days` are of treatments and vaccinations.
    `replaces` names the record that this one corrects, `batch_id` the animals it is about.
    """

    record_type: RecordType
    value: float | Text
    unit: Unit | msgspec.UnsetType | None = msgspec.UNSET
    product: Name | msgspec.UnsetType | None = msgspec.UNSET
    dose: Dose | msgspec.UnsetType | None = msgspec.UNSET
    dose_unit: Unit | msgspec.UnsetType | None = msgspec.UNSET
    withdrawal_days: WithdrawalDays | msgspec.UnsetType | None = msgspec.UNSET
    batch_id: Id | msgspec.UnsetType | None = msgspec.UNSET
    replaces: Id | msgspec.UnsetType | None = msgspec.UNSET

    def __post_init__(self) -> None:
        for rule in self.rules:
            if broken := rule(self):
                raise ValueError(broken)

    def _text_or_number(self) -> str | None:
        if (self.record_type in TEXTS) == isinstance(self.value, str):
            return None
        return f"`value` of {_called(self.record_type)} must be " + (
            "text" if self.record_type in TEXTS else "a number"
        )

    def _whole_animals(self) -> str | None:
        if self.record_type not in ANIMALS or isinstance(self.value, str):
            return None
        if self.value < 0:
            return worded(
                "`value` of %(record)s must not be negative", record=_called(self.record_type)
            )
        if self.value > MAX_ANIMALS or self.value != int(self.value):
            name = _called(self.record_type)
            return worded(
                "`value` of %(record)s must be whole animals, at most %(number)s",
                record=name,
                number=MAX_ANIMALS,
            )
        return None

    def _sensible_water(self) -> str | None:
        if self.record_type != "water" or isinstance(self.value, str):
            return None
        litres = self.value * LITRES_OF.get(self.unit or "l", 1.0)
        if not 0 <= litres <= MAX_LITRES:
            return worded(
                "`value` of water must be between 0 and %(number)s litres",
                number=f"{MAX_LITRES:,.0f}",
            )
        return None

    def _sensible_temperature(self) -> str | None:
        if self.record_type != "temperature" or isinstance(self.value, str):
            return None
        if not MIN_TEMPERATURE <= self.value <= MAX_TEMPERATURE:
            low, high = MIN_TEMPERATURE, MAX_TEMPERATURE
            return worded(
                "`value` of a temperature must be between %(number)s and %(number2)s",
                number=f"{low:g}",
                number2=f"{high:g}",
            )
        return None

    def _names_the_medicine(self) -> str | None:
        if self.record_type in MEDICINES and not self.product:
            return worded("%(record)s needs its `product`", record=_called(self.record_type))
        return None

    rules: ClassVar[Rules] = (
        _text_or_number, _whole_animals, _sensible_water, _sensible_temperature,
        _names_the_medicine,
    )  # fmt: skip


def _called(record_type: str) -> str:
    plain = ("mortality", "water", "welfare", "housing")
    return record_type if record_type in plain else f"a {record_type}"


class BarnRecordCreated(RecordContent, frozen=True, kw_only=True):
    record_id: Id
    unit: Unit | None
    recorded_by_ref: Name
    recorded_at: Instant

    def __post_init__(self) -> None:
        require_utc(self.recorded_at)
        super().__post_init__()

    def _not_itself(self) -> str | None:
        if self.replaces == self.record_id:
            return worded("`replaces` names the record itself")
        return None

    rules: ClassVar[Rules] = (*RecordContent.rules, _not_itself)
