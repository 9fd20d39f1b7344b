"""The gate: whatever the station sends leaves through it, one at a time, at the pace of pace.py."""

import asyncio

from farmiq.device.pace import Pace


class Gate:
    def __init__(self, per_second: int) -> None:
        self._pace = Pace(per_second)
        # Two who ask at the same time must not both be given the last place of a second.
        self._turn = asyncio.Lock()

    async def wait(self, *, chance: float | None = None) -> None:
        """Returns when one message may leave; `chance` gives a replay its jitter."""
        async with self._turn:
            loop = asyncio.get_running_loop()
            await asyncio.sleep(self._pace.next_at(loop.time(), chance=chance) - loop.time())
            self._pace.sent(loop.time())
