"""Frames reach the library as they came; what it cannot decode is left out and named."""

import struct
from datetime import UTC, datetime
from typing import Any

import pamqp.frame
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import exceptions, header

from farmiq.plumbing.bus import amqp_reader
from farmiq.plumbing.bus.amqp_reader import Properties

TEXTS = ("content_type", "correlation_id", "reply_to", "message_id", "app_id")
ASCII = st.text(st.characters(codec="ascii"), max_size=30)
ODD_TIME = b"\xff" * 8


def framed(content: bytes, *, kind: int = 2) -> bytes:
    return struct.pack(">BHI", kind, 1, len(content)) + content + b"\xce"


def read(properties: bytes, *, body_size: int = 7) -> header.ContentHeader:
    content = struct.pack(">HHQ", 60, 0, body_size) + properties
    frame = amqp_reader.readable(framed(content))
    used, channel, found = pamqp.frame.unmarshal(frame)
    assert (used, channel) == (len(frame), 1)
    assert isinstance(found, header.ContentHeader)
    assert found.body_size == body_size
    return found


@given(
    st.dictionaries(st.sampled_from(TEXTS), st.text(min_size=1, max_size=40)),
    st.dictionaries(
        ASCII,
        st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | ASCII,
        max_size=5,
    ),
    st.sets(st.sampled_from(TEXTS)),
    st.booleans(),
)
def test_unreadable_property_leaves_the_others_readable(
    texts: dict[str, str],
    headers: dict[str, Any],
    bad: set[str],
    bad_header: bool,  # noqa: FBT001 - drawn
) -> None:
    """Each bad text stands in the place of a good one, of the same length."""
    marked: dict[str, Any] = {name: "\u1234" + value for name, value in texts.items()}
    told: dict[str, Any] = {**headers, "at": datetime(2026, 1, 2, tzinfo=UTC)}
    raw = Properties(**marked, headers=told, priority=3).marshal()
    for name in bad & marked.keys():
        good = marked[name].encode()
        size = bytes([len(good)])
        raw = raw.replace(size + good, size + b"\xff" + good[1:], 1)
    if bad_header:
        stamp = struct.pack(">Q", int(told["at"].timestamp()))
        raw = raw.replace(b"\x02atT" + stamp, b"\x02atT" + ODD_TIME, 1)

    found = read(raw)

    lost = {name for name in marked if getattr(found.properties, name) is None}
    # Of two properties that say the same, the first is the one that was spoilt.
    assert len(lost) == len(bad & marked.keys())
    for name in marked.keys() - lost:
        assert getattr(found.properties, name) == marked[name]
    assert found.properties.priority == 3
    kept = dict(found.properties.headers or {})
    unreadable = kept.pop(amqp_reader.UNREADABLE, [])
    assert isinstance(unreadable, list)
    assert ("at" in kept) is not bad_header
    assert {**kept, "at": 0} == {**told, "at": 0}
    assert len(unreadable) == len(lost) + bad_header


@given(st.binary(max_size=200), st.integers(0, 3))
def test_random_frame_is_read_or_rejected_as_the_library_does(raw: bytes, kind: int) -> None:
    for data in (raw, framed(raw, kind=kind), framed(b"\0\x3c\0\0" + bytes(8) + raw)):
        try:
            pamqp.frame.unmarshal(amqp_reader.readable(data))
        except exceptions.PAMQPException:
            continue


def test_header_of_unknown_kind_loses_the_rest_of_its_table_only() -> None:
    table = b"\x01at\x01" + b"\x01b?1234" + b"\x01ct\x01"
    flags = Properties.flags["headers"] | Properties.flags["message_id"]
    raw = struct.pack(">HI", flags, len(table)) + table + b"\x02id"
    found = read(raw)
    assert found.properties.headers == {"a": True, amqp_reader.UNREADABLE: ["headers from 62"]}
    assert found.properties.message_id == "id"


def test_frame_that_is_no_message_is_rejected_as_the_library_does() -> None:
    with pytest.raises(exceptions.UnmarshalingException):
        amqp_reader.readable(framed(struct.pack(">I", 0x7FFF7FFF), kind=1))


def test_library_is_not_patched_by_its_use() -> None:
    assert pamqp.frame.unmarshal.__module__ == "pamqp.frame"


@given(st.dictionaries(ASCII, ASCII, max_size=5), st.binary(max_size=40), st.integers(0, 0xFFFF))
def test_frame_that_is_passed_unread_is_one_that_the_library_reads(
    headers: dict[str, str], rest: bytes, flags: int
) -> None:
    table = Properties(headers={**headers}, delivery_mode=2).marshal()[2:]
    content = struct.pack(">HHQH", 60, 0, 7, flags) + table + rest
    for data in (framed(content), framed(b"\0\x3c\0\x3c\x01c" + bytes(9) + rest, kind=1)):
        if amqp_reader.is_plain(data):
            pamqp.frame.unmarshal(data)
