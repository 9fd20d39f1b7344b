"""The routes of cameras' accounts in the cloud, for the OpenAPI document."""

import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import Any, Literal
from uuid import UUID

import msgspec

from farmiq import asked
from farmiq.cloud.camera.accounts import answers, ask, kinds, orders
from farmiq.cloud.camera.accounts.api import ROOT
from farmiq.cloud.camera.accounts.orders import Dialect, ProgramType
from farmiq.cloud.camera.gateway import wire
from farmiq.cloud.completeness import Band
from farmiq.contracts import schemas
from farmiq.plumbing.quality import Verdict


class _Answer(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    pass


class CameraCompany(_Answer, kw_only=True, forbid_unknown_fields=True):
    """`active`: the one that this answer was made in."""

    company_id: UUID
    tenant_id: str
    name: str
    active: bool


class CameraCompanies(_Answer, kw_only=True, forbid_unknown_fields=True):
    companies: list[CameraCompany]


class CameraProgram(_Answer, kw_only=True, forbid_unknown_fields=True):
    program_id: UUID
    program_name: str
    program_type: ProgramType
    is_active: bool
    created_at: datetime


class CameraPrograms(_Answer, kw_only=True, forbid_unknown_fields=True):
    programs: list[CameraProgram]
    next_cursor: str | None


class CameraSite(_Answer, kw_only=True, forbid_unknown_fields=True):
    """Its days begin and end at midnight of `timezone`."""

    site_id: UUID
    program_id: UUID
    program_name: str
    site_name: str
    timezone: str
    early_wake_snap_seconds: int
    is_active: bool
    created_at: datetime


class CameraSites(_Answer, kw_only=True, forbid_unknown_fields=True):
    sites: list[CameraSite]
    next_cursor: str | None


class Camera(_Answer, kw_only=True, forbid_unknown_fields=True):
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
    last_seen_at: datetime | None
    battery_voltage: float | None
    wifi_rssi: float | None
    pending_count: int | None
    created_at: datetime
    proven_at: datetime | None


class Cameras(_Answer, kw_only=True, forbid_unknown_fields=True):
    devices: list[Camera]
    next_cursor: str | None


class Completeness(_Answer, kw_only=True, forbid_unknown_fields=True):
    """`pct` as it is, also above 100; `shown_pct` for people: whole, at most 100. Null with n/a."""

    pct: float | None
    shown_pct: int | None
    band: Band


class CameraSession(_Answer, kw_only=True, forbid_unknown_fields=True):
    """A site's day. It is never incomplete: how complete it is, is computed."""

    session_id: UUID
    program_id: UUID
    site_id: UUID
    site_name: str
    session_date: date
    timezone: str
    expected_wake_count: int
    completed_wake_count: int
    failed_wake_count: int
    extra_wake_count: int
    status: Literal["pending", "in_progress", "locked"]
    config_changed_flag: bool
    opened_at: datetime
    locked_at: datetime | None
    late_updates: int
    completeness: Completeness


class CameraSessions(_Answer, kw_only=True, forbid_unknown_fields=True):
    sessions: list[CameraSession]
    next_cursor: str | None


class CameraShare(_Answer, kw_only=True, forbid_unknown_fields=True):
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


class CameraSessionInFull(CameraSession, kw_only=True, forbid_unknown_fields=True):
    """`text` is the day as people read it, in three lines."""

    text: str
    devices: list[CameraShare]


class CameraWake(_Answer, kw_only=True, forbid_unknown_fields=True):
    """What the camera said of a wake, and what became of its image."""

    payload_id: UUID
    program_id: UUID
    site_id: UUID
    session_id: UUID
    session_date: date
    device_id: UUID
    device_name: str
    image_id: UUID
    captured_at: datetime
    received_at: datetime | None
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
    resent_received_at: datetime | None


class CameraWakes(_Answer, kw_only=True, forbid_unknown_fields=True):
    wakes: list[CameraWake]
    next_cursor: str | None


class CameraWakeInFull(CameraWake, kw_only=True, forbid_unknown_fields=True):
    telemetry_data: Any


class CameraImage(_Answer, kw_only=True, forbid_unknown_fields=True):
    """From `quality` on null until the image was looked at; its measures if it can be read.

    `brightness` goes from 0 to 255; the shares are of its pixels that are black, or white.
    """

    image_id: UUID
    device_id: UUID
    device_name: str
    image_name: str
    captured_at: datetime
    original_capture_date: date
    status: Literal["receiving", "complete", "failed"]
    image_url: str | None
    image_size: int | None
    total_chunks: int | None
    received_at: datetime | None
    error_code: str | None
    error_message: str | None
    retry_count: int
    resend_requested_at: datetime | None
    resent_received_at: datetime | None
    observation_id: UUID | None
    created_at: datetime
    slot_index: int | None
    quality: Verdict | None
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
    judged_at: datetime | None


class CameraImages(_Answer, kw_only=True, forbid_unknown_fields=True):
    images: list[CameraImage]
    next_cursor: str | None


class CameraAlert(_Answer, kw_only=True, forbid_unknown_fields=True):
    alert_id: UUID
    site_id: UUID | None
    device_id: UUID | None
    session_id: UUID | None
    image_id: UUID | None
    alert_type: str
    alert_date: date
    message: str
    details: Any
    created_at: datetime
    resolved_at: datetime | None


class CameraAlerts(_Answer, kw_only=True, forbid_unknown_fields=True):
    alerts: list[CameraAlert]
    next_cursor: str | None


class CameraCommand(_Answer, kw_only=True, forbid_unknown_fields=True):
    """Sent when the camera is awake. `created_by`: an e-mail, `gateway`, or who typed it."""

    command_id: UUID
    device_id: UUID
    device_name: str
    name: Literal["send_image", "capture_image", "next_wake"]
    image_id: UUID | None
    image_name: str | None
    wake_at: datetime | None
    state: Literal["queued", "sent", "done", "failed", "expired"]
    created_by: str
    created_at: datetime
    sent_at: datetime | None
    ended_at: datetime | None


class CameraCommands(_Answer, kw_only=True, forbid_unknown_fields=True):
    commands: list[CameraCommand]
    next_cursor: str | None


class CameraMessage(_Answer, kw_only=True, forbid_unknown_fields=True):
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
    first_received_at: datetime
    last_received_at: datetime
    redriven_count: int
    last_redriven_at: datetime | None


class CameraMessages(_Answer, kw_only=True, forbid_unknown_fields=True):
    messages: list[CameraMessage]
    next_cursor: str | None


class CameraMessageInFull(CameraMessage, kw_only=True, forbid_unknown_fields=True):
    """`raw_base64`: its bytes; if `truncated`, the first of them."""

    raw_base64: str


class UnknownCamera(_Answer, kw_only=True, forbid_unknown_fields=True):
    mac: str
    contents: int
    messages: int
    first_received_at: datetime
    last_received_at: datetime
    topic: str


class UnknownCameras(_Answer, kw_only=True, forbid_unknown_fields=True):
    """The 500 that were heard last."""

    cameras: list[UnknownCamera]


class ScheduleChange(_Answer, kw_only=True, forbid_unknown_fields=True):
    """`effective_date` is the first day of the new schedule, at the camera's site."""

    change_id: UUID
    device_id: UUID
    new_wake_schedule_cron: str
    previous_wake_schedule_cron: str | None
    requested_at: datetime
    effective_date: date
    state: Literal["waiting", "applied", "superseded", "cancelled"]
    applied_at: datetime | None
    applied_by_function: str | None
    superseded_at: datetime | None
    cancelled_at: datetime | None


class ScheduleRequested(ScheduleChange, kw_only=True, forbid_unknown_fields=True):
    text: str


class ScheduleChanges(_Answer, kw_only=True, forbid_unknown_fields=True):
    changes: list[ScheduleChange]
    next_cursor: str | None


class SchedulePreview(msgspec.Struct, kw_only=True):
    """`text` is what a person is told. `dst_note`: a day on the way has not 24 hours."""

    device_id: UUID
    new_wake_schedule_cron: str
    effective_date: date
    text: str
    takes_effect_at: datetime
    hours_from_now: int
    expected_today: int
    expected_tomorrow: int
    dst_note: str | msgspec.UnsetType = msgspec.UNSET


class Figures(_Answer, kw_only=True, forbid_unknown_fields=True):
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


class RollupRow(Figures, kw_only=True, forbid_unknown_fields=True):
    """`id` is of the level: a payload, a device and so on; `day` is there if it has one."""

    id: UUID
    name: str
    day: date | None


class Rollup(_Answer, kw_only=True, forbid_unknown_fields=True):
    """`totals` are of all that was asked for, not of this page; the same at every level."""

    level: Literal["payload", "device", "session", "site", "program", "company"]
    from_: date | None = msgspec.field(name="from")
    to: date | None
    totals: Figures
    rows: list[RollupRow]
    next_cursor: str | None


class TrendDay(_Answer, kw_only=True, forbid_unknown_fields=True):
    date: date
    avg_temp: float | None
    min_temp: float | None
    max_temp: float | None
    wakes: int


class DeviceTrend(_Answer, kw_only=True, forbid_unknown_fields=True):
    device_id: UUID
    days: list[TrendDay]


class SummaryDay(_Answer, kw_only=True, forbid_unknown_fields=True):
    session_date: date
    session_id: UUID
    expected_wake_count: int
    completed_wake_count: int
    failed_wake_count: int
    extra_wake_count: int
    completeness_pct: float | None
    band: Band
    avg_temp: float | None
    avg_humidity: float | None


class SiteSummary(_Answer, kw_only=True, forbid_unknown_fields=True):
    site_id: UUID
    days: list[SummaryDay]


class ComparedProgram(_Answer, kw_only=True, forbid_unknown_fields=True):
    program_id: UUID
    program_name: str
    program_type: ProgramType
    total_sessions: int
    avg_completed_wakes: float
    avg_temperature: float | None
    expected_wake_count: int
    completed_wake_count: int
    completeness: Completeness


class ProgramComparison(_Answer, kw_only=True, forbid_unknown_fields=True):
    programs: list[ComparedProgram]


class OverageDay(_Answer, kw_only=True, forbid_unknown_fields=True):
    session_date: date
    session_id: UUID
    site_id: UUID
    device_id: UUID
    device_name: str
    expected: int
    received: int
    extra: int
    text: str


class Overage(_Answer, kw_only=True, forbid_unknown_fields=True):
    overage: list[OverageDay]
    next_cursor: str | None


TYPES = (
    CameraCompanies, CameraPrograms, CameraProgram, CameraSites, CameraSite, Cameras, Camera,
    CameraSessions, CameraSessionInFull, CameraWakes, CameraWakeInFull, CameraImages, CameraImage,
    CameraAlerts, CameraAlert, ScheduleChanges, ScheduleChange, ScheduleRequested, SchedulePreview,
    Rollup, DeviceTrend, SiteSummary, ProgramComparison, Overage, CameraCommands, CameraCommand,
    CameraMessages, CameraMessageInFull, UnknownCameras,
    orders.NewProgram, orders.ProgramChange, orders.NewSite, orders.SiteChange, orders.NewCamera,
    orders.CameraChange, orders.ScheduleWish, orders.NewCommand, orders.Deed,
)  # fmt: skip

_UUID = {"type": "string", "format": "uuid"}
_DAY = {"type": "string", "format": "date"}
_BOOLEAN = {"type": "string", "enum": ["true", "false"]}
_SCHEMAS: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("site", "program", "device", "session"), _UUID),
    **dict.fromkeys(("active", "open", "overage"), _BOOLEAN),
    "from": _DAY,
    "to": _DAY,
    "mac": {"type": "string"},
    "type": {"type": "string", "enum": ["control", "experimental"]},
    "state": {"type": "string", "enum": ["waiting", "applied", "superseded", "cancelled"]},
    "quality": {"type": "string", "enum": [*ask.QUALITIES]},
    "days": {"type": "integer", "minimum": 1, "maximum": ask.MOST_DAYS},
}
# Words that a filter of one list takes, and that of another does not.
_WORDS: dict[str, dict[str, Sequence[str]]] = {
    "sessions": {"status": ["pending", "in_progress", "locked"]},
    "wakes": {"status": ["pending", "complete", "failed"]},
    "images": {"status": ["receiving", "complete", "failed"]},
    "commands": {"name": wire.COMMAND_NAMES, "state": wire.COMMAND_STATES},
    "messages": {"kind": wire.REJECTION_KINDS},
}
_WRONG = {
    "400": "VALIDATION_ERROR: `details` names everything that is wrong.",
    "401": "UNAUTHENTICATED: nobody is signed in.",
    "503": "UNAVAILABLE: the database is away; try again after Retry-After.",
}
_WRITING = _WRONG | {
    "403": "FORBIDDEN: the person's role does not reach.",
    "409": "CONFLICT: a name or an address is taken, or it is too late.",
    "413": f"PAYLOAD_TOO_LARGE: more than {answers.MOST_BYTES} bytes.",
    "415": "UNSUPPORTED_MEDIA_TYPE: send application/json.",
    "429": "TOO_MANY_REQUESTS: the person acts too often; wait for Retry-After.",
}
_COMPANY = {
    "name": "company",
    "in": "query",
    "description": "For super admins: another company than the one they chose.",
    "schema": _UUID,
}


