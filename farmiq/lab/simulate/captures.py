"""Pure: what cameras captured against what the cloud has: lost, twice, invented, changed.

A camera's journal has a line per act. `captured` is on the disk before the first byte leaves;
`acked` is written when ACK_OK came, `unreadable` if the image could not be read back then.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

import msgspec

from farmiq.lab.simulate.check import Findings

Act = Literal["captured", "woke", "died", "gave_up", "acked", "unreadable"]


class Entry(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """An act of a camera; what an image is, stands with `captured`. `why` says what was wrong."""

    act: Act
    mac: str
    at: datetime
    number: int = 0
    name: str = ""
    captured_at: datetime | None = None
    sha256: str = ""
    size: int = 0
    pending: int = 0
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    mac: str
    number: int
    name: str
    captured_at: datetime
    sha256: str
    size: int

    @property
    def key(self) -> str:
        return key(self.mac, self.name, self.captured_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """An image as the cloud has it; `sha256` is of the bytes in the store, None: there are none.

    `payloads` counts the wakes that it stands for.
    """

    mac: str
    name: str
    captured_at: datetime
    status: str
    payloads: int
    payload_status: str
    sha256: str | None

    @property
    def key(self) -> str:
        return key(self.mac, self.name, self.captured_at)

    @property
    def is_whole(self) -> bool:
        return self.status == self.payload_status == "complete" and self.sha256 is not None


@dataclass
class Account:
    """The content of the journal. `waiting` are captures without an acknowledgement."""

    captures: dict[tuple[str, int], Capture] = field(default_factory=dict)
    acked: set[tuple[str, int]] = field(default_factory=set)
    acts: Counter[str] = field(default_factory=Counter)
    unreadable: list[str] = field(default_factory=list)

    @property
    def waiting(self) -> set[tuple[str, int]]:
        return self.captures.keys() - self.acked

    def take(self, line: Entry) -> None:
        self.acts[line.act] += 1
        if line.act == "captured" and line.captured_at is not None:
            self.captures[line.mac, line.number] = Capture(
                mac=line.mac, number=line.number, name=line.name, captured_at=line.captured_at,
                sha256=line.sha256, size=line.size,
            )  # fmt: skip
        elif line.act == "acked":
            self.acked.add((line.mac, line.number))
        elif line.act == "unreadable":
            self.unreadable.append(f"{line.mac} {line.number} {line.name}: {line.why}")


def compare(account: Account, stored: Iterable[Stored]) -> Findings:
    """Every capture once, whole and byte for byte; of what waits nothing is due yet.

    Changed: other bytes than were captured, or none where the cloud says complete. Twice: the same
    picture under two rows, or an image that is not exactly one wake.
    """
    rows = list(stored)
    known = {capture.key: capture for capture in account.captures.values()}
    waiting = {account.captures[capture].key for capture in account.waiting}
    whole = {row.key for row in rows if row.is_whole and row.key in known}
    hashes = Counter(row.sha256 for row in rows)
    del hashes[None]
    return Findings(
        sent=len(known),
        stored=len(whole),
        lost=tuple(sorted(known.keys() - whole - waiting)),
        twice=tuple(sorted({
            row.key for row in rows if row.payloads != 1 or hashes.get(row.sha256, 0) > 1
        })),
        invented=tuple(sorted({row.key for row in rows if row.key not in known})),
        changed=tuple(sorted({row.key for row in rows if _differs(row, known.get(row.key))})),
    )  # fmt: skip


def _differs(row: Stored, capture: Capture | None) -> bool:
    if row.status != "complete":
        return False
    return capture is not None and row.sha256 != capture.sha256


def key(mac: str, name: str, captured_at: datetime) -> str:
    return f"{mac} {name} {captured_at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
