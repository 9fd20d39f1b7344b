"""Periodic jobs on the buffer: sessions whose pictures do not come, retention, verification."""

import asyncio
import hashlib
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from farmiq.device.buffer import rules, store
from farmiq.device.buffer.database import Buffer, DiskFullError, PictureFiles
from farmiq.device.buffer.recorder import BufferFullError, Recorder
from farmiq.device.buffer.store import Tx
from farmiq.device.buffer.writer import Writer
from farmiq.plumbing import log

NAME = "iot-weighvision-agent"
TICK_S = 0.5
PURGE_EVERY = 60
# A line in the log each time the disk is still full.
FLUSH_EVERY = 10
_PORTION = 100
_PAGE = 500
_MAX_PROBLEMS = 50


@dataclass
class BufferJobs:
    buffer: Buffer
    writer: Writer
    recorder: Recorder
    on_commit: Callable[[], None]

    async def begin(self) -> None:
        """Cancel what an earlier run left open; a portion, since nothing here may take long."""
        try:
            cancelled = await self.recorder.cancel_left_open(at=self.buffer.now())
        except BufferFullError:
            return  # the next start finds them again
        if cancelled:
            log.get(NAME).warning("session.left_open", count=cancelled)

    async def run(self) -> None:
        await self.delete_unknown_files()
        rounds = 0
        while True:
            try:
                if rounds % FLUSH_EVERY == 0:
                    await self.recorder.pending.flush()
                if await self._settle_sessions():
                    self.on_commit()
                if rounds % PURGE_EVERY == 0:
                    await self._purge()
                    await self.buffer.save_time()
            except DiskFullError as error:
                log.get(NAME).error("upkeep.disk_full", error=str(error))
            rounds += 1
            await asyncio.sleep(TICK_S)

    async def _settle_sessions(self) -> int:
        """Make events of weights whose pictures did not come in time."""
        after, settled = "", 0
        while page := await self.buffer.do(
            lambda tx: store.unsettled(tx, after=after, limit=_PORTION)  # noqa: B023 - at once
        ):
            after = page[-1]
            settled += await self.buffer.do(
                lambda tx: sum(self.writer.settle_session(tx, session_id) for session_id in page)
            )
        return settled

    async def _purge(self) -> None:
        while True:
            counts = await self.buffer.do(self.writer.purge)
            if not any(counts.values()):
                return
            log.get(NAME).info("buffer.compacted", count=sum(counts.values()))
            if counts["expired"]:
                expired = counts["expired"]
                log.get(NAME).warning("buffer.dropped", count=expired, reason="no receipt")

    async def delete_unknown_files(self) -> None:
        """Delete files without a row: never acknowledged, or uploaded already."""
        self.buffer.pictures.delete_partial()
        if await self.buffer.do(lambda tx: store.meta(tx, "keep_orphans")):
            return
        for image_id in self.buffer.pictures.ids():
            try:
                await self.buffer.do(
                    lambda tx: self.recorder.delete_if_unknown(tx, image_id)  # noqa: B023 - at once
                )
            except DiskFullError:
                return


def verify(tx: Tx, folder: Path) -> dict[str, Any]:
    """Compare every event and picture with what was written; changes nothing."""
    problems = [str(row[0]) for row in tx.execute("pragma integrity_check(10)") if row[0] != "ok"]
    events = _verify_events(tx, problems)
    files, pictures = PictureFiles(folder / "pictures"), 0
    for image_id, sha256 in tx.execute("select image_id, sha256 from images order by id"):
        pictures += 1
        data = files.read(image_id)
        if data is None:
            problems.append(f"picture {image_id} has no file")
        elif hashlib.sha256(data).hexdigest() != sha256:
            problems.append(f"picture {image_id} is not what was written")
    counts = store.tally(tx)
    counted = sum(counts[state] for state in store.EVENT_STATES)
    if counted != events:
        problems.append(f"{events} events are there, {counted} are counted")
    return {"events": events, "pictures": pictures, "problems": problems[:_MAX_PROBLEMS]}


def _verify_events(tx: Tx, problems: list[str]) -> int:
    count, after = 0, 0
    try:
        while rows := store.page(tx, after_seq=after, limit=_PAGE):
            after, count = rows[-1]["seq"], count + len(rows)
            problems += [
                f"event {row['event_id']} (seq {row['seq']}) is not what was written"
                for row in rows
                if not rules.is_intact(row["raw"], event_id=row["event_id"])
            ]
    except sqlite3.DatabaseError as error:
        problems.append(f"events behind seq {after} cannot be read: {error}")
    return count
