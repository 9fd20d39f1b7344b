"""Pure: a device as a person registers it, and everything that is wrong with what they wrote."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from farmiq.messages import check
from farmiq.messages.ids import ID_PATTERN, broker_user
from farmiq.messages.topics import Place

KINDS = ("sensor", "silo", "feeder", "station", "gateway", "other")
# The columns of an import file; the first four are needed.
COLUMNS = (
    "tenant_id", "farm_id", "barn_id", "device_id", "station_id", "kind", "firmware", "place",
    "zone", "wants_receipts", "derive_intake", "heartbeat_s",
)  # fmt: skip
NEEDED = COLUMNS[:4]
MAX_HEARTBEAT_S = 7 * 86_400
MAX_TEXT = 256
MAX_ARGS_BYTES = 64 * 1024

_ID = re.compile(ID_PATTERN)
_YES, _NO = {"true", "yes", "1"}, {"false", "no", "0"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    tenant_id: str
    farm_id: str
    barn_id: str
    device_id: str
    station_id: str | None = None
    kind: str = "sensor"
    firmware: str | None = None
    place: str | None = None
    zone: str | None = None
    wants_receipts: bool = False
    derive_intake: bool = False
    heartbeat_s: int = 60

    @property
    def where(self) -> Place:
        return Place(self.tenant_id, self.farm_id, self.barn_id, self.device_id)

    @property
    def key(self) -> tuple[str, str]:
        return self.tenant_id, self.device_id

    @property
    def station(self) -> tuple[str, str, str, str] | None:
        if self.station_id is None:
            return None
        return self.tenant_id, self.farm_id, self.barn_id, self.station_id

    @property
    def broker_user(self) -> str:
        return broker_user(*self.key)


class Wrong(Exception):  # noqa: N818 - what a person wrote, not a mistake of ours
    """`reasons` lists everything that is wrong, each with the field it is about."""

    def __init__(self, reasons: list[tuple[str, str]]) -> None:
        super().__init__("; ".join(f"{field}: {why}" for field, why in reasons))
        self.reasons = reasons


def read(said: Mapping[str, Any]) -> Device:
    """The device that these fields describe. Raises Wrong with every reason."""
    reasons = [(name, "is not a field of a device") for name in said if name not in COLUMNS]
    found: dict[str, Any] = {}
    for name in COLUMNS:
        value = said.get(name)
        if value is None or value == "":
            if name in NEEDED:
                reasons.append((name, "is missing"))
            continue
        try:
            found[name] = _read_one(name, value)
        except ValueError as error:
            reasons.append((name, str(error)))
    if not reasons:
        device = Device(**found)
        reasons = _across(device)
    if reasons:
        raise Wrong(reasons)
    return device


def _across(device: Device) -> list[tuple[str, str]]:
    """What is wrong only in company."""
    if device.kind == "station" and device.station_id is None:
        return [("station_id", "is missing: a station has one")]
    if device.derive_intake and device.kind not in ("silo", "feeder", "other"):
        return [("derive_intake", f"is for silos; this is a {device.kind}")]
    return []


def _read_one(name: str, value: Any) -> Any:
    if name in ("wants_receipts", "derive_intake"):
        return _yes_or_no(value)
    if name == "heartbeat_s":
        return _seconds(value)
    if not isinstance(value, str):
        raise ValueError("is not text")  # noqa: TRY004 - told to a person as a reason
    if name.endswith("_id"):
        return _identifier(value)
    if name == "kind" and value not in KINDS:
        raise ValueError(f"{value!r} is none of {', '.join(KINDS)}")
    if len(value) > MAX_TEXT or not value.isprintable():
        raise ValueError(f"holds signs that cannot be printed, or more than {MAX_TEXT}")
    return value


def _identifier(value: str) -> str:
    if not _ID.match(value):
        raise ValueError(
            f"{value[:40]!r} is not an id: letters, digits and . _ : -, at most 128, and a "
            "letter or digit first"
        )
    return value


def _yes_or_no(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    said = str(value).strip().lower()
    if said not in _YES | _NO:
        raise ValueError(f"{str(value)[:40]!r} is neither true nor false")
    return said in _YES


def _seconds(value: Any) -> int:
    text = str(value).strip()
    plain = not isinstance(value, (bool, float)) and re.fullmatch(r"[0-9]{1,6}", text)
    if not plain or not 1 <= int(text) <= MAX_HEARTBEAT_S:
        raise ValueError(f"{text[:40]!r} is not a number of seconds from 1 to {MAX_HEARTBEAT_S}")
    return int(text)


def twice(devices: Iterable[tuple[int, Device]]) -> list[tuple[int, str, str]]:
    """(line, field, reason) of every device or station that stands in the list before."""
    lines: dict[tuple[str, ...], int] = {}
    found = []
    for line, device in devices:
        names: list[tuple[str, tuple[str, ...] | None]] = [
            ("device_id", device.key),
            ("station_id", device.station),
        ]
        for field, key in names:
            if key is None:
                continue
            first = lines.setdefault((field, *key), line)
            if first != line:
                found.append((line, field, f"{key[-1]!r} stands in line {first} already"))
    return found


def is_id(text: str) -> bool:
    return _ID.match(text) is not None


def unkeepable(args: Mapping[str, Any]) -> list[str]:
    """Why the arguments of a command could not be kept or sent as they were said."""
    try:
        raw = json.dumps(args, allow_nan=False).encode()
    except (ValueError, TypeError, RecursionError) as error:
        return [f"cannot be said in JSON: {error}"]
    if len(raw) > MAX_ARGS_BYTES:
        return [f"are {len(raw)} bytes, at most {MAX_ARGS_BYTES}"]
    return check.keepable(raw)
