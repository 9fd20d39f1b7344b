"""What the AMQP client reads: frames as the broker sent them, but for what cannot be decoded.

The client gives a connection up when a property is not UTF-8 or a time lies beyond the calendar.
The message is then delivered again, to the next connection, and takes its neighbours along. So
each frame passes here before the client sees it (its transport is ours to choose): the unreadable
part of a message is left out and named in a header, so that it comes in and can be set aside.

Lengths are written before the values, so one bad value does not hide the others; only behind a
value of an unknown kind the rest of its table is lost.
"""

import asyncio
import struct
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, cast

import aio_pika
import pamqp.frame
from aiormq.connection import TCPTransportFactory, TLSTransportFactory, TransportFactory
from pamqp import commands, constants, decode, encode, exceptions
from yarl import URL

Properties = commands.Basic.Properties

# The header that names what was left out of a message; it never travels on.
UNREADABLE = "unreadable-properties"
# What decoding a value that makes no sense raises; depth is one of the things that make none.
ODD = (
    ValueError, TypeError, ArithmeticError, LookupError, OSError, RecursionError, struct.error,
)  # fmt: skip
_MAX_SHOWN = 60
_READ_BYTES = 2**16
_HEAD = struct.Struct(">BHI")
_PROPERTIES_AT = _HEAD.size + struct.calcsize(">HHQ")
_FLAGS = struct.Struct(">H")
_LONG = struct.Struct(">I")
_WITHOUT_TEXT = bytes([constants.FRAME_BODY]), bytes([constants.FRAME_HEARTBEAT])
_DELIVER = bytes([constants.FRAME_METHOD]), _LONG.pack(commands.Basic.Deliver.index)
# Each property: its flag, its name, and its kind.
_LAYOUT = [
    (Properties.flags[name], name, Properties.amqp_type(name)) for name in Properties.__slots__
]
_SIZE = {"octet": 1, "timestamp": 8}
_UNCHECKED = Properties.flags["timestamp"] | 0b11  # times, and flags that no property has
# Sizes of the values in a table by their kind; kinds that are not here have a length before them.
_SIZES = dict(zip(b"tbBsuIilLfdDTV\0", (1, 1, 1, 2, 2, 4, 4, 8, 8, 4, 8, 5, 8, 0, 0), strict=True))
_WITH_LENGTH = b"SAFx"
_TEXT = ord("S")


class Connection(aio_pika.Connection):
    """The client's connection on a transport of ours."""

    async def connect(self, timeout: Any = None) -> None:
        self.kwargs["transport_factory"] = _Transport()
        await super().connect(timeout)


