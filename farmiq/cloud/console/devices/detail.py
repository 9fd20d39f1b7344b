"""Pure: the page of one device: who it is, how it is, what it said, and its last seven days."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import quote
from uuid import UUID
from zoneinfo import ZoneInfo

from farmiq.cloud.console.company.view import Company
from farmiq.cloud.console.devices import view as devices
from farmiq.cloud.console.devices.connectivity import Connectivity
from farmiq.cloud.console.devices.view import BarnDevice, CameraDevice, Row
from farmiq.cloud.console.schedules import cron
from farmiq.cloud.console.telemetry import view as telemetry
from farmiq.messages import device as messages
from farmiq.ui import words
from farmiq.ui.charts import Column
from farmiq.ui.i18n import gettext as _
from farmiq.ui.i18n import marked
from farmiq.ui.metrics import Catalogue

COMMAND_WORDS = {
    "send_image": marked("Send an image"),
    "capture_image": marked("Capture an image"),
    "next_wake": marked("Next wake"),
}
OUTCOME_WORDS = {
    "queued": marked("waits for the camera to wake"),
    "sent": marked("sent"),
    "done": marked("done"),
    "failed": marked("failed"),
    "expired": marked("expired: the camera did not wake in time"),
    "delivered": marked("delivered"),
    "applied": marked("applied"),
    "cancelled": marked("cancelled"),
    "superseded": marked("replaced by a later change"),
    "waiting": marked("waits for midnight"),
    "open": marked("open"),
    "resolved": marked("resolved"),
}
STATE_WORDS = {
    "online": (marked("Came online"), "good"),
    "offline": (marked("Went offline"), "bad"),
    "error": (marked("Says that it has an error"), "bad"),
}
DIALECT_WORDS = {"standard": "device/…", "esp32cam": "ESP32CAM/…"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensor:
    """A metric of a device; `instants` are the times of its last readings, oldest first."""

    device_id: str
    metric_type: str
    value: float
    unit: str
    captured_at: datetime
    window: str | None
    instants: Sequence[datetime]

    @property
    def interval_s(self) -> float:
        """Buckets come at most once per window, and a little after their end."""
        usual_s = telemetry.expected_interval_s(self.instants)
        if self.window is None:
            return usual_s
        return max(usual_s, telemetry.WINDOW_S[self.window]) + telemetry.SETTLES_S

    def is_late(self, now: datetime) -> bool:
        state = telemetry.state(self.captured_at, interval_s=self.interval_s, now=now)
        return state is telemetry.State.LATE


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineEvent:
    """Something that happened to a device; which of the fields are set depends on `kind`."""

    key: str
    at: datetime
    kind: str
    word: str | None
    detail: str | None
    count: int | None
    about: str | None
    revoked: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    at: datetime
    battery_v: float | None
    signal_dbm: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """A camera's login at the broker: since when, and whether it is revoked or held out."""

    made_at: datetime
    revoked_at: datetime | None
    paused_until: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRow:
    key: str
    at: datetime
    tone: str
    word: str
    detail: str
    count: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SensorRow:
    sensor: Sensor
    name: str
    value: str
    href: str
    is_late: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedImage:
    image_id: UUID
    name: str
    at: datetime
    why: str
    requested_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """`dropped`: what the device itself dropped in seven days, by the loss ledger."""

    company: Company
    now: datetime
    zone: str
    zone_info: ZoneInfo
    row: Row
    facts: tuple[tuple[str, str], ...]
    schedule: str
    schedule_expression: str
    schedule_href: str
    site_href: str
    connectivity: Connectivity
    sensors: tuple[SensorRow, ...]
    events: tuple[EventRow, ...]
    battery_rows: tuple[tuple[Any, ...], ...]
    signal_rows: tuple[tuple[Any, ...], ...]
    failed: tuple[FailedImage, ...]
    images: tuple[tuple[UUID, datetime], ...]
    dropped: int
    weighings: int
    proven_at: datetime | None = None
    login: Login | None = None
    page: str = "devices"

    @property
    def key(self) -> str:
        return f"{self.row.kind}|{self.row.id}"

    @property
    def login_words(self) -> tuple[str, str]:
        """The tone and the words of the camera's login."""
        login = self.login
        if login is None:
            return "warn", _("No login")
        if login.revoked_at is not None:
            return "bad", _("Login revoked")
        if login.paused_until is not None and login.paused_until > self.now:
            return "warn", _("Held out")
        return "good", _("Has a login")

    @property
    def battery_columns(self) -> list[Column]:
        return [Column(_("Battery"), "line")]

    @property
    def signal_columns(self) -> list[Column]:
        return [Column(_("Signal"), "line")]

    @property
    def is_camera(self) -> bool:
        return self.row.kind == devices.CAMERA

    @property
    def title(self) -> str:
        return words.title(words.cut(self.row.name), problems=int(self.row.condition.is_problem))

    @property
    def as_of(self) -> str:
        return f"{self.now.astimezone(self.zone_info):%H:%M:%S}"

    @property
    def sentence(self) -> str:
        condition = self.row.condition
        given = {
            "name": words.cut(self.row.name), "state": condition.word, "why": condition.why
        }  # fmt: skip
        if condition.why:
            return _("%(name)s: %(state)s, %(why)s") % given
        return _("%(name)s: %(state)s") % given

    @property
    def fragment(self) -> str:
        return f"{self.row.href}/parts"

    @property
    def topic(self) -> str:
        """What the live updates are about."""
        return {devices.CAMERA: "camera", devices.STATION: "weighvision"}.get(
            self.row.kind, "telemetry"
        )


