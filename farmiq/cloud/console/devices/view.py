"""Pure: the page Devices, from what devices said last and the time. Problems come first.

Whether a device is well is decided only here: the sentence, the tabs and the list agree.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote, urlencode
from uuid import UUID

from farmiq.cloud.console.company.view import Company
from farmiq.cloud.console.delivery.view import Edge
from farmiq.cloud.console.sites import day as site_day
from farmiq.ui import words
from farmiq.ui.i18n import gettext as _
from farmiq.ui.i18n import marked, ngettext

CAMERA, SENSOR, STATION = "camera", "sensor", "station"
KINDS = (CAMERA, SENSOR, STATION)
KIND_WORDS = {CAMERA: marked("Camera"), SENSOR: marked("Sensor"), STATION: marked("Weigh station")}
TAB_WORDS = {
    CAMERA: marked("Cameras"),
    SENSOR: marked("Sensors"),
    STATION: marked("Weigh stations"),
}
PROBLEMS = "problems"
# A device without sensors reports when something changes. Unheard for the first time it is not
# called well any more, for the second somebody should look.
QUIET, SILENT = timedelta(minutes=30), timedelta(days=1)
ON_A_PAGE = 100


@dataclass(frozen=True, slots=True)
class Condition:
    """How a device is: `tone` of a chip and its word, why, and whether somebody should look."""

    key: str
    tone: str
    word: str
    why: str = ""
    is_problem: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BarnDevice:
    """A device of an edge: what it said last of itself, and what came from it."""

    device_id: str
    farm_id: str | None
    barn_id: str | None
    farm_name: str | None
    barn_name: str | None
    timezone: str | None
    state: str | None
    status_at: datetime | None
    status_seen_at: datetime | None
    firmware: str | None
    signal_dbm: float | None
    battery_v: float | None
    backlog: int | None
    alarms: Any
    health: Any
    revoked: bool
    revoked_at: datetime | None
    last_reading_at: datetime | None
    last_arrived_at: datetime | None
    sensors: int
    last_weighing_at: datetime | None
    weighings: int

    @property
    def kind(self) -> str:
        """What weighs is a station, also when its camera has readings of its own."""
        health = self.health if isinstance(self.health, dict) else {}
        has_scale = "scale_ok" in health and not self.sensors
        return STATION if self.weighings or has_scale else SENSOR

    @property
    def place(self) -> str:
        barn, farm = self.barn_name or self.barn_id, self.farm_name or self.farm_id
        return " · ".join(part for part in (barn, farm) if part)

    @property
    def alarm_names(self) -> tuple[str, ...]:
        return tuple(str(name) for name in self.alarms or ()) if self.alarms else ()

    @property
    def broken(self) -> tuple[str, ...]:
        """The parts that the device says are broken."""
        health = self.health if isinstance(self.health, dict) else {}
        return tuple(
            name.removesuffix("_ok") for name, value in sorted(health.items()) if value is False
        )

    def seen_at(self, now: datetime) -> datetime | None:
        """When something of it was last true; a clock that runs ahead does not count."""
        times = (self.status_seen_at, self.status_at, self.last_reading_at, self.last_weighing_at)
        past = [at for at in times if at is not None and at <= now]
        return max(past, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class CameraDevice:
    """`missed`: expected wakes since it was last seen; `failed`: images of the last seven days."""

    device_id: UUID
    device_name: str
    mac: str
    dialect: str
    is_active: bool
    firmware: str | None
    last_seen_at: datetime | None
    battery_voltage: float | None
    wifi_rssi: float | None
    pending_count: int | None
    wake_schedule_cron: str | None
    slot_index: int | None
    created_at: datetime
    proven_at: datetime | None
    site_id: UUID | None
    site_name: str | None
    timezone: str | None
    here_since: datetime | None
    missed: int
    failed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    kind: str
    id: str
    name: str
    place: str
    href: str
    condition: Condition
    seen_at: datetime | None
    battery_v: float | None
    battery_low: bool
    signal_dbm: float | None
    firmware: str | None
    backlog: int | None
    is_old: bool

    @property
    def key(self) -> str:
        return f"d-{self.kind}-{self.id}"

    @property
    def kind_word(self) -> str:
        return _(KIND_WORDS[self.kind])


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicesQuery:
    """`show` is a kind or `problems`; None: all."""

    show: str | None = None
    page: int = 1

    def address(self, path: str = "/devices", **changes: Any) -> str:
        query = {"show": self.show, "page": self.page, **changes}
        given = {name: str(value) for name, value in query.items() if value not in (None, 1)}
        return f"{path}?{urlencode(given)}" if given else path


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    company: Company
    now: datetime
    as_of: str
    zone: str
    query: DevicesQuery
    rows: tuple[Row, ...]
    matching: int
    counts: Mapping[str, int]
    total: int
    # Those whose word the devices of barns have to go through.
    edges: tuple[Edge, ...] = ()
    page: str = "devices"

    @property
    def problems(self) -> int:
        return self.counts.get(PROBLEMS, 0)

    @property
    def quiet(self) -> int:
        return self.counts.get("quiet", 0)

    @property
    def title(self) -> str:
        return words.title(_("Devices"), problems=self.problems)

    @property
    def sentence(self) -> str:
        if not self.total:
            return _("No device has reported yet")
        if not self.problems and self.quiet:
            return ngettext(
                "%(num)s of %(total)s devices was not heard lately; no other needs attention",
                "%(num)s of %(total)s devices were not heard lately; no other needs attention",
                self.quiet,
            ) % {"num": self.quiet, "total": self.total}
        if not self.problems:
            return ngettext(
                "The only device is in touch", "All %(num)s devices are in touch", self.total
            ) % {"num": self.total}
        return ngettext(
            "%(num)s of %(total)s devices needs attention",
            "%(num)s of %(total)s devices need attention",
            self.problems,
        ) % {"num": self.problems, "total": self.total}

    @property
    def tabs(self) -> list[tuple[str, str, str]]:
        kinds = [kind for kind in KINDS if self.counts.get(kind)]
        return [
            ("", _("All"), self.query.address(show=None, page=1)),
            (PROBLEMS, _("Problems"), self.query.address(show=PROBLEMS, page=1)),
            *((kind, _(TAB_WORDS[kind]), self.query.address(show=kind, page=1)) for kind in kinds),
        ]

    @property
    def following(self) -> str:
        if self.query.page * ON_A_PAGE >= self.matching:
            return ""
        return self.query.address(page=self.query.page + 1)

    @property
    def fragment(self) -> str:
        return self.query.address("/devices/rows")


def address(kind: str, device_id: str) -> str:
    return f"/devices/{kind}/{quote(device_id, safe='')}"


def condition_of_barn(device: BarnDevice, late_sensors: int, *, now: datetime) -> Condition:
    """An edge's device. What came after its last word counts more than that word."""
    if is_revoked(device):
        return Condition("revoked", "muted", _("Revoked"))
    said_at = device.status_at
    came = [at for at in (device.last_reading_at, device.last_weighing_at) if at is not None]
    newer = any(said_at is None or at > said_at for at in came)
    if device.state == "error":
        parts = ", ".join((*device.broken, *device.alarm_names)) or _(
            "it says that it has an error"
        )
        return Condition("error", "bad", _("Error"), words.cut(parts, 120), is_problem=True)
    if device.state == "offline" and not newer:
        why = _("what it measures meanwhile is probably still on it")
        return Condition("offline", "bad", _("Offline"), why, is_problem=True)
    if device.sensors and late_sensors:
        why = ngettext(
            "%(num)s of %(total)s sensor is late", "%(num)s of %(total)s sensors are late",
            device.sensors,
        ) % {"num": late_sensors, "total": device.sensors}  # fmt: skip
        return Condition("late", "warn", _("Late"), why, is_problem=True)
    return _unless_silent(device, now)


