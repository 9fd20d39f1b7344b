"""A TCP port before others on loopback: a load balancer, and a way to TLS for who has none."""

import asyncio
import contextlib
import itertools
import ssl
from collections.abc import AsyncIterator


@contextlib.asynccontextmanager
async def balanced(
    *targets: int, port: int = 0, context: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    """Each connection goes to the next target that takes it; the port where to connect."""
    turn = itertools.cycle(targets)
    relays: set[asyncio.Task[None]] = set()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ends = [writer]
        try:
            for target in itertools.islice(turn, len(targets)):
                with contextlib.suppress(OSError):
                    far_reader, far_writer = await asyncio.open_connection("127.0.0.1", target)
                    ends.append(far_writer)
                    await asyncio.gather(_pump(reader, far_writer), _pump(far_reader, writer))
                    return
        finally:
            for end in ends:
                end.transport.abort()

    def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(relay(reader, writer))
        relays.add(task)
        task.add_done_callback(relays.discard)

    server = await asyncio.start_server(begin, "127.0.0.1", port, ssl=context)
    try:
        yield int(server.sockets[0].getsockname()[1])
    finally:
        server.close()
        for task in relays:
            task.cancel()
        if relays:
            await asyncio.wait(relays)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()
