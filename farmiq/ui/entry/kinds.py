"""Pure: the kinds of barn records, as the form shows them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from farmiq.messages import barn
from farmiq.ui.i18n import marked


@dataclass(frozen=True, slots=True)
class RecordKind:
    """`label` names it on its button, `asks` is the question of the form."""

    record_type: str
    label: str
    asks: str
    unit: str = ""

    @property
    def is_text(self) -> bool:
        return self.record_type in barn.TEXTS

    @property
    def is_whole(self) -> bool:
        return self.record_type in barn.ANIMALS

    @property
    def is_medicine(self) -> bool:
        return self.record_type in barn.MEDICINES


# The most frequent first: it is the first under the thumb.
_KINDS = (
    RecordKind("mortality", marked("Dead"), marked("How many animals are dead?")),
    RecordKind("cull", marked("Culled"), marked("How many animals were culled?")),
    RecordKind("water", marked("Water"), marked("How much water, in litres?"), unit="l"),
    RecordKind("treatment", marked("Treatment"), marked("How many animals were treated?")),
    RecordKind("vaccination", marked("Vaccination"), marked("How many animals were vaccinated?")),
    RecordKind("head_count", marked("Head count"), marked("How many animals are there?")),
    RecordKind("temperature", marked("Temperature"), marked("How warm is it, in °C?"), unit="°C"),
    RecordKind("note", marked("Note"), marked("What did you see?")),
    RecordKind("welfare", marked("Welfare"), marked("What did you see of the animals?")),
    RecordKind("housing", marked("Housing"), marked("What did you see of the barn?")),
)
RECORD_KINDS: Mapping[str, RecordKind] = {kind.record_type: kind for kind in _KINDS}
# Forms that a browser keeps before the link breaks, by the area of who may fill them in.
OFFLINE_FORMS: Mapping[str, Sequence[str]] = {
    "barn": ("/records/new", *(f"/records/new?kind={kind}" for kind in RECORD_KINDS)),
    "feed": ("/feed/intakes/new", "/feed/lots/new"),
}
