"""Upkeep of the buffer: sessions whose pictures do not come, what is over, files of nobody."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from farmiq.device import store
from farmiq.device.buffer import Buffer, DiskFullError
from farmiq.device.notebook import Full, Notebook
from farmiq.device.store import Tx
from farmiq.device.writing import Writer
from farmiq.plumbing import log

NAME = "iot-weighvision-agent"
TICK_S = 0.5
COMPACT_EVERY = 60
# A line in the log each time the disk is still full.
PAY_EVERY = 10
_PORTION = 100


@dataclass
class Upkeep:
    buffer: Buffer
    writer: Writer
    notebook: Notebook
    kept: Callable[[], None]

    async def begin(self) -> None:
        """What an earlier run left behind; a portion, since nothing here may take long."""
        try:
            cancelled = await self.notebook.cancel_left_open(at=self.buffer.now())
        except Full:
            return  # the disk is full: the next start finds them again
        if cancelled:
            log.get(NAME).warning("session.left_open", count=cancelled)

    async def run(self) -> None:
        await self._sweep_files()
        rounds = 0
        while True:
            try:
                if rounds % PAY_EVERY == 0:
                    await self.notebook.owing.pay()
                if await self._settle_patience():
                    self.kept()
                if rounds % COMPACT_EVERY == 0:
                    await self._compact()
                    await self.buffer.remember_time()
            except DiskFullError as error:
                log.get(NAME).error("upkeep.disk_full", error=str(error))
            rounds += 1
            await asyncio.sleep(TICK_S)

    async def _settle_patience(self) -> int:
        """Weights wait for their pictures so long, and no longer."""
        after, settled = "", 0
        while page := await self.buffer.do(
            lambda tx: store.unsettled(tx, after=after, most=_PORTION)  # noqa: B023 - at once
        ):
            after = page[-1]
            settled += await self.buffer.do(lambda tx: self._settle_page(tx, page))
        return settled

    def _settle_page(self, tx: Tx, page: list[str]) -> int:
        now_s = self.buffer.now_s()
        return sum(self.writer.settle_session(tx, each, now_s=now_s) for each in page)

    async def _compact(self) -> None:
        while any(
            (
                done := await self.buffer.do(
                    lambda tx: self.writer.compact(tx, now_s=self.buffer.now_s())
                )
            ).values()
        ):
            log.get(NAME).info("buffer.compacted", count=sum(done.values()))
            if done["aged"]:
                log.get(NAME).warning("buffer.dropped", count=done["aged"], reason="no receipt")

    async def _sweep_files(self) -> None:
        """Files that no row names: their capture was never acknowledged, or they are uploaded."""
        self.buffer.pictures.sweep_partial()
        if await self.buffer.do(lambda tx: store.meta(tx, "keep_orphans")):
            return
        for image_id in self.buffer.pictures.names():
            try:
                await self.buffer.do(lambda tx: self._sweep(tx, image_id))  # noqa: B023 - at once
            except DiskFullError:
                return

    def _sweep(self, tx: Tx, image_id: str) -> None:
        if not store.knows_image(tx, image_id):
            self.buffer.pictures.forget(image_id)
