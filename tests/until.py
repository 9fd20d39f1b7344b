"""Wait for a condition, never for a time."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable

PAUSE_S = 0.02


async def until(
    condition: Callable[[], Awaitable[object] | object], *, within_s: float = 20.0
) -> None:
    """Returns as soon as `condition` holds. Fails the test if it does not within the time."""
    ends_at = time.monotonic() + within_s
    while not await _holds(condition):
        assert time.monotonic() < ends_at, f"waited {within_s} s in vain"
        await asyncio.sleep(PAUSE_S)


async def _holds(condition: Callable[[], Awaitable[object] | object]) -> bool:
    found = condition()
    return bool(await found if inspect.isawaitable(found) else found)
