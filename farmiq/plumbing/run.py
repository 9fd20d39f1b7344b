"""Services side by side in one process: a signal ends them all in order, one failure ends all."""

import asyncio
import signal
from collections.abc import Awaitable, Mapping

from farmiq.plumbing import log


class _Stopped(Exception):  # noqa: N818 - a request, not a mistake
    """A signal asked us to stop."""


async def together(services: Mapping[str, Awaitable[None]]) -> int:
    """Run all until a signal (exit code 0) or until one of them ends (exit code 1)."""
    logger = log.get("run")
    code = 0
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(_until_signal())
            for name, service in services.items():
                group.create_task(_never_ending(name, service), name=name)
    except* _Stopped:
        logger.info("run.stopped")
    except* Exception as failures:
        for failure in failures.exceptions:
            logger.error("run.failed", error=repr(failure), exc_info=failure)  # noqa: TRY400
        code = 1
    return code


async def _until_signal() -> None:
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, asked.set)
    await asked.wait()
    raise _Stopped


async def _never_ending(name: str, service: Awaitable[None]) -> None:
    await service
    raise RuntimeError(f"{name} ended by itself: a service runs until it is told to stop")