def paths(error: Any, people: list[dict[str, list[str]]]) -> dict[str, Any]:
    """`error` is the type of the standard error body, `people` how somebody is signed in."""
    to = _Writer(error, people)
    return {
        f"{ROOT}/{path}": {
            method: {**operation, "parameters": [*_in_path(path), *operation["parameters"]]}
            for method, operation in item.items()
        }
        for path, item in {**_things(to), **_accounts(to)}.items()
    }


def _in_path(path: str) -> list[dict[str, Any]]:
    level = {"type": "string", "enum": [*ask.LEVELS]}
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": level if name == "level" else _UUID,
        }
        for name in re.findall(r"{(\w+)}", path)
    ]


def _things(to: "_Writer") -> dict[str, Any]:
    return {
        "companies": {"get": to.get("The companies that the person may choose", CameraCompanies)},
        "programs": {
            "get": to.page("Programs", CameraPrograms, kinds.PROGRAMS),
            "post": to.act("Add a program (admins)", orders.NewProgram, CameraProgram, made=True),
        },
        "programs/{program_id}": {
            "get": to.get("One program", CameraProgram),
            "patch": to.act("Change a program (admins)", orders.ProgramChange, CameraProgram),
        },
        "sites": {
            "get": to.page("Sites", CameraSites, kinds.SITES),
            "post": to.act("Add a site (admins)", orders.NewSite, CameraSite, made=True),
        },
        "sites/{site_id}": {
            "get": to.get("One site", CameraSite),
            "patch": to.act("Change a site (admins)", orders.SiteChange, CameraSite),
        },
        "devices": {
            "get": to.page("Cameras", Cameras, kinds.CAMERAS),
            "post": to.act("Add a camera (technicians)", orders.NewCamera, Camera, made=True),
        },
        "devices/{device_id}": {
            "get": to.get("One camera", Camera),
            "patch": to.act("Change a camera (technicians)", orders.CameraChange, Camera),
        },
        "devices/{device_id}/retire": {
            "post": to.act("Retire a camera (technicians)", orders.Deed, Camera)
        },
        "devices/{device_id}/schedule-changes": {
            "get": to.page("A camera's schedule changes", ScheduleChanges, kinds.CHANGES),
            "post": to.act(
                "Ask for another schedule from the site's next midnight (technicians)",
                orders.ScheduleWish,
                ScheduleRequested,
                made=True,
            ),
        },
        "devices/{device_id}/schedule-changes/preview": {
            "post": to.act(
                "When another schedule would take effect; nothing is kept",
                orders.ScheduleWish,
                SchedulePreview,
            )
        },
        "schedule-changes/{change_id}/cancel": {
            "post": to.act(
                "Take back a change that was not applied yet (technicians)",
                orders.Deed,
                ScheduleChange,
            )
        },
    }