def of_barn(
    company: Company,
    device: BarnDevice,
    *,
    sensors: Sequence[Sensor],
    catalogue: Catalogue,
    connectivity: Connectivity,
    events: Sequence[TimelineEvent],
    measured: Sequence[Measured],
    dropped: int,
    now: datetime,
) -> View:
    zone = words.zone(device.timezone or company.timezone)
    rows = tuple(
        SensorRow(
            sensor=sensor,
            name=catalogue.of(sensor.metric_type).label,
            value=catalogue.of(sensor.metric_type).text(sensor.value),
            href=f"/telemetry/{quote(device.device_id, safe='')}"
            f"/{quote(sensor.metric_type, safe='')}",
            is_late=sensor.is_late(now),
        )
        for sensor in sensors
    )
    row = devices.barn_row(device, sum(sensor.is_late for sensor in rows), now=now)
    return View(
        company=company,
        now=now,
        zone=words.zone_name(zone, now),
        zone_info=zone,
        row=row,
        facts=tuple(_barn_facts(device)),
        schedule="",
        schedule_expression="",
        schedule_href="",
        site_href="",
        connectivity=connectivity,
        sensors=tuple(sorted(rows, key=lambda sensor: (not sensor.is_late, sensor.name))),
        events=tuple(_barn_event(event) for event in events),
        battery_rows=_points(measured, "battery_v"),
        signal_rows=_points(measured, "signal_dbm"),
        failed=(),
        images=(),
        dropped=dropped,
        weighings=device.weighings,
    )


def of_camera(
    company: Company,
    camera: CameraDevice,
    *,
    connectivity: Connectivity,
    events: Sequence[TimelineEvent],
    measured: Sequence[Measured],
    failed: Sequence[tuple[UUID, str, datetime, str | None, datetime | None]],
    images: Sequence[tuple[UUID, datetime]],
    login: Login | None,
    now: datetime,
) -> View:
    zone = words.zone(camera.timezone or company.timezone)
    can_wake = camera.is_active and camera.site_id is not None
    return View(
        company=company,
        now=now,
        zone=words.zone_name(zone, now),
        zone_info=zone,
        row=devices.camera_row(camera),
        facts=tuple(_camera_facts(camera)),
        schedule=cron.words(camera.wake_schedule_cron),
        schedule_expression=camera.wake_schedule_cron or "",
        schedule_href=f"/sites/{camera.site_id}/cameras/{camera.device_id}/schedule"
        if can_wake
        else "",
        site_href=f"/sites/{camera.site_id}?camera={camera.device_id}" if camera.site_id else "",
        connectivity=connectivity,
        sensors=(),
        events=tuple(_camera_event(event) for event in events),
        battery_rows=_points(measured, "battery_v"),
        signal_rows=_points(measured, "signal_dbm"),
        failed=tuple(
            FailedImage(
                image_id=image_id,
                name=name,
                at=at,
                why=words.cut(why, 160) if why else _("no reason given"),
                requested_at=requested_at,
            )
            for image_id, name, at, why, requested_at in failed
        ),
        images=tuple(images),
        dropped=0,
        weighings=0,
        proven_at=camera.proven_at,
        login=login,
    )


