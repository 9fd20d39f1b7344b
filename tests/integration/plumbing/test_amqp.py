"""RabbitMQ: confirmed means kept, and what nobody wants is kept too."""

import asyncio
import base64
from collections.abc import AsyncIterator, Callable
from typing import Any
from urllib.parse import urlsplit

import aio_pika
import httpx2
import pytest
from pamqp.commands import Basic

from farmiq.lab.simulate.link import linked
from farmiq.plumbing.bus import amqp, amqp_stream
from farmiq.plumbing.bus.amqp import BusDownError, Exchange, Outgoing, Publisher, Queue, Topology
from farmiq.plumbing.bus.amqp_stream import Link
from tests.support.sockets import open_sockets
from tests.support.until import until

TOPOLOGY = Topology(
    exchanges=(Exchange("unrouted"), Exchange("work", alternate="unrouted")),
    queues=(
        Queue("unrouted.queue", bindings=(("unrouted", "#"),)),
        Queue("work.dlq.queue"),
        Queue("work.queue", bindings=(("work", "a.#"),), dead_letters="work.dlq.queue"),
    ),
)


def outgoing(*bodies: bytes, key: str = "a.b") -> list[Outgoing]:
    return [Outgoing("work", key, body, message_id=body.hex()[:32]) for body in bodies]


@pytest.fixture
async def publisher(vhost: str) -> AsyncIterator[Publisher]:
    async with amqp.publisher(vhost, name="test", topology=TOPOLOGY) as opened:
        yield opened


async def waiting(url: str, queue: str) -> int | None:
    found = await amqp.depth(url, queue)
    return found and found[0]


async def well(publisher: Publisher) -> bool:
    return await publisher.problem() is None


async def says(publisher: Publisher, words: str) -> bool:
    return words in (await publisher.problem() or "")


async def read_one(url: str, queue: str) -> aio_pika.abc.AbstractIncomingMessage:
    """Takes the first message away."""
    await until(lambda: waiting(url, queue))
    async with amqp.connection(url, name="reader") as opened:
        channel = await opened.channel()
        taken = await (await channel.get_queue(queue)).get()
        assert taken is not None
        await taken.ack()
        return taken


async def definitions(engines: dict[str, str], vhost: str) -> Any:
    """All that the broker knows to be declared on the vhost."""
    parts = urlsplit(engines["FARMIQ_RABBITMQ_API_URL"])
    login = base64.b64encode(f"{parts.username}:{parts.password}".encode()).decode()
    async with httpx2.AsyncClient(timeout=60) as client:
        answer = await client.get(
            f"http://{parts.hostname}:{parts.port}/api/definitions{urlsplit(vhost).path}",
            headers={"Authorization": f"Basic {login}"},
        )
    return {name: answer.json()[name] for name in ("exchanges", "queues", "bindings")}


async def test_broker_that_reads_nothing_keeps_no_socket_of_ours(vhost: str) -> None:
    """RabbitMQ stops reading when its memory or disk is full; what we wrote stays unsent."""
    parts = urlsplit(vhost)
    async with linked(parts.hostname or "", parts.port or 0) as link:
        login = parts.netloc.rpartition("@")[0]
        address = parts._replace(netloc=f"{login}@127.0.0.1:{link.port_here}")
        async with amqp_stream.opened(
            address.geturl(), name="test", context=None, within_s=60
        ) as opened:
            link.delay_s = 3600.0
            sockets = open_sockets()
            publishing = asyncio.create_task(opened.publish(outgoing(b"x" * 16 * 2**20)))
            await until(lambda: opened.unconfirmed_s() > 0)
        await until(lambda: open_sockets() == sockets - 1)
        with pytest.raises(ConnectionError):
            await publishing


async def test_declaring_twice_changes_nothing(engines: dict[str, str], vhost: str) -> None:
    async with amqp.connection(vhost, name="test") as opened:
        await amqp.declare(await opened.channel(), TOPOLOGY)
    first = await definitions(engines, vhost)
    async with amqp.connection(vhost, name="test") as opened:
        await amqp.declare(await opened.channel(), TOPOLOGY)

    assert await definitions(engines, vhost) == first
    assert {one["name"]: one["type"] for one in first["exchanges"]} == {
        "work": "topic",
        "unrouted": "topic",
    }
    assert {one["name"] for one in first["queues"]} == {
        "work.queue", "work.dlq.queue", "unrouted.queue",
    }  # fmt: skip
    assert {one["arguments"]["x-queue-type"] for one in first["queues"]} == {"quorum"}
    assert all(one["durable"] for one in (*first["exchanges"], *first["queues"]))


async def test_published_message_carries_its_id_and_headers(
    publisher: Publisher, vhost: str
) -> None:
    message = Outgoing("work", "a.b", b"{}", message_id="id-1", headers={"trace_id": "t-1"})
    await publisher.publish([message], timeout_s=60)

    got = await read_one(vhost, "work.queue")

    assert (got.message_id, got.headers["trace_id"], got.routing_key) == ("id-1", "t-1", "a.b")
    assert got.content_type == "application/json"
    assert got.delivery_mode == aio_pika.DeliveryMode.PERSISTENT


async def test_message_without_a_queue_goes_to_the_alternate_exchange(
    publisher: Publisher, vhost: str
) -> None:
    await publisher.publish(outgoing(b"nobody's", key="z.y"), timeout_s=60)

    kept = await read_one(vhost, "unrouted.queue")

    assert (kept.body, kept.routing_key) == (b"nobody's", "z.y")
    assert await waiting(vhost, "work.queue") == 0


