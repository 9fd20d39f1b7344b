"""Pure: the list of entries and the forms, as the pages show them."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from farmiq.edge.console.records.queries import Barn, Corrected, Entry
from farmiq.edge.console.tenant import PageView, Tenant
from farmiq.ui import words
from farmiq.ui.entry.fields import Errors, Place
from farmiq.ui.entry.kinds import RECORD_KINDS, RecordKind
from farmiq.ui.i18n import gettext as _


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryRow:
    entry: Entry
    label: str
    value: str
    when: str
    correct_href: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordsView(PageView):
    rows: Sequence[EntryRow]
    waiting: int
    may_record: bool
    may_feed: bool
    done: bool
    shows_devices: bool

    @property
    def tabs(self) -> list[tuple[str, str, str]]:
        return [
            ("people", _("Of people"), "/records"),
            ("all", _("Also of devices"), "/records?of=all"),
        ]


def label(kind: str) -> str:
    if kind == "intake":
        return _("Feed taken in")
    if kind == "lot":
        return _("Feed delivered")
    return _(RECORD_KINDS[kind].label) if kind in RECORD_KINDS else kind


def records_view(
    tenant: Tenant, entries: Sequence[Entry], *, now: datetime, done: bool, shows_devices: bool
) -> RecordsView:
    zone = words.zone(tenant.timezone)
    return RecordsView(
        company=tenant,
        now=now,
        title=_("Records"),
        page="records",
        rows=[
            EntryRow(
                entry=entry,
                label=label(entry.kind),
                value="" if entry.number is None else words.number(entry.number),
                when=words.instant(entry.occurred_at, now=now, zone=zone),
                correct_href=_correct_href(entry, tenant),
            )
            for entry in entries
        ],
        waiting=sum(entry.is_waiting for entry in entries),
        may_record=tenant.may("barn", "operator"),
        may_feed=tenant.may("feed", "operator"),
        done=done,
        shows_devices=shows_devices,
    )


def _correct_href(entry: Entry, tenant: Tenant) -> str:
    """Where somebody who may corrects it; what was corrected already is not corrected again."""
    if entry.replaced_as is None or entry.is_replaced:
        return ""
    is_intake = entry.kind == "intake"
    if not tenant.may("feed" if is_intake else "barn", "operator"):
        return ""
    path = "/feed/intakes/new" if is_intake else "/records/new"
    return f"{path}?{urlencode({'replaces': entry.replaced_as})}"


def values_of(corrected: Corrected, places: Mapping[str, Place]) -> dict[str, str]:
    """What the form of a correction shows first: what was entered, by the clock of its barn."""
    shown = {name: value for name, value in asdict(corrected).items() if isinstance(value, str)}
    place = places.get(f"{corrected.farm_id}/{corrected.barn_id}/")
    if place is None:
        return shown
    at = corrected.occurred_at.astimezone(place.zone)
    return {**shown, "place": place.value, "at": f"{at:%Y-%m-%dT%H:%M}"}


def places(barns: Sequence[Barn], tenant: Tenant) -> dict[str, Place]:
    """By the value of their option. The edge finds the batch that is in the barn itself."""
    barn_places = [
        Place(barn.farm_id, barn.barn_id, None, words.zone(barn.timezone or tenant.timezone))
        for barn in barns
    ]
    return {place.value: place for place in barn_places}


def place_options(barns: Sequence[Barn]) -> list[tuple[str, str]]:
    """(value, text): the barn, its farm if there are several, and the batch in it."""
    several = len({barn.farm_id for barn in barns}) > 1
    options = []
    for barn in barns:
        text = f"{barn.barn_id} · {barn.farm_name or barn.farm_id}" if several else barn.barn_id
        value = f"{barn.farm_id}/{barn.barn_id}/"
        options.append((value, f"{text} ({barn.batch_id})" if barn.batch_id else text))
    return options


@dataclass(frozen=True, slots=True, kw_only=True)
class FormView(PageView):
    """As the shared form parts want it."""

    heading: str
    action: str
    key: str
    places: Sequence[tuple[str, str]]
    values: Mapping[str, Any]
    errors: Errors
    kind: RecordKind | None = None
    lots: Sequence[tuple[str, str]] = ()
    silos: Sequence[str] = ()
    replaces: str = ""
    back: str = "/records"
    kinds: Sequence[tuple[str, str, str]] = field(default=())

    def value(self, name: str) -> Any:
        return self.values.get(name, "")

    def error(self, name: str) -> str:
        return self.errors.get(name, "")


def kind_tabs(place: str) -> list[tuple[str, str, str]]:
    """(type, name, address) of every kind of record; the barn that was chosen stays."""
    return [
        (kind.record_type, _(kind.label), f"/records/new?{urlencode(_query(kind, place))}")
        for kind in RECORD_KINDS.values()
    ]


def _query(kind: RecordKind, place: str) -> dict[str, str]:
    return {"kind": kind.record_type, **({"place": place} if place else {})}
