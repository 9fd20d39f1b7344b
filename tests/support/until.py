"""Wait for a condition, never for a time."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, overload

import psycopg

T = TypeVar("T")

PAUSE_S = 0.02
# A question that costs the farm something is asked less often: it must not slow what it waits for.
RESPECT = 3
# Who has waited for long asks less often, up to this: a tenth of the time waited is no loss, and
# the questions of all who wait take much of the machine.
PATIENT_S = 0.2


@overload
async def until(condition: Callable[[], Awaitable[T]], *, within_s: float = ...) -> T: ...


@overload
async def until(condition: Callable[[], T], *, within_s: float = ...) -> T: ...


async def until(condition: Callable[[], Any], *, within_s: float = 60.0) -> Any:
    """What `condition` says, as soon as it is true. Fails the test if it is not within the time.

    A table that a service in this very process has locked is asked again when that has gone on.
    """
    began_at = time.monotonic()
    ends_at = began_at + within_s
    while True:
        asked_at = time.monotonic()
        try:
            found = condition()
            if inspect.isawaitable(found):
                found = await found
        except psycopg.errors.LockNotAvailable:
            found = None
        if found:
            return found
        now = time.monotonic()
        assert now < ends_at, f"waited {within_s} s in vain"
        patient_s = min((now - began_at) / 10, PATIENT_S)
        await asyncio.sleep(min(max(PAUSE_S, patient_s, RESPECT * (now - asked_at)), 0.5))
