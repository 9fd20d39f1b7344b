"""Services side by side in one process: a signal ends them all in order, one failure ends all."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Mapping

from farmiq.plumbing import log

# A cancellation can get lost in a library that is just then handling an error of its own, so it is
# repeated; and since every service may be killed at any line, the last resort is to leave.
STOP_ROUNDS = 10
STOP_ROUND_S = 1.0


async def together(
    services: Mapping[str, Awaitable[None]], *, expected: tuple[type[Exception], ...] = ()
) -> int:
    """Run all until a signal (exit code 0) or until one of them ends (exit code 1).

    Failures of an `expected` kind explain themselves; others are logged with their traceback.
    """
    asked = _when_asked_to_stop()
    running = [
        asyncio.create_task(_never_ending(name, service)) for name, service in services.items()
    ]
    stop = asyncio.create_task(_until(asked))
    await asyncio.wait([stop, *running], return_when=asyncio.FIRST_COMPLETED)
    await _end([stop, *running])
    if _failed(running, expected):
        return 1
    log.get("run").info("run.stopped")
    return 0


def _when_asked_to_stop() -> asyncio.Event:
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, asked.set)
    return asked


async def _until(asked: asyncio.Event) -> None:
    await asked.wait()


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
    """Say so for each that failed; a cancelled one did as it was told."""
    failures = [task.exception() for task in tasks if not task.cancelled()]
    for failure in failures:
        if isinstance(failure, expected):
            log.get("run").error("run.failed", error=str(failure))
        else:
            log.get("run").error("run.failed", error=repr(failure), exc_info=failure)
    return bool(failures)


async def _never_ending(name: str, service: Awaitable[None]) -> None:
    await service
    raise RuntimeError(f"{name} ended by itself: a service runs until it is told to stop")
