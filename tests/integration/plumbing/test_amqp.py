"""RabbitMQ: confirmed means kept, refused keeps its bytes, and nothing that fails is lost."""

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import aio_pika
import httpx2
import pytest

from farmiq.plumbing import amqp
from farmiq.plumbing.amqp import (
    BusDownError,
    Consumer,
    Exchange,
    Outgoing,
    Publisher,
    Queue,
    Topology,
)
from farmiq.plumbing.backoff import Backoff
from tests.integration.plumbing.relay import relay
from tests.until import until

TOPOLOGY = Topology(
    exchanges=(Exchange("unrouted"), Exchange("work", alternate="unrouted")),
    queues=(
        Queue("unrouted.queue", bindings=(("unrouted", "#"),)),
        Queue("work.dlq.queue"),
        Queue("work.queue", bindings=(("work", "a.#"),), dead_letters="work.dlq.queue"),
    ),
)

Handle = Callable[[list[bytes]], Awaitable[set[int]]]


def outgoing(*bodies: bytes, key: str = "a.b") -> list[Outgoing]:
    return [Outgoing("work", key, body, message_id=body.hex()[:32]) for body in bodies]


@pytest.fixture
async def publisher(vhost: str) -> AsyncIterator[Publisher]:
    async with amqp.publisher(vhost, name="test", topology=TOPOLOGY) as opened:
        yield opened


@contextlib.asynccontextmanager
async def consuming(url: str, handle: Handle, **options: Any) -> AsyncIterator[Consumer]:
    consumer = Consumer(
        url, queue="work.queue", topology=TOPOLOGY, handle=handle, **{"retry_on": (), **options}
    )
    running = asyncio.create_task(consumer.run())
    try:
        await until(lambda: running.done() or consumer.problem() is None)
        yield consumer
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


async def waiting(url: str, queue: str) -> int | None:
    found = await amqp.depth(url, queue)
    return found and found[0]


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
    async with httpx2.AsyncClient() as client:
        answer = await client.get(
            f"http://{parts.hostname}:{parts.port}/api/definitions{urlsplit(vhost).path}",
            headers={"Authorization": f"Basic {login}"},
        )
    return {name: answer.json()[name] for name in ("exchanges", "queues", "bindings")}


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


async def test_what_is_confirmed_is_consumed_in_batches(publisher: Publisher, vhost: str) -> None:
    sent = [f"message {number}".encode() for number in range(120)]
    batches: list[list[bytes]] = []

    async def handle(bodies: list[bytes]) -> set[int]:
        batches.append(bodies)
        return set()

    await publisher.publish(outgoing(*sent), timeout_s=10)
    assert await publisher.problem() is None
    async with consuming(vhost, handle, most=50, linger_s=0.5):
        await until(lambda: sum(map(len, batches)) == 120)
        await until(lambda: _empty(vhost))

    assert [body for batch in batches for body in batch] == sent
    assert max(map(len, batches)) == 50
    assert await waiting(vhost, "work.dlq.queue") == 0


async def _empty(url: str) -> bool:
    return await waiting(url, "work.queue") == 0


async def test_a_message_says_what_it_is(publisher: Publisher, vhost: str) -> None:
    message = Outgoing("work", "a.b", b"{}", message_id="id-1", headers={"trace_id": "t-1"})
    await publisher.publish([message], timeout_s=10)

    got = await read_one(vhost, "work.queue")

    assert (got.message_id, got.headers["trace_id"], got.routing_key) == ("id-1", "t-1", "a.b")
    assert got.content_type == "application/json"
    assert got.delivery_mode == aio_pika.DeliveryMode.PERSISTENT


async def test_what_no_queue_wants_is_kept_aside(publisher: Publisher, vhost: str) -> None:
    await publisher.publish(outgoing(b"nobody's", key="z.y"), timeout_s=10)

    kept = await read_one(vhost, "unrouted.queue")

    assert (kept.body, kept.routing_key) == (b"nobody's", "z.y")
    assert await waiting(vhost, "work.queue") == 0


@pytest.mark.req("RB-27")
async def test_refused_messages_go_to_the_dead_letters_byte_for_byte(
    publisher: Publisher, vhost: str
) -> None:
    odd = bytes(range(256)) * 3
    handled: list[bytes] = []

    async def handle(bodies: list[bytes]) -> set[int]:
        handled.extend(bodies)
        return {index for index, body in enumerate(bodies) if body == odd}

    await publisher.publish(outgoing(b"1", odd, b"2", b"3"), timeout_s=10)
    async with consuming(vhost, handle):
        dead = await read_one(vhost, "work.dlq.queue")
        await until(lambda: _empty(vhost))

    assert dead.body == odd
    assert handled == [b"1", odd, b"2", b"3"]
    assert await waiting(vhost, "work.dlq.queue") == 0


