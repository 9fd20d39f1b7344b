"""Pure: what of a camera's words is kept. What cannot be true or is too long is left out, and said.

The wake counts all the same: a sensor that has gone mad is no reason to lose an image.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

# What a sensor on a camera may tell; beyond it the sensor is broken, or the unit is another.
PLAUSIBLE: Mapping[str, tuple[float, float]] = {
    "temperature": (-100, 200),
    "humidity": (-10, 110),
    "pressure": (0, 200_000),
    "gas_resistance": (0, 1e9),
    "battery_voltage": (0, 100),
    "wifi_rssi": (-200, 100),
}
MOST_FIRMWARE = 200
MOST_FIELD_BYTES = 1024
MOST_NAME = 64
MOST_BYTES = 8 * 1024
MOST_NOTED = 20
# Without these an announcement is none: they are kept first.
_NEEDED = frozenset({
    "image_name", "captured_at", "capture_timestamp", "total_chunks", "total_chunks_count",
    "image_size", "chunk_size", "max_chunk_size", "first_chunk_id", "sha256", "device_id",
})  # fmt: skip


def number(name: str, said: float | None, noted: list[str]) -> float | None:
    """A reading if it can be true; otherwise None, and `noted` says so."""
    if said is None or is_plausible(name, said):
        return said
    noted.append(_beyond(name, said))
    return None


def firmware(said: str | None, noted: list[str]) -> str | None:
    if said is None or len(said) <= MOST_FIRMWARE:
        return said
    noted.append(f"firmware has {len(said)} characters, at most {MOST_FIRMWARE} are kept")
    return None


def is_plausible(name: str, said: Any) -> bool:
    """Whether a reading can be true; what is no number at all stands in no column."""
    if name not in PLAUSIBLE or isinstance(said, bool) or not isinstance(said, (int, float, str)):
        return True
    least, most = PLAUSIBLE[name]
    try:
        return least <= float(said) <= most
    except OverflowError:
        return False
    except ValueError:
        return True


def kept(said: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """(what is kept of an announcement, why the rest is not)."""
    found: dict[str, Any] = {}
    noted: list[str] = []
    room = MOST_BYTES
    for name in sorted(said, key=lambda each: (each not in _NEEDED, each not in PLAUSIBLE)):
        value = said[name]
        size = len(name) + len(msgspec.json.encode(value))
        if not is_plausible(name, value):
            noted.append(_beyond(name, value))
        elif size > MOST_FIELD_BYTES or len(name) > MOST_NAME:
            noted.append(f"{_short(name)} has {_length(value, size)} and is not kept")
        elif size > room:
            noted.append(f"{_short(name)} is not kept: {MOST_BYTES} bytes are said already")
        else:
            found[name] = value
            room -= size
    if len(noted) > MOST_NOTED:
        noted[MOST_NOTED:] = [f"{len(noted) - MOST_NOTED} more are not kept"]
    return found, tuple(noted)


def _beyond(name: str, said: Any) -> str:
    least, most = PLAUSIBLE[name]
    return f"{name} of {_short(said)} is not kept: a camera's is {least:g} to {most:g}"


def _length(value: Any, size: int) -> str:
    return f"{len(value)} characters" if isinstance(value, str) else f"{size} bytes"


def _short(said: Any) -> str:
    """Python itself refuses to write integers of thousands of digits."""
    try:
        return ascii(str(said)[:40])[1:-1]
    except ValueError:
        return "thousands of digits"
