"""Pure: the pages about weighings, from the stored sessions and the time.

A weighing is a weigh session as people see it. The sentence, the tabs, the histogram and the list
all come from the same rows: those of one day in the company's own zone.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any
from urllib.parse import urlencode
from uuid import UUID
from zoneinfo import ZoneInfo

from farmiq.cloud.console.company.view import Company
from farmiq.cloud.console.telemetry.view import WORTH_SAYING_S
from farmiq.cloud.console.weighings import spreads
from farmiq.cloud.console.weighings.spreads import Spread
from farmiq.messages import weighvision
from farmiq.ui import words
from farmiq.ui.estimates import Estimate
from farmiq.ui.i18n import gettext as _
from farmiq.ui.i18n import marked, ngettext

INCOMPLETE = "INCOMPLETE"
STATES = ("created", "finalized", "cancelled", INCOMPLETE)
# The state as people read it, and the tone of its chip.
STATE_WORDS = {
    "created": marked("Open"),
    "finalized": marked("Finalized"),
    "cancelled": marked("Cancelled"),
    INCOMPLETE: marked("Incomplete"),
}
TONES = {"created": "info", "finalized": "good", "cancelled": "muted", INCOMPLETE: "warn"}
ON_A_PAGE = 50
_PART_WORDS = {
    "created": marked("no start"),
    "weight": marked("no weight"),
    "image": marked("no image"),
    "finalized": marked("no end"),
}
_EVENT_WORDS = {
    weighvision.SESSION_CREATED: marked("Session began"),
    weighvision.WEIGHT_RECORDED: marked("Weight"),
    weighvision.IMAGE_CAPTURED: marked("Image"),
    weighvision.SESSION_FINALIZED: marked("Session finalized"),
    weighvision.SESSION_CANCELLED: marked("Given up by the station"),
    weighvision.SESSION_INCOMPLETE: marked("Parts missing at the edge"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighing:
    """A row of weight_sessions with its state."""

    session_id: UUID
    farm_id: str
    barn_id: str
    device_id: str | None
    batch_id: str | None
    state: str
    status: str
    start_at: datetime
    end_at: datetime | None
    initial_weight_kg: float | None
    final_weight_kg: float | None
    image_count: int | None
    media_ids: tuple[UUID, ...]
    missing: tuple[str, ...]
    cancel_reason: str | None
    received_at: datetime
    station_id: str | None = None
    clock_suspect: bool = False
    timezone: str | None = None
    farm_name: str | None = None
    barn_name: str | None = None

    @property
    def barn(self) -> str:
        return self.barn_name or self.barn_id

    @property
    def farm(self) -> str:
        return self.farm_name or self.farm_id

    def zone(self, otherwise: ZoneInfo) -> ZoneInfo:
        """That of its farm."""
        return words.zone(self.timezone) if self.timezone else otherwise

    @property
    def lacking(self) -> tuple[str, ...]:
        """What is missing for a valid session, in words; also which images are."""
        texts = [_(_PART_WORDS[part]) for part in self.missing]
        if self.media_ids and self.image_count not in (None, len(self.media_ids)):
            given = {"here": len(self.media_ids), "count": self.image_count}
            texts.append(_("%(here)s of %(count)s images") % given)
        return tuple(texts)

    @property
    def weight_kg(self) -> float | None:
        return self.initial_weight_kg if self.final_weight_kg is None else self.final_weight_kg


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    event_id: UUID
    event_type: str
    occurred_at: datetime
    stored_at: datetime
    weight_kg: float | None
    media_id: UUID | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """`here`: its bytes are in the cloud; else it was announced only."""

    media_id: UUID
    here: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    weighing: Weighing
    key: str
    href: str
    word: str
    tone: str
    why: str
    captured: str
    arrived: str
    picture: Picture | None

    @property
    def weight(self) -> str:
        """Without its unit; empty if nothing was weighed."""
        return "" if self.weighing.weight_kg is None else words.number(self.weighing.weight_kg, 2)

    @property
    def is_first_weight(self) -> bool:
        return self.weighing.final_weight_kg is None and self.weighing.weight_kg is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tab:
    """A state to filter by, with the number of weighings."""

    state: str
    word: str
    count: int
    href: str
    chosen: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WeighingsQuery:
    """What a page shows: a day (None: today), a station, a state, a page."""

    day: date | None = None
    station: str | None = None
    state: str | None = None
    page: int = 1

    def address(self, path: str = "/weighings", **changes: Any) -> str:
        query = {
            "day": self.day, "station": self.station, "state": self.state, "page": self.page,
            **changes,
        }  # fmt: skip
        given = {name: str(value) for name, value in query.items() if value not in (None, 1)}
        return f"{path}?{urlencode(given)}" if given else path


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    company: Company
    zone: str
    now: datetime
    as_of: str
    query: WeighingsQuery
    day: date
    is_today: bool
    rows: tuple[Row, ...]
    matching: int
    total: int
    incomplete: int
    tabs: tuple[Tab, ...]
    stations: tuple[str, ...]
    barns: int
    spread: Spread | None
    last_day: date | None
    page: str = "weighings"

    @property
    def day_words(self) -> str:
        return day_words(self.day)

    @property
    def last_day_words(self) -> str:
        return day_words(self.last_day) if self.last_day else ""

    @property
    def stations_and_chosen(self) -> tuple[str, ...]:
        """With the chosen one, also on a day on which it did not weigh."""
        chosen = {self.query.station} if self.query.station else set()
        return tuple(sorted({*self.stations, *chosen}))

    @property
    def pages(self) -> int:
        return max(1, -(-self.matching // ON_A_PAGE))

    @property
    def sentence(self) -> str:
        given = {"num": self.total, "incomplete": self.incomplete, "day": self.day_words}
        if not self.total:
            return (
                _("No weighings today") if self.is_today else _("No weighings on %(day)s") % given
            )
        if self.is_today:
            counted = ngettext("%(num)s weighing today", "%(num)s weighings today", self.total)
        else:
            counted = ngettext(
                "%(num)s weighing on %(day)s", "%(num)s weighings on %(day)s", self.total
            )
        if not self.incomplete:
            return counted % given
        return _("%(counted)s; %(incomplete)s incomplete") % {**given, "counted": counted % given}

    @property
    def title(self) -> str:
        return words.title(_("Weighings"), problems=self.incomplete)

    @property
    def fragment(self) -> str:
        return self.query.address("/weighings/rows")

    @property
    def csv(self) -> str:
        given = {"day": self.day.isoformat(), "format": "csv", "limit": "10000"}
        if self.query.station:
            given["device"] = self.query.station
        if self.query.state:
            given["state"] = self.query.state
        return f"/api/v1/weighvision/sessions?{urlencode(given)}"

    def other_day(self, days: int) -> str:
        return self.query.address(day=self.day + timedelta(days=days), page=1)

    def other_page(self, pages: int) -> str:
        return self.query.address(page=self.query.page + pages)


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRow:
    """An event as the page shows it."""

    event_id: UUID
    key: str
    word: str
    weight_kg: float | None
    occurred_at: datetime
    at: str
    arrived: str

    @property
    def weight(self) -> str:
        return "" if self.weight_kg is None else words.number(self.weight_kg, 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Detail:
    company: Company
    zone: str
    now: datetime
    as_of: str
    row: Row
    events: tuple[EventRow, ...]
    pictures: tuple[Picture, ...]
    shown: int
    day: date
    number: int
    total: int
    estimate: Estimate | None
    previous: str | None
    following: str | None
    page: str = "weighings"

    @property
    def picture(self) -> Picture | None:
        return self.pictures[self.shown - 1] if self.pictures else None

    @property
    def day_words(self) -> str:
        return day_words(self.day)

    @property
    def title(self) -> str:
        problems = int(self.row.weighing.state == INCOMPLETE)
        name = _("Weighing %(time)s") % {"time": self.row.captured}
        return words.title(name, problems=problems)

    @property
    def fragment(self) -> str:
        return address(self.row.weighing, path="/parts", image=self.shown)


def view(
    company: Company,
    weighings: Sequence[Weighing],
    *,
    query: WeighingsQuery,
    here: Collection[UUID],
    last_at: datetime | None,
    now: datetime,
    targets: Mapping[tuple[str, str], float] | None = None,
) -> View:
    """`weighings` are all of the day; `here` are the images that the cloud has.

    `targets`: what the breed standard expects on this day of each barn (farm, barn).
    """
    zone = words.zone(company.timezone)
    today = now.astimezone(zone).date()
    of_station = [weighing for weighing in weighings if query.station in (None, weighing.device_id)]
    matching = matching_of(weighings, query)
    counts = Counter(weighing.state for weighing in of_station)
    return View(
        company=company,
        zone=_zone_words({weighing.timezone for weighing in weighings}, zone, now),
        now=now,
        as_of=now.astimezone(zone).strftime("%H:%M:%S"),
        query=query,
        day=query.day or today,
        is_today=(query.day or today) == today,
        rows=tuple(
            row(weighing, here=here, zone=weighing.zone(zone))
            for weighing in on_page(matching, query.page)
        ),
        matching=len(matching),
        total=len(of_station),
        incomplete=counts[INCOMPLETE],
        tabs=_tabs(query, counts, len(of_station)),
        stations=tuple(
            sorted({weighing.device_id for weighing in weighings if weighing.device_id})
        ),
        barns=len({(weighing.farm_id, weighing.barn_id) for weighing in of_station}),
        spread=spreads.spread(
            [weight for e in of_station if (weight := e.final_weight_kg) is not None],
            target_kg=_target(of_station, targets or {}),
        ),
        last_day=last_at.astimezone(zone).date() if last_at else None,
    )


def _zone_words(names: Collection[str | None], zone: ZoneInfo, now: datetime) -> str:
    """The one zone of all that is shown; else that each time is by its own farm's clock."""
    if len(names) > 1:
        return _("the zone of each farm")
    own = next(iter(names), None)
    return words.zone_name(words.zone(own) if own else zone, now)


