"""Consuming: batches, retries that grow, dead letters with their bytes, and nothing lost."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from typing import Any

import pytest

from farmiq.plumbing.backoff import Backoff
from farmiq.plumbing.bus import amqp, consume
from farmiq.plumbing.bus import delivery as deliveries
from farmiq.plumbing.bus.amqp import BusDownError, Exchange, Publisher, Queue, Topology
from farmiq.plumbing.bus.consume import Consumer, Handle, Rejection, Route
from tests.integration.plumbing.relay import relay
from tests.integration.plumbing.test_amqp import outgoing, read_one, waiting
from tests.support.until import until

DEAD = "work.dlq.queue"
ROUTE = Route("work.queue", tuple(f"work.retry-{n}.queue" for n in range(1, 5)), DEAD)
# Of the real 1, 5, 30 and 120 seconds, a hundredth.
TIERS_MS = (10, 50, 300, 1200)
TOPOLOGY = Topology(
    exchanges=(Exchange("unrouted"), Exchange("work", alternate="unrouted")),
    queues=(
        Queue("unrouted.queue", bindings=(("unrouted", "#"),)),
        Queue(DEAD),
        Queue("work.queue", bindings=(("work", "a.#"),), dead_letters=DEAD),
        *(
            Queue(name, dead_letters="work.queue", ttl_ms=ttl_ms)
            for name, ttl_ms in zip(ROUTE.retries, TIERS_MS, strict=True)
        ),
    ),
)


class AwayError(Exception):
    """The handler's database is away."""


@pytest.fixture
async def publisher(vhost: str) -> AsyncIterator[Publisher]:
    async with amqp.publisher(vhost, name="test", topology=TOPOLOGY) as opened:
        yield opened


class Counting(Consumer):
    """`settled` is how many messages were acknowledged: what is delivered is not yet handled."""

    settled = 0

    def _count(self, batch: Sequence[deliveries.Delivery], verdicts: Any) -> None:
        super()._count(batch, verdicts)
        self.settled += len(batch)


@contextlib.asynccontextmanager
async def consuming(url: str, handle: Handle, **options: Any) -> AsyncIterator[Counting]:
    consumer = Counting(
        url,
        route=ROUTE,
        topology=TOPOLOGY,
        handle=handle,
        is_outage=lambda error: isinstance(error, AwayError),
        **options,
    )
    running = asyncio.create_task(consumer.run())
    try:
        await until(lambda: running.done() or consumer.problem() is None)
        yield consumer
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


async def dead(url: str, count: int) -> bool:
    return await waiting(url, DEAD) == count


def taking(into: list[list[bytes]]) -> Handle:
    async def handle(bodies: list[bytes]) -> Mapping[int, Rejection]:
        into.append(bodies)
        return {}

    return handle


async def test_confirmed_messages_are_consumed_in_batches(publisher: Publisher, vhost: str) -> None:
    sent = [f"message {number}".encode() for number in range(150)]
    batches: list[list[bytes]] = []

    await publisher.publish(outgoing(*sent), timeout_s=60)
    async with consuming(vhost, taking(batches), max_messages=50, linger_s=60) as consumer:
        await until(lambda: consumer.settled == 150)

    assert [body for batch in batches for body in batch] == sent
    assert [len(batch) for batch in batches] == [50, 50, 50]
    assert await waiting(vhost, "work.queue") == 0
    assert await waiting(vhost, DEAD) == 0


@pytest.mark.req("RB-27")
async def test_message_rejected_for_good_is_dead_lettered_at_once_unchanged(
    publisher: Publisher, vhost: str
) -> None:
    odd = bytes(range(256)) * 3
    handled: list[bytes] = []

    async def handle(bodies: list[bytes]) -> Mapping[int, Rejection]:
        handled.extend(bodies)
        return {index: Rejection("no JSON") for index, body in enumerate(bodies) if body == odd}

    await publisher.publish(outgoing(b"1", odd, b"2", b"3"), timeout_s=60)
    async with consuming(vhost, handle) as consumer:
        letter = await read_one(vhost, DEAD)
        await until(lambda: consumer.settled == 4)

    assert letter.body == odd
    assert letter.message_id == odd.hex()[:32]
    assert letter.content_type == "application/json"
    assert letter.headers[deliveries.ATTEMPTS] == 1
    assert letter.headers[deliveries.REASON] == "no JSON"
    assert letter.headers[deliveries.QUEUE] == "work.queue"
    assert letter.headers[deliveries.EXCHANGE] == "work"
    assert letter.headers[deliveries.ROUTING_KEY] == "a.b"
    assert handled == [b"1", odd, b"2", b"3"]
    assert await waiting(vhost, DEAD) == 0


