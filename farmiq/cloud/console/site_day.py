"""What the page of one site says: pure, from a day's wakes, its cameras and a clock.

The sentence, the strip, the cameras' counts and the list of wakes come from the same rows.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from uuid import UUID
from zoneinfo import ZoneInfo

from farmiq.cloud import completeness
from farmiq.cloud.console import sites, strips, words
from farmiq.cloud.console.readings import Company
from farmiq.cloud.console.sites import Day, Site
from farmiq.cloud.console.strips import Camera, State, Strip, Wake

MAX_ROWS = 100
# Besides the newest, so many that failed are listed: each has its button.
MAX_FAILED = 100
MAX_NOTE = 160
# A page with more wakes lists those of cameras that are open; the others come when asked for.
MAX_LISTED = 600
# Two missed wakes: what it last said is old.
SILENT_AFTER = 2
LOW_BATTERY_V = 3.6
WEAK_DBM, FAIR_DBM = -80, -70
_MINUTES, _MINUTE_S, _HOUR_S = 60, 60, 3600
_EXTRA_WORDS = {
    "off_schedule": "extra: at no expected time",
    "bucket_taken": "extra: another wake took that time",
}
BLEMISHES = {
    "blurred": "Blurred",
    "dark": "Too dark",
    "bright": "Too bright",
    "unreadable": "Unreadable",
    "missing": "Not in the store",
}
NOT_SHOWN = frozenset({"unreadable", "missing"})
RESENDERS = frozenset({"operator", "technician", "admin"})
SCHEDULERS = frozenset({"technician", "admin"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Shot:
    """An image of a camera: its name, why it failed, and whether somebody asked for it again.

    `quality` is the verdict on it if it is not ok, `quality_reason` why.
    """

    image_id: UUID
    image_name: str
    error_code: str | None
    error_message: str | None
    retry_count: int
    resend_requested_at: datetime | None
    quality: str | None = None
    quality_reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A schedule that waits for its day."""

    change_id: UUID
    device_id: UUID
    cron: str
    effective_date: date


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    alert_id: UUID
    device_name: str | None
    message: str


@dataclass(frozen=True, slots=True)
class May:
    """What somebody may do besides looking, by their role in the company."""

    resend: bool = False
    schedule: bool = False


def may(role: str | None, *, is_super_admin: bool) -> May:
    return May(is_super_admin or role in RESENDERS, is_super_admin or role in SCHEDULERS)


@dataclass(frozen=True, slots=True, kw_only=True)
class WakeRow:
    wake: Wake
    name: str
    key: str
    state: State
    word: str
    at: str
    at_utc: str
    arrived: str
    notes: tuple[str, ...]
    asked: str
    quality: str = ""
    quality_reason: str = ""

    @property
    def picture(self) -> bool:
        return self.state is State.RECEIVED and self.quality not in NOT_SHOWN

    @property
    def blemish(self) -> str:
        """What is wrong with the picture, in a word or two."""
        return BLEMISHES.get(self.quality, "")

    @property
    def may_resend(self) -> bool:
        """What failed can be asked for again, and again if nothing came of it."""
        return self.state is State.FAILED


