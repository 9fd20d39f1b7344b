"""Messages whose properties nobody can decode: each hurts itself alone."""

import struct
from collections.abc import Callable, Mapping
from functools import partial

import pamqp.frame
import pytest

from farmiq.plumbing.backoff import Backoff
from farmiq.plumbing.bus import amqp, amqp_reader, consume
from farmiq.plumbing.bus import delivery as deliveries
from farmiq.plumbing.bus.consume import Rejection
from farmiq.plumbing.bus.delivery import Properties
from tests.integration.plumbing.relay import relay
from tests.integration.plumbing.test_amqp import read_one, waiting
from tests.integration.plumbing.test_consume import DEAD, TOPOLOGY, consuming, dead, taking
from tests.support.until import until


class Raw(Properties):
    """Properties as bytes, which no client that we have would write."""

    def __init__(self, raw: bytes) -> None:
        super().__init__()
        self._raw = raw

    def marshal(self) -> bytes:
        return self._raw


def flagged(name: str, value: bytes) -> bytes:
    return struct.pack(">H", Properties.flags[name]) + value


def short(value: bytes) -> bytes:
    return bytes([len(value)]) + value


def table(*items: bytes) -> bytes:
    joined = b"".join(items)
    return flagged("headers", struct.pack(">I", len(joined)) + joined)


def deep(levels: int) -> bytes:
    value = b"V"
    for _ in range(levels):
        inner = short(b"a") + value
        value = b"F" + struct.pack(">I", len(inner)) + inner
    return value


NOT_UTF8 = short(b"id-\xff\xfe")
UNREADABLE = {
    "message_id": flagged("message_id", NOT_UTF8),
    "content_type": flagged("content_type", NOT_UTF8),
    "correlation_id": flagged("correlation_id", NOT_UTF8),
    "timestamp": flagged("timestamp", struct.pack(">Q", 2**63)),
    "timestamp beyond the calendar": flagged("timestamp", struct.pack(">Q", 10**17)),
    "the largest timestamp": flagged("timestamp", b"\xff" * 8),
    "time in a header": table(short(b"t") + b"T" + b"\xff" * 8, short(b"ok") + b"t\x01"),
    "name of a header": table(NOT_UTF8 + b"t\x01"),
    "deep": table(short(b"deep") + deep(2000)),
}
# The client can read these, but they cannot be written again as they are.
UNWRITABLE = {
    "header that is not UTF-8": table(short(b"x") + b"S" + struct.pack(">I", 2) + b"\xff\xfe"),
    "wide float": table(short(b"x") + b"d" + struct.pack(">d", 1e300)),
    "decimal": table(short(b"x") + b"D" + struct.pack(">BI", 1, 2**32 - 1)),
    "attempts": table(short(b"retry-attempts") + b"l" + struct.pack(">q", 2**63 - 1)),
    "almost a frame": table(short(b"x") + b"S" + struct.pack(">I", 130_900) + b"x" * 130_900),
}


async def put(url: str, *messages: tuple[bytes, Properties], key: str = "a.b") -> None:
    async with amqp.connection(url, name="test") as opened:
        await amqp.ensure(opened, TOPOLOGY)
        outbox = await consume.confirming(opened)
        for body, properties in messages:
            await consume.publish(outbox, key, body, properties, exchange="work")


@pytest.mark.req("RB-27")
@pytest.mark.parametrize("name", UNREADABLE)
async def test_undecodable_message_is_dead_lettered_once_and_its_neighbours_are_taken(
    vhost: str, name: str
) -> None:
    body = bytes(range(256))
    batches: list[list[bytes]] = []
    await put(vhost, (b"1", Properties()), (body, Raw(UNREADABLE[name])), (b"2", Properties()))
    async with consuming(vhost, taking(batches)) as consumer:
        letter = await read_one(vhost, DEAD)
        await until(lambda: consumer.settled == 3)

    assert [each for batch in batches for each in batch] == [b"1", b"2"]
    assert letter.body == body
    assert letter.headers[deliveries.ATTEMPTS] == 1
    assert (letter.headers[deliveries.EXCHANGE], letter.headers[deliveries.ROUTING_KEY]) == (
        "work",
        "a.b",
    )
    assert letter.headers[deliveries.QUEUE] == "work.queue"
    assert str(letter.headers[deliveries.REASON]).startswith("its properties cannot be read: ")
    assert letter.headers[deliveries.UNREADABLE]
    assert await waiting(vhost, DEAD) == 0


@pytest.mark.parametrize("name", UNWRITABLE)
async def test_header_that_cannot_be_written_again_is_left_out_and_named(
    vhost: str, name: str
) -> None:
    async def refuse(bodies: list[bytes]) -> Mapping[int, Rejection]:
        return dict.fromkeys(range(len(bodies)), Rejection("no"))

    await put(vhost, (b"1", Raw(UNWRITABLE[name])), (b"2", Properties()))
    async with consuming(vhost, refuse):
        await until(lambda: dead(vhost, 2))
        letter = await read_one(vhost, DEAD)

    assert letter.body == b"1"
    assert letter.headers[deliveries.ATTEMPTS] == 1
    assert letter.headers[deliveries.REASON] == "no"


async def test_a_routing_key_that_is_not_utf8_stops_nobody(
    vhost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches: list[list[bytes]] = []
    await put(vhost, (b"0", Properties()))
    marshal = pamqp.frame.marshal
    with monkeypatch.context() as patch:
        patch.setattr(
            pamqp.frame,
            "marshal",
            lambda frame, channel: marshal(frame, channel).replace(b"a.odd", b"a.o\xff\xfe"),
        )
        await put(vhost, (b"1", Properties()), key="a.odd")
    await put(vhost, (b"2", Properties()))
    async with consuming(vhost, taking(batches)) as consumer:
        await until(lambda: consumer.settled == 3)

    assert [each for batch in batches for each in batch] == [b"0", b"1", b"2"]


async def test_message_that_ends_connections_is_dead_and_its_neighbours_are_not(
    vhost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second defence, for what nobody has thought of: nothing is left out here."""
    monkeypatch.setattr(amqp, "DELIVERY_LIMIT", 4)
    monkeypatch.setattr(consume, "Backoff", partial(Backoff, base_s=0.0))
    batches: list[list[bytes]] = []
    around = [(str(number).encode(), Properties()) for number in range(20)]
    healthy = {body for body, _ in around}
    poison = (b"poison", Raw(UNREADABLE["message_id"]))
    await put(vhost, *around[:5], poison, *around[5:])
    with monkeypatch.context() as patch:
        patch.setattr(amqp_reader, "readable", lambda frame: frame)
        async with consuming(vhost, taking(batches)):
            await until(lambda: dead(vhost, 1), within_s=120)
            await until(lambda: {each for batch in batches for each in batch} >= healthy)

    assert {each for batch in batches for each in batch} == healthy
    assert await waiting(vhost, DEAD) == 1


async def test_consumer_takes_batches_again_after_as_many_single_messages_as_were_prefetched(
    vhost: str, free_port: Callable[[], int]
) -> None:
    batches: list[list[bytes]] = []
    some = [(str(number).encode(), Properties()) for number in range(60)]
    async with relay(vhost, free_port()) as between:
        await between.up()
        async with consuming(between.url, taking(batches), max_messages=5, linger_s=1) as consumer:
            await between.down()
            await until(consumer.problem)
            await put(vhost, *some)
            await between.up()
            await until(lambda: sum(map(len, batches)) >= 60)

    assert [len(each) for each in batches[:10]] == [1] * 10
    assert max(map(len, batches)) == 5
