"""Pure: the page of one site, from a day's wakes, its cameras and the time.

The sentence, the strip, the cameras' counts and the list of wakes come from the same rows.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from uuid import UUID
from zoneinfo import ZoneInfo

from farmiq.cloud import completeness
from farmiq.cloud.console.company.view import Company
from farmiq.cloud.console.sites import strips
from farmiq.cloud.console.sites import view as sites
from farmiq.cloud.console.sites.strips import Camera, State, Strip, Wake
from farmiq.cloud.console.sites.view import Day, Site
from farmiq.ui import words

MAX_ROWS = 100
# Besides the newest, so many failed ones are listed, each with its button.
MAX_FAILED = 100
MAX_NOTE = 160
# A page with more wakes lists only those of open cameras; a link shows the others.
MAX_LISTED = 600
# After two missed wakes, the last values of a camera are old.
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
class WakeImage:
    """An image of a wake: its name, why it failed, and whether it was requested again.

    `quality` is set if it is not ok, with the reason in `quality_reason`.
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
    """What a person may do besides reading, by their role in the company."""

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
    resend_text: str
    quality: str = ""
    quality_reason: str = ""

    @property
    def picture(self) -> bool:
        return self.state is State.RECEIVED and self.quality not in NOT_SHOWN

    @property
    def blemish(self) -> str:
        """The problem of the image, in a word or two."""
        return BLEMISHES.get(self.quality, "")

    @property
    def may_resend(self) -> bool:
        """A failed image can be requested again, any number of times."""
        return self.state is State.FAILED


@dataclass(frozen=True, slots=True, kw_only=True)
class CameraCard:
    """`standing` is one of in-touch, silent, never, retired, moved.

    `hidden` wakes are not listed, `hidden_failed` of them failed. `withheld` wakes are listed on
    the page of this camera only.
    """

    camera: Camera
    key: str
    says: str
    contact: str
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
        return self.contact != "in-touch"

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
class SiteDayQuery:
    """A day of a site (None: today), and the camera that is open on the page."""

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
    query: SiteDayQuery
    refresh_at: datetime

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
        counts = {tally.state: tally.count for tally in self.strip.tallies}
        due = counts.get(State.DUE, 0)
        if set(counts) == {State.NOT_REQUIRED}:
            return f"No wakes are owed {when}"
        if due and set(counts) <= {State.DUE, State.NOT_REQUIRED}:
            return "Nothing is due yet today"
        kind = "owed" if State.NOT_REQUIRED in counts else "expected"
        return f"On track {when}" if due else f"Every {kind} wake was received {when}"

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
        return self.address("/parts", day=self.query.day)

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
        return sites.site_address(self.site.site_id, path, day=day, camera=self.query.camera)

    def opening(self, card: CameraCard) -> str:
        at = sites.site_address(self.site.site_id, day=self.query.day, camera=card.camera.device_id)
        return f"{at}#{card.key}"


@dataclass(frozen=True, slots=True)
class _Look:
    """What all parts of a page need: the time, the site's zone, the day, the images."""

    now: datetime
    zone: ZoneInfo
    day: Day | None
    images: Mapping[UUID, WakeImage]

    def image(self, wake: Wake) -> WakeImage | None:
        return self.images.get(wake.image_id) if wake.image_id else None

    def ago(self, at: datetime) -> str:
        return words.ago((self.now - at).total_seconds())


