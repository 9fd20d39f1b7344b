"""A service that fails starts again inside its process; only what cannot be helped ends it."""

import asyncio
import io
import json
from collections.abc import Iterator

import pytest

from farmiq.plumbing import log
from farmiq.plumbing.backoff import Backoff
from farmiq.plumbing.runtime import run

AT_ONCE = Backoff(base_s=0.0)


@pytest.fixture
def logged() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    log.configure("info", stream)
    yield stream
    log.configure("warning")


class Service:
    """Fails in each of the ways given, one after the other, then works."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.starts, self.told = 0, list[str]()
        self.works = asyncio.Event()

    async def start(self) -> None:
        self.starts += 1
        if not self.failures:
            self.works.set()
            await asyncio.Event().wait()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._fail(self.failures.pop(0)))

    async def _fail(self, failure: Exception) -> None:
        raise failure

    def running(self) -> "asyncio.Task[None]":
        return asyncio.create_task(
            run.restarting(
                "service",
                self.start,
                fatal=lambda error: error if isinstance(error, PermissionError) else None,
                failed=self.told.append,
                backoff=AT_ONCE,
            )
        )


async def test_a_service_that_fails_starts_again_and_says_why(logged: io.StringIO) -> None:
    service = Service(KeyError("a"), KeyError("a"))

    running = service.running()
    await service.works.wait()
    running.cancel()
    await asyncio.wait([running])

    assert running.cancelled()
    assert service.starts == 3
    assert service.told == ["failed and is being started again: KeyError('a')"] * 2
    lines = [json.loads(line) for line in logged.getvalue().splitlines()]
    assert [line["event"] for line in lines] == ["service.failed"] * 2
    # The traceback of each kind once.
    assert ["exception" in line for line in lines] == [True, False]


async def test_failure_that_a_restart_cannot_help_ends_the_service(logged: io.StringIO) -> None:
    service = Service(KeyError("a"), PermissionError("not ours"))

    with pytest.raises(PermissionError, match="not ours"):
        await service.running()

    assert service.starts == 2
    assert len(logged.getvalue().splitlines()) == 1


async def test_a_cancelled_service_that_fails_on_its_way_out_does_not_start_again() -> None:
    starts, started = 0, asyncio.Event()

    async def start() -> None:
        nonlocal starts
        starts += 1
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise KeyError from None

    running = asyncio.create_task(
        run.restarting("service", start, fatal=lambda _: None, failed=lambda _: None)
    )
    await started.wait()
    running.cancel()
    await asyncio.wait([running])

    assert running.cancelled()
    assert starts == 1
