"""Reading JSON into types, and saying everything that is wrong with what does not fit.

The fast path is one strict decode. Only when it fails does the slow path walk the value and
list every problem: an operator who mends a device wants all of them, not the first.
"""

import math
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

MAX_DEPTH = 32
# A hostile message must not make a report larger than itself.
MOST_REASONS = 50
_TOO_DEEP = f"nested deeper than {MAX_DEPTH} levels"


class Invalid(Exception):  # noqa: N818 - it reads as a verdict: raise Invalid([...])
    """The sender must change the message; `reasons` lists everything that is wrong with it."""

    def __init__(self, reasons: list[str]) -> None:
        super().__init__("; ".join(reasons))
        self.reasons = reasons


def read(raw: bytes | msgspec.Raw, decoder: "msgspec.json.Decoder[T]", kind: type[T]) -> T:
    """The value of `kind` in these bytes. Raises Invalid with every problem found."""
    try:
        value = decoder.decode(raw)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        raise Invalid(problems(bytes(raw), kind)) from None
    # PostgreSQL can keep neither of these in text or jsonb; both are rare, so the cheap test leads.
    if b"\\u0000" in bytes(raw):
        found = problems(bytes(raw), kind)
        if found:
            raise Invalid(found)
    return value


def problems(raw: bytes, kind: Any) -> list[str]:
    """Reasons why these bytes are not a `kind`, all of them up to a limit; empty if they are."""
    try:
        value = msgspec.json.decode(raw)
        # What is too deep is not looked at any closer: that would need as deep a stack.
        found = _unstorable(value, "$", depth=0)
        found = found if _TOO_DEEP in found else [*found, *_misfits(value, kind, "$")]
        return found[:MOST_REASONS] or _whole(raw, kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return [f"not JSON: {error}"]
    except RecursionError:
        return [_TOO_DEEP]


def not_in_utc(at: datetime, name: str) -> list[str]:
    """What is wrong with a moment that only another zone can name; such cannot be kept."""
    try:
        at.astimezone(UTC)
    except OverflowError:
        return [f"not a moment between the years 1 and 9999 in UTC - at `$.{name}`"]
    return []


def _whole(raw: bytes, kind: Any) -> list[str]:
    """What only shows when the value is taken whole (for example an integer beyond 64 bits)."""
    try:
        msgspec.json.decode(raw, type=kind)
    except msgspec.DecodeError as error:
        return [str(error)]
    return []


def _unstorable(value: Any, path: str, *, depth: int) -> list[str]:
    if depth > MAX_DEPTH:
        return [_TOO_DEEP]
    match value:
        case str():
            return [f"contains a NUL character - at `{path}`"] if "\x00" in value else []
        case float():
            return [] if math.isfinite(value) else [f"not a finite number - at `{path}`"]
        case list():
            inner = ((f"{path}[{index}]", item) for index, item in enumerate(value))
        case dict():
            inner = ((f"{path}.{key}", item) for key, item in value.items())
        case _:
            return []
    found = [why for place, item in inner for why in _unstorable(item, place, depth=depth + 1)]
    if isinstance(value, dict) and any("\x00" in key for key in value):
        found.append(f"a key contains a NUL character - at `{path}`")
    return found


def _misfits(value: Any, kind: Any, path: str) -> list[str]:
    if not isinstance(value, dict):
        return [f"expected an object, got {_name(value)} - at `{path}`"]
    found: list[str] = []
    for field in msgspec.structs.fields(kind):
        place = f"{path}.{field.encode_name}"
        if field.encode_name not in value:
            if field.required:
                found.append(f"missing required field `{field.encode_name}` - at `{path}`")
            continue
        found.extend(_misfit(value[field.encode_name], field.type, place))
    return found


def _misfit(value: Any, kind: Any, place: str) -> list[str]:
    # Through JSON once more: `convert` knows no way from a value to Raw, which fits anything.
    try:
        msgspec.json.decode(msgspec.json.encode(value), type=kind)
    except msgspec.ValidationError as error:
        return [f"{str(error).split(' - at `')[0]} - at `{place}`"]
    return []


def _name(value: Any) -> str:
    names = {list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")
