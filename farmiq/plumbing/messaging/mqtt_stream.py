"""Pure: the bytes a broker sends, split into messages for us and all else for the library.

Of MQTT this knows where a packet ends and how a PUBLISH is laid out: the one packet that comes
thousands of times a second. Whatever else there is goes to the library as it came, which also
judges what is malformed.
"""

import struct
from collections.abc import Sequence

import msgspec

_PUBLISH, _KIND = 0x30, 0xF0
_QOS_1, _QOS = 0x02, 0x06
_REPEATED, _RETAINED = 0x08, 0x01
_LENGTH_GOES_ON = 0x80
_MAX_LENGTH_BYTES = 4
# With the packet's id in its lower half these are the four bytes of an acknowledgement.
_PUBACK = 0x40_02_00_00


class MalformedPacketError(Exception):
    """The bytes are not MQTT: nothing after them can be understood."""


class Message(msgspec.Struct, frozen=True, gc=False):
    """One delivery. A payload longer than the client takes is cut; `size` says what it had."""

    topic: str
    payload: bytes
    retained: bool
    repeated: bool
    # Together these name the delivery; they mean nothing on a later connection.
    packet_id: int
    qos: int
    connection: int
    size: int


class Stream:
    """What has come on one connection and was not taken yet.

    It holds at most one packet of `longest` bytes and what the last `feed` brought.
    """

    def __init__(self, *, connection: int, max_packet_bytes: int) -> None:
        self._connection, self._max_packet_bytes = connection, max_packet_bytes
        self._bytes = b""
        self._to_skip = 0  # the rest of a packet that was cut

    def feed(self, data: bytes) -> None:
        if self._to_skip:
            skipped = min(self._to_skip, len(data))
            self._to_skip -= skipped
            data = data[skipped:]
        self._bytes = self._bytes + data if self._bytes else data

    def take(self, *, max_messages: int, max_bytes: int) -> tuple[list[Message], bytes]:
        """(messages, bytes of other packets) that are complete, each in the order they came.

        Stops after `max_messages` or the one that reaches `max_bytes`; the rest waits for the
        next call. Raises MalformedPacketError.
        """
        data, at = self._bytes, 0
        messages: list[Message] = []
        others: list[bytes] = []
        while len(messages) < max_messages and max_bytes > 0:
            body, stop = _bounds(data, at)
            if not body or (stop > len(data) and not self._is_cut(data, at, stop)):
                break
            message = self._message(data, at, body, stop)
            if message is None:
                others.append(data[at:stop])
            else:
                messages.append(message)
                max_bytes -= len(message.payload)
            at = stop
        self._to_skip += max(0, at - len(data))
        self._bytes = data[at:] if at else data
        return messages, b"".join(others)

    def _is_cut(self, data: bytes, at: int, stop: int) -> bool:
        """Whether so much of a packet that is too long has come that the rest may be skipped."""
        if stop - at > self._max_packet_bytes and data[at] & _KIND != _PUBLISH:
            raise MalformedPacketError(f"a packet of {stop - at} bytes that is no message")
        return stop - at > self._max_packet_bytes and len(data) - at >= self._max_packet_bytes

    def _message(self, data: bytes, at: int, body: int, stop: int) -> Message | None:
        """The message in a packet; None if it is another packet, or not as a message should be."""
        first = data[at]
        qos = first & _QOS
        if first & _KIND != _PUBLISH or qos > _QOS_1 or stop - body < 2 + qos:
            return None
        topic_end = body + 2 + (data[body] << 8 | data[body + 1])
        start = topic_end + qos  # a packet id of two bytes, if it wants an acknowledgement
        if start > stop:
            return None
        return Message(
            _text(data[body + 2 : topic_end]),
            data[start : min(stop, at + self._max_packet_bytes)],
            first & _RETAINED != 0,
            first & _REPEATED != 0,
            data[topic_end] << 8 | data[topic_end + 1] if qos else 0,
            qos >> 1,
            self._connection,
            stop - start,
        )


def acknowledgements(messages: Sequence[Message]) -> bytes:
    """The PUBACKs of these, in one piece."""
    ids = [_PUBACK | message.packet_id for message in messages if message.qos]
    return struct.pack(f">{len(ids)}I", *ids)


def _bounds(data: bytes, at: int) -> tuple[int, int]:
    """(where the body of the packet at `at` begins, where it ends); (0, 0) if that is not known."""
    if len(data) - at < 2:  # noqa: PLR2004 - the shortest packet there is
        return 0, 0
    length = data[at + 1]
    if length < _LENGTH_GOES_ON:
        return at + 2, at + 2 + length
    return _long_bounds(data, at)


def _long_bounds(data: bytes, at: int) -> tuple[int, int]:
    length = 0
    for count, byte in enumerate(data[at + 1 : at + 1 + _MAX_LENGTH_BYTES]):
        length |= (byte & 0x7F) << 7 * count
        if byte < _LENGTH_GOES_ON:
            body = at + 2 + count
            return body, body + length
    if len(data) - at > _MAX_LENGTH_BYTES:
        raise MalformedPacketError("a packet whose length does not end")
    return 0, 0


def _text(topic: bytes) -> str:
    """A topic that is not UTF-8 still has to reach quarantine, so nothing is raised for it."""
    return topic.decode("utf-8", "backslashreplace")
