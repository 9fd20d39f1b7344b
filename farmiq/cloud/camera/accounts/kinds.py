"""The kinds of rows of the API: filter, columns and order in SQL."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Annotated, Any, Literal, get_args
from uuid import UUID

from pydantic import AfterValidator, Field, ValidationInfo, WithJsonSchema, field_validator

from farmiq import api
from farmiq.cloud.camera import mac
from farmiq.cloud.camera.protocol import wire
from farmiq.cloud.identity.people import Company, CompanyFilter
from farmiq.cloud.wake_figures import FiguresQuery

MAX_ROWS = 500
MAX_DAYS = 366
DAYS = 30
Level = Literal["payload", "device", "session", "site", "program", "company"]
LEVELS: tuple[Level, ...] = get_args(Level)
# Another level is rejected after the sign-in was checked.
PathLevel = Annotated[str, WithJsonSchema({"type": "string", "enum": [*LEVELS]})]
# Levels that can be filtered by camera.
OF_A_CAMERA = ("payload", "device")

Mac = Annotated[str, AfterValidator(mac.normal)]


class DaysFilter(CompanyFilter):
    """So many days back."""

    days: Annotated[int, Field(ge=1, le=MAX_DAYS)] = DAYS


class CameraFilter(api.PageFilter):
    """One page of a kind, newest first."""

    limit: Annotated[int, Field(ge=1, le=MAX_ROWS)] = 100
    company: Company = None

    @property
    def filters(self) -> dict[str, Any]:
        """Those that were given, by the names of their parameters."""
        return self.model_dump(
            by_alias=True, exclude_none=True, exclude={"cursor", "limit", "company"}
        )

    @property
    def after_at(self) -> datetime | None:
        return self.cursor.at if self.cursor else None

    @property
    def after_id(self) -> UUID | None:
        return self.cursor.id if self.cursor else None


class DatedFilter(CameraFilter):
    """One page of what happened on some days, first and last included."""

    begin: Annotated[api.Day | None, Field(alias="from")] = None
    end: Annotated[api.Day | None, Field(alias="to")] = None

    @field_validator("end")
    @classmethod
    def _not_before_begin(cls, end: date | None, info: ValidationInfo) -> date | None:
        begin = info.data.get("begin")
        if begin and end and end < begin:
            raise ValueError("is before from")
        return end


class ProgramFilter(CameraFilter):
    type: Annotated[
        Literal["control", "experimental"] | None, api.any_case(("control", "experimental"))
    ] = None
    active: bool | None = None


class SiteFilter(CameraFilter):
    program: UUID | None = None
    active: bool | None = None


class DeviceFilter(CameraFilter):
    site: UUID | None = None
    active: bool | None = None
    mac: Mac | None = None


class SessionFilter(DatedFilter):
    site: UUID | None = None
    program: UUID | None = None
    status: Annotated[
        Literal["pending", "in_progress", "locked"] | None,
        api.any_case(("pending", "in_progress", "locked")),
    ] = None


class WakeFilter(DatedFilter):
    session: UUID | None = None
    device: UUID | None = None
    site: UUID | None = None
    status: Annotated[
        Literal["pending", "complete", "failed"] | None,
        api.any_case(("pending", "complete", "failed")),
    ] = None
    overage: bool | None = None


class ImageFilter(DatedFilter):
    device: UUID | None = None
    status: Annotated[
        Literal["receiving", "complete", "failed"] | None,
        api.any_case(("receiving", "complete", "failed")),
    ] = None
    quality: Annotated[
        Literal["ok", "blurred", "dark", "bright", "unreadable", "missing"] | None,
        api.any_case(("ok", "blurred", "dark", "bright", "unreadable", "missing")),
    ] = None


class ChangeFilter(CameraFilter):
    state: Annotated[
        Literal["waiting", "applied", "superseded", "cancelled"] | None,
        api.any_case(("waiting", "applied", "superseded", "cancelled")),
    ] = None


class AlertFilter(DatedFilter):
    site: UUID | None = None
    device: UUID | None = None
    open: bool | None = None


class CommandFilter(CameraFilter):
    device: UUID | None = None
    name: Annotated[
        str | None, api.any_case(wire.COMMAND_NAMES), api.one_of(wire.COMMAND_NAMES)
    ] = None
    state: Annotated[
        str | None, api.any_case(wire.COMMAND_STATES), api.one_of(wire.COMMAND_STATES)
    ] = None


class QuarantineFilter(CameraFilter):
    device: UUID | None = None
    kind: Annotated[
        str | None, api.any_case(wire.REJECTION_KINDS), api.one_of(wire.REJECTION_KINDS)
    ] = None


class FiguresFilter(DatedFilter):
    """Which figures, in days of the sites; the last 30 days if none are given."""

    program: UUID | None = None
    site: UUID | None = None
    device: Annotated[UUID | None, Field(description="Only at the levels payload and device.")] = (
        None
    )

    @field_validator("end")
    @classmethod
    def _within_max_days(cls, end: date | None, info: ValidationInfo) -> date | None:
        begin = info.data.get("begin")
        if begin and end and (end - begin).days >= MAX_DAYS:
            raise ValueError(f"is more than {MAX_DAYS} days after from")
        return end

    def span(self) -> dict[str, date | None]:
        """First and last day of figures; a first that is None is `DAYS` before today.

        Without a last one it is as many days as may be asked for.
        """
        begin, end = self.begin, self.end
        if begin is not None and end is None:
            end = begin + timedelta(days=MAX_DAYS - 1)
        if end is not None and begin is None:
            begin = end - timedelta(days=DAYS)
        return {"from": begin, "to": end}

    def figures(self) -> FiguresQuery:
        days = self.span()
        return FiguresQuery(
            program=self.program,
            site=self.site,
            device=self.device,
            begin=days["from"],
            end=days["to"],
            after_at=self.after_at,
            after_id=self.after_id,
            limit=self.limit,
        )


@dataclass(frozen=True, slots=True)
class Kind:
    """Newest first by the column `at`, then by `key`. `where` has a condition per filter."""

    plural: str
    singular: str
    select: str
    alias: str
    at: str
    key: str
    where: Mapping[str, str]
    # How the moment of a cursor is compared with the column `at`.
    after: str = "%(after_at)s::timestamptz"

    def page(self, given: Mapping[str, object], *, onwards: bool) -> str:
        conditions = ["true", *(self.where[name] for name in given)]
        place = f"({self.alias}.{self.at}, {self.alias}.{self.key})"
        if onwards:
            conditions.append(f"{place} < ({self.after}, %(after_id)s::uuid)")
        return (
            f"{self.select} where {' and '.join(conditions)} order by {self.alias}.{self.at} desc, "
            f"{self.alias}.{self.key} desc limit %(limit)s"
        )

    def single(self) -> str:
        return f"{self.select} where {self.alias}.{self.key} = %(id)s"


_OF_DAY = "(%(after_at)s::timestamptz at time zone 'UTC')::date"

PROGRAMS = Kind(
    plural="programs",
    singular="program",
    select="""
      select p.program_id, p.program_name, p.program_type, p.is_active, p.created_at
      from pilot_programs p""",
    alias="p",
    at="created_at",
    key="program_id",
    where={"type": "p.program_type = %(type)s", "active": "p.is_active = %(active)s"},
)
SITES = Kind(
    plural="sites",
    singular="site",
    select="""
      select s.site_id, s.program_id, p.program_name, s.site_name, s.timezone,
        s.early_wake_snap_seconds, s.is_active, s.created_at
      from sites s join pilot_programs p on p.program_id = s.program_id""",
    alias="s",
    at="created_at",
    key="site_id",
    where={"program": "s.program_id = %(program)s", "active": "s.is_active = %(active)s"},
)
CAMERAS = Kind(
    plural="devices",
    singular="camera",
    select="""
      select d.device_id, d.site_id, s.site_name, d.mac, d.device_name, d.dialect,
        d.wake_schedule_cron, d.slot_index, d.x_position, d.y_position, d.firmware, d.is_active,
        d.last_seen_at, d.battery_voltage, d.wifi_rssi, d.pending_count, d.created_at, d.proven_at
      from devices d left join sites s on s.site_id = d.site_id""",
    alias="d",
    at="created_at",
    key="device_id",
    where={
        "site": "d.site_id = %(site)s",
        "active": "d.is_active = %(active)s",
        "mac": "d.mac = %(mac)s",
    },
)
SESSIONS = Kind(
    plural="sessions",
    singular="session",
    select="""
      select s.session_id, s.program_id, s.site_id, w.site_name, s.session_date, s.timezone,
        s.expected_wake_count, s.completed_wake_count, s.failed_wake_count, s.extra_wake_count,
        s.status, s.config_changed_flag, s.opened_at, s.locked_at, s.late_updates
      from site_device_sessions s join sites w on w.site_id = s.site_id""",
    alias="s",
    at="session_date",
    key="session_id",
    where={
        "site": "s.site_id = %(site)s",
        "program": "s.program_id = %(program)s",
        "status": "s.status = %(status)s",
        "from": "s.session_date >= %(from)s",
        "to": "s.session_date <= %(to)s",
    },
    after=_OF_DAY,
)
WAKES = Kind(
    plural="wakes",
    singular="wake",
    select="""
      select p.payload_id, p.program_id, p.site_id, p.site_device_session_id as session_id,
        s.session_date, p.device_id, d.device_name, p.image_id, p.captured_at, p.received_at,
        p.wake_window_index, p.temperature, p.humidity, p.pressure, p.gas_resistance,
        p.battery_voltage, p.wifi_rssi, p.payload_status, p.image_status, p.overage_flag,
        p.overage_reason, p.clock_suspect, p.resent_received_at
      from device_wake_payloads p
      join site_device_sessions s on s.session_id = p.site_device_session_id
      join devices d on d.device_id = p.device_id""",
    alias="p",
    at="captured_at",
    key="payload_id",
    where={
        "session": "p.site_device_session_id = %(session)s",
        "device": "p.device_id = %(device)s",
        "site": "p.site_id = %(site)s",
        "status": "p.payload_status = %(status)s",
        "overage": "p.overage_flag = %(overage)s",
        "from": "s.session_date >= %(from)s",
        "to": "s.session_date <= %(to)s",
    },
)
IMAGES = Kind(
    plural="images",
    singular="image",
    select="""
      select i.image_id, i.device_id, d.device_name, i.image_name, i.captured_at,
        i.original_capture_date, i.status, i.image_url, i.image_size, i.total_chunks,
        i.received_at, i.error_code, i.error_message, i.retry_count, i.resend_requested_at,
        i.resent_received_at, i.observation_id, i.created_at, o.slot_index, o.quality,
        o.quality_reason, o.size_bytes, o.sha256, o.width_px, o.height_px, o.sharpness,
        o.brightness, o.dark_share, o.bright_share, o.thumbnail_url, o.judged_at
      from device_images i join devices d on d.device_id = i.device_id
      left join petri_observations o on o.observation_id = i.observation_id""",
    alias="i",
    at="captured_at",
    key="image_id",
    where={
        "device": "i.device_id = %(device)s",
        "status": "i.status = %(status)s",
        "quality": "o.quality = %(quality)s",
        "from": "i.original_capture_date >= %(from)s",
        "to": "i.original_capture_date <= %(to)s",
    },
)
CHANGES = Kind(
    plural="changes",
    singular="schedule change",
    select="""
      select c.change_id, c.device_id, c.new_wake_schedule_cron, c.previous_wake_schedule_cron,
        c.requested_at, c.effective_date, c.state, c.applied_at, c.applied_by_function,
        c.superseded_at, c.cancelled_at
      from (
        select h.*, case when h.applied_at is not null then 'applied'
          when h.superseded_at is not null then 'superseded'
          when h.cancelled_at is not null then 'cancelled' else 'waiting' end as state
        from device_schedule_changes h) c""",
    alias="c",
    at="requested_at",
    key="change_id",
    where={"state": "c.state = %(state)s", "device": "c.device_id = %(device)s"},
)
COMMANDS = Kind(
    plural="commands",
    singular="command",
    select="""
      select c.command_id, c.device_id, d.device_name, c.name, c.image_id, c.image_name, c.wake_at,
        c.state, c.created_by, c.created_at, c.sent_at, c.ended_at
      from camera_commands c join devices d on d.device_id = c.device_id""",
    alias="c",
    at="created_at",
    key="command_id",
    where={
        "device": "c.device_id = %(device)s",
        "name": "c.name = %(name)s",
        "state": "c.state = %(state)s",
    },
)
QUARANTINE = Kind(
    plural="messages",
    singular="message in quarantine",
    select="""
      select q.quarantine_id, q.device_id, d.device_name, q.mac, q.topic, q.kind, q.reasons,
        q.raw_size_bytes, q.raw_size_bytes > octet_length(q.raw) as truncated, q.received_count,
        q.first_received_at, q.last_received_at, q.redriven_count, q.last_redriven_at
      from camera_quarantine q join devices d on d.device_id = q.device_id""",
    alias="q",
    at="last_received_at",
    key="quarantine_id",
    where={"device": "q.device_id = %(device)s", "kind": "q.kind = %(kind)s"},
)
ALERTS = Kind(
    plural="alerts",
    singular="alert",
    select="""
      select a.alert_id, a.site_id, a.device_id, a.session_id, a.image_id, a.alert_type,
        a.alert_date, a.message, a.details, a.created_at, a.resolved_at
      from device_alerts a""",
    alias="a",
    at="created_at",
    key="alert_id",
    where={
        "site": "a.site_id = %(site)s",
        "device": "a.device_id = %(device)s",
        "open": "(a.resolved_at is null) = %(open)s",
        "from": "a.alert_date >= %(from)s",
        "to": "a.alert_date <= %(to)s",
    },
)
