"""Devices: their status, what they had to drop, and commands to them."""

from typing import Any, ClassVar, Literal

import msgspec

from farmiq.messages.ids import Id, Instant
from farmiq.messages.kinds import Count, Name, Rules, Seq, Text, require_utc

STATUS = "device.status"
BUFFER_DROPPED = "device.buffer.dropped"
COMMAND = "device.command"
COMMAND_ANSWERED = "device.command.answered"


class DeviceHealth(msgspec.Struct, frozen=True, kw_only=True):
    camera_ok: bool | msgspec.UnsetType | None = msgspec.UNSET
    scale_ok: bool | msgspec.UnsetType | None = msgspec.UNSET
    disk_ok: bool | msgspec.UnsetType | None = msgspec.UNSET


class DeviceStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Retained on its topic, and the last will of a device. Changes travel, heartbeats do not."""

    state: Literal["online", "offline", "error"]
    last_seen_at: Instant
    firmware_version: Name | msgspec.UnsetType | None = msgspec.UNSET
    ip: Name | msgspec.UnsetType | None = msgspec.UNSET
    signal_strength: float | msgspec.UnsetType | None = msgspec.UNSET
    health: DeviceHealth | msgspec.UnsetType | None = msgspec.UNSET
    uptime_s: float | msgspec.UnsetType | None = msgspec.UNSET
    buffer_depth: Count | msgspec.UnsetType | None = msgspec.UNSET
    # What our agent adds: sessions that failed, and the names of what is wrong.
    failed_sessions: Count | msgspec.UnsetType | None = msgspec.UNSET
    alarms: tuple[Name, ...] | msgspec.UnsetType | None = msgspec.UNSET
    battery_v: float | msgspec.UnsetType | None = msgspec.UNSET
    # Only the edge says this: whether the device has been revoked there, or registered again.
    revoked: bool | msgspec.UnsetType = msgspec.UNSET

    def __post_init__(self) -> None:
        require_utc(self.last_seen_at)


class DeviceStatusByDevice(DeviceStatus, frozen=True, kw_only=True):
    """What a device says of itself; whether it is revoked is not its to say."""

    def _is_not_about_registration(self) -> str | None:
        if self.revoked is not msgspec.UNSET:
            return "`revoked` is for the edge to say, not for a device"
        return None

    rules: ClassVar[Rules] = (_is_not_about_registration,)

    def __post_init__(self) -> None:
        require_utc(self.last_seen_at)
        if (why := self._is_not_about_registration()) is not None:
            raise ValueError(why)


class DeviceBufferDropped(msgspec.Struct, frozen=True, kw_only=True):
    """The loss ledger: what a device dropped on purpose is itself an event (C-83)."""

    event_class: Id = msgspec.field(name="class")
    count: Count
    first_seq: Seq
    last_seq: Seq
    reason: Text


class DeviceCommand(msgspec.Struct, frozen=True, kw_only=True):
    """Which command it is stands in the topic.

    It may come more than once under its command_id; the device obeys once, and not after
    `expires_at` (D-53).
    """

    command_id: Id
    args: dict[str, Any]
    expires_at: Instant | msgspec.UnsetType = msgspec.UNSET

    def __post_init__(self) -> None:
        require_utc(self.expires_at)


class DeviceCommandAnswered(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a command: the device has it, did it, or could not (D-53)."""

    command_id: Id
    outcome: Literal["delivered", "applied", "failed"]
    message: Text | msgspec.UnsetType | None = msgspec.UNSET