def _accounts(to: "_Writer") -> dict[str, Any]:
    return {
        "sessions": {"get": to.page("Days of sites", CameraSessions, kinds.SESSIONS)},
        "sessions/{session_id}": {
            "get": to.get("One day, with each camera's share", CameraSessionInFull)
        },
        "wakes": {"get": to.page("Wakes", CameraWakes, kinds.WAKES)},
        "wakes/{payload_id}": {
            "get": to.get("One wake, with all that the camera said", CameraWakeInFull)
        },
        "images": {"get": to.page("Images of wakes", CameraImages, kinds.IMAGES)},
        "images/{image_id}": {"get": to.get("One image's account", CameraImage)},
        "images/{image_id}/content": {"get": to.picture("One image's bytes")},
        "images/{image_id}/resend": {
            "post": to.act(
                "Ask its camera for an image again (operators)", orders.Deed, CameraImage
            )
        },
        "alerts": {"get": to.page("What somebody should look at", CameraAlerts, kinds.ALERTS)},
        "alerts/{alert_id}/resolve": {
            "post": to.act("An alert was dealt with (operators)", orders.Deed, CameraAlert)
        },
        "commands": {"get": to.page("What cameras are told to do", CameraCommands, kinds.COMMANDS)},
        "commands/{command_id}": {"get": to.get("One command and its state", CameraCommand)},
        "devices/{device_id}/commands": {
            "post": to.act(
                "Tell a camera something when it is awake (operators)",
                orders.NewCommand,
                CameraCommand,
                made=True,
            )
        },
        "quarantine": {
            "get": to.page("What was refused of cameras", CameraMessages, kinds.QUARANTINE)
        },
        "quarantine/{quarantine_id}": {
            "get": to.get("One refused message, with its bytes", CameraMessageInFull)
        },
        "unknown-cameras": {
            "get": to.guarded("Cameras that nobody registered (super admins)", UnknownCameras)
        },
        "rollups/{level}": {
            "get": to.listed(
                "Figures at one of six levels, in days of the sites; 30 days if none are given",
                Rollup,
                ask.OVERAGE,
            )
        },
        "overage": {
            "get": to.listed("Cameras that woke more than expected, by day", Overage, ask.OVERAGE)
        },
        "devices/{device_id}/trend": {
            "get": to.get("A camera's temperature by day", DeviceTrend, "days")
        },
        "sites/{site_id}/summary": {"get": to.get("A site's days", SiteSummary, "days")},
        "comparison": {"get": to.get("Programs side by side", ProgramComparison, "days")},
    }


