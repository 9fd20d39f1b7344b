"""Services side by side in one process: a signal ends all in order, one that fails restarts."""

import asyncio
import os
import signal
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from typing import Any, NoReturn

import prometheus_client

from farmiq.plumbing import log
from farmiq.plumbing.backoff import Backoff, cancelled_so_far, end_if_cancelled

# A cancellation can get lost in a library that is just then handling an error of its own, so it is
# repeated; and since every service may be killed at any line, the last resort is to leave.
STOP_ROUNDS = 10
STOP_ROUND_S = 1.0

RESTARTS = prometheus_client.Counter(
    "farmiq_service_restarts_total", "How often a service failed and was started again", ["service"]
)


async def together(
    services: Mapping[str, Awaitable[None]], *, expected: tuple[type[Exception], ...] = ()
) -> int:
    """Run all until a signal (exit code 0) or until one of them ends (exit code 1).

    Failures of an `expected` kind explain themselves; others are logged with their traceback.
    """
    stop_requested = stop_on_signal()
    running = [
        asyncio.create_task(_never_ending(name, service)) for name, service in services.items()
    ]
    stop = asyncio.create_task(_until(stop_requested))
    await asyncio.wait([stop, *running], return_when=asyncio.FIRST_COMPLETED)
    await _end([stop, *running])
    if _failed(running, expected):
        return 1
    log.get("run").info("run.stopped")
    return 0


def stop_on_signal() -> asyncio.Event:
    """Return an event that SIGINT or SIGTERM sets."""
    stop_requested = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop_requested.set)
    return stop_requested


async def _until(event: asyncio.Event) -> None:
    await event.wait()


async def _end(tasks: "list[asyncio.Task[None]]") -> None:
    for _ in range(STOP_ROUNDS):
        left = [task for task in tasks if not task.done()]
        if not left:
            return
        for task in left:
            task.cancel()
        await asyncio.wait(left, timeout=STOP_ROUND_S)
    if any(not task.done() for task in tasks):
        log.get("run").error("run.stuck", count=sum(not task.done() for task in tasks))
        os._exit(1)


def _failed(tasks: "list[asyncio.Task[None]]", expected: tuple[type[Exception], ...]) -> bool:
    """Log each task that failed, and return whether one did; cancelled is not failed."""
    failures = [task.exception() for task in tasks if not task.cancelled()]
    for failure in failures:
        if isinstance(failure, expected):
            log.get("run").error("run.failed", error=str(failure))
        else:
            log.get("run").error("run.failed", error=repr(failure), exc_info=failure)
    return bool(failures)


async def _never_ending(name: str, service: Awaitable[None]) -> None:
    await service
    raise RuntimeError(f"{name} ended by itself: a service runs until it is stopped")


async def restarting(
    name: str,
    start: Callable[[], Coroutine[Any, Any, None]],
    *,
    fatal: Callable[[Exception], Exception | None],
    failed: Callable[[str], None],
    backoff: Backoff | None = None,
) -> NoReturn:
    """Run a service for ever: after a failure it starts again, with growing pauses.

    `failed` is called with what to show until then. `fatal` returns what to raise if starting again
    cannot help.
    """
    backoff = backoff or Backoff(base_s=1.0, cap_s=30.0)
    before, logged = cancelled_so_far(), set[str]()
    while True:
        try:
            # A task of its own: what was cancelled in it is no concern of the next one.
            await asyncio.create_task(_never_ending(name, start()))
        except Exception as failure:
            end_if_cancelled(beyond=before)
            causes = list(_causes(failure))
            for cause in causes:
                if end := fatal(cause):
                    raise end from failure
            why = repr(causes[0])
            place = _place(causes[0])
            log.get(name).error(
                "service.failed", error=why, exc_info=failure if place not in logged else None
            )
            logged.add(place)
            RESTARTS.labels(service=name).inc()
            failed(f"failed and is being started again: {why}"[:500])
            await backoff.wait()


def _causes(failure: Exception) -> Iterator[Exception]:
    """The failures that a group is made of."""
    if isinstance(failure, ExceptionGroup):
        for cause in failure.exceptions:
            yield from _causes(cause)
    else:
        yield failure


def _place(failure: Exception) -> str:
    """Return what failed where; the traceback of each is logged once."""
    frames = traceback.extract_tb(failure.__traceback__)
    return f"{type(failure).__name__} {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