@dataclass(frozen=True, slots=True, kw_only=True)
class CameraCard:
    """`standing` is one of in-touch, silent, never, retired, moved.

    `hidden` wakes are not listed, some of which failed; `withheld` ones are, when this camera is
    asked for.
    """

    camera: Camera
    key: str
    says: str
    standing: str
    word: str
    last_seen: str
    last_seen_utc: str
    battery: str
    battery_low: bool
    signal: str
    queue: str
    strip: Strip
    rows: tuple[WakeRow, ...]
    hidden: int
    hidden_failed: int
    withheld: int
    failed: int
    next_due: str
    is_open: bool

    @property
    def is_old(self) -> bool:
        return self.standing != "in-touch"

    @property
    def more(self) -> str:
        failed = f", {self.hidden_failed:,} of them failed" if self.hidden_failed else ""
        return f"and {self.hidden:,} more of this day{failed}; all of them are counted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    camera: Camera
    href: str
    today: str
    change: Change | None
    takes_effect: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A day of a site (None: today), and a camera that is to be seen open."""

    day: date | None = None
    camera: UUID | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    company: Company
    site: Site
    now: datetime
    as_of: str
    zone: str
    session_date: date
    day: Day | None
    strip: Strip
    cameras: tuple[CameraCard, ...]
    schedules: tuple[Schedule, ...]
    alerts: tuple[Alert, ...]
    may: May
    asked: Asked
    turns_at: datetime

    @property
    def is_today(self) -> bool:
        return self.session_date == self.site.today

    @property
    def heading(self) -> str:
        return f"Device Session: {completeness.day(self.session_date)}"

    @property
    def counts(self) -> str:
        return sites.counts(self.day)

    @property
    def complete(self) -> str:
        return completeness.words(self.day.completed, self.day.expected) if self.day else "n/a"

    @property
    def band(self) -> str:
        return sites.band(self.day)

    @property
    def bar(self) -> tuple[int, int]:
        """How many of how many pieces are full."""
        if self.day is None:
            return 0, completeness.WIDTH
        drawn = completeness.bar(self.day.completed, self.day.expected)
        return drawn.count("█"), completeness.WIDTH

    @property
    def with_extra(self) -> bool:
        return sites.with_extra(self.day, self.strip)

    @property
    def problems(self) -> int:
        return self.strip.problems

    @property
    def sentence(self) -> str:
        when = "today" if self.is_today else f"on {completeness.day(self.session_date)}"
        if self.day is None:
            return f"No session {when}"
        if self.strip.problems:
            return f"{self.strip.problems_say} {when}"
        if not self.strip.tallies:
            return f"No wakes expected {when}"
        found = {each.state: each.count for each in self.strip.tallies}
        due = found.get(State.DUE, 0)
        if set(found) == {State.NOT_OWED}:
            return f"No wakes are owed {when}"
        if due and set(found) <= {State.DUE, State.NOT_OWED}:
            return "Nothing is due yet today"
        all_of_them = "owed" if State.NOT_OWED in found else "expected"
        return f"On track {when}" if due else f"Every {all_of_them} wake was received {when}"

    @property
    def title(self) -> str:
        return words.title(words.cut(self.site.site_name), problems=self.problems)

    @property
    def status(self) -> str:
        return "" if self.day is None else _status_words(self.day, self.zone_info)

    @property
    def zone_info(self) -> ZoneInfo:
        return words.zone(self.day.timezone if self.day else self.site.timezone)

    @property
    def fragment(self) -> str:
        return self.address("/parts", day=self.asked.day)

    @property
    def previous(self) -> str:
        return self.address(day=self.session_date - timedelta(days=1))

    @property
    def following(self) -> str | None:
        """No day is opened ahead of its midnight."""
        after = self.session_date + timedelta(days=1)
        if after > self.site.today:
            return None
        return self.address(day=None if after == self.site.today else after)

    def address(self, path: str = "", *, day: date | None = None) -> str:
        return sites.site_address(self.site.site_id, path, day=day, camera=self.asked.camera)

    def opening(self, card: CameraCard) -> str:
        at = sites.site_address(self.site.site_id, day=self.asked.day, camera=card.camera.device_id)
        return f"{at}#{card.key}"


@dataclass(frozen=True, slots=True)
class _Look:
    """What a page is made with: the moment, the site's zone, what is known of the images."""

    now: datetime
    zone: ZoneInfo
    day: Day | None
    shots: Mapping[UUID, Shot]

    def shot(self, wake: Wake) -> Shot | None:
        return self.shots.get(wake.image_id) if wake.image_id else None

    def ago(self, at: datetime) -> str:
        return words.ago((self.now - at).total_seconds())


def view(
    company: Company,
    site: Site,
    *,
    day: Day | None,
    wakes: Sequence[Wake],
    shots: Mapping[UUID, Shot],
    cameras: Sequence[Camera],
    changes: Sequence[Change],
    alerts: Sequence[Alert],
    asked: Asked,
    may: May,
    now: datetime,
) -> View:
    look = _Look(now, words.zone(day.timezone if day else site.timezone), day, shots)
    known = {each.device_id: each for each in cameras}
    shown = asked.day or site.today
    of_camera: dict[UUID, list[Wake]] = {each.device_id: [] for each in cameras}
    for wake in wakes:
        of_camera.setdefault(wake.device_id, []).append(wake)
    opened = {asked.camera} if len(cameras) > 1 else set(known)
    cards = [
        _card(each, of_camera[each.device_id], look, opened=each.device_id in opened)
        for each in cameras
        if of_camera[each.device_id] or (each.is_here and each.is_active and shown == site.today)
    ]
    waiting = {each.device_id: each for each in changes}
    return View(
        company=company,
        site=site,
        now=now,
        as_of=f"{now.astimezone(look.zone):%H:%M:%S}",
        zone=words.zone_name(look.zone, now),
        session_date=shown,
        day=day,
        strip=strips.strip(wakes, known, now=now, zone=look.zone),
        cameras=_few_enough(cards, asked.camera),
        schedules=tuple(
            _schedule(each, site, of_camera[each.device_id], waiting.get(each.device_id), now=now)
            for each in cameras
            if each.is_here and each.is_active
        ),
        alerts=tuple(alerts),
        may=may,
        asked=asked,
        turns_at=sites.turns_at([site], wakes, [day] if day else [], now=now),
    )


