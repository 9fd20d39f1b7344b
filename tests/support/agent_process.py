"""A real agent process whose source weighs as a script says, and notes what it was told is kept.

    python -m tests.support.agent_process <notes> <sessions> <weights> <pictures>

Settings come from the environment, as for `farmiq agent run`. A line is written and synced after
the notebook's call returned: what stands in the notes was acknowledged.
"""

import asyncio
import hashlib
import json
import os
import sys
from datetime import UTC, datetime
from pathlib import Path

from farmiq import config, crash
from farmiq.device import service
from farmiq.device.buffer.recorder import BufferFullError, Recorder
from farmiq.plumbing import ids, log
from farmiq.plumbing.runtime import run
from tests.support import station


class Notes:
    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8")

    def write(self, **said: object) -> None:
        self._file.write(json.dumps(said, default=str) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())


async def weigh(book: Recorder, notes: Notes, *, weights: int, pictures: int) -> None:
    session_id, at = ids.new(), datetime.now(UTC)
    first = station.picture(session_id, at=at)
    await book.open(session_id, batch_id=None, initial_weight_kg=None, picture=first, at=at)
    notes.write(kept="open", session=session_id)
    _note_picture(notes, first.image_id, first.data)
    for _ in range(1, pictures):
        more = station.picture(session_id, at=datetime.now(UTC))
        await book.photograph(more)
        _note_picture(notes, more.image_id, more.data)
    for number in range(weights):
        weight_kg = 50 + number + (session_id.int % 1000) / 1000
        await book.weigh(session_id, weight_kg=weight_kg, at=datetime.now(UTC))
        notes.write(kept="weight", session=session_id, weight_kg=weight_kg)
    await book.close(session_id, final_weight_kg=None, at=datetime.now(UTC))
    notes.write(kept="close", session=session_id)


def _note_picture(notes: Notes, image_id: object, data: bytes) -> None:
    notes.write(kept="picture", image=image_id, sha256=hashlib.sha256(data).hexdigest())


async def main(path: Path, *, sessions: int, weights: int, pictures: int) -> int:
    settings = config.DeviceSettings.load()
    crash.arm(config.crash_at())
    log.configure("info")
    notes = Notes(path)

    async def source(book: Recorder) -> None:
        for _ in range(sessions):
            try:
                await weigh(book, notes, weights=weights, pictures=pictures)
            except BufferFullError:
                notes.write(kept="full")
        notes.write(kept="done")
        await asyncio.Event().wait()

    return await run.together({service.NAME: service.run(settings, [source])})


if __name__ == "__main__":
    many = [int(each) for each in sys.argv[2:5]]
    sys.exit(
        asyncio.run(main(Path(sys.argv[1]), sessions=many[0], weights=many[1], pictures=many[2]))
    )