def view(
    company: Company,
    site: Site,
    *,
    day: Day | None,
    wakes: Sequence[Wake],
    images: Mapping[UUID, WakeImage],
    cameras: Sequence[Camera],
    changes: Sequence[Change],
    alerts: Sequence[Alert],
    query: SiteDayQuery,
    may: May,
    now: datetime,
) -> View:
    look = _Look(now, words.zone(day.timezone if day else site.timezone), day, images)
    known = {camera.device_id: camera for camera in cameras}
    shown = query.day or site.today
    of_camera: dict[UUID, list[Wake]] = {camera.device_id: [] for camera in cameras}
    for wake in wakes:
        of_camera.setdefault(wake.device_id, []).append(wake)
    opened = {query.camera} if len(cameras) > 1 else set(known)
    cards = [
        _card(camera, of_camera[camera.device_id], look, opened=camera.device_id in opened)
        for camera in cameras
        if of_camera[camera.device_id]
        or (camera.is_here and camera.is_active and shown == site.today)
    ]
    waiting = {change.device_id: change for change in changes}
    return View(
        company=company,
        site=site,
        now=now,
        as_of=f"{now.astimezone(look.zone):%H:%M:%S}",
        zone=words.zone_name(look.zone, now),
        session_date=shown,
        day=day,
        strip=strips.strip(wakes, known, now=now, zone=look.zone),
        cameras=_limit_rows(cards, query.camera),
        schedules=tuple(
            _schedule(
                camera, site, of_camera[camera.device_id], waiting.get(camera.device_id), now=now
            )
            for camera in cameras
            if camera.is_here and camera.is_active
        ),
        alerts=tuple(alerts),
        may=may,
        query=query,
        refresh_at=sites.refresh_at([site], wakes, [day] if day else [], now=now),
    )


def _limit_rows(cards: Sequence[CameraCard], open_camera: UUID | None) -> tuple[CameraCard, ...]:
    """List only the open cameras if all would be too many: 200 cameras are megabytes.

    Of many open ones the first are listed, `open_camera` always.
    """
    left = MAX_LISTED
    if sum(len(card.rows) for card in cards) <= left:
        return tuple(cards)
    shown = []
    for card in cards:
        listed = card.camera.device_id == open_camera or (card.is_open and len(card.rows) <= left)
        left -= len(card.rows) if listed else 0
        shown.append(card if listed else replace(card, rows=(), hidden=0, withheld=len(card.rows)))
    return tuple(shown)


def _card(camera: Camera, wakes: Sequence[Wake], look: _Look, *, opened: bool) -> CameraCard:
    rows = [wake_row(wake, camera, look) for wake in wakes]
    past = sorted(
        (row for row in rows if row.state not in (State.DUE, State.NOT_REQUIRED)),
        key=lambda row: (row.wake.at, row.key), reverse=True,
    )  # fmt: skip
    shown, hidden = past[:MAX_ROWS], past[MAX_ROWS:]
    older_failed = [row for row in hidden if row.state is State.FAILED]
    shown += older_failed[:MAX_FAILED]
    # A wake that has just become due is not the next one.
    due = sorted(e.at for e in wakes if e.status is None and e.required and e.at > look.now)
    received = sum(wake.status == "complete" for wake in wakes)
    expected = sum(wake.expected_at is not None for wake in wakes)
    failed = sum(row.state is State.FAILED for row in rows)
    contact, word = _contact(camera)
    return CameraCard(
        camera=camera,
        key=f"c-{camera.device_id}",
        says=completeness.device(
            words.cut(camera.device_name), received=received, expected=expected
        ),
        contact=contact,
        word=word,
        last_seen=sites.ago(camera.last_seen_at, now=look.now),
        last_seen_utc=sites.utc(camera.last_seen_at),
        battery="not said" if camera.battery_voltage is None else f"{camera.battery_voltage:.2f} V",
        battery_low=camera.battery_voltage is not None and camera.battery_voltage < LOW_BATTERY_V,
        signal=_signal(camera.wifi_rssi),
        queue=_queue(camera.pending_count),
        strip=strips.strip(wakes, {camera.device_id: camera}, now=look.now, zone=look.zone),
        rows=tuple(shown),
        hidden=len(past) - len(shown),
        hidden_failed=len(older_failed[MAX_FAILED:]),
        withheld=0,
        failed=failed,
        next_due=f"{due[0].astimezone(look.zone):%H:%M}" if due else "",
        is_open=opened or failed > 0,
    )


