"""Reading JSON into types, and saying everything that is wrong with what does not fit.

The fast path is a strict decode. Only when it fails does the slow path walk the value and list
every problem: an operator who mends a device wants all of them, not the first.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from enum import Enum
from itertools import islice
from typing import Annotated, Any, TypeVar, get_args, get_origin

import msgspec

from farmiq.messages import kinds

T = TypeVar("T")

MAX_DEPTH = 32
# A message may have a hundred thousand errors; nobody reads them all.
MAX_REASONS = 1000
MAX_REASON = 500
# Looking at a message takes time by its values, so there is a most; commas tell how many there are.
MAX_VALUES = 20_000
# jsonb keeps a number with so many digits behind the point, and rounds what has more.
MAX_DECIMALS = 16_383

_TOO_DEEP = f"nested deeper than {MAX_DEPTH} levels"
# Every key ends in `":`, seldom with space between; an escaped quote inside of a text may look so
# too, which only costs a second look.
_SPACED_KEY_END = re.compile(rb'"\s+:')
# Numbers that may need a second look: very long ones; or small ones, if there is an exponent or a
# long row of zeros. Of a row of so many digits one whole block is digits alone.
_BLOCK = MAX_DECIMALS // 2
_SMALL = 1e-30
_EXPONENT = re.compile(rb"[0-9][eE]-[0-9]+(?:[,\]}\s]|$)")
_LONG_ZERO = b"0" * 300
_NUL = b"\\u0000"
_SURROGATE = re.compile("[\ud800-\udfff]")


class Odd(Enum):
    """What stands in a looked-at value where no value could be made of what was written."""

    ODD = "odd"


ODD = Odd.ODD


class InvalidError(Exception):
    """The sender must change the message; `reasons` lists everything that is wrong with it."""

    def __init__(self, reasons: list[str]) -> None:
        self.reasons = [_shortened(reason) for reason in reasons[:MAX_REASONS]]
        if len(reasons) > MAX_REASONS:
            self.reasons.append("and more of the like")
        super().__init__("; ".join(self.reasons))


# What a strict decode, or a caller's own check, raises: the reason to look at everything.
DECODE_ERRORS = (InvalidError, msgspec.DecodeError, RecursionError, UnicodeDecodeError)


def read(
    raw: bytes | msgspec.Raw, decoder: "msgspec.json.Decoder[T]", kind: type[T], *, path: str = "$"
) -> T:
    """Return the value of `kind` in the bytes at `path`. Raises InvalidError with all reasons.

    Code that lets bytes in from outside calls `keepable` too: fields that `kind` does not know are
    skipped here.
    """
    try:
        value = decoder.decode(raw)
    except DECODE_ERRORS as error:
        raise InvalidError(problems(raw, kind, path=path) or [str(error)]) from None
    # PostgreSQL cannot keep it in text or jsonb; it is rare, so the cheap test leads.
    if _NUL in bytes(raw):
        reasons = problems(raw, kind, path=path)
        if reasons:
            raise InvalidError(reasons)
    return value


def keepable(
    raw: bytes | msgspec.Raw, *, levels: int = MAX_DEPTH, max_values: int = MAX_VALUES
) -> list[str]:
    """Why these bytes cannot be kept as they are; empty if they can, whatever they say.

    They cannot if they are not JSON, hold a NUL or a number that jsonb or a double would change,
    say a key twice (every reader would choose for itself which counts), are nested too deep, or
    hold more values than anybody looks at.
    """
    if too_many := _too_many(raw, max_values):
        return too_many
    try:
        value = _decode(raw)
    except DECODE_ERRORS as error:
        reasons = look(raw, levels=levels, max_values=max_values)[1]
        return reasons or [f"not JSON: {error}"]
    raw = bytes(raw)
    small: list[float] = []
    sound = _count_keys([value], levels + 1, small) == _count_key_ends(raw)
    if sound and _NUL not in raw and not _has_odd_number(raw, small):
        return []
    return look(raw, levels=levels, max_values=max_values)[1]


def only_holds(raw: bytes, parts: Sequence[msgspec.Raw], *, names: frozenset[str]) -> bool:
    """Whether an object is nothing but these names, once each, around parts that can be kept.

    Cheap, and right to say yes; a no only means to look.
    """
    try:
        frame = _frame.decode(raw)
    except DECODE_ERRORS:
        return False
    keys = len(frame) + sum(_count_key_ends(bytes(part)) for part in parts)
    return frame.keys() <= names and _count_key_ends(raw) == keys and _NUL not in raw


def look(
    raw: bytes | msgspec.Raw, *, levels: int = MAX_DEPTH, max_values: int = MAX_VALUES
) -> tuple[Any, list[str]]:
    """The slow path: the value of these bytes, as far as readable, and why they cannot be stored.

    ODD stands where nothing can be told: for the whole of what is not JSON, for a number out of
    range, for text with half a character. `misfits` passes over it.
    """
    if too_many := _too_many(raw, max_values):
        return ODD, too_many
    try:
        written = _as_written(bytes(raw))
        value = _plain(written, levels)
    except RecursionError:
        return ODD, [_TOO_DEEP]
    except ValueError as error:
        return ODD, [f"not JSON: {error}"]
    return value, _some(_unkeepable(written, "$"))


def problems(
    raw: bytes | msgspec.Raw, kind: Any, *, path: str = "$", levels: int = MAX_DEPTH
) -> list[str]:
    """Every reason why these bytes are not a `kind` that can be kept; empty if they are."""
    value, unkeepable = look(raw, levels=levels)
    return [*(_moved(why, path) for why in unkeepable), *misfits(value, kind, path)]


def misfits(value: Any, kind: Any, path: str) -> list[str]:
    """Every place in a looked-at value that does not fit the type, down through lists and objects.

    A field that is wrong hides no other, and no rule of its type that does not need it.
    """
    return _some(_misfits(value, kind, path))


def not_in_utc(at: datetime, name: str) -> list[str]:
    """What is wrong with a moment that only another zone can name; such cannot be kept."""
    if kinds.is_in_utc(at):
        return []
    return [f"{kinds.NO_MOMENT} - at `$.{name}`"]


_decode = msgspec.json.Decoder().decode
_frame = msgspec.json.Decoder(dict[str, msgspec.Raw])


def _some(reasons: Iterator[str]) -> list[str]:
    """Return one more than are shown, so that it is visible that there are more."""
    return list(islice(reasons, MAX_REASONS + 1))


def _shortened(reason: str) -> str:
    """Its beginning says what is wrong, its end where."""
    if len(reason) <= MAX_REASON:
        return reason
    return f"{reason[:300]}…{reason[-150:]}"


def _count_keys(value: Any, levels: int, small: list[float]) -> int | None:
    """How many keys all objects have together; None if they are nested deeper than `levels`.

    `small` collects numbers that may be so, or zero, only because a double holds no smaller one.
    """
    if levels < 0:
        return None
    is_object = type(value) is dict
    count = len(value) if is_object else 0
    for item in value.values() if is_object else value:
        kind = type(item)
        if kind is dict or kind is list:
            more = _count_keys(item, levels - 1, small)
            if more is None:
                return None
            count += more
        elif kind is float and -_SMALL < item < _SMALL:
            small.append(item)
    return count


def _too_many(raw: bytes | msgspec.Raw, limit: int) -> list[str]:
    """Between two values of a list or an object stands a comma; texts may hold some as well."""
    count = bytes(raw).count(b",")
    return [f"{count + 1} values, or texts with as many commas: at most {limit}"] * (count >= limit)


def _count_key_ends(raw: bytes) -> int:
    return raw.count(b'":') + len(_SPACED_KEY_END.findall(raw))


def _has_odd_number(raw: bytes, small: list[float]) -> bool:
    """Cheap, and right to say no; a yes only means to look.

    What has too many decimals is long, or next to nothing.
    """
    if len(raw) >= _BLOCK and any(
        raw[at : at + _BLOCK].isdigit() for at in range(0, len(raw) - _BLOCK + 1, _BLOCK)
    ):
        return True
    return bool(small) and (_LONG_ZERO in raw or _EXPONENT.search(raw) is not None)


class _Object(list[tuple[str, Any]]):
    """An object as it was written: a key may stand in it twice."""


class _Number(str):
    """A number as it was written."""

    __slots__ = ()


def _as_written(raw: bytes) -> Any:
    """By a reader that lets pass what ours refuses: numbers out of range, halves of characters."""
    return json.loads(
        raw.decode(),
        object_pairs_hook=_Object,
        parse_float=_Number,
        parse_int=_Number,
        parse_constant=_no_constant,
    )


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no value of it")


def _plain(written: Any, levels: int) -> Any:
    """The plain value of what was written, ODD in place of what has none."""
    if isinstance(written, list) and levels < 0:
        raise RecursionError
    match written:
        case _Number():
            return _number(written)
        case str():
            return ODD if _SURROGATE.search(written) else written
        case _Object():
            items = ((key, item) for key, item in written if not _SURROGATE.search(key))
            return {key: _plain(item, levels - 1) for key, item in items}
        case list():
            return [_plain(item, levels - 1) for item in written]
        case _:
            return written


def _number(written: str) -> Any:
    try:
        return _decode(written.encode())
    except msgspec.DecodeError:
        return ODD


def _unkeepable(value: Any, path: str) -> Iterator[str]:
    match value:
        case _Number():
            if _number(value) is ODD:
                yield f"a number out of range - at `{path}`"
            elif not _is_exact(value):
                yield f"a number that cannot be kept exactly - at `{path}`"
        case str():
            yield from (f"contains {what} - at `{path}`" for what in _odd_characters(value))
        case _Object():
            yield from _odd_keys(value, path)
            for key, item in value:
                yield from _unkeepable(item, f"{path}.{_shown(key)}")
        case list():
            for index, item in enumerate(value):
                yield from _unkeepable(item, f"{path}[{index}]")


def _odd_keys(value: _Object, path: str) -> Iterator[str]:
    counts = Counter(key for key, _ in value)
    for key in (key for key, count in counts.items() if count > 1):
        yield f"the key {key!r} stands there more than once - at `{path}`"
    for what in dict.fromkeys(what for key in counts for what in _odd_characters(key)):
        yield f"a key contains {what} - at `{path}`"


def _odd_characters(text: str) -> Iterator[str]:
    if "\x00" in text:
        yield "a NUL character"
    if _SURROGATE.search(text):
        yield "a lone surrogate, which is half a character"


def _shown(key: str) -> str:
    """A reason goes into answers and tables, so it must be plain text."""
    return key[:64] if key.isprintable() else ascii(key[:64])[1:-1]


def _is_exact(number: str) -> bool:
    """Whether jsonb keeps it exactly, and a double does not make it zero or infinite (C-108)."""
    digits, _, exponent = number.lower().partition("e")
    size = abs(float(number))
    if (size == 0 and digits.strip("-0.")) or (exponent and size == float("inf")):
        return False
    decimals = len(digits.partition(".")[2]) - (int(exponent[:20]) if exponent else 0)
    return decimals <= MAX_DECIMALS


def _misfits(value: Any, kind: Any, path: str) -> Iterator[str]:
    if value is ODD or kind is msgspec.Raw:  # reported already, or anything fits
        return
    for part in _alternatives(kind):
        if _is_struct(part) and isinstance(value, dict):
            yield from _fields(value, part, path)
            yield from _broken_rules(value, part, path)
            return
        # The length of a list is limited from below only: an empty one has no items to look at.
        if get_origin(part) in (tuple, list) and isinstance(value, list) and value:
            for index, item in enumerate(value):
                yield from _misfits(item, get_args(part)[0], f"{path}[{index}]")
            return
    yield from _misfit(value, kind, path)


def _fields(value: dict[str, Any], kind: Any, path: str) -> Iterator[str]:
    for field in msgspec.structs.fields(kind):
        name = field.encode_name
        if name in value:
            yield from _misfits(value[name], field.type, f"{path}.{name}")
        elif field.required:
            yield f"missing required field `{name}` - at `{path}`"


def _broken_rules(value: dict[str, Any], kind: Any, path: str) -> Iterator[str]:
    """What fields of the type must not say together, as far as the fields are right."""
    rules: kinds.Rules = getattr(kind, "rules", ())
    for rule in rules:
        try:
            broken = rule(_Known(value, kind))
        except _UnknownError:
            continue
        if broken:
            yield f"{broken} - at `{path}`"


class _UnknownError(Exception):
    """A rule looks at a field that is missing or wrong, so it cannot be asked."""


class _Known:
    """A value as its type would have it; to look at a field that is wrong raises _UnknownError."""

    def __init__(self, value: dict[str, Any], kind: Any) -> None:
        self._value = value
        self._fields = {field.name: field for field in msgspec.structs.fields(kind)}

    def __getattr__(self, name: str) -> Any:
        field = self._fields[name]
        if field.encode_name not in self._value and not field.required:
            return field.default
        value = self._value.get(field.encode_name, ODD)
        if value is ODD or misfits(value, field.type, "$"):
            raise _UnknownError
        return _typed(value, field.type)


def _alternatives(kind: Any) -> list[Any]:
    """The types a value may have, without the notes on them."""
    if get_origin(kind) is Annotated:
        return _alternatives(get_args(kind)[0])
    members = get_args(kind) if _is_union(kind) else ()
    return [alternative for member in members for alternative in _alternatives(member)] or [kind]


def _is_union(kind: Any) -> bool:
    return getattr(get_origin(kind), "__name__", "") in ("Union", "UnionType")


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _misfit(value: Any, kind: Any, path: str) -> list[str]:
    if _is_struct(kind):
        return [f"expected an object, got {_name(value)} - at `{path}`"]
    try:
        typed = _typed(value, kind)
    except msgspec.DecodeError as error:
        return [_moved(str(error), path)]
    if isinstance(typed, datetime) and not kinds.is_in_utc(typed):
        return [f"{kinds.NO_MOMENT} - at `{path}`"]
    return []


def _typed(value: Any, kind: Any) -> Any:
    # Through JSON once more: `convert` knows no way from a value to Raw, which fits anything.
    return msgspec.json.decode(msgspec.json.encode(value, enc_hook=_null), type=kind)


def _null(_: Any) -> None:
    """Stands for what is odd inside of a value that may hold anything."""


def _moved(reason: str, path: str) -> str:
    """The reason with its place as seen from outside: `$` becomes `path`."""
    text, at, place = reason.partition(" - at `")
    return f"{text} - at `{path}{place[1:]}" if at else f"{text} - at `{path}`"


def _name(value: Any) -> str:
    names = {list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")
