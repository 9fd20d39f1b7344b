"""Pure: a device as a person registers it, alone or in a CSV file, and what it may at the broker.

Up only under its own identity, down only its own receipts and commands. One list of topics makes
the permissions of both brokers, so the two cannot differ.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from farmiq import nats_users as nats
from farmiq import roster
from farmiq.messages import check, topics
from farmiq.messages.ids import ID_PATTERN, broker_user
from farmiq.messages.topics import Place
from farmiq.roster import Problem, RosterError

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


class InvalidDeviceError(Exception):
    """`reasons`: (field, reason) of every error."""

    def __init__(self, reasons: list[tuple[str, str]]) -> None:
        super().__init__("; ".join(f"{field}: {reason}" for field, reason in reasons))
        self.reasons = reasons


def parse_device(fields: Mapping[str, Any]) -> Device:
    """The device of these fields. Raises InvalidDeviceError with every reason."""
    reasons = [(name, "is not a field of a device") for name in fields if name not in COLUMNS]
    values: dict[str, Any] = {}
    for name in COLUMNS:
        value = fields.get(name)
        if value is None or value == "":
            if name in NEEDED:
                reasons.append((name, "is missing"))
            continue
        try:
            values[name] = _parse_field(name, value)
        except ValueError as error:
            reasons.append((name, str(error)))
    if not reasons:
        device = Device(**values)
        reasons = _combined_problems(device)
    if reasons:
        raise InvalidDeviceError(reasons)
    return device


def _combined_problems(device: Device) -> list[tuple[str, str]]:
    """Errors in the combination of fields."""
    if device.kind == "station" and device.station_id is None:
        return [("station_id", "is missing: a station has one")]
    if device.derive_intake and device.kind not in ("silo", "feeder", "other"):
        return [("derive_intake", f"is for silos; this is a {device.kind}")]
    return []


def _parse_field(name: str, value: Any) -> Any:
    if name in ("wants_receipts", "derive_intake"):
        return _parse_bool(value)
    if name == "heartbeat_s":
        return _parse_seconds(value)
    if not isinstance(value, str):
        raise ValueError("is not text")  # noqa: TRY004 - a reason for a person
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


def _parse_bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower()
    if text not in _YES | _NO:
        raise ValueError(f"{str(value)[:40]!r} is neither true nor false")
    return text in _YES


def _parse_seconds(value: Any) -> int:
    text = str(value).strip()
    plain = not isinstance(value, (bool, float)) and re.fullmatch(r"[0-9]{1,6}", text)
    if not plain or not 1 <= int(text) <= MAX_HEARTBEAT_S:
        raise ValueError(f"{text[:40]!r} is not a number of seconds from 1 to {MAX_HEARTBEAT_S}")
    return int(text)


def find_duplicates(devices: Iterable[tuple[int, Device]]) -> list[tuple[int, str, str]]:
    """(line, field, reason) of every device or station that is in an earlier line."""
    lines: dict[tuple[str, ...], int] = {}
    duplicates = []
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
                duplicates.append((line, field, f"{key[-1]!r} stands in line {first} already"))
    return duplicates


def parse_csv(text: str) -> list[tuple[int, Device]]:
    """(line, device) of every row. Raises RosterError with every problem."""
    rows, problems = roster.rows(text, columns=COLUMNS, needed=NEEDED, of="device")
    devices: list[tuple[int, Device]] = []
    for line, cells in rows:
        try:
            devices.append((line, parse_device(cells)))
        except InvalidDeviceError as error:
            problems += [Problem(line, *reason) for reason in error.reasons]
    problems += [Problem(*duplicate) for duplicate in find_duplicates(devices)]
    if problems:
        raise RosterError(problems)
    return devices


def is_id(text: str) -> bool:
    return _ID.match(text) is not None


def args_problems(args: Mapping[str, Any]) -> list[str]:
    """Why the arguments of a command cannot be stored or sent."""
    try:
        raw = json.dumps(args, allow_nan=False).encode()
    except (ValueError, TypeError, RecursionError) as error:
        return [f"cannot be said in JSON: {error}"]
    if len(raw) > MAX_ARGS_BYTES:
        return [f"are {len(raw)} bytes, at most {MAX_ARGS_BYTES}"]
    return check.keepable(raw)


# --- permissions at the broker, in the formats of NATS and Mosquitto


@dataclass(frozen=True, slots=True)
class Login:
    """A device that may connect, and the hashes of its secret."""

    device: Device
    secret_bcrypt: str
    secret_pbkdf2: str


def publishes(device: Device) -> list[str]:
    """Topic filters that the device may publish on."""
    where = device.where
    own = [topics.telemetry(where, "+"), topics.event(where, "+"), topics.status(where)]
    if device.station is not None:
        own.append(f"iot/weighvision/{'/'.join(device.station)}/session/+/+")
    return own


def subscribes(device: Device) -> list[str]:
    """Topic filters that the device may subscribe to."""
    return [topics.receipts(device.where), topics.command(device.where, "#")]


def nats_users(logins: Iterable[Login], *, own: Sequence[str] = ("GATEWAY",)) -> str:
    """The users file of a NATS server; `own` are users who are no devices."""
    return nats.users_file((account(login) for login in logins), own=own)


def account(login: Login) -> nats.Account:
    return nats.Account(
        user=login.device.broker_user,
        secret_bcrypt=login.secret_bcrypt,
        publish=publishes(login.device),
        subscribe=subscribes(login.device),
    )


def mosquitto_acl(devices: Iterable[Device]) -> str:
    """The lines of devices for Mosquitto's acl_file."""
    blocks = [
        "\n".join(
            [
                f"user {device.broker_user}",
                *(f"topic write {topic}" for topic in publishes(device)),
                *(f"topic read {topic}" for topic in subscribes(device)),
            ]
        )
        for device in devices
    ]
    return "\n\n".join(blocks) + "\n" if blocks else ""


def mosquitto_passwords(logins: Iterable[Login]) -> str:
    """The lines of devices for Mosquitto's password_file."""
    return "".join(f"{login.device.broker_user}:{login.secret_pbkdf2}\n" for login in logins)