def _target(
    weighings: Sequence[Weighing], targets: Mapping[tuple[str, str], float]
) -> float | None:
    """The one target of all barns that are shown; None if they have several or none."""
    barns = {(weighing.farm_id, weighing.barn_id) for weighing in weighings}
    return targets.get(barns.pop()) if len(barns) == 1 else None


def matching_of(weighings: Sequence[Weighing], query: WeighingsQuery) -> list[Weighing]:
    return [
        weighing
        for weighing in weighings
        if query.station in (None, weighing.device_id) and query.state in (None, weighing.state)
    ]


def on_page(weighings: Sequence[Weighing], page: int) -> Sequence[Weighing]:
    return weighings[(page - 1) * ON_A_PAGE : page * ON_A_PAGE]


def _tabs(query: WeighingsQuery, counts: Mapping[str, int], total: int) -> tuple[Tab, ...]:
    every = Tab(
        state="", word=_("All"), count=total, href=query.address(state=None, page=1),
        chosen=query.state is None,
    )  # fmt: skip
    return (
        every,
        *(
            Tab(
                state=state,
                word=_(STATE_WORDS[state]),
                count=counts.get(state, 0),
                href=query.address(state=state, page=1),
                chosen=query.state == state,
            )
            for state in STATES
            if counts.get(state) or query.state == state
        ),
    )