class _Writer:
    """Writes operations; what stands in their paths is added when those are known."""

    def __init__(self, error: Any, people: list[dict[str, list[str]]]) -> None:
        self._error, self._people = error, people

    def get(self, summary: str, kind: Any, *query: str) -> dict[str, Any]:
        return self._operation(summary, kind, [_query(name) for name in query], _WRONG)

    def picture(self, summary: str) -> dict[str, Any]:
        """A JPEG; with the tag of an earlier answer only whether it is still that."""
        wrong = _WRONG | {"503": "UNAVAILABLE: the database or the object store is away."}
        found = self._operation(summary, CameraImage, [], wrong)
        jpeg = {"description": "The image.", "content": {"image/jpeg": {"schema": {}}}}
        same = {"description": "It has not changed."}
        return {**found, "responses": {**found["responses"], "200": jpeg, "304": same}}

    def guarded(self, summary: str, kind: Any) -> dict[str, Any]:
        return self._operation(summary, kind, [], _WRONG | {"403": _WRITING["403"]})

    def page(self, summary: str, kind: Any, of: kinds.Kind) -> dict[str, Any]:
        return self.listed(f"{summary}, newest first", kind, of.filters, words=_WORDS.get(of.many))

    def listed(
        self,
        summary: str,
        kind: Any,
        filters: Mapping[str, Any],
        *,
        words: Mapping[str, Sequence[str]] | None = None,
    ) -> dict[str, Any]:
        query = [
            {**_query(name), "schema": {"type": "string", "enum": [*words[name]]}}
            if words and name in words
            else _query(name)
            for name in filters
        ]
        place = [
            {
                "name": "limit",
                "in": "query",
                "schema": {"type": "integer", "minimum": 1, "maximum": ask.MOST_ROWS},
            },
            {
                "name": "cursor",
                "in": "query",
                "schema": {"type": "string", "maxLength": asked.LONGEST_CURSOR},
            },
        ]
        return self._operation(summary, kind, [*query, *place], _WRONG)

    def act(self, summary: str, body: Any, kind: Any, *, made: bool = False) -> dict[str, Any]:
        found = self._operation(summary, kind, [], _WRITING, status="201" if made else "200")
        return {**found, "requestBody": {"required": True, "content": _content(body)}}

    def _operation(
        self,
        summary: str,
        kind: Any,
        query: list[dict[str, Any]],
        wrong: Mapping[str, str],
        *,
        status: str = "200",
    ) -> dict[str, Any]:
        missing = {"404": "NOT_FOUND: there is none, or not in the company that is looked at."}
        return {
            "summary": summary,
            "security": self._people,
            "parameters": [*query, _COMPANY],
            "responses": {
                status: {"description": "It is answered.", "content": _content(kind)},
                **{
                    each: {"description": why, "content": _content(self._error)}
                    for each, why in sorted({**wrong, **missing}.items())
                },
            },
        }


def _query(name: str) -> dict[str, Any]:
    return {"name": name, "in": "query", "schema": _SCHEMAS.get(name, {"type": "string"})}


def _content(kind: Any) -> dict[str, Any]:
    return {"application/json": {"schema": schemas.ref(kind)}}
