"""Pure: what people type into the forms, as bodies that the API accepts; and what is wrong.

An error is a text at a field. What a form cannot know (whether a lot exists, how many animals are
left) the posting says; `errors_of` puts that at the fields too.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any
from zoneinfo import ZoneInfo

from farmiq.ui import sentences, words
from farmiq.ui.entry.kinds import RECORD_KINDS, RecordKind
from farmiq.ui.i18n import gettext as _

Form = Mapping[str, str]
Body = dict[str, Any]
Errors = dict[str, str]

_WHOLE = re.compile(r"[0-9]{1,10}", re.ASCII)
_NUMBER = re.compile(r"-?[0-9]{1,12}(\.[0-9]{1,9})?", re.ASCII)
# Fields of the API that have another name on the forms.
_FORM_FIELDS = {
    "farm_id": "place", "barn_id": "place", "batch_id": "place", "occurred_at": "at", "body": "",
}  # fmt: skip
_NAMED = re.compile(r"`([a-z_]+)`")


@dataclass(frozen=True, slots=True)
class Place:
    """A barn, and the batch that somebody means by it if there is one."""

    farm_id: str
    barn_id: str
    batch_id: str | None
    zone: ZoneInfo

    @property
    def value(self) -> str:
        return f"{self.farm_id}/{self.barn_id}/{self.batch_id or ''}"


class _Reader:
    """Reads fields one by one and collects what is wrong with them."""

    def __init__(self, form: Form) -> None:
        self._form = form
        self.errors: Errors = {}

    def text(self, name: str, *, required: bool = False) -> str | None:
        value = self._form.get(name, "").strip()
        if not value and required:
            self.errors[name] = _("Fill this in.")
        return value or None

    def number(self, name: str, *, required: bool = False, whole: bool = False) -> Any:
        value = self.text(name, required=required)
        if value is None:
            return None
        if whole and _WHOLE.fullmatch(value):
            return int(value)
        if not whole and _NUMBER.fullmatch(value):
            return float(value)
        self.errors[name] = (
            _("Write a whole number such as 12.")
            if whole
            else _("Write a number such as 12.5, with a point.")
        )
        return None

    def day(self, name: str, *, required: bool = False) -> date | None:
        value = self.text(name, required=required)
        if value is None:
            return None
        try:
            return date.fromisoformat(value)
        except ValueError:
            self.errors[name] = _("Choose a day.")
            return None

    def moment(self, name: str, zone: ZoneInfo) -> datetime | None:
        """A time of the farm's clock."""
        value = self.text(name)
        if value is None:
            return None
        try:
            return datetime.fromisoformat(value).replace(tzinfo=zone).astimezone(UTC)
        except (ValueError, OverflowError):
            self.errors[name] = _("Choose a day and a time.")
            return None

    def option(self, name: str, known: Iterable[str]) -> str | None:
        value = self.text(name, required=True)
        if value is not None and value not in known:
            self.errors[name] = _("Choose one of the list.")
            return None
        return value

    def place(self, places: Mapping[str, Place]) -> Place | None:
        """A form that waited for the link may name a batch that has left its barn meanwhile."""
        value = self.text("place", required=True)
        if value is not None and value not in places:
            self.errors["place"] = _("This barn has changed since: choose it again.")
        return places.get(value) if value else None


def entered_at(form: Form, now: datetime) -> datetime | None:
    """When a form that waited in the browser was filled in; None if it was not, or cannot be."""
    try:
        at = datetime.fromisoformat(form.get("entered_at", ""))
        return at.astimezone(UTC) if at.tzinfo and at <= now else None
    except (ValueError, OverflowError):
        return None


def _common(
    reader: _Reader, form: Form, places: Mapping[str, Place], now: datetime
) -> tuple[Body, Place | None]:
    """Where, when, and what is corrected."""
    place = reader.place(places)
    body: Body = {}
    if place:
        body |= {"farm_id": place.farm_id, "barn_id": place.barn_id}
        at = reader.moment("at", place.zone) or entered_at(form, now)
        if at:
            body["occurred_at"] = at.isoformat()
    if replaces := reader.text("replaces"):
        body["replaces"] = replaces
    return body, place


def record(form: Form, places: Mapping[str, Place], now: datetime) -> tuple[Body, Errors]:
    """The body of a barn record."""
    reader = _Reader(form)
    body, place = _common(reader, form, places, now)
    kind = RECORD_KINDS.get(form.get("kind", ""))
    if kind is None:
        return {}, {"kind": _("Choose one of the list.")}
    body["record_type"] = kind.record_type
    if place and place.batch_id:
        body["batch_id"] = place.batch_id
    body["value"] = _value(reader, kind)
    if unit := reader.text("unit"):
        body["unit"] = unit
    elif kind.unit:
        body["unit"] = kind.unit
    if kind.is_medicine:
        body["product"] = reader.text("product", required=True)
        for name, value in (
            ("dose", reader.number("dose")),
            ("dose_unit", reader.text("dose_unit")),
            ("withdrawal_days", reader.number("withdrawal_days", whole=True)),
        ):
            if value is not None:
                body[name] = value
    return body, reader.errors


