"""The account of a simulator: every event it sent, its content, and the answers.

One JSON line per act. `sent` is on the disk (fsync) before the first byte leaves; then `ok` (the
broker acknowledged), `unknown` (the connection ended first: it may have arrived or not), `stored`
or `refused` (the edge's receipt). A journal can be read while it is written.
"""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

Act = Literal["sent", "ok", "unknown", "stored", "refused"]
ACTS: tuple[Act, ...] = ("sent", "ok", "unknown", "stored", "refused")


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """`content` says what a sent event carried, in the words of `simulate/check.py`."""

    act: Act
    event_id: str
    content: str = ""


_decoder = msgspec.json.Decoder(Entry)


class Journal:
    def __init__(self, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._syncing = asyncio.Lock()
        self._written = 0
        self._synced = 0

    def write(self, act: Act, event_id: str, content: str = "") -> None:
        self.note(Entry(act, event_id, content))

    def note(self, line: msgspec.Struct) -> None:
        """A line of any simulator's own words."""
        os.write(self._file, msgspec.json.encode(line) + b"\n")
        self._written += 1

    async def on_disk(self) -> None:
        """Everything written so far would survive a power cut; callers share a flush."""
        wanted = self._written
        async with self._syncing:
            if self._synced < wanted:
                reached = self._written
                await asyncio.to_thread(os.fsync, self._file)
                self._synced = reached

    def close(self) -> None:
        os.fsync(self._file)
        os.close(self._file)


class Tally:
    """Reads a journal that is still being written; each look takes only what is new."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._offset = 0
        self.events: dict[Act, set[str]] = {act: set() for act in ACTS}
        self.contents: dict[str, str] = {}

    def look(self) -> "Tally":
        for line in self._new_lines():
            self.events[line.act].add(line.event_id)
            if line.act == "sent":
                self.contents[line.event_id] = line.content
        return self

    def count(self, act: Act) -> int:
        return len(self.events[act])

    @property
    def unconfirmed(self) -> set[str]:
        """Sent, without an answer that it arrived."""
        return self.events["sent"] - self.events["ok"] - self.events["stored"]

    def _new_lines(self) -> Iterator[Entry]:
        if not self._file.exists():
            return
        with self._file.open("rb") as file:
            file.seek(self._offset)
            for raw in file:
                if not raw.endswith(b"\n"):
                    return  # half a line: the writer is at it
                self._offset += len(raw)
                yield _decoder.decode(raw)
