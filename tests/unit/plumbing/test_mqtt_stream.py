"""The stream of a broker, cut anywhere: the same messages, the same rest."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farmiq.plumbing.messaging import mqtt_stream
from farmiq.plumbing.messaging.mqtt_stream import MalformedPacketError, Message, Stream

ALL = {"max_messages": 10**9, "max_bytes": 10**9}
PINGRESP, SUBACK, PUBACK = b"\xd0\x00", b"\x90\x03\x00\x01\x01", b"\x40\x02\x00\x07"


def length(size: int) -> bytes:
    out = bytearray()
    while True:
        size, low = divmod(size, 128)
        out.append(low | (0x80 if size else 0))
        if not size:
            return bytes(out)


def publish(
    topic: bytes, payload: bytes, *, packet_id: int = 7, qos: int = 1, flags: int = 0
) -> bytes:
    body = len(topic).to_bytes(2, "big") + topic
    body += packet_id.to_bytes(2, "big") if qos else b""
    body += payload
    return bytes([0x30 | qos << 1 | flags]) + length(len(body)) + body


messages = st.builds(
    publish,
    st.sampled_from([b"a", b"iot/telemetry/t/f/b/d/m", b"\xff\xfe", b"x" * 300]),
    st.binary(max_size=400),
    packet_id=st.integers(1, 65_535),
    qos=st.integers(0, 1),
    flags=st.sampled_from([0, 1, 8, 9]),
)
packets = st.one_of(messages, st.sampled_from([PINGRESP, SUBACK, PUBACK]))


def run(data: bytes, cuts: list[int], **limits: int) -> tuple[list[Message], bytes]:
    stream = Stream(connection=3, max_packet_bytes=2**20)
    taken: list[Message] = []
    rest = b""
    for start, stop in pairwise(sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})):
        stream.feed(data[start:stop])
        while True:
            some, others = stream.take(**{**ALL, **limits})
            taken += some
            rest += others
            if not some:
                break
    return taken, rest


@given(st.lists(packets), st.lists(st.integers(0, 10**6)), st.integers(1, 5))
def test_wherever_the_bytes_are_cut_the_same_packets_come_out(
    sent: list[bytes], cuts: list[int], limit: int
) -> None:
    data = b"".join(sent)
    taken, rest = run(data, cuts)

    assert rest == b"".join(packet for packet in sent if packet[0] & 0xF0 != 0x30)
    assert len(taken) == sum(packet[0] & 0xF0 == 0x30 for packet in sent)
    assert run(data, []) == (taken, rest) == run(data, cuts, max_messages=limit)


def test_message_has_all_fields_of_its_packet() -> None:
    ((message,), _) = run(publish(b"a/b", b"xyz", packet_id=0x1234, flags=9), [])

    assert message == Message("a/b", b"xyz", True, True, 0x1234, 1, 3, 3)
    ((message,), _) = run(publish(b"a/b", b"", qos=0), [])
    assert message == Message("a/b", b"", False, False, 0, 0, 3, 0)


def test_taking_stops_at_the_message_that_fills_the_room() -> None:
    stream = Stream(connection=1, max_packet_bytes=1000)
    stream.feed(publish(b"t", b"x" * 10) * 5)

    assert len(stream.take(max_messages=2, max_bytes=1000)[0]) == 2
    assert len(stream.take(max_messages=9, max_bytes=15)[0]) == 2
    assert len(stream.take(max_messages=9, max_bytes=1000)[0]) == 1
    assert stream.take(**ALL) == ([], b"")


@given(st.integers(1, 400), st.lists(st.integers(0, 10**6)))
def test_a_message_longer_than_may_be_is_cut_and_what_follows_is_not(
    size: int, cuts: list[int]
) -> None:
    data = publish(b"t", b"x" * size) + PINGRESP + publish(b"t", b"next")
    stream = Stream(connection=1, max_packet_bytes=64)
    taken: list[Message] = []
    rest = b""
    for start, stop in pairwise(sorted({0, len(data), *(cut % len(data) for cut in cuts)})):
        stream.feed(data[start:stop])
        some, others = stream.take(**ALL)
        taken, rest = taken + some, rest + others
        assert len(stream._bytes) <= 64

    first, second = taken
    assert first.size == size
    assert first.payload == b"x" * min(size, len(first.payload))
    assert len(first.payload) == size or len(first.payload) >= 50
    assert (second.payload, rest) == (b"next", PINGRESP)


@pytest.mark.parametrize(
    "packet",
    [
        publish(b"t", b"x")[:1].replace(b"\x32", b"\x36") + publish(b"t", b"x")[1:],  # QoS 3
        b"\x34\x05\x00\x01t\x00\x07",  # QoS 2
        b"\x32\x02\x00\x09",  # a topic longer than the packet
        b"\x32\x01\x00",
        b"\x30\x00",
    ],
)
def test_packet_that_is_no_message_goes_to_the_library_unchanged(packet: bytes) -> None:
    assert run(packet + PINGRESP, []) == ([], packet + PINGRESP)


def test_bytes_that_are_not_mqtt_are_reported() -> None:
    stream = Stream(connection=1, max_packet_bytes=64)
    stream.feed(b"\x32\xff\xff\xff\xff\x01")
    with pytest.raises(MalformedPacketError, match="length does not end"):
        stream.take(**ALL)
    stream = Stream(connection=1, max_packet_bytes=64)
    stream.feed(b"\x90\xff\x7f")
    with pytest.raises(MalformedPacketError, match="no message"):
        stream.take(**ALL)


def test_acknowledgements_are_four_bytes_each_and_none_for_what_asks_for_none() -> None:
    taken, _ = run(
        publish(b"t", b"", packet_id=1)
        + publish(b"t", b"", qos=0)
        + publish(b"t", b"", packet_id=515),
        [],
    )

    assert mqtt_stream.acknowledgements(taken) == b"\x40\x02\x00\x01\x40\x02\x02\x03"