def wake_row(wake: Wake, camera: Camera, look: _Look) -> WakeRow:
    state = strips.state(wake, camera, now=look.now)
    image = look.image(wake)
    return WakeRow(
        wake=wake,
        name=image.image_name if image else "",
        key=f"i-{wake.image_id or f'{camera.device_id}-{wake.at:%H%M}'}",
        state=state,
        word=strips.WORDS[state],
        at=_at(wake, look),
        at_utc=sites.utc(wake.at),
        arrived=_arrived(wake, image, look.zone),
        notes=tuple(_notes(wake, state, camera, look)),
        resend_text=_resend_text(image, look) if state is State.FAILED else "",
        quality=(image and image.quality) or "",
        quality_reason=(image and image.quality_reason) or "",
    )


def _at(wake: Wake, look: _Look) -> str:
    """The time; with the date if the clock is suspect."""
    if wake.image_id is None:
        return f"{wake.at.astimezone(look.zone):%H:%M}"
    beside = look.now if wake.clock_suspect else wake.at
    return words.instant(wake.at, now=beside, zone=look.zone)


def _arrived(wake: Wake, image: WakeImage | None, zone: ZoneInfo) -> str:
    if wake.received_at is None or not strips.arrived_late(wake):
        return ""
    after = " after it was sent again" if image and image.retry_count else ""
    return f"arrived {words.instant(wake.received_at, now=wake.at, zone=zone)}{after}"


def _notes(wake: Wake, state: State, camera: Camera, look: _Look) -> Iterable[str]:
    if wake.overage_reason:
        yield _extra_words(wake.overage_reason, camera, look.day)
    if wake.clock_suspect:
        yield "it came with no time that can be right: its arrival counts"
    if state is State.FAILED:
        image = look.image(wake)
        reason = image and (image.error_message or image.error_code)
        yield words.cut(reason, MAX_NOTE) if reason else "no reason given"
    if state is State.OVERDUE:
        yield _overdue_words(wake, camera, look)
    if state is State.LOST:
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
    """`no_schedule` is stored whenever a day expects nothing of a camera; this says why."""
    if reason in _EXTRA_WORDS:
        return _EXTRA_WORDS[reason]
    if not camera.wake_schedule_cron:
        return "extra: the camera has no schedule"
    if day and camera.here_since and camera.here_since > day.opened_at:
        return "extra: the camera came after this day had opened; the next one expects it"
    return "extra: this day expects nothing of the camera"


def _resend_text(image: WakeImage | None, look: _Look) -> str:
    if image is None or image.resend_requested_at is None:
        return ""
    return f"asked for again {look.ago(image.resend_requested_at)}; it comes when the camera wakes"


def _contact(camera: Camera) -> tuple[str, str]:
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
    expected = sum(wake.expected_at is not None for wake in wakes)
    at = sites.takes_effect_at(change.effective_date, site) if change else now
    return Schedule(
        camera=camera,
        href=f"/sites/{site.site_id}/cameras/{camera.device_id}/schedule",
        today=words.count(expected, "wake"),
        change=change,
        takes_effect=effect(at, now=now) if change else "",
    )


def effect(at: datetime, *, now: datetime) -> str:
    """The text of DB2-02, in real hours: a day on which the clock changes has not 24."""
    return f"at midnight ({hours(at - now)} from now)"


def hours(left: timedelta) -> str:
    """Whole hours, rounded; below one, minutes. The same text as fn_time_left."""
    seconds = left.total_seconds()
    minutes = max(1, round(seconds / _MINUTE_S))
    if minutes < _MINUTES:
        return words.count(minutes, "minute")
    return words.count(math.floor(seconds / _HOUR_S + 0.5), "hour")


def _status_words(day: Day, zone: ZoneInfo) -> str:
    text = {
        "pending": "The day is open; no camera has woken yet.",
        "in_progress": "The day is going on.",
    }.get(day.status, "")
    if day.locked_at is not None:
        text = (
            f"The day is over, locked {words.instant(day.locked_at, now=day.locked_at, zone=zone)}."
        )
        if day.late_updates:
            text += f" {words.count(day.late_updates, 'arrival')} after that still counted."
    if day.config_changed:
        text += " Schedules changed with this day."
    return text