async def test_batch_rejected_as_a_whole_is_dead_lettered(publisher: Publisher, vhost: str) -> None:
    async def handle(bodies: list[bytes]) -> Mapping[int, Rejection]:
        return dict.fromkeys(range(len(bodies)), Rejection("no"))

    await publisher.publish(outgoing(b"1", b"2", b"3"), timeout_s=60)
    async with consuming(vhost, handle) as consumer:
        await until(lambda: dead(vhost, 3))
        await until(lambda: consumer.settled == 3)

    assert await waiting(vhost, "work.queue") == 0


@pytest.mark.req("RB-24", "RB-25")
async def test_message_that_fails_five_times_is_dead_lettered(
    publisher: Publisher, vhost: str
) -> None:
    tried_at: list[float] = []
    taken: list[bytes] = []
    loop = asyncio.get_running_loop()

    async def handle(bodies: list[bytes]) -> Mapping[int, Rejection]:
        if b"poison" in bodies:
            if len(bodies) == 1:
                tried_at.append(loop.time())
            raise ZeroDivisionError("the handler fell over it")
        taken.extend(bodies)
        return {}

    await publisher.publish(outgoing(b"1", b"poison", b"2"), timeout_s=60)
    async with consuming(vhost, handle, linger_s=0.2) as consumer:
        await until(lambda: sorted(taken) == [b"1", b"2"])
        letter = await read_one(vhost, DEAD)
        await until(lambda: consumer.settled == 7)

    assert letter.body == b"poison"
    assert letter.headers[deliveries.ATTEMPTS] == 5
    assert letter.headers[deliveries.REASON] == "ZeroDivisionError: the handler fell over it"
    assert letter.headers[deliveries.ROUTING_KEY] == "a.b"
    assert letter.headers[deliveries.EXCHANGE] == "work"
    assert len(tried_at) == 5
    gaps = [after - before for before, after in itertools.pairwise(tried_at)]
    # A queue never lets a message go before its time; how much later is the machine's affair.
    assert all(gap >= ms / 1000 for gap, ms in zip(gaps, TIERS_MS, strict=True))
    assert sorted(taken) == [b"1", b"2"]
    for queue in (*ROUTE.retries, "work.queue", "unrouted.queue"):
        assert await waiting(vhost, queue) == 0


async def test_a_failure_that_passes_costs_attempts_but_nothing_else(
    publisher: Publisher, vhost: str
) -> None:
    tries: list[bytes] = []

    async def handle(bodies: list[bytes]) -> Mapping[int, Rejection]:
        tries.extend(bodies)
        return {0: Rejection("not yet", final=False)} if len(tries) < 3 else {}

    await publisher.publish(outgoing(b"1"), timeout_s=60)
    async with consuming(vhost, handle) as consumer:
        await until(lambda: consumer.settled == 3)

    assert tries == [b"1"] * 3
    assert await waiting(vhost, DEAD) == 0


async def test_a_message_that_already_died_in_its_queue_survives_its_retries(
    publisher: Publisher, vhost: str
) -> None:
    """The broker drops what seems to go in circles: a death in the work queue must not count."""
    async with amqp.connection(vhost, name="test") as opened:
        channel = await opened.channel()
        await publisher.publish(outgoing(b"1"), timeout_s=60)
        await until(lambda: waiting(vhost, "work.queue"))
        refused = await (await channel.get_queue("work.queue")).get()
        assert refused is not None
        await refused.reject(requeue=False)
    letter = await read_one(vhost, DEAD)
    assert letter.headers["x-death"]
    tries = 0

    async def handle(bodies: list[bytes]) -> Mapping[int, Rejection]:
        nonlocal tries
        tries += len(bodies)
        return {0: Rejection("not yet", final=False)} if tries < 4 else {}

    async with amqp.connection(vhost, name="test") as opened:
        outbox = await consume.confirming(opened)
        headers = deliveries.Properties(headers=dict(letter.headers), message_id="x")
        await consume.publish(outbox, "work.queue", letter.body, headers)
    async with consuming(vhost, handle):
        await until(lambda: tries == 4)


