"""Reading JSON into types, and saying everything that is wrong with what does not fit.

The fast path is a strict decode. Only when it fails does the slow path walk the value and list
every problem: an operator who mends a device wants all of them, not the first.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from itertools import islice
from typing import Annotated, Any, TypeVar, get_args, get_origin

import msgspec

from farmiq.messages import kinds

T = TypeVar("T")

MAX_DEPTH = 32
# A message may be wrong in a hundred thousand places; whoever mends it does not read them all.
MOST_REASONS = 1000
LONGEST_REASON = 500
# jsonb keeps a number with so many digits behind the point, and rounds what has more.
MOST_DECIMALS = 16_383

_TOO_DEEP = f"nested deeper than {MAX_DEPTH} levels"
_NOT_JSON = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)
# Every key ends in `":`, seldom with space between; an escaped quote inside of a text may look so
# too, which only costs a second look.
_SPACED_KEY_END = re.compile(rb'"\s+:')
# Numbers that may need a second look: a long exponent, or a long row of zeros.
_LONG_EXPONENT = re.compile(rb"\d[eE][+-]?\d{3,}(?:[,\]}\s]|$)")
_LONG_ZERO = b"0" * 300
_NUL = b"\\u0000"


class Invalid(Exception):  # noqa: N818 - it reads as a verdict: raise Invalid([...])
    """The sender must change the message; `reasons` lists everything that is wrong with it."""

    def __init__(self, reasons: list[str]) -> None:
        self.reasons = [_shortened(reason) for reason in reasons[:MOST_REASONS]]
        if len(reasons) > MOST_REASONS:
            self.reasons.append("and more of the like")
        super().__init__("; ".join(self.reasons))


def read(
    raw: bytes | msgspec.Raw, decoder: "msgspec.json.Decoder[T]", kind: type[T], *, path: str = "$"
) -> T:
    """The value of `kind` in these bytes, which stand at `path`. Raises Invalid with all reasons.

    Whoever lets bytes in from outside calls `keepable` too: fields that `kind` does not know are
    skipped here.
    """
    try:
        value = decoder.decode(raw)
    except _NOT_JSON:
        raise Invalid(problems(bytes(raw), kind, path=path)) from None
    # PostgreSQL cannot keep it in text or jsonb; it is rare, so the cheap test leads.
    if _NUL in bytes(raw):
        found = problems(bytes(raw), kind, path=path)
        if found:
            raise Invalid(found)
    return value


def keepable(raw: bytes | msgspec.Raw) -> list[str]:
    """Why these bytes cannot be kept as they are; empty if they can, whatever they say.

    They cannot if they are not JSON, hold a NUL or a number that jsonb or a double would change,
    say a key twice (every reader would choose for itself which counts), or are nested too deep.
    """
    try:
        value = msgspec.json.decode(raw)
    except _NOT_JSON as error:
        return [_not_json(error)]
    raw = bytes(raw)
    key_count = _count_keys(value, MAX_DEPTH)
    if key_count is None:
        return [_TOO_DEEP]
    if key_count == _count_key_ends(raw) and _NUL not in raw and not _has_odd_number(raw):
        return []
    return _some(_unkeepable(_as_written(raw), "$"))


def problems(raw: bytes, kind: Any, *, path: str = "$") -> list[str]:
    """Every reason why these bytes are not a `kind`; empty if they are."""
    try:
        value = msgspec.json.decode(raw)
    except _NOT_JSON as error:
        return [_not_json(error)]
    if _count_keys(value, MAX_DEPTH) is None:
        return [_TOO_DEEP]
    found = [_moved(why, path) for why in keepable(raw)]
    return [*found, *misfits(value, kind, path)] or _whole(raw, kind, path)


def misfits(value: Any, kind: Any, path: str) -> list[str]:
    """Every place in a decoded value that does not fit the type, down through lists and objects."""
    inside = _some(_inside(value, kind, path))
    return inside or _misfit(value, kind, path)


def not_in_utc(at: datetime, name: str) -> list[str]:
    """What is wrong with a moment that only another zone can name; such cannot be kept."""
    if kinds.is_in_utc(at):
        return []
    return [f"not a moment between the years 1 and 9999 in UTC - at `$.{name}`"]


def _some(reasons: Iterator[str]) -> list[str]:
    """One more than are told, so that it shows that there are more."""
    return list(islice(reasons, MOST_REASONS + 1))


def _shortened(reason: str) -> str:
    """Its beginning says what is wrong, its end where."""
    if len(reason) <= LONGEST_REASON:
        return reason
    return f"{reason[:300]}…{reason[-150:]}"


def _not_json(error: Exception) -> str:
    return _TOO_DEEP if isinstance(error, RecursionError) else f"not JSON: {error}"


def _count_keys(value: Any, levels: int) -> int | None:
    """How many keys all objects have together; None if they are nested deeper than `levels`."""
    if type(value) not in _NESTED:
        return 0
    if levels < 0:
        return None
    count = len(value) if type(value) is dict else 0
    for each in value.values() if type(value) is dict else value:
        if type(each) in _NESTED:
            more = _count_keys(each, levels - 1)
            if more is None:
                return None
            count += more
    return count


_NESTED = (dict, list)


def _count_key_ends(raw: bytes) -> int:
    return raw.count(b'":') + len(_SPACED_KEY_END.findall(raw))


def _has_odd_number(raw: bytes) -> bool:
    """Cheap, and right to say no; a yes only means to look."""
    return len(raw) > MOST_DECIMALS or _LONG_ZERO in raw or _LONG_EXPONENT.search(raw) is not None


class _Object(list[tuple[str, Any]]):
    """An object as it was written: a key may stand in it twice."""


class _Number(str):
    """A number as it was written."""

    __slots__ = ()


def _as_written(raw: bytes) -> Any:
    return json.loads(
        raw.decode(), object_pairs_hook=_Object, parse_float=_Number, parse_int=_Number
    )


def _unkeepable(value: Any, path: str) -> Iterator[str]:
    match value:
        case _Number():
            if not _is_kept(value):
                yield f"a number that cannot be kept exactly - at `{path}`"
        case str():
            if "\x00" in value:
                yield f"contains a NUL character - at `{path}`"
        case _Object():
            yield from _odd_keys(value, path)
            for key, item in value:
                yield from _unkeepable(item, f"{path}.{key[:64]}")
        case list():
            for index, item in enumerate(value):
                yield from _unkeepable(item, f"{path}[{index}]")


def _odd_keys(value: _Object, path: str) -> Iterator[str]:
    counts = Counter(key for key, _ in value)
    for key in (key for key, count in counts.items() if count > 1):
        yield f"the key {key!r} stands there more than once - at `{path}`"
    if any("\x00" in key for key in counts):
        yield f"a key contains a NUL character - at `{path}`"


def _is_kept(number: str) -> bool:
    """Whether jsonb keeps it exactly, and a double does not make it zero or infinite (C-108)."""
    digits, _, exponent = number.lower().partition("e")
    size = abs(float(number))
    if (size == 0 and digits.strip("-0.")) or (exponent and size == float("inf")):
        return False
    decimals = len(digits.partition(".")[2]) - (int(exponent[:20]) if exponent else 0)
    return decimals <= MOST_DECIMALS


def _whole(raw: bytes, kind: Any, path: str) -> list[str]:
    """What only shows when the value is taken whole (for example a number out of range)."""
    try:
        msgspec.json.decode(raw, type=kind)
    except msgspec.DecodeError as error:
        return [_moved(str(error), path)]
    return []


def _inside(value: Any, kind: Any, path: str) -> Iterator[str]:
    """Problems of the parts of a value, for types that have parts."""
    for part in _alternatives(kind):
        if _is_struct(part):
            if isinstance(value, dict):
                yield from _fields(value, part, path)
        elif get_origin(part) in (tuple, list) and isinstance(value, list):
            for index, item in enumerate(value):
                yield from misfits(item, get_args(part)[0], f"{path}[{index}]")


def _fields(value: dict[str, Any], kind: Any, path: str) -> Iterator[str]:
    for field in msgspec.structs.fields(kind):
        name = field.encode_name
        if name in value:
            yield from misfits(value[name], field.type, f"{path}.{name}")
        elif field.required:
            yield f"missing required field `{name}` - at `{path}`"


def _alternatives(kind: Any) -> list[Any]:
    """The types a value may have, without the notes on them."""
    if get_origin(kind) is Annotated:
        return _alternatives(get_args(kind)[0])
    members = get_args(kind) if _is_union(kind) else ()
    return [each for member in members for each in _alternatives(member)] or [kind]


def _is_union(kind: Any) -> bool:
    return getattr(get_origin(kind), "__name__", "") in ("Union", "UnionType")


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _misfit(value: Any, kind: Any, path: str) -> list[str]:
    if _is_struct(kind) and not isinstance(value, dict):
        return [f"expected an object, got {_name(value)} - at `{path}`"]
    # Through JSON once more: `convert` knows no way from a value to Raw, which fits anything.
    try:
        msgspec.json.decode(msgspec.json.encode(value), type=kind)
    except msgspec.ValidationError as error:
        return [_moved(str(error), path)]
    return []


def _moved(reason: str, path: str) -> str:
    """The reason with its place as seen from outside: `$` becomes `path`."""
    said, at, place = reason.partition(" - at `")
    return f"{said} - at `{path}{place[1:]}" if at else f"{said} - at `{path}`"


def _name(value: Any) -> str:
    names = {list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")