def row(weighing: Weighing, *, here: Collection[UUID], zone: ZoneInfo) -> Row:
    """Times have no date if they are of the weighing's own day."""
    return Row(
        weighing=weighing,
        key=f"w-{weighing.session_id}",
        href=address(weighing),
        word=_(STATE_WORDS[weighing.state]),
        tone=TONES[weighing.state],
        why=_why(weighing),
        captured=words.instant(weighing.start_at, now=weighing.start_at, zone=zone),
        arrived=_arrived(
            weighing.start_at, weighing.received_at, day_of=weighing.start_at, zone=zone
        ),
        picture=_first_picture(weighing, here),
    )


def detail(
    company: Company,
    weighing: Weighing,
    events: Sequence[Event],
    *,
    here: Collection[UUID],
    image: int,
    before: UUID | None,
    after: UUID | None,
    now: datetime,
    place: tuple[int, int] = (1, 1),
    estimate: Estimate | None = None,
) -> Detail:
    """`before` and `after` are the weighings beside it on its day; `place`: which of how many."""
    zone = weighing.zone(words.zone(company.timezone))
    pictures = tuple(
        Picture(media_id=media_id, here=media_id in here) for media_id in weighing.media_ids
    )
    shown = min(max(image, 1), max(len(pictures), 1))
    return Detail(
        company=company,
        zone=words.zone_name(zone, now),
        now=now,
        as_of=now.astimezone(zone).strftime("%H:%M:%S"),
        row=row(weighing, here=here, zone=zone),
        events=tuple(_event_row(event, day_of=weighing.start_at, zone=zone) for event in events),
        pictures=pictures,
        shown=shown,
        day=weighing.start_at.astimezone(zone).date(),
        number=place[0],
        total=place[1],
        estimate=estimate,
        previous=_step(weighing, shown - 1, len(pictures), before),
        following=_step(weighing, shown + 1, len(pictures), after),
    )


def _step(weighing: Weighing, image: int, images: int, beside: UUID | None) -> str | None:
    """The next or previous image, or else weighing."""
    if 1 <= image <= images:
        return address(weighing, image=image)
    return f"/weighings/{beside}" if beside else None


def address(weighing: Weighing, *, path: str = "", image: int = 1) -> str:
    suffix = f"?image={image}" if image > 1 else ""
    return f"/weighings/{weighing.session_id}{path}{suffix}"


def day_words(day: date) -> str:
    return f"{words.weekday(day)} {words.day(day)}"


def _why(weighing: Weighing) -> str:
    if weighing.state == INCOMPLETE:
        return ", ".join(weighing.lacking)
    return weighing.cancel_reason or "" if weighing.state == "cancelled" else ""


def _first_picture(weighing: Weighing, here: Collection[UUID]) -> Picture | None:
    """The first one that the cloud has; else the first one announced."""
    for media_id in weighing.media_ids:
        if media_id in here:
            return Picture(media_id=media_id, here=True)
    return Picture(media_id=weighing.media_ids[0], here=False) if weighing.media_ids else None


def _event_row(event: Event, *, day_of: datetime, zone: ZoneInfo) -> EventRow:
    return EventRow(
        event_id=event.event_id,
        key=f"e-{event.event_id}",
        word=_(_EVENT_WORDS.get(event.event_type, event.event_type)),
        weight_kg=event.weight_kg,
        occurred_at=event.occurred_at,
        at=words.instant(event.occurred_at, now=day_of, zone=zone),
        arrived=_arrived(event.occurred_at, event.stored_at, day_of=day_of, zone=zone),
    )


def _arrived(
    captured_at: datetime, arrived_at: datetime, *, day_of: datetime, zone: ZoneInfo
) -> str:
    if (arrived_at - captured_at).total_seconds() < WORTH_SAYING_S:
        return ""
    return _("arrived %(time)s") % {"time": words.instant(arrived_at, now=day_of, zone=zone)}
