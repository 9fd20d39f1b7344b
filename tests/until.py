"""Wait for a condition, never for a time."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, overload

T = TypeVar("T")

PAUSE_S = 0.02


@overload
async def until(condition: Callable[[], Awaitable[T]], *, within_s: float = ...) -> T: ...


@overload
async def until(condition: Callable[[], T], *, within_s: float = ...) -> T: ...


async def until(condition: Callable[[], Any], *, within_s: float = 20.0) -> Any:
    """What `condition` says, as soon as it is true. Fails the test if it is not within the time."""
    ends_at = time.monotonic() + within_s
    while True:
        found = condition()
        if inspect.isawaitable(found):
            found = await found
        if found:
            return found
        assert time.monotonic() < ends_at, f"waited {within_s} s in vain"
        await asyncio.sleep(PAUSE_S)
