"""The vhosts that other tests stand on: nobody finds what another left."""

import asyncio

from farmiq.cloud import bus
from farmiq.plumbing.bus import amqp
from tests.support import vhosts
from tests.support.vhosts import empty


async def declared(url: str, topology: amqp.Topology, *, messages: int = 0) -> None:
    letter = amqp.Outgoing("farmiq.feed.exchange", "feed.lot.received", b"1", "1")
    async with amqp.publisher(url, name="test", topology=topology) as publisher:
        await publisher.publish([letter] * messages, timeout_s=60)


async def test_messages_are_thrown_away_and_the_queues_stay(vhost: str) -> None:
    await declared(vhost, bus.TOPOLOGY, messages=2)
    queues = [queue.name for queue in bus.TOPOLOGY.queues]
    assert sum((await amqp.depths(vhost, queues)).values()) == 4

    assert await empty(vhost)

    assert await amqp.depths(vhost, queues) == dict.fromkeys(queues, 0)


async def test_vhost_with_a_consumer_is_not_usable(vhost: str) -> None:
    await declared(vhost, bus.TOPOLOGY)
    async with amqp.connection(vhost, name="test") as opened:
        queue = await (await opened.channel()).get_queue(bus.FEED.queue)
        async with queue.iterator():
            assert not await empty(vhost)


def test_vhost_with_queues_for_retries_is_not_lent_again(engines: dict[str, str]) -> None:
    with vhosts.lend(engines) as lent:
        asyncio.run(declared(lent, bus.part(bus.FEED)))
    with vhosts.lend(engines) as other:
        assert other != lent


def test_vhost_on_which_nothing_was_declared_is_lent_again(engines: dict[str, str]) -> None:
    with vhosts.lend(engines) as lent:
        pass
    with vhosts.lend(engines) as other:
        assert other == lent
