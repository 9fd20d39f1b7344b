"""The account of a simulator: every event it sent, and what it was told about it.

One JSON line per act, appended before the act that it tells of: `sent` before the first publish,
`ok` after the broker's PUBACK, `stored` after the edge's receipt.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal, TextIO

import msgspec

Act = Literal["sent", "ok", "stored", "refused"]


class Line(msgspec.Struct, frozen=True):
    act: Act
    event_id: str


_decoder = msgspec.json.Decoder(Line)


class Journal:
    def __init__(self, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        self._file: TextIO = file.open("a", encoding="utf-8", buffering=1)

    def write(self, act: Act, event_id: str) -> None:
        self._file.write(msgspec.json.encode(Line(act, event_id)).decode() + "\n")

    def close(self) -> None:
        self._file.close()


class Tally:
    """Reads a journal that is still being written; each look takes only what is new."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._offset = 0
        self.events: dict[Act, set[str]] = {
            "sent": set(),
            "ok": set(),
            "stored": set(),
            "refused": set(),
        }

    def look(self) -> "Tally":
        for line in self._new_lines():
            self.events[line.act].add(line.event_id)
        return self

    def count(self, act: Act) -> int:
        return len(self.events[act])

    def _new_lines(self) -> Iterator[Line]:
        if not self._file.exists():
            return
        with self._file.open("rb") as file:
            file.seek(self._offset)
            for raw in file:
                if not raw.endswith(b"\n"):
                    return  # half a line: the writer is at it
                self._offset += len(raw)
                yield _decoder.decode(raw)
