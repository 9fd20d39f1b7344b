"""Pure: what can still be read of a message whose properties the client cannot decode.

The client gives a connection up when a property is not UTF-8 or a time lies beyond the calendar.
The message is then delivered again, to the next connection, and takes its neighbours along. Here
the unreadable part is left out and named, so that the message comes in and can be set aside.

Lengths are written before the values, so one bad value does not hide the others; only behind a
value of an unknown kind the rest of its table is lost.
"""

import struct
from collections.abc import Iterator
from typing import Any

import pamqp.frame
from pamqp import commands, constants, decode, exceptions, header

Properties = commands.Basic.Properties

# What decoding a value that makes no sense raises; depth is one of the things that make none.
ODD = (
    ValueError, TypeError, ArithmeticError, LookupError, OSError, RecursionError, struct.error,
)  # fmt: skip
_MAX_SHOWN = 60
_HEAD = struct.Struct(">BHI")
_CONTENT = struct.Struct(">HHQ")
_LONG = struct.Struct(">I")
_FIXED = {"octet": 1, "timestamp": 8}
# Sizes of the values in a table by their kind; kinds that are not here have a length before them.
_SIZES = dict(zip(b"tbBsuIilLfdDTV\0", (1, 1, 1, 2, 2, 4, 4, 8, 8, 4, 8, 5, 8, 0, 0), strict=True))
_WITH_LENGTH = b"SAFx"

_strictly = pamqp.frame.unmarshal


class Salvaged(header.ContentHeader):
    """The header of a message, and what of it could not be read."""

    unreadable: tuple[str, ...] = ()


def install() -> None:
    """The client asks its library for every frame; from now on it asks us."""
    pamqp.frame.unmarshal = unmarshal


def unmarshal(data_in: bytes) -> tuple[int, int, pamqp.frame.FrameTypes]:
    """As pamqp's own; only what that refuses is looked at again."""
    try:
        return _strictly(data_in)
    except (exceptions.PAMQPException, *ODD) as error:
        try:
            salvaged = _salvage(data_in)
        except ODD:
            salvaged = None
        if salvaged is not None:
            return salvaged
        if isinstance(error, exceptions.PAMQPException):
            raise
        raise exceptions.UnmarshalingException("a", error) from error


def _salvage(data: bytes) -> tuple[int, int, pamqp.frame.FrameTypes] | None:
    kind, channel, size = _HEAD.unpack_from(data)
    used = _HEAD.size + size + 1
    if len(data) < used or data[used - 1] != constants.FRAME_END:
        return None
    content = data[_HEAD.size : used - 1]
    if kind == constants.FRAME_HEADER:
        return used, channel, _header(content)
    if kind == constants.FRAME_METHOD and content[:4] == _LONG.pack(commands.Basic.Deliver.index):
        return used, channel, _deliver(content[4:])
    return None


def _deliver(content: bytes) -> commands.Basic.Deliver:
    """Return a delivery whose routing key or exchange is not UTF-8; neither is used to decide."""
    at = 1 + content[0]
    deliver = commands.Basic.Deliver(content[1:at].decode())
    deliver.delivery_tag, flags = struct.unpack_from(">QB", content, at)
    deliver.redelivered = bool(flags & 1)
    at += 9
    until = at + 1 + content[at]
    deliver.exchange = content[at + 1 : until].decode("utf-8", "replace")
    deliver.routing_key = content[until + 1 : until + 1 + content[until]].decode("utf-8", "replace")
    return deliver


def _header(content: bytes) -> Salvaged:
    class_id, weight, body_size = _CONTENT.unpack_from(content)
    header = Salvaged(weight, body_size)
    header.class_id = class_id
    (flags,) = struct.unpack_from(">H", content, _CONTENT.size)
    unreadable: list[str] = []
    for name, kind, raw in _properties(flags, content[_CONTENT.size + 2 :]):
        try:
            _, value = decode.by_type(raw, kind)
        except ODD:
            if kind != "table":
                unreadable.append(_shown(name, raw[1:] if kind == "shortstr" else raw))
                continue
            value = _table(raw[_LONG.size :], unreadable)
        setattr(header.properties, name, value)
    header.unreadable = tuple(unreadable)
    return header


def _properties(flags: int, data: bytes) -> Iterator[tuple[str, str, bytes]]:
    """(name, kind, bytes) of each that is there."""
    for name in Properties.__slots__:
        if flags & Properties.flags[name]:
            kind = Properties.amqp_type(name)
            if kind == "shortstr":
                size = 1 + data[0]
            elif kind == "table":
                size = _LONG.size + _LONG.unpack_from(data)[0]
            else:
                size = _FIXED[kind]
            yield name, kind, data[:size]
            data = data[size:]


def _table(data: bytes, unreadable: list[str]) -> dict[str, Any]:
    """The headers that can be read; the others are named."""
    headers: dict[str, Any] = {}
    while data:
        until = 1 + data[0]
        key, data = data[1:until], data[until:]
        size = _size(data)
        if size is None:
            unreadable.append(_shown("headers from", key))
            return headers
        try:
            headers[key.decode()] = decode.embedded_value(data[:size])[1]
        except ODD:
            unreadable.append(f"header {_shown(_text(key), data[1:size])}")
        data = data[size:]
    return headers


def _size(data: bytes) -> int | None:
    """How many bytes the value is that begins here."""
    kind = data[0]
    if kind in _WITH_LENGTH:
        size: int = 5 + _LONG.unpack_from(data, 1)[0]
        return size
    return 1 + _SIZES[kind] if kind in _SIZES else None


def _shown(name: str, raw: bytes) -> str:
    return f"{name} {raw[:_MAX_SHOWN].hex()}{'…' if len(raw) > _MAX_SHOWN else ''}"


def _text(raw: bytes) -> str:
    return raw.decode("ascii", "backslashreplace")[:_MAX_SHOWN]
