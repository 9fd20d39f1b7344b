"""What the page Sites says: pure, from the days of the last two weeks, today's wakes and a clock.

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
from farmiq.cloud.console import strips, words
from farmiq.cloud.console.readings import Company
from farmiq.cloud.console.strips import Camera, Strip, Wake

# After midnight a day opens within a minute; until then the page looks again.
OPENING = timedelta(seconds=30)
# Ages on the page are never older than this.
AGES = timedelta(minutes=1)
DAYS = 14
BANDS = ("complete", "acceptable", "warning", "alert")


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
    """A day of the two weeks; `share` of 0 to 1 is how high it is drawn."""

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
    counts: str
    complete: str
    with_extra: bool
    band: str
    strip: Strip
    days: tuple[DayCell, ...]
    days_say: str
    cameras: str
    last_seen: str
    last_seen_utc: str

    @property
    def attention(self) -> bool:
        return self.strip.problems > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """`seen_until`: of more wakes than a page looks at, nothing after this is in it."""

    company: Company
    now: datetime
    rows: tuple[Row, ...]
    turns_at: datetime
    seen_until: datetime | None

    @property
    def problems(self) -> int:
        return sum(row.attention for row in self.rows)

    @property
    def sentence(self) -> str:
        count = len(self.rows)
        if not count:
            return "No sites yet"
        if self.seen_until is not None:
            return f"At least {self.problems} of {words.count(count, 'site')} need attention"
        if not self.problems:
            return "The only site is on track" if count == 1 else f"All {count} sites on track"
        if count == 1:
            return "The only site needs attention"
        need = "needs" if self.problems == 1 else "need"
        return f"{self.problems} of {count} sites {need} attention"

    @property
    def title(self) -> str:
        return words.title("Sites", problems=self.problems)


def site_address(
    site_id: UUID, path: str = "", *, day: date | None = None, camera: UUID | None = None
) -> str:
    given = {"date": day.isoformat() if day else None, "camera": camera}
    said = urlencode({name: str(value) for name, value in given.items() if value})
    return f"/sites/{site_id}{path}{'?' if said else ''}{said}"


def counts(day: Day | None) -> str:
    """The second line of DB2-05."""
    if day is None:
        return ""
    return (
        f"Expected: {day.expected} | Completed: {day.completed} | "
        f"Failed: {day.failed} | Extra: {day.extra}"
    )


def band(day: Day | None) -> str:
    """While a day goes on nobody judges it: at one in the morning nothing is complete yet."""
    if day is None or not day.expected:
        return "n/a"
    found = completeness.band(day.completed, day.expected)
    return found if day.status == "locked" else "going"


def with_extra(day: Day | None, found: Strip) -> bool:
    """Whether the percentage would be another without extra wakes: then it says so."""
    if day is None:
        return False
    received = next((e.count for e in found.tallies if e.state is strips.State.RECEIVED), 0)
    alone, together = (completeness.shown(n, day.expected) for n in (received, day.completed))
    return alone != together


def two_weeks(days: Mapping[date, Day], *, today: date) -> tuple[DayCell, ...]:
    """The last fourteen days, today at the end; a day without a session stays a gap."""
    dates = [today - timedelta(days=back) for back in reversed(range(DAYS))]
    return tuple(_day_cell(each, days.get(each)) for each in dates)


def _day_cell(at: date, day: Day | None) -> DayCell:
    if day is None:
        return DayCell(at, "none", 0, f"{completeness.day(at)}: no session")
    shown = completeness.shown(day.completed, day.expected)
    found = band(day)
    said = "nothing expected" if shown is None else f"{shown}%"
    if shown is not None:
        said += " so far" if found == "going" else f", {found}"
    return DayCell(at, found, (shown or 0) / 100, f"{completeness.day(at)}: {said}")


def _days_say(cells: Sequence[DayCell]) -> str:
    found = Counter(cell.band for cell in cells if cell.band not in ("none", "going", "n/a"))
    said = [f"{found[each]} {each}" for each in BANDS if found[each]]
    return ", ".join(said) or "no day with expected wakes is over yet"


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
    known = {each.device_id: each for each in cameras}
    ordered = sorted(sites, key=lambda each: (not each.is_active, each.site_name.casefold()))
    rows = tuple(
        _row(each, of_site.get(each.site_id, {}), of_session, known, now=now) for each in ordered
    )
    # Rows of sites that need somebody come first; within them the order stays.
    rows = tuple(sorted(rows, key=lambda row: not row.attention))
    return View(
        company=company,
        now=now,
        rows=rows,
        turns_at=turns_at(sites, wakes, days, now=now),
        seen_until=_seen_until(wakes, now=now),
    )


def _seen_until(wakes: Sequence[Wake], *, now: datetime) -> datetime | None:
    """What is due later may be left out: nobody has to do anything about it yet."""
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
    found = strips.strip(of_today, cameras, now=now, zone=zone)
    return Row(
        site=site,
        key=f"s-{site.site_id}",
        href=site_address(site.site_id),
        date_words=completeness.day(site.today),
        zone=words.zone_name(zone, now),
        local_time=f"{now.astimezone(zone):%H:%M}",
        day=today,
        counts=counts(today),
        complete=completeness.words(today.completed, today.expected) if today else "",
        with_extra=with_extra(today, found),
        band=band(today),
        strip=found,
        days=cells,
        days_say=_days_say(cells),
        cameras=words.count(site.cameras, "camera") if site.cameras else "no camera",
        last_seen=ago(site.last_seen_at, now=now),
        last_seen_utc=utc(site.last_seen_at),
    )


def midnight(day: date, zone: ZoneInfo) -> datetime:
    """When a local day begins; where its midnight is skipped, at its first instant."""
    naive = datetime.combine(day, time(), tzinfo=zone)
    return naive.astimezone(UTC)


def takes_effect_at(day: date, site: Site) -> datetime:
    """When a date begins at a site, at the earliest when the day that is open has ended."""
    return max(midnight(day, words.zone(each)) for each in (site.timezone, site.zone_today))


def turns_at(
    sites: Iterable[Site], wakes: Iterable[Wake], days: Iterable[Day], *, now: datetime
) -> datetime:
    """When a page turns though nothing arrives: a wake falls overdue, a day ends."""
    opened = {(each.site_id, each.session_date) for each in days}
    overdue = (each.at + strips.GRACE for each in wakes if each.status is None and each.owed)
    ends = (
        midnight(each.today + timedelta(days=1), words.zone(each.zone_today))
        if (each.site_id, each.today) in opened or not each.is_active
        else now + OPENING
        for each in sites
    )
    turns = (at for at in (*overdue, *ends) if at > now)
    return min((now + AGES, *turns))


def ago(at: datetime | None, *, now: datetime) -> str:
    return "never" if at is None else words.ago((now - at).total_seconds())


def utc(at: datetime | None) -> str:
    return "" if at is None else f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