async def test_a_broker_that_is_away_confirms_nothing(free_port: Callable[[], int]) -> None:
    url = f"amqp://farmiq:x@127.0.0.1:{free_port()}/"

    async with amqp.publisher(url, name="test", topology=TOPOLOGY) as publisher:
        assert "message bus does not answer" in (await publisher.problem() or "")
        with pytest.raises(BusDownError, match="not confirmed"):
            await publisher.publish(outgoing(b"1"), timeout_s=5)


async def test_a_broker_that_stops_answering_is_a_problem_while_it_is_connected(
    vhost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that is frozen: what is sent goes out, and nothing comes back."""
    parts = urlsplit(vhost)
    async with linked(parts.hostname or "", parts.port or 0) as link:
        url = vhost.replace(f":{parts.port}", f":{link.port_here}")
        async with amqp.publisher(url, name="test", topology=TOPOLOGY) as publisher:
            await publisher.publish(outgoing(b"1"), timeout_s=60)
            await until(lambda: well(publisher))
            monkeypatch.setattr(amqp, "PING_WITHIN_S", 0.5)
            link.swallowing = True
            assert "does not answer" in (await publisher.problem() or "")
            link.swallowing = False


async def test_a_broker_slower_than_each_caller_waits_is_connected_in_the_end(
    vhost: str,
) -> None:
    """Callers that give up must not begin the declaring of all queues again and again."""
    parts = urlsplit(vhost)
    async with linked(parts.hostname or "", parts.port or 0) as link:
        url = vhost.replace(f":{parts.port}", f":{link.port_here}")
        link.delay_s = 0.05

        async def is_published(publisher: Publisher) -> bool:
            try:
                await publisher.publish(outgoing(b"1"), timeout_s=0.5)
            except BusDownError:
                return False
            return True

        async with amqp.publisher(url, name="test", topology=TOPOLOGY) as publisher:
            assert not await is_published(publisher)
            await until(lambda: is_published(publisher))
            # A caller that gave up does not know whether its message arrived: it may be there too.
            assert await waiting(vhost, "work.queue")


async def test_a_message_that_is_never_confirmed_is_a_problem(
    publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(amqp, "CONFIRMED_WITHIN_S", 0.0)
    await publisher.publish(outgoing(b"0"), timeout_s=60)
    await until(lambda: well(publisher))
    hear = Link.hear
    with monkeypatch.context() as patch:
        patch.setattr(
            Link, "hear", lambda self, said: isinstance(said, Basic.Ack) or hear(self, said)
        )
        unheard = asyncio.create_task(publisher.publish(outgoing(b"1"), timeout_s=60))
        await until(lambda: says(publisher, "does not confirm"))
    unheard.cancel()


async def test_a_publish_that_takes_too_long_is_not_confirmed(publisher: Publisher) -> None:
    with pytest.raises(BusDownError, match="TimeoutError"):
        await publisher.publish(outgoing(b"1"), timeout_s=0.0)


async def test_a_queue_that_is_not_there_has_no_depth(vhost: str) -> None:
    assert await amqp.depth(vhost, "nothing.queue") is None


async def test_many_and_large_messages_arrive_whole_and_in_order(
    publisher: Publisher, vhost: str
) -> None:
    bodies = [b"%d" % number for number in range(3000)]
    large = bytes(range(256)) * 2000  # more than a frame holds
    await publisher.publish(outgoing(large, *bodies), timeout_s=60)

    async with amqp.connection(vhost, name="reader") as opened:
        channel = await opened.channel()
        await channel.set_qos(prefetch_count=1000)
        async with (await channel.get_queue("work.queue")).iterator() as messages:
            found = []
            async for message in messages:
                found.append(message.body)
                await message.ack()
                if len(found) == len(bodies) + 1:
                    break
    assert found == [large, *bodies]


async def test_batches_at_once_are_each_confirmed_for_themselves(
    publisher: Publisher, vhost: str
) -> None:
    batches = [outgoing(*(b"%d-%d" % (one, n) for n in range(200))) for one in range(8)]
    await asyncio.gather(*(publisher.publish(batch, timeout_s=60) for batch in batches))

    assert await until(lambda: waiting(vhost, "work.queue")) == 1600


async def fill(publisher: Publisher) -> None:
    while True:
        batch = outgoing(*(b"%d" % number for number in range(500)), key="full")
        await publisher.publish(batch, timeout_s=60)


async def test_a_full_queue_refuses_and_the_link_goes_on(publisher: Publisher, vhost: str) -> None:
    async with amqp.connection(vhost, name="test") as opened:
        channel = await opened.channel()
        await channel.declare_queue(
            "full.queue",
            durable=True,
            arguments={
                "x-queue-type": "quorum",
                "x-max-length": 5,
                "x-overflow": "reject-publish",
            },
        )
        await publisher.publish(outgoing(b"1"), timeout_s=60)  # the exchange is there
        await (await channel.get_queue("full.queue")).bind("work", "full")
    # A queue says that it is full a moment after it is.
    with pytest.raises(BusDownError, match="nack"):
        await fill(publisher)

    await publisher.publish(outgoing(b"2"), timeout_s=60)


async def test_a_message_that_fits_no_frame_shifts_nobodys_confirm(
    publisher: Publisher, vhost: str
) -> None:
    await publisher.publish(outgoing(b"1"), timeout_s=60)
    odd = Outgoing("work", "a.b", b"odd", message_id="x" * 300)
    with pytest.raises(ValueError, match="256"):
        await publisher.publish([*outgoing(b"2"), odd], timeout_s=60)

    await publisher.publish(outgoing(b"3", b"4"), timeout_s=60)

    assert await until(lambda: waiting(vhost, "work.queue")) == 3