def _unless_silent(device: BarnDevice, now: datetime) -> Condition:
    seen_at = device.seen_at(now)
    if seen_at is None:
        return Condition("never", "muted", _("Never seen"))
    if not device.sensors and now - seen_at > SILENT:
        why = _("nothing came from it for more than a day")
        return Condition("silent", "warn", _("Silent"), why, is_problem=True)
    if not device.sensors and now - seen_at > QUIET:
        return Condition("quiet", "muted", _("Quiet"), _("nothing came from it lately"))
    return Condition("online", "good", _("In touch"))


def is_revoked(device: BarnDevice) -> bool:
    """Unless a reading was captured after it was revoked: then another edge has it."""
    if not device.revoked:
        return False
    return device.last_reading_at is None or (
        device.revoked_at is not None and device.last_reading_at <= device.revoked_at
    )


def condition_of_camera(camera: CameraDevice) -> Condition:
    if not camera.is_active:
        return Condition("retired", "muted", _("Retired"))
    if camera.last_seen_at is None:
        return Condition("never", "info", _("Never seen"), _("it has not said HELLO yet"))
    if camera.missed >= site_day.SILENT_AFTER:
        why = ngettext("it missed %(num)s wake", "it missed %(num)s wakes", camera.missed)
        return Condition(
            "silent", "bad", _("Silent"), why % {"num": camera.missed}, is_problem=True
        )
    return _worry(camera) or Condition("online", "good", _("In touch"))


