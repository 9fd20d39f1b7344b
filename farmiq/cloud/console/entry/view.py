"""Pure: the pages of forms, and the list of recent entries."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode
from zoneinfo import ZoneInfo

from farmiq.cloud.console.company.view import Company
from farmiq.ui import words
from farmiq.ui.entry.fields import Errors, Place
from farmiq.ui.entry.kinds import RECORD_KINDS, RecordKind
from farmiq.ui.i18n import gettext as _

_MEDICINE = ("product", "dose", "dose_unit", "withdrawal_days")


class Option(NamedTuple):
    value: str
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceOption:
    """A barn with the batch that is there now."""

    farm_id: str
    barn_id: str
    farm_name: str
    barn_name: str
    timezone: str
    batch_id: str | None
    species: str | None

    @property
    def place(self) -> Place:
        return Place(self.farm_id, self.barn_id, self.batch_id, words.zone(self.timezone))

    def label(self, *, several_farms: bool) -> str:
        barn = f"{self.farm_name}, {self.barn_name}" if several_farms else self.barn_name
        if self.batch_id is None:
            return _("%(barn)s, empty") % {"barn": barn}
        return f"{barn}, {self.species}"


def options(places: Sequence[PlaceOption]) -> list[Option]:
    several = len({place.farm_id for place in places}) > 1
    return [Option(place.place.value, place.label(several_farms=several)) for place in places]


def by_value(places: Sequence[PlaceOption]) -> dict[str, Place]:
    return {place.place.value: place.place for place in places}


@dataclass(frozen=True, slots=True, kw_only=True)
class FormView:
    """A form with what was typed and what is wrong with it.

    `replaces` is the entry that this one corrects; `back` is where its page came from.
    """

    company: Company
    now: datetime
    zone: str
    heading: str
    action: str
    key: str
    places: Sequence[Option]
    values: Mapping[str, Any]
    errors: Errors = field(default_factory=dict)
    replaces: str = ""
    replaced_text: str = ""
    kind: RecordKind | None = None
    products: Sequence[str] = ()
    lots: Sequence[Option] = ()
    silos: Sequence[str] = ()
    feed_products: Sequence[Option] = ()
    breeds: Sequence[tuple[str, str]] = ()
    farms: Sequence[str] = ()
    barns: Sequence[str] = ()
    is_new: bool = True
    back: str = "/batches"
    page: str = "batches"

    @property
    def title(self) -> str:
        return words.title(self.heading, problems=len(self.errors))

    @property
    def kinds(self) -> list[tuple[str, str, str]]:
        """(type, label, address) of every kind of record."""
        place = self.values.get("place", "")
        return [
            (kind.record_type, _(kind.label), _kind_address(kind.record_type, place))
            for kind in RECORD_KINDS.values()
        ]

    @property
    def species(self) -> list[str]:
        known = ("broiler", "layer", "duck", "turkey", "pig", "cattle")
        return sorted({*known, *(species for species, _breed in self.breeds)})

    def value(self, name: str) -> Any:
        value = self.values.get(name)
        return "" if value is None else value

    def error(self, name: str) -> str:
        return self.errors.get(name, "")


def _kind_address(record_type: str, place: Any) -> str:
    return f"/records/new?{urlencode({'kind': record_type, 'place': place})}"


def place_of(places: Sequence[PlaceOption], *, wanted: str, batch_id: str) -> str:
    """The value of the place to begin with: the one named, the batch's, or the only one."""
    values = [place.place.value for place in places]
    if wanted in values:
        return wanted
    of_batch = [place.place.value for place in places if place.batch_id == batch_id]
    if of_batch:
        return of_batch[0]
    return values[0] if len(values) == 1 else ""


def values_of(event: Mapping[str, Any], places: Sequence[PlaceOption]) -> dict[str, Any]:
    """The fields of a form as an entry has them, for its correction."""
    payload: Mapping[str, Any] = event["payload"]
    at_place = [
        place
        for place in places
        if (place.farm_id, place.barn_id) == (event["farm_id"], event["barn_id"])
    ]
    zone = words.zone(at_place[0].timezone) if at_place else ZoneInfo("UTC")
    return {
        "place": at_place[0].place.value if at_place else "",
        "kind": payload.get("record_type", ""),
        "value": _plain(payload.get("value")),
        "unit": payload.get("unit"),
        **{name: _plain(payload.get(name)) for name in _MEDICINE},
        "quantity_kg": _plain(payload.get("quantity_kg")),
        "feed_lot_id": payload.get("feed_lot_id"),
        "feed_product_id": payload.get("feed_product_id"),
        "silo": event.get("device_id"),
        "at": local_input(event["occurred_at"], zone),
    }


