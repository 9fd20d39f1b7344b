"""An agent in the test's own process, whose notebook the test writes into."""

import asyncio
from pathlib import Path
from typing import Any

from farmiq.device import service, store
from farmiq.device.clock import Clock
from farmiq.device.notebook import Notebook
from tests.integration.device.conftest import Edge
from tests.support import station
from tests.support.until import until


class Running:
    """An agent in this process; `book` is what its one source was given."""

    def __init__(self) -> None:
        self.book: Notebook = None  # type: ignore[assignment]

    async def source(self, notebook: Notebook) -> None:
        self.book = notebook
        await asyncio.Event().wait()

    async def begin(
        self,
        tasks: asyncio.TaskGroup,
        folder: Path,
        edge: Edge,
        *,
        clock: Clock | None = None,
        **others: Any,
    ) -> "asyncio.Task[None]":
        settings = station.settings(
            folder, mqtt_url=edge.mqtt_url, edge_url=edge.media.url, **others
        )
        task = tasks.create_task(service.run(settings, [self.source], clock=clock))
        await until(lambda: self.book is not None)
        return task

    async def counts(self) -> dict[str, int]:
        return await self.book.buffer.do(store.tally)

    async def until_refused(self, count: int) -> None:
        async def refused() -> bool:
            return (await self.counts())["refused"] >= count

        await until(refused)

    async def until_stored(self, count: int) -> None:
        async def stored() -> bool:
            return (await self.counts())["stored"] >= count

        await until(stored, within_s=120)
