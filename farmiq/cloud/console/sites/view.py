"""Pure: the page Sites, from the days of the last two weeks, today's wakes and the time.

The sentence, the tallies and the strips come from the same rows.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from urllib.parse import urlencode
from uuid import UUID
from zoneinfo import ZoneInfo

from farmiq.cloud import completeness
from farmiq.cloud.console.company.view import Company
from farmiq.cloud.console.sites import strips
from farmiq.cloud.console.sites.strips import Camera, Strip, Wake
from farmiq.ui import words
from farmiq.ui.i18n import gettext as _
from farmiq.ui.i18n import marked, ngettext

# After midnight a day opens within a minute; until then the page refreshes.
OPENING = timedelta(seconds=30)
# Ages on the page are at most this old.
AGES = timedelta(minutes=1)
DAYS = 14
BANDS = {
    "complete": marked("complete"),
    "acceptable": marked("acceptable"),
    "warning": marked("warning"),
    "alert": marked("alert"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """`zone_today`: a day that is open keeps its zone when its site gets another (D-155)."""

    site_id: UUID
    site_name: str
    timezone: str
    is_active: bool
    program_name: str
    today: date
    zone_today: str
    cameras: int
    last_seen_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Day:
    """A row of site_device_sessions."""

    session_id: UUID
    site_id: UUID
    session_date: date
    timezone: str
    expected: int
    completed: int
    failed: int
    extra: int
    status: str
    opened_at: datetime
    config_changed: bool
    late_updates: int
    locked_at: datetime | None


@dataclass(frozen=True, slots=True)
class DayCell:
    """A day of the two weeks; `share`, 0 to 1, is the height of its bar."""

    date: date
    band: str
    share: float
    says: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    site: Site
    key: str
    href: str
    date_words: str
    zone: str
    local_time: str
    day: Day | None
    complete_percent: int | None
    with_extra: bool
    band: str
    strip: Strip
    days: tuple[DayCell, ...]
    days_say: str

    @property
    def attention(self) -> bool:
        return self.strip.problems > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """`seen_until`: with too many wakes for a page, the time of the last one on it."""

    company: Company
    now: datetime
    rows: tuple[Row, ...]
    refresh_at: datetime
    seen_until: datetime | None
    page: str = "sites"
    zone: str = ""

    @property
    def problems(self) -> int:
        return sum(row.attention for row in self.rows)

    @property
    def sentence(self) -> str:
        count = len(self.rows)
        given = {"num": self.problems, "total": count}
        if not count:
            return _("No sites yet")
        if self.seen_until is not None:
            return _("At least %(num)s of %(total)s sites need attention") % given
        if not self.problems:
            return ngettext("The only site is on track", "All %(num)s sites on track", count) % {
                "num": count
            }
        if count == 1:
            return _("The only site needs attention")
        return (
            ngettext(
                "%(num)s of %(total)s sites needs attention",
                "%(num)s of %(total)s sites need attention",
                self.problems,
            )
            % given
        )

    @property
    def title(self) -> str:
        return words.title(_("Sites"), problems=self.problems)


def site_address(
    site_id: UUID, path: str = "", *, day: date | None = None, camera: UUID | None = None
) -> str:
    given = {"date": day.isoformat() if day else None, "camera": camera}
    query = urlencode({name: str(value) for name, value in given.items() if value})
    return f"/sites/{site_id}{path}{'?' if query else ''}{query}"


def band(day: Day | None) -> str:
    """A day has no band before it ends: at one in the morning nothing is complete yet."""
    if day is None or not day.expected:
        return "n/a"
    name = completeness.band(day.completed, day.expected)
    return name if day.status == "locked" else "going"


def with_extra(day: Day | None, strip: Strip) -> bool:
    """Whether extra wakes change the percentage: then the page says so."""
    if day is None:
        return False
    received = next((e.count for e in strip.tallies if e.state is strips.State.RECEIVED), 0)
    alone, together = (completeness.shown(n, day.expected) for n in (received, day.completed))
    return alone != together


def two_weeks(days: Mapping[date, Day], *, today: date) -> tuple[DayCell, ...]:
    """The last fourteen days, today at the end; a day without a session stays a gap."""
    dates = [today - timedelta(days=back) for back in reversed(range(DAYS))]
    return tuple(_day_cell(day, days.get(day)) for day in dates)


def _day_cell(at: date, day: Day | None) -> DayCell:
    if day is None:
        return DayCell(at, "none", 0, _("%(day)s: no session") % {"day": words.day(at)})
    shown = completeness.shown(day.completed, day.expected)
    day_band = band(day)
    if shown is None:
        text = _("nothing expected")
    elif day_band == "going":
        text = _("%(percent)s%% so far") % {"percent": shown}
    else:
        text = _("%(percent)s%%, %(band)s") % {"percent": shown, "band": _(BANDS[day_band])}
    return DayCell(at, day_band, (shown or 0) / 100, f"{words.day(at)}: {text}")


def _days_say(cells: Sequence[DayCell]) -> str:
    counts = Counter(cell.band for cell in cells if cell.band not in ("none", "going", "n/a"))
    texts = [
        _("%(count)s %(word)s") % {"count": counts[name], "word": _(word)}
        for name, word in BANDS.items()
        if counts[name]
    ]
    return ", ".join(texts) or _("no day with expected wakes is over yet")


def view(
    company: Company,
    sites: Sequence[Site],
    *,
    days: Sequence[Day],
    wakes: Sequence[Wake],
    cameras: Sequence[Camera],
    now: datetime,
) -> View:
    """`days` are those of the last two weeks, `wakes` those of each site's today."""
    of_site: dict[UUID, dict[date, Day]] = {}
    for day in days:
        of_site.setdefault(day.site_id, {})[day.session_date] = day
    of_session: dict[UUID, list[Wake]] = {}
    for wake in wakes:
        of_session.setdefault(wake.session_id, []).append(wake)
    known = {camera.device_id: camera for camera in cameras}
    ordered = sorted(sites, key=lambda site: (not site.is_active, site.site_name.casefold()))
    rows = tuple(
        _row(site, of_site.get(site.site_id, {}), of_session, known, now=now) for site in ordered
    )
    # Sites that need attention come first, in the same order.
    rows = tuple(sorted(rows, key=lambda row: not row.attention))
    return View(
        company=company,
        now=now,
        rows=rows,
        refresh_at=refresh_at(sites, wakes, days, now=now),
        seen_until=_seen_until(wakes, now=now),
    )


