"""The NATS protocol as bytes, in pieces of any size."""

import asyncio
from typing import Any, cast

import pytest

from farmiq.plumbing.messaging import nats, stream


class Wire:
    """What the connection writes."""

    def __init__(self) -> None:
        self.written = b""
        self.closed = False

    def write(self, data: bytes) -> None:
        self.written += data

    def abort(self) -> None:
        self.closed = True


@pytest.fixture
async def connection() -> nats.Connection:
    made = nats.Connection()
    made.connection_made(cast("asyncio.BaseTransport", Wire()))
    return made


def wire(connection: nats.Connection) -> Wire:
    return cast("Wire", cast("Any", connection)._transport)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
async def test_messages_are_read_from_pieces_of_any_size(
    connection: nats.Connection, size: int
) -> None:
    taken: list[nats.Message] = []
    connection.subscribe("a.*", taken.append)
    headers = b"NATS/1.0\r\nNmqtt-Pub: 1\r\n\r\n"
    data = (
        b"MSG a.b 1 5\r\nhello\r\n"
        b"PING\r\n"
        b"MSG a.c 1 reply.to 4\r\n\r\n\r\n\r\n"
        + b"HMSG a.d 1 $JS.ACK.x %d %d\r\n" % (len(headers), len(headers) + 2)
        + headers
        + b"hi\r\n"
        b"MSG a.e 2 1\r\nx\r\n"
    )
    for start in range(0, len(data), size):
        connection.data_received(data[start : start + size])
    assert taken == [
        nats.Message("a.b", b"hello"),
        nats.Message("a.c", b"\r\n\r\n", "reply.to"),
        nats.Message("a.d", b"hi", "$JS.ACK.x", headers),
    ]
    assert wire(connection).written.endswith(b"PONG\r\n")


async def test_status_is_read_from_the_headers() -> None:
    message = nats.Message("x", b"", "", b"NATS/1.0 408 Request Timeout\r\nA: b\r\n\r\n")
    assert message.status == "408 Request Timeout"
    assert not nats.Message("x", b"", "", b"NATS/1.0\r\nA: b\r\n\r\n").status


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"MSG a 1 3000000\r\n", "longer than we take"),
        (b"x" * 70_000, "a line of more than"),
        (b"-ERR 'Authorization Violation'\r\n", "Authorization Violation"),
        (b"MSG a 1 many\r\n", "invalid literal"),
    ],
)
async def test_malformed_nats_line_ends_the_connection_with_a_reason(
    connection: nats.Connection, data: bytes, reason: str
) -> None:
    connection.data_received(data)
    assert wire(connection).closed
    assert reason in connection.reason


async def test_permission_that_is_lacking_does_not_end_the_connection(
    connection: nats.Connection,
) -> None:
    connection.data_received(b"-ERR 'Permissions Violation for Publish to \"a\"'\r\n")
    assert not wire(connection).closed


async def test_headers_are_counted_in_what_is_published(connection: nats.Connection) -> None:
    connection.publish("a.b", b"hi", reply="r", headers=b"X: 1\r\n")
    assert wire(connection).written == b"HPUB a.b r 18 20\r\nNATS/1.0\r\nX: 1\r\n\r\nhi\r\n"


@pytest.mark.parametrize(
    ("subject", "topic"),
    [
        ("iot.telemetry.t.f.b.d.co2", "iot/telemetry/t/f/b/d/co2"),
        ("iot.status.t//1.f", "iot/status/t.1/f"),
        ("/.a", "/a"),
        ("a./.b", "a//b"),
        ("a./", "a/"),
    ],
)
def test_subject_is_turned_into_the_topic_it_came_from(subject: str, topic: str) -> None:
    assert stream.topic(subject) == topic
