"""Pure: how much to claim and send at once, and which events travel apart.

A batch that did not get through may have been too much for the link, so the next one is smaller;
each that does doubles it again. Events that failed on their own, or that a forwarder died with,
travel apart from those that never did: what is wrong with them must not hold the others up.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

LEASE_EXPIRED = "LEASE_EXPIRED"

# A batch after an outage: enough to be worth a request, little enough for a link that crawls.
PROBE_EVENTS = 20
# Of one claim, at most this many have failed before.
SUSPECTS = 20
# Rows beyond which new events are let pass (C-92): less than this is sent within a second or two.
BACKLOG_ROWS = 2000
# Events of the last seconds that pass a backlog with the new ones, at most.
RECENT_ROWS = 10_000
# What an envelope adds to a payload in a batch, generously.
ENVELOPE_BYTES = 700


class Row(Protocol):
    @property
    def size_bytes(self) -> int: ...
    @property
    def attempt_count(self) -> int: ...
    @property
    def last_error_code(self) -> str | None: ...
    @property
    def reclaimed(self) -> bool: ...


R = TypeVar("R", bound=Row)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Pace:
    """How many events the next batch of a tenant has, at most."""

    most: int
    now: int

    def slower(self) -> "Pace":
        return Pace(self.most, max(1, min(PROBE_EVENTS, self.now // 4)))

    def faster(self) -> "Pace":
        return Pace(self.most, min(self.most, self.now * 2))


@dataclass(frozen=True, slots=True)
class Plan(Generic[R]):
    """What goes out as it is claimed, what in which requests after it, and what is handed back.

    What goes at once is not marked as being sent (OB-04 leaves that open), which saves one of three
    writes. The parts wait for their turn, so each is marked when it comes.
    """

    at_once: list[R]
    parts: list[list[R]]
    back: list[R]


def plan(rows: Sequence[R], *, most_bytes: int, outage_codes: Sequence[str]) -> Plan[R]:
    """The healthy in batches that fit, then each suspect alone.

    Rows that a forwarder held when it stopped are marked before they are sent, so that another
    death with them counts. They go together the first time: most often it was just stopped. If it
    happens to them again, one of them may be the cause, so they go last and one at a time, and
    whoever sends one holds no other: a death then counts against that one alone.
    """
    stranded = [row for row in rows if _stranded(row) and row.attempt_count == 1]
    deadly = [row for row in rows if _stranded(row) and row.attempt_count > 1]
    healthy = [row for row in rows if _healthy(row, outage_codes)]
    apart = [row for row in rows if not _stranded(row) and not _healthy(row, outage_codes)]
    fresh = _fitting([row for row in healthy if not row.reclaimed], most_bytes)
    return Plan(
        fresh[0] if fresh else [],
        [
            *fresh[1:],
            *_fitting([row for row in healthy if row.reclaimed], most_bytes),
            *_fitting(stranded, most_bytes),
            *([row] for row in apart),
            *([row] for row in deadly[:1]),
        ],
        deadly[1:],
    )


def halves(rows: Sequence[T]) -> tuple[list[T], list[T]]:
    middle = len(rows) // 2
    return list(rows[:middle]), list(rows[middle:])


def next_level(level: int, *, waiting_at_level: int) -> int:
    """The priority of new events (C-92), given how many already wait at the present one."""
    return level + 1 if waiting_at_level > BACKLOG_ROWS else level


def _healthy(row: Row, outage_codes: Sequence[str]) -> bool:
    return row.attempt_count == 0 or row.last_error_code in outage_codes


def _stranded(row: Row) -> bool:
    return row.attempt_count > 0 and row.last_error_code == LEASE_EXPIRED


def _fitting(rows: Sequence[R], most_bytes: int) -> list[list[R]]:
    found: list[list[R]] = []
    room = 0
    for row in rows:
        size = row.size_bytes + ENVELOPE_BYTES
        if not found or size > room:
            found.append([])
            room = most_bytes
        found[-1].append(row)
        room -= size
    return found