class _Transport(TransportFactory):
    async def create(
        self, url: URL, **options: Any
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        factory = TLSTransportFactory() if url.scheme == "amqps" else TCPTransportFactory()
        reader, writer = await factory.create(url, **options)
        return cast("asyncio.StreamReader", FrameReader(reader)), writer


class FrameReader:
    """A stream's reader, as far as the client uses one: whole frames, in parts.

    What has arrived is read at once: most frames then cost no call of the stream.
    """

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._received, self._at = b"", 0
        self._frame, self._handed_over = b"", 0

    def at_eof(self) -> bool:
        is_empty = self._handed_over == len(self._frame) and self._at == len(self._received)
        return is_empty and self._reader.at_eof()

    async def read(self) -> bytes:
        return await self._reader.read()

    async def readexactly(self, size: int) -> bytes:
        """Raises ConnectionError for a frame that makes no sense."""
        if self._handed_over == len(self._frame):
            try:
                self._frame, self._handed_over = readable(await self._next()), 0
            except exceptions.PAMQPException as error:
                raise ConnectionError(str(error)) from error
        begin = self._handed_over
        self._handed_over = min(begin + size, len(self._frame))
        return self._frame[begin : self._handed_over]

    async def _next(self) -> bytes:
        """The next frame as it came. Raises IncompleteReadError if the stream ends in it."""
        size = _HEAD.size
        while True:
            end = self._at + size
            if end <= len(self._received):
                if size > _HEAD.size:
                    begin, self._at = self._at, end
                    return self._received[begin:end]
                size += _HEAD.unpack_from(self._received, self._at)[2] + 1
                continue
            more = await self._reader.read(_READ_BYTES)
            self._received, self._at = self._received[self._at :] + more, 0
            if not more:
                raise asyncio.IncompleteReadError(self._received, size)


def readable(data: bytes) -> bytes:
    """A frame that the client can decode: as it came, or without what it cannot.

    Raises PAMQPException if it cannot be read at all.
    """
    if data[:1] in _WITHOUT_TEXT or is_plain(data):
        return data
    try:
        pamqp.frame.unmarshal(data)
    except (exceptions.PAMQPException, *ODD) as error:
        try:
            repaired = _repaired(data)
        except ODD:
            repaired = None
        if repaired is not None:
            return repaired
        if isinstance(error, exceptions.PAMQPException):
            raise
        raise exceptions.UnmarshalingException("a", error) from error
    return data


def is_plain(data: bytes) -> bool:
    """Whether nothing is in it that could be unreadable: only ASCII, and no kind but texts.

    Most messages are so, and this takes a tenth of the time of decoding them.
    """
    try:
        if _is_delivery(data):
            texts_at = _texts_at(data)
            until = texts_at + 1 + data[texts_at]
            return data[texts_at:-1].isascii() and until + 2 + data[until] == len(data)
        return data[0] == constants.FRAME_HEADER and _has_plain_properties(data)
    except (IndexError, struct.error):
        return False


def _has_plain_properties(data: bytes) -> bool:
    (flags,) = _FLAGS.unpack_from(data, _PROPERTIES_AT)
    at = _PROPERTIES_AT + _FLAGS.size
    if flags & _UNCHECKED or not data[at:-1].isascii():
        return False
    for kind in _kinds(flags):
        if kind == "shortstr":
            at += 1 + data[at]
        elif kind == "octet":
            at += 1
        else:
            end = at + 4 + int.from_bytes(data[at : at + 4])
            at += 4
            while at < end:
                at += 1 + data[at]
                if data[at] != _TEXT:
                    return False
                at += 5 + int.from_bytes(data[at + 1 : at + 5])
            if at != end:
                return False
    return at == len(data) - 1


@lru_cache(maxsize=64)
def _kinds(flags: int) -> tuple[str, ...]:
    """The kinds of the properties that a message has; most messages have the same."""
    return tuple(kind for flag, _, kind in _LAYOUT if flags & flag)


def _is_delivery(data: bytes) -> bool:
    return data[:1] == _DELIVER[0] and data[_HEAD.size : _HEAD.size + _LONG.size] == _DELIVER[1]


def _texts_at(data: bytes) -> int:
    """Where exchange and routing key of a delivery begin: behind consumer, tag and a flag."""
    at = _HEAD.size + _LONG.size
    return at + 1 + data[at] + 9


def _repaired(data: bytes) -> bytes | None:
    kind, channel, size = _HEAD.unpack_from(data)
    if len(data) != _HEAD.size + size + 1 or data[-1] != constants.FRAME_END:
        return None
    if kind == constants.FRAME_HEADER:
        content = _header(data[_HEAD.size : -1])
    elif _is_delivery(data):
        content = _delivery(data[:-1])
    else:
        return None
    return _HEAD.pack(kind, channel, len(content)) + content + data[-1:]


def _delivery(data: bytes) -> bytes:
    """A delivery whose routing key or exchange is not UTF-8; neither is used to decide."""
    at = _texts_at(data)
    until = at + 1 + data[at]
    texts = data[at + 1 : until], data[until + 1 : until + 1 + data[until]]
    shown = (text.decode("utf-8", "replace").encode("ascii", "replace") for text in texts)
    return data[_HEAD.size : at] + b"".join(bytes([len(text)]) + text for text in shown)


def _header(content: bytes) -> bytes:
    """The header of a message without what cannot be read of it."""
    at = _PROPERTIES_AT - _HEAD.size
    (flags,) = _FLAGS.unpack_from(content, at)
    unreadable: list[str] = []
    parts: dict[str, bytes] = {}
    for name, kind, raw in _properties(flags, content[at + _FLAGS.size :]):
        try:
            decode.by_type(raw, kind)
            parts[name] = raw
        except ODD:
            if kind == "table":
                parts[name] = _LONG.pack(0) + b"".join(_entries(raw[_LONG.size :], unreadable))
            else:
                unreadable.append(_shown(name, raw[1:] if kind == "shortstr" else raw))
    headers = parts.get("headers", bytes(_LONG.size))[_LONG.size :]
    headers += encode.field_table({UNREADABLE: [*unreadable]})[_LONG.size :]
    parts["headers"] = _LONG.pack(len(headers)) + headers
    flags = sum(Properties.flags[name] for name in parts)
    # In the order of the protocol, whatever was left out.
    written = b"".join(parts[name] for _, name, _ in _LAYOUT if name in parts)
    return content[:at] + _FLAGS.pack(flags) + written


def _properties(flags: int, data: bytes) -> Iterator[tuple[str, str, bytes]]:
    """(name, kind, bytes) of each that is there."""
    for flag, name, kind in _LAYOUT:
        if flags & flag:
            if kind == "shortstr":
                size = 1 + data[0]
            elif kind == "table":
                size = _LONG.size + _LONG.unpack_from(data)[0]
            else:
                size = _SIZE[kind]
            yield name, kind, data[:size]
            data = data[size:]


def _entries(data: bytes, unreadable: list[str]) -> Iterator[bytes]:
    """The headers that can be read, as they came; the others are named."""
    while data:
        until = 1 + data[0]
        key, value = data[1:until], data[until:]
        size = _size(value)
        if size is None:
            unreadable.append(_shown("headers from", key))
            return
        try:
            key.decode()
            decode.embedded_value(value[:size])
            yield data[: until + size]
        except ODD:
            unreadable.append(f"header {_shown(_text(key), value[1:size])}")
        data = value[size:]


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
