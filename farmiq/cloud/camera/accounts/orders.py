"""What people send to register and change things of cameras."""

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, UnsetType

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
Moment = Annotated[datetime, Meta(tz=True)]
Metres = Annotated[float, Meta(ge=-1_000_000, le=1_000_000)]
ProgramType = Literal["control", "experimental"]
Dialect = Literal["standard", "esp32cam"]


class _Order(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    pass


class NewProgram(_Order, kw_only=True, forbid_unknown_fields=True):
    program_name: Name
    program_type: ProgramType


class ProgramChange(_Order, kw_only=True, forbid_unknown_fields=True):
    """What is not said stays."""

    program_name: Name | UnsetType = UNSET
    program_type: ProgramType | UnsetType = UNSET
    is_active: bool | UnsetType = UNSET


class NewSite(_Order, kw_only=True, forbid_unknown_fields=True):
    """`timezone` is an IANA name such as Asia/Bangkok: the site's days are days there."""

    program_id: UUID
    site_name: Name
    timezone: Zone
    early_wake_snap_seconds: Snap = 0


class SiteChange(_Order, kw_only=True, forbid_unknown_fields=True):
    """What is not said stays. A new time zone counts from the next day that opens."""

    program_id: UUID | UnsetType = UNSET
    site_name: Name | UnsetType = UNSET
    timezone: Zone | UnsetType = UNSET
    early_wake_snap_seconds: Snap | UnsetType = UNSET
    is_active: bool | UnsetType = UNSET


class NewCamera(_Order, kw_only=True, forbid_unknown_fields=True):
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


class CameraChange(_Order, kw_only=True, forbid_unknown_fields=True):
    """What is not said stays; null takes away. Its schedule changes by a schedule change only."""

    device_name: Name | UnsetType = UNSET
    site_id: UUID | UnsetType | None = UNSET
    dialect: Dialect | UnsetType = UNSET
    slot_index: Slot | UnsetType | None = UNSET
    x_position: Metres | UnsetType | None = UNSET
    y_position: Metres | UnsetType | None = UNSET
    firmware: Name | UnsetType | None = UNSET
    is_active: bool | UnsetType = UNSET


class ScheduleWish(_Order, kw_only=True, forbid_unknown_fields=True):
    """Five fields, in the time of the camera's site."""

    new_wake_schedule_cron: Cron


class NewCommand(_Order, kw_only=True, forbid_unknown_fields=True):
    """`image_name` is for send_image, null: the next that waits; `wake_at` is for next_wake."""

    name: Literal["send_image", "capture_image", "next_wake"]
    image_name: ImageName | None = None
    wake_at: Moment | None = None


class Deed(_Order, kw_only=True, forbid_unknown_fields=True):
    """The address says it all; the body is {}."""


def said(order: msgspec.Struct) -> dict[str, object]:
    """The fields that were sent."""
    found = msgspec.structs.asdict(order)
    return {name: value for name, value in found.items() if value is not UNSET}