async def test_message_that_failed_for_now_is_handled_again(
    publisher: Publisher, vhost: str
) -> None:
    seen: list[list[bytes]] = []

    async def handle(bodies: list[bytes]) -> Mapping[int, Rejection]:
        seen.append(bodies)
        if len(seen) <= 2:
            raise AwayError("no connection")
        return {}

    async with consuming(vhost, handle) as consumer:
        await publisher.publish(outgoing(b"1", b"2"), timeout_s=60)
        await until(lambda: consumer.settled == 2)
        assert consumer.problem() is None

    assert {body for bodies in seen[2:] for body in bodies} == {b"1", b"2"}
    assert await waiting(vhost, DEAD) == 0


async def test_an_outage_of_any_length_does_not_end_in_dead_letters(
    publisher: Publisher, vhost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when it is longer than a broker lets messages be held: they are put back as new."""
    monkeypatch.setattr(consume, "Backoff", partial(Backoff, base_s=0.0))
    tries = 0
    taken: set[bytes] = set()

    async def handle(bodies: list[bytes]) -> Mapping[int, Rejection]:
        nonlocal tries
        tries += 1
        if tries <= 200:
            raise AwayError("no connection")
        taken.update(bodies)
        return {}

    async with consuming(vhost, handle, hold_s=0.0) as consumer:
        await publisher.publish(outgoing(b"1", b"2"), timeout_s=60)
        await until(lambda: tries > 200, within_s=120)
        await until(lambda: taken == {b"1", b"2"})
        settled = consumer.settled

    assert settled > 200
    assert await waiting(vhost, DEAD) == 0
    for queue in ROUTE.retries:
        assert await waiting(vhost, queue) == 0


async def test_an_outage_is_a_problem_that_is_named_and_keeps_the_message(
    publisher: Publisher, vhost: str
) -> None:
    async def handle(_: list[bytes]) -> Mapping[int, Rejection]:
        raise AwayError("no connection")

    async with consuming(vhost, handle) as consumer:
        await publisher.publish(outgoing(b"1"), timeout_s=60)
        await until(lambda: consumer.problem() == "queue work.queue: no connection")

    assert (await read_one(vhost, "work.queue")).body == b"1"


async def test_message_is_not_acknowledged_without_a_dead_letter_queue(
    publisher: Publisher, vhost: str
) -> None:
    async def handle(bodies: list[bytes]) -> Mapping[int, Rejection]:
        return {index: Rejection("no") for index, body in enumerate(bodies) if body == b"bad"}

    await publisher.publish(outgoing(b"good"), timeout_s=60)  # it declares everything when it opens
    async with consuming(vhost, handle) as consumer:
        async with amqp.connection(vhost, name="test") as opened:
            await (await opened.channel()).queue_delete(DEAD)
        await publisher.publish(outgoing(b"bad"), timeout_s=60)
        await until(lambda: "cannot be set aside" in (consumer.problem() or ""))
        async with amqp.connection(vhost, name="test") as opened:
            await amqp.declare(await opened.channel(), TOPOLOGY)
        letter = await read_one(vhost, DEAD)
        await until(lambda: consumer.problem() is None)

    assert letter.body == b"bad"


async def test_a_broker_that_goes_and_comes_is_used_again(
    vhost: str, free_port: Callable[[], int]
) -> None:
    got: set[bytes] = set()

    async def handle(bodies: list[bytes]) -> Mapping[int, Rejection]:
        got.update(bodies)
        return {}

    async with relay(vhost, free_port()) as between:
        await between.up()
        async with (
            amqp.publisher(between.url, name="test", topology=TOPOLOGY) as publisher,
            consuming(between.url, handle) as consumer,
        ):
            await publisher.publish(outgoing(b"before"), timeout_s=60)
            await until(lambda: got == {b"before"})

            await between.down()
            await until(consumer.problem)
            with pytest.raises(BusDownError):
                await publisher.publish(outgoing(b"while away"), timeout_s=60)

            await between.up()
            await publisher.publish(outgoing(b"after"), timeout_s=60)
            await until(lambda: b"after" in got)
            assert consumer.problem() is None


async def test_consumer_cancelled_while_its_connection_closes_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The library may raise an error of its own then, and say nothing of having been cancelled."""

    @contextlib.asynccontextmanager
    async def lost(*_: object, **__: object) -> AsyncIterator[None]:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise ConnectionError("it is closed") from None
        yield

    monkeypatch.setattr(amqp, "connection", lost)
    monkeypatch.setattr(consume, "Backoff", partial(Backoff, base_s=0.0))
    consumer = Counting("", route=ROUTE, topology=TOPOLOGY, handle=taking([]), is_outage=bool)
    running = asyncio.create_task(consumer.run())
    await asyncio.sleep(0)
    running.cancel()
    done, _ = await asyncio.wait([running], timeout=60)
    assert done
    assert running.cancelled()
