"""A strip: one cell per wake that a day expects, and what became of it. Pure.

Received, due, overdue or lost is decided here and nowhere else.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID
from zoneinfo import ZoneInfo

from farmiq.cloud.console import words
from farmiq.cloud.console.readings import WORTH_SAYING_S

# A camera may wake a little late and takes a while to send: only then do we speak of overdue.
GRACE = timedelta(minutes=10)
# Up to here a wake still counts for its window (C-63): before, nothing of it is lost.
WINDOW = timedelta(hours=1)
# More cells are folded, or nobody could tell one from the next.
MAX_CELLS = 144
# Of more wakes a page looks at the earliest; the counts of a day come from its session.
MAX_WAKES = 50_000


class State(StrEnum):
    RECEIVED = "received"
    RECEIVING = "receiving"
    FAILED = "failed"
    DUE = "due"
    OVERDUE = "overdue"
    LOST = "lost"
    NOT_OWED = "not-owed"


WORDS = {
    State.RECEIVED: "received",
    State.RECEIVING: "arriving now",
    State.FAILED: "failed",
    State.DUE: "due later",
    State.OVERDUE: "overdue",
    State.LOST: "lost",
    State.NOT_OWED: "not owed",
}
# Worst first: what a folded cell shows of those it stands for.
WORST = (
    State.LOST, State.FAILED, State.OVERDUE, State.RECEIVING, State.RECEIVED, State.DUE,
    State.NOT_OWED,
)  # fmt: skip
PROBLEMS = frozenset({State.LOST, State.FAILED, State.OVERDUE})
_CAME = {"complete": State.RECEIVED, "pending": State.RECEIVING, "failed": State.FAILED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Camera:
    """`missed`: wakes that it should have made, where it stands, since it was last seen."""

    device_id: UUID
    device_name: str
    wake_schedule_cron: str | None
    is_active: bool
    is_here: bool
    here_since: datetime | None
    firmware: str | None
    last_seen_at: datetime | None
    battery_voltage: float | None
    wifi_rssi: float | None
    pending_count: int | None
    missed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Wake:
    """An expected wake with what came of it, or one that came and was not expected.

    `at` is when the camera took its image, else when it should have. What a day expects stays, but
    a camera owes it only where it stands (C-62, D-156).
    """

    session_id: UUID
    device_id: UUID
    at: datetime
    expected_at: datetime | None
    image_id: UUID | None
    status: str | None
    received_at: datetime | None
    overage_reason: str | None
    clock_suspect: bool
    owed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Stay:
    """A camera stood at a site, or still does."""

    device_id: UUID
    site_id: UUID
    assigned_at: datetime
    ended_at: datetime | None

    def covers(self, at: datetime) -> bool:
        return self.assigned_at <= at and (self.ended_at is None or at < self.ended_at)


@dataclass(frozen=True, slots=True)
class Cell:
    state: State
    late: bool
    says: str


@dataclass(frozen=True, slots=True)
class Tally:
    """How many cells are in a state; of the very cells that are drawn."""

    state: State
    word: str
    count: int


@dataclass(frozen=True, slots=True)
class Strip:
    """`each`: how many wakes a cell stands for at most; `extra` came besides those expected."""

    cells: tuple[Cell, ...]
    tallies: tuple[Tally, ...]
    each: int
    extra: int
    extra_failed: int

    @property
    def says(self) -> str:
        if not self.tallies:
            return "No wakes are expected"
        return ", ".join(f"{each.count} {each.word}" for each in self.tallies)

    @property
    def problems(self) -> int:
        return self.extra_failed + sum(
            each.count for each in self.tallies if each.state in PROBLEMS
        )

    @property
    def problems_say(self) -> str:
        found = [f"{each.count} {each.word}" for each in self.tallies if each.state in PROBLEMS]
        return ", ".join([*found, *([self.extra_failed_says] if self.extra_failed else [])])

    @property
    def extra_failed_says(self) -> str:
        return f"{self.extra_failed} extra failed"


def state(wake: Wake, camera: Camera | None, *, now: datetime) -> State:
    """Late is not missing: lost is only what the camera itself no longer holds.

    It was in touch after the window had closed, and said that nothing waits on it.
    """
    if wake.status is not None:
        return _CAME[wake.status]
    if not wake.owed:
        return State.NOT_OWED
    if wake.at + GRACE > now:
        return State.DUE
    seen = camera.last_seen_at if camera else None
    if camera and camera.pending_count == 0 and seen and seen > wake.at + WINDOW:
        return State.LOST
    return State.OVERDUE


def owed(
    wakes: Iterable[Wake], stays: Iterable[Stay], *, site_of: Mapping[UUID, UUID]
) -> list[Wake]:
    """Tells apart what cameras owed from what was expected of them at times they stood elsewhere.

    `site_of` says whose day a session is.
    """
    of_camera: dict[UUID, list[Stay]] = {}
    for stay in stays:
        of_camera.setdefault(stay.device_id, []).append(stay)

    def stood(wake: Wake) -> bool:
        site = site_of.get(wake.session_id)
        found = of_camera.get(wake.device_id)
        return found is None or any(each.site_id == site and each.covers(wake.at) for each in found)

    return [
        each if each.status is not None or stood(each) else replace(each, owed=False)
        for each in wakes
    ]


def arrived_late(wake: Wake) -> bool:
    if wake.status != "complete" or wake.received_at is None or wake.clock_suspect:
        return False
    return (wake.received_at - wake.at).total_seconds() >= WORTH_SAYING_S


def strip(
    wakes: Iterable[Wake], cameras: Mapping[UUID, Camera], *, now: datetime, zone: ZoneInfo
) -> Strip:
    """One cell per expected wake, in the order of their times."""
    found_all = list(wakes)
    extra = [each for each in found_all if each.expected_at is None]
    expected = sorted(
        (each for each in found_all if each.expected_at is not None),
        key=lambda each: (each.expected_at or each.at, each.device_id),
    )
    cells = [_cell(each, cameras.get(each.device_id), now=now, zone=zone) for each in expected]
    found = Counter(cell.state for cell in cells)
    tallies = tuple(Tally(each, WORDS[each], found[each]) for each in State if found[each])
    each = -(-len(cells) // MAX_CELLS) or 1
    folded = [fold(cells[at : at + each]) for at in range(0, len(cells), each)]
    failed = sum(each.status == "failed" for each in extra)
    return Strip(tuple(folded), tallies, each, len(extra), failed)


def _cell(wake: Wake, camera: Camera | None, *, now: datetime, zone: ZoneInfo) -> Cell:
    found = state(wake, camera, now=now)
    late = arrived_late(wake)
    due_at = wake.expected_at or wake.at
    name = words.cut(camera.device_name) if camera else "a camera"
    said = WORDS[found] + (", arrived late" if late else "")
    return Cell(found, late, f"{due_at.astimezone(zone):%H:%M} {name}: {said}")


def fold(cells: Sequence[Cell]) -> Cell:
    """Of several the worst: a problem is never hidden behind what is well."""
    if len(cells) == 1:
        return cells[0]
    worst = min(cells, key=lambda cell: WORST.index(cell.state))
    found = Counter(cell.state for cell in cells)
    said = ", ".join(f"{found[each]} {WORDS[each]}" for each in WORST if found[each])
    first = cells[0].says.partition(" ")[0]
    return Cell(worst.state, any(cell.late for cell in cells), f"from {first}: {said}")