def _plain(value: Any) -> Any:
    """A whole number without a point: a form that counts animals accepts no other."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def local_input(at: datetime, zone: ZoneInfo) -> str:
    """As an input of the type datetime-local holds it."""
    return f"{at.astimezone(zone):%Y-%m-%dT%H:%M}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A row of the list of entries; one that another replaces counts for nothing."""

    key: str
    kind: str
    label: str
    value: float | str
    unit: str
    barn: str
    batch_id: str | None
    occurred_at: datetime
    by: str
    is_replaced: bool
    replaces: bool
    correct: str
    detail: str = ""

    @property
    def is_text(self) -> bool:
        return isinstance(self.value, str)


@dataclass(frozen=True, slots=True, kw_only=True)
class EntriesView:
    company: Company
    now: datetime
    zone: str
    zone_key: str
    of: str
    batch_id: str
    entries: Sequence[Entry]
    next_href: str
    page: str = "batches"

    @property
    def title(self) -> str:
        return _("Entries")

    @property
    def tabs(self) -> list[tuple[str, str, str]]:
        query = f"&batch={quote(self.batch_id)}" if self.batch_id else ""
        return [
            ("records", _("Barn records"), f"/records?of=records{query}"),
            ("intakes", _("Feed"), f"/records?of=intakes{query}"),
        ]


def barn_name(row: Mapping[str, Any], places: Iterable[PlaceOption]) -> str:
    """As people call it; what nobody registered has the id of its devices."""
    here = row["farm_id"], row["barn_id"]
    names = (place.barn_name for place in places if (place.farm_id, place.barn_id) == here)
    return next(names, row["barn_id"])


def record_entry(row: Mapping[str, Any], places: Iterable[PlaceOption] = ()) -> Entry:
    kind = RECORD_KINDS.get(row["record_type"])
    return Entry(
        key=row["record_id"],
        kind=row["record_type"],
        label=_(kind.label) if kind else row["record_type"],
        value=row["value"],
        unit=row["unit"] or "",
        barn=barn_name(row, places),
        batch_id=row["batch_id"],
        occurred_at=row["occurred_at"],
        by=row["recorded_by_ref"],
        is_replaced=row["replaced_by"] is not None,
        replaces=row["replaces"] is not None,
        correct=f"/records/new?{urlencode({'replaces': row['record_id']})}",
        detail=row["product"] or "",
    )


def intake_entry(row: Mapping[str, Any], places: Iterable[PlaceOption] = ()) -> Entry:
    sources = {
        "MANUAL": _("Feed, by hand"), "SILO_AUTO": _("Feed, by the silo"),
        "IMPORT": _("Feed, imported"),
    }  # fmt: skip
    return Entry(
        key=str(row["event_id"]),
        kind=row["source"],
        label=sources.get(row["source"], row["source"]),
        value=row["quantity_kg"],
        unit="kg",
        barn=barn_name(row, places),
        batch_id=row["batch_id"],
        occurred_at=row["occurred_at"],
        by=row["device_id"] or "",
        is_replaced=row["replaced_by"] is not None,
        replaces=row["replaces"] is not None,
        correct=f"/feed/intakes/new?{urlencode({'replaces': row['event_id']})}",
        detail=row["feed_lot_id"] or "",
    )


def suggested_id(place: PlaceOption, today: date) -> str:
    """A name for a new batch: the barn and the day, as most farms name them."""
    return f"{place.barn_id}-{today:%Y%m%d}"


def query(parameters: Mapping[str, Any]) -> str:
    """The query of an address; empty parameters are left out."""
    return urlencode({name: value for name, value in parameters.items() if value})


def zone_key(places: Sequence[PlaceOption], company: Company) -> str:
    """The zone of all farms if they have one, else the company's."""
    names = {place.timezone for place in places}
    return names.pop() if len(names) == 1 else company.timezone


def zone_name(places: Sequence[PlaceOption], company: Company, now: datetime) -> str:
    return words.zone_name(words.zone(zone_key(places, company)), now)