def _few_enough(cards: Sequence[CameraCard], asked: UUID | None) -> tuple[CameraCard, ...]:
    """All of two hundred cameras would be megabytes: then only what is open is listed.

    Of many that are open the first ones, the one asked for in any case.
    """
    left = MAX_LISTED
    if sum(len(card.rows) for card in cards) <= left:
        return tuple(cards)
    found = []
    for card in cards:
        listed = card.camera.device_id == asked or (card.is_open and len(card.rows) <= left)
        left -= len(card.rows) if listed else 0
        found.append(card if listed else replace(card, rows=(), hidden=0, withheld=len(card.rows)))
    return tuple(found)


def _card(camera: Camera, wakes: Sequence[Wake], look: _Look, *, opened: bool) -> CameraCard:
    rows = [wake_row(each, camera, look) for each in wakes]
    told = sorted(
        (row for row in rows if row.state not in (State.DUE, State.NOT_OWED)),
        key=lambda row: (row.wake.at, row.key), reverse=True,
    )  # fmt: skip
    shown, hidden = told[:MAX_ROWS], told[MAX_ROWS:]
    older_failed = [row for row in hidden if row.state is State.FAILED]
    shown += older_failed[:MAX_FAILED]
    # What is due since a moment ago still is; the next one is yet to come.
    due = sorted(e.at for e in wakes if e.status is None and e.owed and e.at > look.now)
    received = sum(each.status == "complete" for each in wakes)
    expected = sum(each.expected_at is not None for each in wakes)
    failed = sum(row.state is State.FAILED for row in rows)
    standing, word = _standing(camera)
    return CameraCard(
        camera=camera,
        key=f"c-{camera.device_id}",
        says=completeness.device(
            words.cut(camera.device_name), received=received, expected=expected
        ),
        standing=standing,
        word=word,
        last_seen=sites.ago(camera.last_seen_at, now=look.now),
        last_seen_utc=sites.utc(camera.last_seen_at),
        battery="not said" if camera.battery_voltage is None else f"{camera.battery_voltage:.2f} V",
        battery_low=camera.battery_voltage is not None and camera.battery_voltage < LOW_BATTERY_V,
        signal=_signal(camera.wifi_rssi),
        queue=_queue(camera.pending_count),
        strip=strips.strip(wakes, {camera.device_id: camera}, now=look.now, zone=look.zone),
        rows=tuple(shown),
        hidden=len(told) - len(shown),
        hidden_failed=len(older_failed[MAX_FAILED:]),
        withheld=0,
        failed=failed,
        next_due=f"{due[0].astimezone(look.zone):%H:%M}" if due else "",
        is_open=opened or failed > 0,
    )


def wake_row(wake: Wake, camera: Camera, look: _Look) -> WakeRow:
    found = strips.state(wake, camera, now=look.now)
    shot = look.shot(wake)
    return WakeRow(
        wake=wake,
        name=shot.image_name if shot else "",
        key=f"i-{wake.image_id or f'{camera.device_id}-{wake.at:%H%M}'}",
        state=found,
        word=strips.WORDS[found],
        at=_at(wake, look),
        at_utc=sites.utc(wake.at),
        arrived=_arrived(wake, shot, look.zone),
        notes=tuple(_notes(wake, found, camera, look)),
        asked=_asked_for(shot, look) if found is State.FAILED else "",
        quality=(shot and shot.quality) or "",
        quality_reason=(shot and shot.quality_reason) or "",
    )


def _at(wake: Wake, look: _Look) -> str:
    """Its day stands above; what a clock said that is not believed has its date too."""
    if wake.image_id is None:
        return f"{wake.at.astimezone(look.zone):%H:%M}"
    beside = look.now if wake.clock_suspect else wake.at
    return words.instant(wake.at, now=beside, zone=look.zone)