def _worry(camera: CameraDevice) -> Condition | None:
    """What is wrong with a camera that is in touch; None if nothing is."""
    if is_low(camera.battery_voltage):
        return Condition("battery", "warn", _("Battery low"), is_problem=True)
    if camera.failed:
        why = ngettext(
            "%(num)s image failed this week", "%(num)s images failed this week", camera.failed
        )
        return Condition("failed", "warn", _("Failed images"), why % {"num": camera.failed}, True)
    return Condition("unassigned", "info", _("At no site")) if camera.site_id is None else None


def is_low(battery_v: float | None) -> bool:
    return battery_v is not None and battery_v < site_day.LOW_BATTERY_V


def barn_row(device: BarnDevice, late_sensors: int, *, now: datetime) -> Row:
    condition = condition_of_barn(device, late_sensors, now=now)
    return Row(
        kind=device.kind,
        id=device.device_id,
        name=device.device_id,
        place=device.place,
        href=address(device.kind, device.device_id),
        condition=condition,
        seen_at=device.seen_at(now),
        battery_v=device.battery_v,
        battery_low=False,
        signal_dbm=device.signal_dbm,
        firmware=device.firmware,
        backlog=device.backlog,
        is_old=condition.key != "online",
    )


def camera_row(camera: CameraDevice) -> Row:
    condition = condition_of_camera(camera)
    return Row(
        kind=CAMERA,
        id=str(camera.device_id),
        name=camera.device_name,
        place=camera.site_name or _("at no site"),
        href=address(CAMERA, str(camera.device_id)),
        condition=condition,
        seen_at=camera.last_seen_at,
        battery_v=camera.battery_voltage,
        battery_low=is_low(camera.battery_voltage),
        signal_dbm=camera.wifi_rssi,
        firmware=camera.firmware,
        backlog=camera.pending_count,
        is_old=condition.key in ("silent", "never", "retired"),
    )


_LAST = frozenset({"revoked", "retired"})
_TONES = ("bad", "warn", "info", "good", "muted")


def _rank(row: Row) -> tuple[int, int, str, str]:
    return (
        not row.condition.is_problem,
        _TONES.index(row.condition.tone),
        row.place.casefold(),
        row.name.casefold(),
    )


def view(
    company: Company,
    devices: Sequence[BarnDevice],
    cameras: Sequence[CameraDevice],
    *,
    late_sensors: Mapping[str, int],
    query: DevicesQuery,
    now: datetime,
    edges: Sequence[Edge] = (),
) -> View:
    """`late_sensors`: how many sensors of each device are late."""
    rows = [
        *(barn_row(device, late_sensors.get(device.device_id, 0), now=now) for device in devices),
        *(camera_row(camera) for camera in cameras),
    ]
    rows.sort(key=_rank)
    counts = Counter(row.kind for row in rows)
    counts[PROBLEMS] = sum(row.condition.is_problem for row in rows)
    counts["quiet"] = sum(row.condition.key == "quiet" for row in rows)
    matching = [
        row
        for row in rows
        if query.show is None
        or (row.condition.is_problem if query.show == PROBLEMS else row.kind == query.show)
    ]
    zone = words.zone(company.timezone)
    return View(
        company=company,
        now=now,
        as_of=f"{now.astimezone(zone):%H:%M:%S}",
        zone=words.zone_name(zone, now),
        query=query,
        rows=tuple(matching[(query.page - 1) * ON_A_PAGE : query.page * ON_A_PAGE]),
        matching=len(matching),
        counts=counts,
        # What is no longer in use is listed and not counted.
        total=sum(row.condition.key not in _LAST for row in rows),
        edges=tuple(edge for edge in edges if not edge.is_revoked),
    )
