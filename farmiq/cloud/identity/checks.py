"""Password checks, each of which takes 64 MiB and a core: few at a time, in a fair order.

sign-ins --queue per network--> [checks] --few threads--> right or wrong

Networks take turns, however many sign-ins of one network wait. Browsers that signed in before come
first. When too many wait, a sign-in is rejected at once.
"""

import asyncio
import os
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from farmiq.cloud.identity import passwords

Queues = OrderedDict[str, deque["asyncio.Future[None]"]]


class TooBusyError(Exception):
    """Too many passwords wait to be checked; try again in a moment."""

    retry_after_s = 5


@dataclass
class Checks:
    # One check uses four cores, and other requests need some too.
    workers: int = max(1, min(4, (os.cpu_count() or 1) // 4))
    max_waiting: int = 32
    max_waiting_per_key: int = 4
    _running: int = 0
    _known: Queues = field(default_factory=OrderedDict)
    _unknown: Queues = field(default_factory=OrderedDict)
    _threads: ThreadPoolExecutor = field(init=False)

    def __post_init__(self) -> None:
        self._threads = ThreadPoolExecutor(self.workers, thread_name_prefix="password")

    @asynccontextmanager
    async def slot(self, key: str, *, known: bool) -> AsyncIterator[None]:
        """A slot to check one person's password. Raises TooBusyError if too many wait."""
        await self._wait(key, self._known if known else self._unknown)
        try:
            yield
        finally:
            self._next()

    async def matches(self, password_hash: str | None, password: str) -> bool:
        """As passwords.matches, in a thread; call it with a slot."""
        return await asyncio.get_running_loop().run_in_executor(
            self._threads, passwords.matches, password_hash, password
        )

    async def _wait(self, key: str, queues: Queues) -> None:
        if self._running < self.workers:
            self._running += 1
            return
        self._make_room(key, queues)
        slot: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queues.setdefault(key, deque()).append(slot)
        try:
            await slot
        except asyncio.CancelledError:
            if slot.done() and not slot.cancelled():
                self._next()
            raise

    def _make_room(self, key: str, queues: Queues) -> None:
        """When too many wait, the newest of the fullest queue is rejected for one of a shorter."""
        own = len(queues.get(key, ()))
        if own >= self.max_waiting_per_key:
            raise TooBusyError
        if sum(len(waiting) for waiting in queues.values()) < self.max_waiting:
            return
        fullest = max(queues.values(), key=len)
        if len(fullest) <= own + 1:
            raise TooBusyError
        given_up = fullest.pop()
        if not given_up.done():
            given_up.set_exception(TooBusyError())

    def _next(self) -> None:
        for queues in (self._known, self._unknown):
            while queues:
                key, waiting = queues.popitem(last=False)
                slot = waiting.popleft()
                if waiting:
                    queues[key] = waiting  # behind all others
                if not slot.done():
                    slot.set_result(None)
                    return
        self._running -= 1
