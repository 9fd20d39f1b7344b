"""An address that can be made to answer or not: a server that is down, comes, goes, comes again."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from urllib.parse import urlsplit, urlunsplit

from farmiq.lab.simulate.link import Link


class Relay:
    """Stands before the server of `url`; `url` of this is the address to use instead."""

    def __init__(self, url: str, port_here: int) -> None:
        parts = urlsplit(url)
        user = parts.netloc.rpartition("@")[0]
        self.url = urlunsplit(parts._replace(netloc=f"{user}@127.0.0.1:{port_here}"))
        self._port_here = port_here
        self._link = Link(parts.hostname or "127.0.0.1", parts.port or 0)
        self._server: asyncio.Server | None = None

    async def up(self) -> None:
        self._link.heal()
        self._server = await asyncio.start_server(self._link.relay, "127.0.0.1", self._port_here)

    async def down(self) -> None:
        """Nobody listens any more, and what was connected is cut."""
        if self._server is not None:
            self._server.close()
        self._link.refusing = True
        self._link.cut()


@contextlib.asynccontextmanager
async def relay(url: str, port_here: int) -> AsyncIterator[Relay]:
    """A relay that is down at first."""
    made = Relay(url, port_here)
    try:
        yield made
    finally:
        await made.down()
