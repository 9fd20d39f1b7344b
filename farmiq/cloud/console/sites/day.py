"""Pure: the page of one site, from a day's wakes, its cameras and the time.

The sentence, the strip, the cameras' counts and the list of wakes come from the same rows.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from uuid import UUID
from zoneinfo import ZoneInfo

from farmiq.cloud import completeness
from farmiq.cloud.console.company.view import Company
from farmiq.cloud.console.schedules import cron
from farmiq.cloud.console.schedules.view import Change, ScheduleRow, schedule_row
from farmiq.cloud.console.sites import strips
from farmiq.cloud.console.sites import view as sites
from farmiq.cloud.console.sites.strips import Camera, State, Strip, Wake
from farmiq.cloud.console.sites.view import Day, Site
from farmiq.ui import i18n, words
from farmiq.ui.i18n import gettext as _
from farmiq.ui.i18n import marked, ngettext

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
_EXTRA_WORDS = {
    "off_schedule": marked("extra: at no expected time"),
    "bucket_taken": marked("extra: another wake took that time"),
}
BLEMISHES = {
    "blurred": marked("Blurred"),
    "dark": marked("Too dark"),
    "bright": marked("Too bright"),
    "unreadable": marked("Unreadable"),
    "missing": marked("Not in the store"),
}
NOT_SHOWN = frozenset({"unreadable", "missing"})


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
class Alert:
    alert_id: UUID
    device_name: str | None
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WakeRow:
    wake: Wake
    name: str
    key: str
    state: State
    word: str
    at: str
    arrived: str
    notes: tuple[str, ...]
    requested_at: datetime | None = None
    quality: str = ""
    quality_reason: str = ""

    @property
    def picture(self) -> bool:
        return self.state is State.RECEIVED and self.quality not in NOT_SHOWN

    @property
    def blemish(self) -> str:
        """The problem of the image, in a word or two."""
        return _(BLEMISHES[self.quality]) if self.quality in BLEMISHES else ""

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
    received: int
    expected: int
    contact: str
    word: str
    battery_low: bool
    signal_word: str
    schedule: str
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
    def with_sign(self) -> bool:
        """The sign of DB2-07; extra wakes are no problem, so it is drawn without a colour."""
        return self.received > self.expected


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
    schedules: tuple[ScheduleRow, ...]
    alerts: tuple[Alert, ...]
    query: SiteDayQuery
    refresh_at: datetime
    page: str = "sites"

    @property
    def is_today(self) -> bool:
        return self.session_date == self.site.today

    @property
    def date_words(self) -> str:
        """In English as the document writes it (DB2-05), such as Jan 15, 2025."""
        if i18n.language() == "en":
            return completeness.day(self.session_date)
        return words.day(self.session_date)

    @property
    def complete_percent(self) -> int | None:
        return completeness.shown(self.day.completed, self.day.expected) if self.day else None

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
        day = words.day(self.session_date)
        if self.day is None:
            return self._when(_("No session today"), _("No session on %(day)s") % {"day": day})
        counts = {tally.state: tally.count for tally in self.strip.tallies}
        if self.strip.problems:
            given = {"problems": self.strip.problems_say, "day": day}
            return self._when(_("%(problems)s today") % given, _("%(problems)s on %(day)s") % given)
        if set(counts) <= {State.NOT_REQUIRED}:
            return self._when(
                _("No wakes are due today"), _("No wakes were due on %(day)s") % {"day": day}
            )
        if set(counts) <= {State.DUE, State.NOT_REQUIRED}:
            return _("Nothing is due yet today")
        if State.DUE in counts:
            return _("On track today")
        return self._when(
            _("Every wake that was due today was received"),
            _("Every wake that was due on %(day)s was received") % {"day": day},
        )

    def _when(self, today: str, other_day: str) -> str:
        return today if self.is_today else other_day

    @property
    def title(self) -> str:
        return words.title(words.cut(self.site.site_name), problems=self.problems)

    @property
    def status(self) -> str:
        return "" if self.day is None else _status_words(self.day)

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
            schedule_row(
                camera, site, of_camera[camera.device_id], waiting.get(camera.device_id), now=now
            )
            for camera in cameras
            if camera.is_here and camera.is_active
        ),
        alerts=tuple(alerts),
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
        received=received,
        expected=expected,
        contact=contact,
        word=word,
        battery_low=camera.battery_voltage is not None and camera.battery_voltage < LOW_BATTERY_V,
        signal_word=signal_word(camera.wifi_rssi),
        schedule=cron.words(camera.wake_schedule_cron),
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
        word=_(strips.WORDS[state]),
        at=_at(wake, look),
        arrived=_arrived(wake, image, look.zone),
        notes=tuple(_notes(wake, state, camera, look)),
        requested_at=image.resend_requested_at if image and state is State.FAILED else None,
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
    arrived = words.instant(wake.received_at, now=wake.at, zone=zone)
    if image and image.retry_count:
        return _("arrived %(time)s after it was sent again") % {"time": arrived}
    return _("arrived %(time)s") % {"time": arrived}


def _notes(wake: Wake, state: State, camera: Camera, look: _Look) -> Iterable[str]:
    if wake.overage_reason:
        yield _extra_words(wake.overage_reason, camera, look.day)
    if wake.clock_suspect:
        yield _("it came with no time that can be right: its arrival counts")
    if state is State.FAILED:
        image = look.image(wake)
        reason = image and (image.error_message or image.error_code)
        yield words.cut(reason, MAX_NOTE) if reason else _("no reason given")
    if state is State.OVERDUE:
        yield _overdue_words(wake, camera, look)
    if state is State.LOST:
        yield _("the camera was in touch since and holds no more images")


def _overdue_words(wake: Wake, camera: Camera, look: _Look) -> str:
    seen = camera.last_seen_at
    if seen is None:
        return _("the camera was never seen")
    if camera.pending_count == 0 and seen > wake.at:
        return _(
            "the camera was in touch since and holds no image; lost, if none comes within the hour"
        )
    return _("probably still on the camera, last seen %(ago)s") % {"ago": look.ago(seen)}


def _extra_words(reason: str, camera: Camera, day: Day | None) -> str:
    """`no_schedule` is stored whenever a day expects nothing of a camera; this says why."""
    if reason in _EXTRA_WORDS:
        return _(_EXTRA_WORDS[reason])
    if not camera.wake_schedule_cron:
        return _("extra: the camera has no schedule")
    if day and camera.here_since and camera.here_since > day.opened_at:
        return _("extra: the camera came after this day had opened; the next one expects it")
    return _("extra: this day expects nothing of the camera")


def _contact(camera: Camera) -> tuple[str, str]:
    if not camera.is_active:
        return "retired", _("Retired")
    if not camera.is_here:
        return "moved", _("At another site now")
    if camera.last_seen_at is None:
        return "never", _("Never seen")
    if camera.missed >= SILENT_AFTER:
        silent = ngettext("Silent for %(num)s wake", "Silent for %(num)s wakes", camera.missed)
        return "silent", silent % {"num": camera.missed}
    return "in-touch", _("In touch")


def signal_word(rssi: float | None) -> str:
    if rssi is None:
        return ""
    return _("weak") if rssi < WEAK_DBM else _("fair") if rssi < FAIR_DBM else _("good")


def _status_words(day: Day) -> str:
    texts = []
    if day.locked_at is not None:
        texts.append(_("The day is over."))
    elif day.status == "pending":
        texts.append(_("The day is open; no camera has woken yet."))
    else:
        texts.append(_("The day is going on."))
    if day.config_changed:
        texts.append(_("Schedules changed with this day."))
    return " ".join(texts)
