"""Pure: the devices by barn, those with a problem first, and one device with all that it said."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Any
from urllib.parse import quote

from farmiq.edge.console.devices.queries import Counts, Loss
from farmiq.edge.console.readings.view import ReadingRow
from farmiq.edge.console.tenant import PageView, Tenant
from farmiq.ui import words
from farmiq.ui.i18n import gettext as _
from farmiq.ui.i18n import ngettext

_TONES = {
    "error": "bad", "offline": "bad", "late": "warn", "never seen": "muted", "online": "good",
    "revoked": "muted",
}  # fmt: skip
_ORDER = ("error", "offline", "late", "never seen", "online", "revoked")
_BAD = ("error", "offline", "late")
_COMMAND_TONES = {
    "queued": "info", "sent": "info", "delivered": "info", "applied": "good", "failed": "bad",
    "expired": "warn",
}  # fmt: skip


def state_word(state: str) -> str:
    return {
        "online": _("Online"),
        "late": _("Late"),
        "offline": _("Offline"),
        "error": _("Reports an error"),
        "never seen": _("Never heard"),
        "revoked": _("Revoked"),
    }[state]


def kind_word(kind: str) -> str:
    return {
        "sensor": _("Sensor"),
        "silo": _("Silo"),
        "feeder": _("Feeder"),
        "station": _("Weigh station"),
        "gateway": _("Gateway"),
    }.get(kind, _("Device"))


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRow:
    device_id: str
    kind: str
    place: str
    state: str
    tone: str
    word: str
    since: datetime | None
    last_seen_at: datetime | None
    paused_until: datetime | None
    paused: str
    buffer_depth: int | None
    is_clock_wrong: bool
    battery_v: float | None
    signal_dbm: float | None
    firmware: str
    has_problem: bool

    @property
    def href(self) -> str:
        return f"/devices/{quote(self.device_id, safe='')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BarnCard:
    barn_id: str
    farm_id: str
    rows: Sequence[DeviceRow]


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicesView(PageView):
    sentence: str
    tone: str
    total: int
    problems: int
    barns: Sequence[BarnCard]


def view(
    tenant: Tenant,
    devices: Sequence[Mapping[str, Any]],
    wrong_clocks: Collection[str],
    *,
    now: datetime,
) -> DevicesView:
    def place(device: Mapping[str, Any]) -> tuple[str, str]:
        return device["farm_id"], device["barn_id"]

    barns = [
        BarnCard(
            barn_id=barn_id,
            farm_id=farm_id,
            rows=sorted(
                (
                    _row(device, tenant, clock_wrong=device["device_id"] in wrong_clocks, now=now)
                    for device in group
                ),
                key=lambda row: (not row.has_problem, _ORDER.index(row.state), row.device_id),
            ),
        )
        for (farm_id, barn_id), group in groupby(sorted(devices, key=place), key=place)
    ]
    problems = sum(row.has_problem for barn in barns for row in barn.rows)
    return DevicesView(
        company=tenant,
        now=now,
        title=words.title(_("Devices"), problems=problems),
        page="devices",
        sentence=_sentence(len(devices), problems),
        tone="muted" if not devices else "warn" if problems else "good",
        total=len(devices),
        problems=problems,
        barns=sorted(barns, key=lambda barn: not any(row.has_problem for row in barn.rows)),
    )


def _row(
    device: Mapping[str, Any], tenant: Tenant, *, clock_wrong: bool, now: datetime
) -> DeviceRow:
    state = device["state"]
    paused_until = device["paused_until"]
    zone = words.zone(tenant.timezone)
    return DeviceRow(
        device_id=device["device_id"],
        kind=kind_word(device["kind"]),
        place=device["place"] or "",
        state=state,
        tone=_TONES[state],
        word=state_word(state),
        since=device["since"],
        last_seen_at=device["last_seen_at"],
        paused_until=paused_until,
        paused=words.instant(paused_until, now=now, zone=zone) if paused_until else "",
        buffer_depth=device["buffer_depth"],
        is_clock_wrong=clock_wrong,
        battery_v=device["battery_v"],
        signal_dbm=device["signal_strength"],
        firmware=device["firmware_version"] or device["firmware"] or "",
        has_problem=state in _BAD or clock_wrong or bool(paused_until),
    )


def _sentence(total: int, problems: int) -> str:
    if not total:
        return _("No device is registered yet")
    if not problems:
        text = ngettext("The only device is well", "All %(count)s devices are well", total)
        return text % {"count": words.number(total)}
    text = ngettext(
        "%(count)s of %(total)s devices needs attention",
        "%(count)s of %(total)s devices need attention",
        problems,
    )
    return text % {"count": words.number(problems), "total": words.number(total)}


def command_word(state: str) -> str:
    return {
        "queued": _("Waits to be sent"),
        "sent": _("Sent"),
        "delivered": _("The device has it"),
        "applied": _("Done"),
        "failed": _("Failed"),
        "expired": _("Expired without an answer"),
    }[state]


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command to the device, and what became of it."""

    command_id: Any
    name: str
    tone: str
    word: str
    by: str
    message: str
    at: datetime
    when: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceView(PageView):
    """`counts` are of today; `uptime` and `health` are as the device last said them."""

    row: DeviceRow
    barn_id: str
    farm_id: str
    sentence: str
    uptime_s: float | None
    broken: Sequence[str]
    heartbeat_s: float
    registered: str
    sensors: Sequence[ReadingRow]
    counts: Counts
    losses: Sequence[Loss]
    commands: Sequence[Command]
    fragment: str


def device_view(
    tenant: Tenant,
    device: Mapping[str, Any],
    *,
    sensors: Sequence[ReadingRow],
    counts: Counts,
    losses: Sequence[Loss],
    commands: Sequence[Mapping[str, Any]],
    now: datetime,
) -> DeviceView:
    zone = words.zone(tenant.timezone)
    clock_wrong = any(sensor.state == "ahead" for sensor in sensors)
    row = _row(device, tenant, clock_wrong=clock_wrong, now=now)
    health = device["health"] if isinstance(device["health"], dict) else {}
    return DeviceView(
        company=tenant,
        now=now,
        title=words.title(row.device_id, problems=int(row.has_problem)),
        page="devices",
        row=row,
        barn_id=device["barn_id"],
        farm_id=device["farm_id"],
        sentence=f"{row.device_id}: {row.word}",
        uptime_s=device["uptime_s"],
        broken=[name.removesuffix("_ok") for name, good in sorted(health.items()) if good is False],
        heartbeat_s=float(device["heartbeat_s"]),
        registered=words.instant(device["created_at"], now=now, zone=zone),
        sensors=sensors,
        counts=counts,
        losses=losses,
        commands=[
            Command(
                command_id=command["command_id"],
                name=command["name"],
                tone=_COMMAND_TONES[command["state"]],
                word=command_word(command["state"]),
                by=command["created_by"],
                message=command["message"] or "",
                at=command["created_at"],
                when=words.instant(command["created_at"], now=now, zone=zone),
            )
            for command in commands
        ],
        fragment=f"{row.href}/parts",
    )
