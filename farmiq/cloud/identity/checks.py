"""Password checks, each of which takes 64 MiB and a core: few at a time, in a fair order.

sign-ins --lane per network--> [checks] --few threads--> right or wrong

Networks get their turns one after another, however many sign-ins each has waiting. Browsers that
signed in before are checked first. What does not fit is refused at once.
"""

import asyncio
import os
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from farmiq.cloud.identity import passwords

Lanes = OrderedDict[str, deque["asyncio.Future[None]"]]


class TooBusyError(Exception):
    """More passwords wait to be checked than we let wait; try again in a moment."""

    retry_after_s = 5


@dataclass
class Checks:
    # A check itself spreads over four cores, and others want to be served meanwhile.
    workers: int = max(1, min(4, (os.cpu_count() or 1) // 4))
    max_waiting: int = 32
    max_waiting_per_lane: int = 4
    _running: int = 0
    _known: Lanes = field(default_factory=OrderedDict)
    _strangers: Lanes = field(default_factory=OrderedDict)
    _threads: ThreadPoolExecutor = field(init=False)

    def __post_init__(self) -> None:
        self._threads = ThreadPoolExecutor(self.workers, thread_name_prefix="password")

    @asynccontextmanager
    async def leader(self, lane: str, *, known: bool) -> AsyncIterator[None]:
        """For one look at a person and their password. Raises TooBusyError if too many wait."""
        await self._wait(lane, self._known if known else self._strangers)
        try:
            yield
        finally:
            self._next()

    async def matches(self, password_hash: str | None, password: str) -> bool:
        """As passwords.matches, in a thread of ours; within a turn."""
        return await asyncio.get_running_loop().run_in_executor(
            self._threads, passwords.matches, password_hash, password
        )

    async def _wait(self, lane: str, lanes: Lanes) -> None:
        if self._running < self.workers:
            self._running += 1
            return
        self._make_room(lane, lanes)
        leader: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        lanes.setdefault(lane, deque()).append(leader)
        try:
            await leader
        except asyncio.CancelledError:
            if leader.done() and not leader.cancelled():
                self._next()
            raise

    def _make_room(self, lane: str, lanes: Lanes) -> None:
        """When all places are taken, the newest of the longest lane gives way to a shorter one."""
        own = len(lanes.get(lane, ()))
        if own >= self.max_waiting_per_lane:
            raise TooBusyError
        if sum(len(waiting) for waiting in lanes.values()) < self.max_waiting:
            return
        longest = max(lanes.values(), key=len)
        if len(longest) <= own + 1:
            raise TooBusyError
        given_up = longest.pop()
        if not given_up.done():
            given_up.set_exception(TooBusyError())

    def _next(self) -> None:
        for lanes in (self._known, self._strangers):
            while lanes:
                lane, waiting = lanes.popitem(last=False)
                leader = waiting.popleft()
                if waiting:
                    lanes[lane] = waiting  # behind all others
                if not leader.done():
                    leader.set_result(None)
                    return
        self._running -= 1
