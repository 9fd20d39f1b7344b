"""What people send to register and change things of cameras, and what they get."""

import datetime as dt
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, UnsetType
from pydantic import Field

from farmiq import api
from farmiq.api import At
from farmiq.cloud.camera.accounts import kinds
from farmiq.cloud.completeness import Band
from farmiq.plumbing.images.quality import Grade

# --- bodies

Name = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=200,
        pattern=r"^[^\x00-\x1f\x7f]*[^\s\x00-\x1f\x7f][^\x00-\x1f\x7f]*$",
    ),
]
Zone = Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_+/-]+$")]
Cron = Annotated[str, Meta(min_length=9, max_length=200, pattern=r"^[\x20-\x7e]+$")]
Mac = Annotated[str, Meta(min_length=12, max_length=32, pattern=r"^[0-9A-Fa-f:.-]+$")]
Snap = Annotated[int, Meta(ge=0, le=300)]
Slot = Annotated[int, Meta(ge=1, le=1_000_000)]
ImageName = Annotated[str, Meta(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9._-]+$")]
Moment = Annotated[dt.datetime, Meta(tz=True)]
Metres = Annotated[float, Meta(ge=-1_000_000, le=1_000_000)]
ProgramType = Literal["control", "experimental"]
Dialect = Literal["standard", "esp32cam"]


class Order(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A body; fields that it does not know are wrong."""


class NewProgram(Order, kw_only=True, forbid_unknown_fields=True):
    program_name: Name
    program_type: ProgramType


class ProgramChange(Order, kw_only=True, forbid_unknown_fields=True):
    """What is not said stays."""

    program_name: Name | UnsetType = UNSET
    program_type: ProgramType | UnsetType = UNSET
    is_active: bool | UnsetType = UNSET


class NewSite(Order, kw_only=True, forbid_unknown_fields=True):
    """`timezone` is an IANA name such as Asia/Bangkok: the site's days are days there."""

    program_id: UUID
    site_name: Name
    timezone: Zone
    early_wake_snap_seconds: Snap = 0


class SiteChange(Order, kw_only=True, forbid_unknown_fields=True):
    """What is not said stays. A new time zone counts from the next day that opens."""

    program_id: UUID | UnsetType = UNSET
    site_name: Name | UnsetType = UNSET
    timezone: Zone | UnsetType = UNSET
    early_wake_snap_seconds: Snap | UnsetType = UNSET
    is_active: bool | UnsetType = UNSET


class NewCamera(Order, kw_only=True, forbid_unknown_fields=True):
    """`mac` in any usual spelling. Its first schedule counts from the next day that opens."""

    mac: Mac
    device_name: Name
    site_id: UUID | None = None
    dialect: Dialect = "standard"
    wake_schedule_cron: Cron | None = None
    slot_index: Slot | None = None
    x_position: Metres | None = None
    y_position: Metres | None = None
    firmware: Name | None = None


class CameraChange(Order, kw_only=True, forbid_unknown_fields=True):
    """What is not said stays; null takes away. Its schedule changes by a schedule change only."""

    device_name: Name | UnsetType = UNSET
    site_id: UUID | UnsetType | None = UNSET
    dialect: Dialect | UnsetType = UNSET
    slot_index: Slot | UnsetType | None = UNSET
    x_position: Metres | UnsetType | None = UNSET
    y_position: Metres | UnsetType | None = UNSET
    firmware: Name | UnsetType | None = UNSET
    is_active: bool | UnsetType = UNSET


class ScheduleRequest(Order, kw_only=True, forbid_unknown_fields=True):
    """Five fields, in the time of the camera's site."""

    new_wake_schedule_cron: Cron


class NewCommand(Order, kw_only=True, forbid_unknown_fields=True):
    """`image_name` is for send_image, null: the next that waits; `wake_at` is for next_wake."""

    name: Literal["send_image", "capture_image", "next_wake"]
    image_name: ImageName | None = None
    wake_at: Moment | None = None


class Empty(Order, kw_only=True, forbid_unknown_fields=True):
    """The address says it all; the body is {}."""


def given(order: msgspec.Struct) -> dict[str, object]:
    """The fields that were sent."""
    fields = msgspec.structs.asdict(order)
    return {name: value for name, value in fields.items() if value is not UNSET}


# --- responses


class CameraCompany(api.Model):
    """`active`: the one that this answer was made in."""

    company_id: UUID
    tenant_id: str
    name: str
    active: bool


class CameraCompanies(api.Model):
    companies: list[CameraCompany]


class CameraProgram(api.Model):
    program_id: UUID
    program_name: str
    program_type: ProgramType
    is_active: bool
    created_at: At


class CameraPrograms(api.Model):
    programs: list[CameraProgram]
    next_cursor: str | None


class CameraSite(api.Model):
    """Its days begin and end at midnight of `timezone`."""

    site_id: UUID
    program_id: UUID
    program_name: str
    site_name: str
    timezone: str
    early_wake_snap_seconds: int
    is_active: bool
    created_at: At


class CameraSites(api.Model):
    sites: list[CameraSite]
    next_cursor: str | None


class Camera(api.Model):
    """`mac`: twelve hexadecimal digits in upper case. Retired: `is_active` is false.

    `proven_at`: since when the camera is known to be this company's, because it was heard.
    """

    device_id: UUID
    site_id: UUID | None
    site_name: str | None
    mac: str
    device_name: str
    dialect: Dialect
    wake_schedule_cron: str | None
    slot_index: int | None
    x_position: float | None
    y_position: float | None
    firmware: str | None
    is_active: bool
    last_seen_at: At | None
    battery_voltage: float | None
    wifi_rssi: float | None
    pending_count: int | None
    created_at: At
    proven_at: At | None


class Cameras(api.Model):
    devices: list[Camera]
    next_cursor: str | None


class Completeness(api.Model):
    """`pct` as it is, also above 100; `shown_pct` for people: whole, at most 100. Null with n/a."""

    pct: float | None
    shown_pct: int | None
    band: Band


class CameraSession(api.Model):
    """A site's day. It is never incomplete: how complete it is, is computed."""

    session_id: UUID
    program_id: UUID
    site_id: UUID
    site_name: str
    session_date: dt.date
    timezone: str
    expected_wake_count: int
    completed_wake_count: int
    failed_wake_count: int
    extra_wake_count: int
    status: Literal["pending", "in_progress", "locked"]
    config_changed_flag: bool
    opened_at: At
    locked_at: At | None
    late_updates: int
    completeness: Completeness


class CameraSessions(api.Model):
    sessions: list[CameraSession]
    next_cursor: str | None


class CameraShare(api.Model):
    """A camera's part of a day. `on_schedule`: complete, and in a window that was expected."""

    device_id: UUID
    device_name: str
    expected: int
    received: int
    completed: int
    failed: int
    pending: int
    extra: int
    on_schedule: int
    avg_temperature: float | None
    avg_humidity: float | None
    completeness: Completeness
    text: str


class CameraSessionInFull(CameraSession):
    """`text` is the day as people read it, in three lines."""

    text: str
    devices: list[CameraShare]


class CameraWake(api.Model):
    """What the camera said of a wake, and what became of its image."""

    payload_id: UUID
    program_id: UUID
    site_id: UUID
    session_id: UUID
    session_date: dt.date
    device_id: UUID
    device_name: str
    image_id: UUID
    captured_at: At
    received_at: At | None
    wake_window_index: int | None
    temperature: float | None
    humidity: float | None
    pressure: float | None
    gas_resistance: float | None
    battery_voltage: float | None
    wifi_rssi: float | None
    payload_status: Literal["pending", "complete", "failed"]
    image_status: Literal["pending", "complete", "failed"]
    overage_flag: bool
    overage_reason: Literal["off_schedule", "bucket_taken", "no_schedule"] | None
    clock_suspect: bool
    resent_received_at: At | None


class CameraWakes(api.Model):
    wakes: list[CameraWake]
    next_cursor: str | None


class CameraWakeInFull(CameraWake):
    telemetry_data: Any


class CameraImage(api.Model):
    """From `quality` on null until the image was looked at; its measures if it can be read.

    `brightness` goes from 0 to 255; the shares are of its pixels that are black, or white.
    """

    image_id: UUID
    device_id: UUID
    device_name: str
    image_name: str
    captured_at: At
    original_capture_date: dt.date
    status: Literal["receiving", "complete", "failed"]
    image_url: str | None
    image_size: int | None
    total_chunks: int | None
    received_at: At | None
    error_code: str | None
    error_message: str | None
    retry_count: int
    resend_requested_at: At | None
    resent_received_at: At | None
    observation_id: UUID | None
    created_at: At
    slot_index: int | None
    quality: Grade | None
    quality_reason: str | None
    size_bytes: int | None
    sha256: str | None
    width_px: int | None
    height_px: int | None
    sharpness: float | None
    brightness: float | None
    dark_share: float | None
    bright_share: float | None
    thumbnail_url: str | None
    judged_at: At | None


class CameraImages(api.Model):
    images: list[CameraImage]
    next_cursor: str | None


class CameraAlert(api.Model):
    alert_id: UUID
    site_id: UUID | None
    device_id: UUID | None
    session_id: UUID | None
    image_id: UUID | None
    alert_type: str
    alert_date: dt.date
    message: str
    details: Any
    created_at: At
    resolved_at: At | None


class CameraAlerts(api.Model):
    alerts: list[CameraAlert]
    next_cursor: str | None


class CameraCommand(api.Model):
    """Sent when the camera is awake. `created_by`: an e-mail, `gateway`, or who typed it."""

    command_id: UUID
    device_id: UUID
    device_name: str
    name: Literal["send_image", "capture_image", "next_wake"]
    image_id: UUID | None
    image_name: str | None
    wake_at: At | None
    state: Literal["queued", "sent", "done", "failed", "expired"]
    created_by: str
    created_at: At
    sent_at: At | None
    ended_at: At | None


class CameraCommands(api.Model):
    commands: list[CameraCommand]
    next_cursor: str | None


class CameraMessage(api.Model):
    """What a camera sent and could not be taken; of kind `limits` perhaps in part only."""

    quarantine_id: UUID
    device_id: UUID
    device_name: str
    mac: str | None
    topic: str
    kind: str
    reasons: list[str]
    raw_size_bytes: int
    truncated: bool
    received_count: int
    first_received_at: At
    last_received_at: At
    redriven_count: int
    last_redriven_at: At | None


class CameraMessages(api.Model):
    messages: list[CameraMessage]
    next_cursor: str | None


class CameraMessageInFull(CameraMessage):
    """`raw_base64`: its bytes; if `truncated`, the first of them."""

    raw_base64: str


class UnknownCamera(api.Model):
    mac: str
    contents: int
    messages: int
    first_received_at: At
    last_received_at: At
    topic: str


class UnknownCameras(api.Model):
    """The 500 that were heard last."""

    cameras: list[UnknownCamera]


class ScheduleChange(api.Model):
    """`effective_date` is the first day of the new schedule, at the camera's site."""

    change_id: UUID
    device_id: UUID
    new_wake_schedule_cron: str
    previous_wake_schedule_cron: str | None
    requested_at: At
    effective_date: dt.date
    state: Literal["waiting", "applied", "superseded", "cancelled"]
    applied_at: At | None
    applied_by_function: str | None
    superseded_at: At | None
    cancelled_at: At | None


class ScheduleRequested(ScheduleChange):
    text: str


class ScheduleChanges(api.Model):
    changes: list[ScheduleChange]
    next_cursor: str | None


class SchedulePreview(api.Model):
    """`text` is what a person is told. `dst_note`: a day on the way has not 24 hours."""

    device_id: UUID
    new_wake_schedule_cron: str
    effective_date: dt.date
    text: str
    takes_effect_at: At
    hours_from_now: int
    expected_today: int
    expected_tomorrow: int
    dst_note: str | None = None


class Figures(api.Model):
    """`on_schedule`: wakes that are complete and took a window that was expected."""

    sessions: int
    expected: int
    received: int
    completed: int
    failed: int
    pending: int
    extra: int
    on_schedule: int
    avg_temperature: float | None
    avg_humidity: float | None
    completeness: Completeness


class RollupRow(Figures):
    """`id` is of the level: a payload, a device and so on; `day` is there if it has one."""

    id: UUID
    name: str
    day: dt.date | None


class Rollup(api.Model):
    """`totals` are of all that was asked for, not of this page; the same at every level."""

    level: kinds.Level
    from_: Annotated[dt.date | None, Field(alias="from")]
    to: dt.date | None
    totals: Figures
    rows: list[RollupRow]
    next_cursor: str | None


class TrendDay(api.Model):
    date: dt.date
    avg_temp: float | None
    min_temp: float | None
    max_temp: float | None
    wakes: int


class DeviceTrend(api.Model):
    device_id: UUID
    days: list[TrendDay]


class SummaryDay(api.Model):
    session_date: dt.date
    session_id: UUID
    expected_wake_count: int
    completed_wake_count: int
    failed_wake_count: int
    extra_wake_count: int
    completeness_pct: float | None
    band: Band
    avg_temp: float | None
    avg_humidity: float | None


class SiteSummary(api.Model):
    site_id: UUID
    days: list[SummaryDay]


class ComparedProgram(api.Model):
    program_id: UUID
    program_name: str
    program_type: ProgramType
    total_sessions: int
    avg_completed_wakes: float
    avg_temperature: float | None
    expected_wake_count: int
    completed_wake_count: int
    completeness: Completeness


class ProgramComparison(api.Model):
    programs: list[ComparedProgram]


class OverageDay(api.Model):
    session_date: dt.date
    session_id: UUID
    site_id: UUID
    device_id: UUID
    device_name: str
    expected: int
    received: int
    extra: int
    text: str


class Overage(api.Model):
    overage: list[OverageDay]
    next_cursor: str | None