def _seen_until(wakes: Sequence[Wake], *, now: datetime) -> datetime | None:
    """None if only wakes that are due later are left out: they need no action yet."""
    if len(wakes) < strips.MAX_WAKES or wakes[-1].at + strips.GRACE > now:
        return None
    return wakes[-1].at


def _row(
    site: Site,
    days: Mapping[date, Day],
    wakes: Mapping[UUID, Sequence[Wake]],
    cameras: Mapping[UUID, Camera],
    *,
    now: datetime,
) -> Row:
    zone = words.zone(site.zone_today)
    today = days.get(site.today)
    cells = two_weeks(days, today=site.today)
    of_today = wakes.get(today.session_id, ()) if today else ()
    strip = strips.strip(of_today, cameras, now=now, zone=zone, max_cells=strips.MAX_CELLS_IN_LIST)
    return Row(
        site=site,
        key=f"s-{site.site_id}",
        href=site_address(site.site_id),
        date_words=words.day(site.today),
        zone=words.zone_name(zone, now),
        local_time=f"{now.astimezone(zone):%H:%M}",
        day=today,
        complete_percent=completeness.shown(today.completed, today.expected) if today else None,
        with_extra=with_extra(today, strip),
        band=band(today),
        strip=strip,
        days=cells,
        days_say=_days_say(cells),
    )


def midnight(day: date, zone: ZoneInfo) -> datetime:
    """When a local day begins: at midnight, or at its first instant if midnight is skipped."""
    naive = datetime.combine(day, time(), tzinfo=zone)
    return naive.astimezone(UTC)


def takes_effect_at(day: date, site: Site) -> datetime:
    """When a date begins at a site, but not before the open day has ended."""
    return max(midnight(day, words.zone(name)) for name in (site.timezone, site.zone_today))


def refresh_at(
    sites: Iterable[Site], wakes: Iterable[Wake], days: Iterable[Day], *, now: datetime
) -> datetime:
    """When a page changes though nothing arrives: a wake becomes overdue, or a day ends."""
    opened = {(day.site_id, day.session_date) for day in days}
    overdue = (wake.at + strips.GRACE for wake in wakes if wake.status is None and wake.required)
    ends = (
        midnight(site.today + timedelta(days=1), words.zone(site.zone_today))
        if (site.site_id, site.today) in opened or not site.is_active
        else now + OPENING
        for site in sites
    )
    changes = (at for at in (*overdue, *ends) if at > now)
    return min((now + AGES, *changes))