def _arrived(wake: Wake, shot: Shot | None, zone: ZoneInfo) -> str:
    if wake.received_at is None or not strips.arrived_late(wake):
        return ""
    after = " after it was sent again" if shot and shot.retry_count else ""
    return f"arrived {words.instant(wake.received_at, now=wake.at, zone=zone)}{after}"


def _notes(wake: Wake, found: State, camera: Camera, look: _Look) -> Iterable[str]:
    if wake.overage_reason:
        yield _extra_words(wake.overage_reason, camera, look.day)
    if wake.clock_suspect:
        yield "it came with no time that can be right: its arrival counts"
    if found is State.FAILED:
        shot = look.shot(wake)
        said = shot and (shot.error_message or shot.error_code)
        yield words.cut(said, MAX_NOTE) if said else "no reason given"
    if found is State.OVERDUE:
        yield _overdue_words(wake, camera, look)
    if found is State.LOST:
        yield "the camera was in touch since and holds no more images"


def _overdue_words(wake: Wake, camera: Camera, look: _Look) -> str:
    seen = camera.last_seen_at
    if seen is None:
        return "the camera was never seen"
    if camera.pending_count == 0 and seen > wake.at:
        return (
            "the camera was in touch since and holds no image; lost, if none comes within the hour"
        )
    return f"probably still on the camera, last seen {look.ago(seen)}"


def _extra_words(reason: str, camera: Camera, day: Day | None) -> str:
    """`no_schedule` is written wherever a day expects nothing of a camera; here stands why."""
    if reason in _EXTRA_WORDS:
        return _EXTRA_WORDS[reason]
    if not camera.wake_schedule_cron:
        return "extra: the camera has no schedule"
    if day and camera.here_since and camera.here_since > day.opened_at:
        return "extra: the camera came after this day had opened; the next one expects it"
    return "extra: this day expects nothing of the camera"


def _asked_for(shot: Shot | None, look: _Look) -> str:
    if shot is None or shot.resend_requested_at is None:
        return ""
    return f"asked for again {look.ago(shot.resend_requested_at)}; it comes when the camera wakes"


def _standing(camera: Camera) -> tuple[str, str]:
    if not camera.is_active:
        return "retired", "Retired"
    if not camera.is_here:
        return "moved", "At another site now"
    if camera.last_seen_at is None:
        return "never", "Never seen"
    if camera.missed >= SILENT_AFTER:
        return "silent", f"Silent for {words.count(camera.missed, 'wake')}"
    return "in-touch", "In touch"


def _signal(rssi: float | None) -> str:
    if rssi is None:
        return "not said"
    word = "weak" if rssi < WEAK_DBM else "fair" if rssi < FAIR_DBM else "good"
    return f"{rssi:.0f} dBm, {word}".replace("-", "\N{MINUS SIGN}")


def _queue(pending: int | None) -> str:
    if pending is None:
        return "not said"
    return "empty" if pending == 0 else f"{words.count(pending, 'image')} waiting"


def _schedule(
    camera: Camera, site: Site, wakes: Sequence[Wake], change: Change | None, *, now: datetime
) -> Schedule:
    expected = sum(each.expected_at is not None for each in wakes)
    at = sites.takes_effect_at(change.effective_date, site) if change else now
    return Schedule(
        camera=camera,
        href=f"/sites/{site.site_id}/cameras/{camera.device_id}/schedule",
        today=words.count(expected, "wake"),
        change=change,
        takes_effect=effect(at, now=now) if change else "",
    )


def effect(at: datetime, *, now: datetime) -> str:
    """The words of DB2-02, of real hours: on the day the clock changes they are not 24."""
    return f"at midnight ({hours(at - now)} from now)"


def hours(left: timedelta) -> str:
    """Whole hours, rounded; below one, minutes. In the words of fn_time_left."""
    seconds = left.total_seconds()
    minutes = max(1, round(seconds / _MINUTE_S))
    if minutes < _MINUTES:
        return words.count(minutes, "minute")
    return words.count(math.floor(seconds / _HOUR_S + 0.5), "hour")


def _status_words(day: Day, zone: ZoneInfo) -> str:
    said = {
        "pending": "The day is open; no camera has woken yet.",
        "in_progress": "The day is going on.",
    }.get(day.status, "")
    if day.locked_at is not None:
        said = (
            f"The day is over, locked {words.instant(day.locked_at, now=day.locked_at, zone=zone)}."
        )
        if day.late_updates:
            said += f" {words.count(day.late_updates, 'arrival')} after that still counted."
    if day.config_changed:
        said += " Schedules changed with this day."
    return said
