"""What stands before the replicas of a cloud: one address, which leads to one of them at a time."""

import asyncio
import threading
from types import TracebackType
from typing import Self

PAUSE_S = 0.1


class Balancer:
    """In a thread of its own: a test that waits must not keep the edge waiting.

    All the while it asks itself, each time over a new connection; `failed` counts what no replica
    answered.
    """

    def __init__(self, port: int) -> None:
        self.port = port
        self.target = 0
        self.asked = 0
        self.failed: list[str] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._serve(), self._loop).result()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def lead_to(self, port: int) -> None:
        """New connections go there; from the first one on it is asked whether somebody answers."""
        first, self.target = not self.target, port
        if first:
            self._loop.call_soon_threadsafe(self._begin)

    def _begin(self) -> None:
        # A task that nobody holds may vanish.
        self._asking = self._loop.create_task(self._ask())

    async def _serve(self) -> None:
        self._server = await asyncio.start_server(self._relay, "127.0.0.1", self.port)

    async def _end(self) -> None:
        self._server.close()
        mine = asyncio.all_tasks() - {asyncio.current_task()}
        for task in mine:
            task.cancel()
        await asyncio.gather(*mine, return_exceptions=True)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there = await asyncio.open_connection("127.0.0.1", self.target)
            await asyncio.gather(_copy(reader, there[1]), _copy(there[0], writer))
        except OSError:
            pass
        finally:
            writer.close()

    async def _ask(self) -> None:
        while True:
            target = self.target
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
                writer.write(b"GET /healthz HTTP/1.1\r\nHost: cloud\r\nConnection: close\r\n\r\n")
                status = (await reader.read()).partition(b"\r\n")[0]
                writer.close()
            except OSError as error:
                status = str(error).encode()
            self.asked += 1
            if b" 200 " not in status:
                self.failed.append(f"{target}: {status.decode()}")
            await asyncio.sleep(PAUSE_S)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()