def _value(reader: _Reader, kind: RecordKind) -> Any:
    if kind.is_text:
        return reader.text("value", required=True)
    return reader.number("value", required=True, whole=kind.is_whole)


def intake(form: Form, places: Mapping[str, Place], now: datetime) -> tuple[Body, Errors]:
    """The body of feed taken in."""
    reader = _Reader(form)
    body, place = _common(reader, form, places, now)
    if place and place.batch_id:
        body["batch_id"] = place.batch_id
    body["quantity_kg"] = reader.number("quantity_kg", required=True)
    for name, field in (("feed_lot_id", "feed_lot_id"), ("device_id", "silo")):
        if value := reader.text(field):
            body[name] = value
    return body, reader.errors


def lot(form: Form, places: Mapping[str, Place], now: datetime) -> tuple[Body, Errors]:
    """The body of a lot that was delivered."""
    reader = _Reader(form)
    body, _place = _common(reader, form, places, now)
    body["feed_lot_id"] = reader.text("feed_lot_id", required=True)
    body["quantity_kg"] = reader.number("quantity_kg", required=True)
    for name, field in (("feed_product_id", "feed_product_id"), ("device_id", "silo")):
        if value := reader.text(field):
            body[name] = value
    return body, reader.errors


def batch(form: Form, places: Mapping[str, Place]) -> tuple[Body, Errors]:
    """The values of a batch, as master data."""
    reader = _Reader(form)
    place = reader.place(places)
    body: Body = {
        "batch_id": reader.text("batch_id", required=True),
        "farm_id": place.farm_id if place else None,
        "barn_id": place.barn_id if place else None,
        "species": reader.text("species", required=True),
        "breed": reader.text("breed"),
        "sex": reader.option("sex", ("mixed", "female", "male")),
        "placed_count": reader.number("placed_count", required=True, whole=True),
        "placed_on": reader.day("placed_on", required=True),
        "age_at_placing_days": reader.number("age_at_placing_days", whole=True),
        "target_weight_kg": reader.number("target_weight_kg"),
        "target_on": reader.day("target_on"),
        "closed_on": reader.day("closed_on"),
    }
    return body, reader.errors


def barn(form: Form) -> tuple[Body, Errors]:
    """The values of a barn, as master data."""
    reader = _Reader(form)
    body: Body = {
        "farm_id": reader.text("farm_id", required=True),
        "barn_id": reader.text("barn_id", required=True),
        "name": reader.text("barn_name", required=True),
        "capacity": reader.number("capacity", whole=True),
        "area_m2": reader.number("area_m2"),
    }
    return body, reader.errors


def farm(form: Form) -> Body:
    """The values of a farm that is new; without a name it is called as devices do."""
    reader = _Reader(form)
    farm_id = reader.text("farm_id")
    return {
        "farm_id": farm_id,
        "name": reader.text("farm_name") or farm_id,
        "timezone": reader.text("timezone") or "UTC",
    }


def master_data(form: Form, known: Iterable[tuple[str, str, bool]]) -> tuple[Body, Errors]:
    """The values of these (name, kind, required) fields; what is empty is None."""
    reader = _Reader(form)
    body: Body = {}
    for name, kind, required in known:
        if kind == "text":
            body[name] = reader.text(name, required=required)
        else:
            body[name] = reader.number(name, required=required, whole=kind == "whole")
    return body, reader.errors


def errors_of(details: Sequence[Mapping[str, Any]] | None, message: str) -> Errors:
    """What the posting says, at the fields of the form; the rest under the empty name."""
    errors: Errors = {}
    for item in details or [{"field": "", "reason": message}]:
        # Lots of an edge name their fields as a path.
        field, reason = str(item.get("field", "")).removeprefix("$."), str(item["reason"])
        named = _NAMED.search(reason)
        if field in ("", "body", "$", "path") and named:
            field = named[1]
        text = plain_reason(reason).replace("`", "")
        errors.setdefault(_FORM_FIELDS.get(field, field), f"{text[:1].upper()}{text[1:]}.")
    return errors


_LENGTH = re.compile(r"Expected `str` of length <= ([0-9]+)")
_BOUND = re.compile(r"Expected `(?:int|float)` (>=|<=|>|<) (-?[0-9.]+)")


def plain_reason(reason: str) -> str:
    """A reason as a person says it, in the language of the page; also one of the library."""
    if match := _LENGTH.match(reason):
        return _("use at most %(count)s characters") % {"count": match[1]}
    if match := _BOUND.match(reason):
        texts = {
            ">=": _("this is at least %(limit)s"),
            "<=": _("this is at most %(limit)s"),
            ">": _("this is more than %(limit)s"),
            "<": _("this is less than %(limit)s"),
        }
        return texts[match[1]] % {"limit": words.number(float(match[2]))}
    if reason.startswith("Expected "):
        return _("this does not fit here")
    if reason.startswith("is in the future"):
        return _("this moment has not come yet")
    return sentences.translated(reason)


Parse = Callable[[Form, Mapping[str, Place], datetime], tuple[Body, Errors]]