async def test_all_of_a_batch_may_be_refused(publisher: Publisher, vhost: str) -> None:
    async def handle(bodies: list[bytes]) -> set[int]:
        return set(range(len(bodies)))

    await publisher.publish(outgoing(b"1", b"2", b"3"), timeout_s=10)
    async with consuming(vhost, handle):
        await until(lambda: _dead(vhost, 3))

    assert await waiting(vhost, "work.queue") == 0


async def _dead(url: str, count: int) -> bool:
    return await waiting(url, "work.dlq.queue") == count


class OurDatabaseIsAwayError(Exception):
    pass


async def test_what_a_handler_could_not_do_comes_again(publisher: Publisher, vhost: str) -> None:
    seen: list[list[bytes]] = []

    async def handle(bodies: list[bytes]) -> set[int]:
        seen.append(bodies)
        if len(seen) <= 2:
            raise OurDatabaseIsAwayError("no connection")
        return set()

    await publisher.publish(outgoing(b"1", b"2"), timeout_s=10)
    async with consuming(vhost, handle, retry_on=(OurDatabaseIsAwayError,)) as consumer:
        await until(lambda: len(seen) >= 3)
        await until(lambda: consumer.problem() is None)
        await until(lambda: _empty(vhost))

    assert {body for bodies in seen[2:] for body in bodies} == {b"1", b"2"}
    assert await waiting(vhost, "work.dlq.queue") == 0


async def test_an_outage_of_any_length_does_not_end_in_dead_letters(
    publisher: Publisher, vhost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(amqp, "Backoff", partial(Backoff, base_s=0.0))
    tries = 0

    async def handle(_: list[bytes]) -> set[int]:
        nonlocal tries
        tries += 1
        if tries <= 200:
            raise OurDatabaseIsAwayError("no connection")
        return set()

    await publisher.publish(outgoing(b"1", b"2"), timeout_s=10)
    async with consuming(vhost, handle, retry_on=(OurDatabaseIsAwayError,)):
        await until(lambda: tries > 200)
        await until(lambda: _empty(vhost))

    assert await waiting(vhost, "work.dlq.queue") == 0


async def test_a_failing_handler_is_a_problem_that_is_named(
    publisher: Publisher, vhost: str
) -> None:
    async def handle(_: list[bytes]) -> set[int]:
        raise OurDatabaseIsAwayError("no connection")

    await publisher.publish(outgoing(b"1"), timeout_s=10)
    async with consuming(vhost, handle, retry_on=(OurDatabaseIsAwayError,)) as consumer:
        await until(lambda: consumer.problem() == "queue work.queue: no connection")

    assert (await read_one(vhost, "work.queue")).body == b"1"


async def test_a_mistake_of_ours_ends_the_consumer_and_keeps_the_message(
    publisher: Publisher, vhost: str
) -> None:
    async def handle(_: list[bytes]) -> set[int]:
        raise ZeroDivisionError

    await publisher.publish(outgoing(b"1"), timeout_s=10)
    consumer = Consumer(vhost, queue="work.queue", topology=TOPOLOGY, handle=handle, retry_on=())
    with pytest.raises(ZeroDivisionError):
        await asyncio.wait_for(consumer.run(), 20)

    assert (await read_one(vhost, "work.queue")).body == b"1"


async def test_a_broker_that_is_away_confirms_nothing(free_port: Callable[[], int]) -> None:
    url = f"amqp://farmiq:x@127.0.0.1:{free_port()}/"

    async with amqp.publisher(url, name="test", topology=TOPOLOGY) as publisher:
        assert "message bus does not answer" in (await publisher.problem() or "")
        with pytest.raises(BusDownError, match="not confirmed"):
            await publisher.publish(outgoing(b"1"), timeout_s=5)


async def test_a_broker_that_goes_and_comes_is_used_again(
    vhost: str, free_port: Callable[[], int]
) -> None:
    got: set[bytes] = set()

    async def handle(bodies: list[bytes]) -> set[int]:
        got.update(bodies)
        return set()

    async with relay(vhost, free_port()) as between:
        await between.up()
        async with (
            amqp.publisher(between.url, name="test", topology=TOPOLOGY) as publisher,
            consuming(between.url, handle) as consumer,
        ):
            await publisher.publish(outgoing(b"before"), timeout_s=5)
            await until(lambda: got == {b"before"})

            await between.down()
            await until(consumer.problem)
            with pytest.raises(BusDownError):
                await publisher.publish(outgoing(b"while away"), timeout_s=5)

            await between.up()
            await publisher.publish(outgoing(b"after"), timeout_s=5)
            await until(lambda: b"after" in got)
            assert consumer.problem() is None


async def test_a_publish_that_takes_too_long_is_not_confirmed(publisher: Publisher) -> None:
    with pytest.raises(BusDownError, match="TimeoutError"):
        await publisher.publish(outgoing(b"1"), timeout_s=0.0)


async def test_a_queue_that_is_not_there_has_no_depth(vhost: str) -> None:
    assert await amqp.depth(vhost, "nothing.queue") is None
