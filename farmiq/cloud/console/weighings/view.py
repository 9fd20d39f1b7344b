"""Pure: the pages about weighings, from the stored sessions and the time.

A weighing is a weigh session as people see it. The sentence, the tabs, the histogram and the list
all come from the same rows: those of one day in the company's own zone.
"""

import math
import statistics
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any
from urllib.parse import urlencode
from uuid import UUID
from zoneinfo import ZoneInfo

from farmiq.cloud.console.company.view import Company
from farmiq.cloud.console.telemetry.view import WORTH_SAYING_S
from farmiq.farm import buckets
from farmiq.messages import weighvision
from farmiq.messages.kinds import MAX_WEIGHT_KG
from farmiq.ui import words

INCOMPLETE = "INCOMPLETE"
STATES = ("created", "finalized", "cancelled", INCOMPLETE)
# The state as people read it; the shape beside it is in icons.html under the state's own name.
STATE_WORDS = {
    "created": "Open",
    "finalized": "Finalized",
    "cancelled": "Cancelled",
    INCOMPLETE: "Incomplete",
}
ON_A_PAGE = 50
# Uniformity is the share of animals within this part of the mean.
UNIFORM_SHARE = 0.10
MIN_WEIGHT_KG = 0.001
MAX_BARS = 12
_STEPS = (1, 2, 2.5, 5, 10)
# 2.3 / 0.05 is a little less than 46.
_SLACK = 1e-9
_PART_WORDS = {
    "created": "no start",
    "weight": "no weight",
    "image": "no image",
    "finalized": "no end",
}
_EVENT_WORDS = {
    weighvision.SESSION_CREATED: "Session began",
    weighvision.WEIGHT_RECORDED: "Weight",
    weighvision.IMAGE_CAPTURED: "Image",
    weighvision.SESSION_FINALIZED: "Session finalized",
    weighvision.SESSION_CANCELLED: "Given up by the station",
    weighvision.SESSION_INCOMPLETE: "Parts missing at the edge",
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

    @property
    def lacking(self) -> tuple[str, ...]:
        """What is missing for a valid session, in words; also which images are."""
        texts = [_PART_WORDS[part] for part in self.missing]
        if self.media_ids and self.image_count not in (None, len(self.media_ids)):
            texts.append(f"{len(self.media_ids)} of {self.image_count} images")
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
    why: str
    weight: str
    captured: str
    captured_utc: str
    arrived: str
    picture: Picture | None


@dataclass(frozen=True, slots=True)
class Bar:
    """Weights from `low` up to `high`; `share` is its height as a part of the highest."""

    low: float
    high: float
    count: int
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """The distribution of the weights of a day, of finalized weighings only."""

    count: int
    mean_kg: float
    cv_percent: float | None
    uniformity_percent: float
    bars: tuple[Bar, ...]


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
    spread: Spread | None
    last_day: date | None

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
        when = "today" if self.is_today else f"on {self.day_words}"
        if not self.total:
            return f"No weighings {when}"
        counted = f"{words.count(self.total, 'weighing')} {when}"
        if not self.incomplete:
            return counted
        return f"{counted}; {self.incomplete} incomplete"

    @property
    def title(self) -> str:
        return words.title("Weighings", problems=self.incomplete)

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
    amount: str
    at: str
    at_utc: str
    arrived: str


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
    previous: str | None
    following: str | None

    @property
    def picture(self) -> Picture | None:
        return self.pictures[self.shown - 1] if self.pictures else None

    @property
    def day_words(self) -> str:
        return day_words(self.day)

    @property
    def title(self) -> str:
        problems = int(self.row.weighing.state == INCOMPLETE)
        return words.title(f"Weighing {self.row.captured}", problems=problems)

    @property
    def fragment(self) -> str:
        return address(self.row.weighing, path="/parts", image=self.shown)


def bounds(day: date, zone: ZoneInfo) -> tuple[datetime, datetime]:
    """When a day of the zone begins and ends; it may have 23 or 25 hours."""
    return buckets.midnight(day, zone.key), buckets.midnight(day + timedelta(days=1), zone.key)


def view(
    company: Company,
    weighings: Sequence[Weighing],
    *,
    query: WeighingsQuery,
    here: Collection[UUID],
    last_at: datetime | None,
    now: datetime,
) -> View:
    """`weighings` are all of the day; `here` are the images that the cloud has."""
    zone = words.zone(company.timezone)
    today = now.astimezone(zone).date()
    of_station = [weighing for weighing in weighings if query.station in (None, weighing.device_id)]
    matching = matching_of(weighings, query)
    counts = Counter(weighing.state for weighing in of_station)
    return View(
        company=company,
        zone=words.zone_name(zone, now),
        now=now,
        as_of=now.astimezone(zone).strftime("%H:%M:%S"),
        query=query,
        day=query.day or today,
        is_today=(query.day or today) == today,
        rows=tuple(
            row(weighing, here=here, zone=zone) for weighing in on_page(matching, query.page)
        ),
        matching=len(matching),
        total=len(of_station),
        incomplete=counts[INCOMPLETE],
        tabs=_tabs(query, counts, len(of_station)),
        stations=tuple(
            sorted({weighing.device_id for weighing in weighings if weighing.device_id})
        ),
        spread=spread([w for e in of_station if (w := e.final_weight_kg) is not None]),
        last_day=last_at.astimezone(zone).date() if last_at else None,
    )


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
        state="", word="All", count=total, href=query.address(state=None, page=1),
        chosen=query.state is None,
    )  # fmt: skip
    return (
        every,
        *(
            Tab(
                state=state,
                word=STATE_WORDS[state],
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
        word=STATE_WORDS[weighing.state],
        why=_why(weighing),
        weight="no weight"
        if weighing.weight_kg is None
        else f"{words.number(weighing.weight_kg)} kg",
        captured=words.instant(weighing.start_at, now=weighing.start_at, zone=zone),
        captured_utc=f"{weighing.start_at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC",
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
) -> Detail:
    """`before` and `after` are the weighings beside it on its day."""
    zone = words.zone(company.timezone)
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


def spread(weights_kg: Sequence[float]) -> Spread | None:
    """None if nothing was weighed. Uniformity: the share within 10 % of the mean.

    Impossible weights are left out.
    """
    weights = [weight for weight in weights_kg if MIN_WEIGHT_KG <= weight <= MAX_WEIGHT_KG]
    if not weights:
        return None
    mean = statistics.fmean(weights)
    near = sum(abs(weight - mean) <= UNIFORM_SHARE * mean for weight in weights)
    return Spread(
        count=len(weights),
        mean_kg=mean,
        cv_percent=100 * statistics.stdev(weights) / mean if len(weights) > 1 else None,
        uniformity_percent=100 * near / len(weights),
        bars=_bars(weights),
    )


def _bars(weights: Sequence[float]) -> tuple[Bar, ...]:
    """At most twelve bars, of a round width."""
    low, high = min(weights), max(weights)
    width = _width((high - low) / MAX_BARS, least=high * 0.005)
    first = math.floor(low / width + _SLACK)
    counts = Counter(math.floor(weight / width + _SLACK) - first for weight in weights)
    highest = max(counts.values())
    return tuple(
        Bar((first + n) * width, (first + n + 1) * width, counts[n], counts[n] / highest)
        for n in range(max(counts) + 1)
    )


def _width(about: float, *, least: float) -> float:
    """The next round number: 1, 2, 2.5 or 5 times a power of ten."""
    wanted = max(about, least)
    power = 10.0 ** math.floor(math.log10(wanted))
    return next(step * power for step in _STEPS if step * power >= wanted * (1 - 1e-9))


def day_words(day: date) -> str:
    return f"{day:%A} {day.day} {day:%B %Y}"


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
        word=_EVENT_WORDS.get(event.event_type, event.event_type),
        amount="" if event.weight_kg is None else f"{words.number(event.weight_kg)} kg",
        at=words.instant(event.occurred_at, now=day_of, zone=zone),
        at_utc=f"{event.occurred_at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC",
        arrived=_arrived(event.occurred_at, event.stored_at, day_of=day_of, zone=zone),
    )


def _arrived(
    captured_at: datetime, arrived_at: datetime, *, day_of: datetime, zone: ZoneInfo
) -> str:
    if (arrived_at - captured_at).total_seconds() < WORTH_SAYING_S:
        return ""
    return f"arrived {words.instant(arrived_at, now=day_of, zone=zone)}"