def _points(measured: Sequence[Measured], name: str) -> tuple[tuple[Any, ...], ...]:
    """Oldest first; one point alone is no chart."""
    points = [(m.at, getattr(m, name)) for m in measured if getattr(m, name) is not None]
    return tuple(sorted(points)) if len(points) > 1 else ()


def _barn_facts(device: BarnDevice) -> Iterable[tuple[str, str]]:
    yield _("Device id"), device.device_id
    if device.place:
        yield _("Place"), device.place
    if device.firmware:
        yield _("Firmware"), words.cut(device.firmware)
    if device.broken:
        yield _("Broken parts"), ", ".join(device.broken)
    if device.alarm_names:
        yield _("Alarms"), words.cut(", ".join(device.alarm_names), 200)


def _camera_facts(camera: CameraDevice) -> Iterable[tuple[str, str]]:
    yield _("MAC address"), ":".join(camera.mac[at : at + 2] for at in range(0, 12, 2))
    yield _("Topics"), DIALECT_WORDS.get(camera.dialect, camera.dialect)
    if camera.firmware:
        yield _("Firmware"), words.cut(camera.firmware)
    if camera.slot_index is not None:
        yield _("Slot"), str(camera.slot_index)


def _barn_event(event: TimelineEvent) -> EventRow:
    tone, word, detail = "info", event.kind, event.detail or ""
    if event.revoked is not None:
        word = _("Revoked at its edge") if event.revoked else _("Registered again at its edge")
        tone = "muted"
    elif event.kind == messages.STATUS and event.word in STATE_WORDS:
        text, tone = STATE_WORDS[event.word]
        word = _(text)
    elif event.kind == messages.BUFFER_DROPPED:
        word, tone = _("Dropped for lack of space"), "bad"
        detail = " · ".join(part for part in (event.about, event.detail) if part)
    elif event.kind == messages.COMMAND_ANSWERED:
        word, tone = _("Answered a command"), "bad" if event.about == "failed" else "good"
        outcome = _(OUTCOME_WORDS.get(event.about or "", event.about or ""))
        detail = " · ".join(part for part in (outcome, event.detail) if part)
    return EventRow(
        key=event.key,
        at=event.at,
        tone=tone,
        word=word,
        detail=words.cut(detail, 160),
        count=event.count,
    )


def _camera_event(event: TimelineEvent) -> EventRow:
    outcome = _(OUTCOME_WORDS.get(event.about or "", event.about or ""))
    if event.kind == "alert":
        tone = "bad" if event.about == "open" else "muted"
        return _row(event, tone, _("Alert"), event.detail or "", outcome)
    if event.kind == "command":
        tone = {"failed": "bad", "expired": "warn", "done": "good"}.get(event.about or "", "info")
        word = _(COMMAND_WORDS.get(event.word or "", event.word or ""))
        return _row(event, tone, word, event.detail or "", outcome)
    if event.kind == "schedule":
        return _row(event, "info", _("New schedule"), cron.words(event.word), outcome)
    return _row(event, "muted", _("Placed at a site"), event.word or "", "")


def _row(event: TimelineEvent, tone: str, word: str, *details: str) -> EventRow:
    text = " · ".join(part for part in details if part)
    return EventRow(
        key=event.key, at=event.at, tone=tone, word=word, detail=words.cut(text, 200), count=None
    )


def late_sensors(sensors: Iterable[Sensor], *, now: datetime) -> Mapping[str, int]:
    counts: dict[str, int] = {}
    for sensor in sensors:
        counts[sensor.device_id] = counts.get(sensor.device_id, 0) + sensor.is_late(now)
    return counts
