"""RabbitMQ, the slow one: everything about it in a single life."""

import asyncio
from pathlib import Path
from urllib.parse import urlsplit

import aio_pika
import pytest

from farmiq import config
from farmiq.lab import stack
from farmiq.lab.stack import processes, record


async def publish(url: str) -> None:
    async with await aio_pika.connect(url) as connection:
        channel = await connection.channel(on_return_raises=True)
        await channel.declare_queue("kept", durable=True, arguments={"x-queue-type": "quorum"})
        message = aio_pika.Message(b"7", delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
        await channel.default_exchange.publish(message, "kept", timeout=60)


async def until_written_down(root: Path) -> None:
    """Wait until the queue's name is on disk.

    A broker killed within the first second of a new quorum queue forgets it (seen with 3.10.8).
    """
    names = root / "rabbitmq/mnesia/farmiq@localhost/quorum/farmiq@localhost/names.dets"
    async with asyncio.timeout(60):
        while b"farmiq_kept" not in names.read_bytes():  # noqa: ASYNC110 a file sets no event
            await asyncio.sleep(0.05)


async def fetch(url: str) -> bytes:
    async with await aio_pika.connect(url) as connection:
        channel = await connection.channel()
        queue = await channel.get_queue("kept")
        message = await queue.get(timeout=60)
        assert message is not None
        await message.ack()
        return message.body


@pytest.mark.timeout(300)
async def test_rabbitmq_starts_survives_a_kill_and_stops_with_its_port_mapper(root: Path) -> None:
    downloads = config.state_dir() / "engines"
    with stack.start(root, engines=["rabbitmq"], downloads=downloads) as running:
        url = running.environment["FARMIQ_AMQP_URL"]
        assert urlsplit(url).path == "/farmiq"
        await publish(url)
        await until_written_down(root)
        running.kill("rabbitmq")
        assert [state.healthy for state in stack.states(root)] == [False]
        running.restart("rabbitmq")
        assert await fetch(url) == b"7"
        run = record.read_run(root)
        assert run is not None
        server, port_mapper = run.engines[0].process, run.engines[0].helpers[0]
        assert server is not None
        assert processes.alive(port_mapper)
    assert not processes.alive(server)
    assert not processes.alive(port_mapper)
