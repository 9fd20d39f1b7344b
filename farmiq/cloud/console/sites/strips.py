"""Pure: a strip has one cell per wake that a day expects, with its state.

Received, due, overdue or lost is decided only here.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID
from zoneinfo import ZoneInfo

from farmiq.cloud.console.telemetry.view import WORTH_SAYING_S
from farmiq.ui import words
from farmiq.ui.i18n import gettext as _
from farmiq.ui.i18n import marked, ngettext

# A camera may wake a little late and needs time to send: it is overdue only after that.
GRACE = timedelta(minutes=10)
# A wake counts for its window until then (C-63), so nothing is lost before.
WINDOW = timedelta(hours=1)
# More cells are folded: they would be too narrow to see.
MAX_CELLS = 144
# In a list of sites each has a line or two.
MAX_CELLS_IN_LIST = 48
# A page shows at most so many wakes, the earliest; the counts of a day come from its session.
MAX_WAKES = 50_000


class State(StrEnum):
    RECEIVED = "received"
    RECEIVING = "receiving"
    FAILED = "failed"
    DUE = "due"
    OVERDUE = "overdue"
    LOST = "lost"
    NOT_REQUIRED = "not-owed"


WORDS = {
    State.RECEIVED: marked("received"),
    State.RECEIVING: marked("arriving now"),
    State.FAILED: marked("failed"),
    State.DUE: marked("due later"),
    State.OVERDUE: marked("overdue"),
    State.LOST: marked("lost"),
    State.NOT_REQUIRED: marked("not owed"),
}
# Worst first: a folded cell shows the worst of its wakes.
WORST = (
    State.LOST, State.FAILED, State.OVERDUE, State.RECEIVING, State.RECEIVED, State.DUE,
    State.NOT_REQUIRED,
)  # fmt: skip
PROBLEMS = frozenset({State.LOST, State.FAILED, State.OVERDUE})
_CAME = {"complete": State.RECEIVED, "pending": State.RECEIVING, "failed": State.FAILED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Camera:
    """`missed`: expected wakes at its current site since it was last seen."""

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
    """An expected wake with its result, or an extra wake.

    `at` is when the image was captured, else when it was expected. `required`: the camera was at
    the site at that time; what a day expects stays when a camera moves (C-62, D-156).
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
    required: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Stay:
    """A camera is or was at a site."""

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
    title: str


@dataclass(frozen=True, slots=True)
class Tally:
    """How many of the cells are in a state."""

    state: State
    count: int

    @property
    def word(self) -> str:
        return _(WORDS[self.state])

    @property
    def says(self) -> str:
        return _("%(count)s %(word)s") % {"count": self.count, "word": self.word}


@dataclass(frozen=True, slots=True)
class Strip:
    """A cell stands for at most `wakes_per_cell` wakes; `extra`: wakes that were not expected."""

    cells: tuple[Cell, ...]
    tallies: tuple[Tally, ...]
    wakes_per_cell: int
    extra: int
    extra_failed: int

    def count(self, *states: State) -> int:
        return sum(tally.count for tally in self.tallies if tally.state in states)

    @property
    def later(self) -> int:
        return self.count(State.DUE)

    @property
    def received(self) -> int:
        return self.count(State.RECEIVED)

    @property
    def due_so_far(self) -> int:
        """Expected wakes whose time has come and that the camera owes."""
        return sum(tally.count for tally in self.tallies) - self.count(
            State.DUE, State.NOT_REQUIRED
        )

    @property
    def says(self) -> str:
        if not self.tallies:
            return _("No wakes are expected")
        return ", ".join(tally.says for tally in self.tallies)

    @property
    def problems(self) -> int:
        return self.extra_failed + self.count(*PROBLEMS)

    @property
    def problems_say(self) -> str:
        texts = [tally.says for tally in self.tallies if tally.state in PROBLEMS]
        return ", ".join([*texts, *([self.extra_failed_says] if self.extra_failed else [])])

    @property
    def extra_failed_says(self) -> str:
        return ngettext("%(num)s extra failed", "%(num)s extra failed", self.extra_failed) % {
            "num": self.extra_failed
        }


def state(wake: Wake, camera: Camera | None, *, now: datetime) -> State:
    """Late is not lost: an image is lost only if the camera does not have it any more.

    That is so if it was seen after the window had closed, with no pending image.
    """
    if wake.status is not None:
        return _CAME[wake.status]
    if not wake.required:
        return State.NOT_REQUIRED
    if wake.at + GRACE > now:
        return State.DUE
    seen = camera.last_seen_at if camera else None
    if camera and camera.pending_count == 0 and seen and seen > wake.at + WINDOW:
        return State.LOST
    return State.OVERDUE


def mark_required(
    wakes: Iterable[Wake], stays: Iterable[Stay], *, site_of: Mapping[UUID, UUID]
) -> list[Wake]:
    """Clears `required` for wakes that were expected while the camera was at another site.

    `site_of`: the site of each session.
    """
    of_camera: dict[UUID, list[Stay]] = {}
    for stay in stays:
        of_camera.setdefault(stay.device_id, []).append(stay)

    def stood(wake: Wake) -> bool:
        site = site_of.get(wake.session_id)
        camera_stays = of_camera.get(wake.device_id)
        return camera_stays is None or any(
            stay.site_id == site and stay.covers(wake.at) for stay in camera_stays
        )

    return [
        wake if wake.status is not None or stood(wake) else replace(wake, required=False)
        for wake in wakes
    ]


def arrived_late(wake: Wake) -> bool:
    if wake.status != "complete" or wake.received_at is None or wake.clock_suspect:
        return False
    return (wake.received_at - wake.at).total_seconds() >= WORTH_SAYING_S


def strip(
    wakes: Iterable[Wake],
    cameras: Mapping[UUID, Camera],
    *,
    now: datetime,
    zone: ZoneInfo,
    max_cells: int = MAX_CELLS,
) -> Strip:
    """One cell per expected wake, in the order of their times; folded if they are many."""
    all_wakes = list(wakes)
    extra = [wake for wake in all_wakes if wake.expected_at is None]
    expected = sorted(
        (wake for wake in all_wakes if wake.expected_at is not None),
        key=lambda wake: (wake.expected_at or wake.at, wake.device_id),
    )
    cells = [_cell(wake, cameras.get(wake.device_id), now=now, zone=zone) for wake in expected]
    counts = Counter(cell.state for cell in cells)
    tallies = tuple(
        Tally(cell_state, counts[cell_state]) for cell_state in State if counts[cell_state]
    )
    per_cell = -(-len(cells) // max_cells) or 1
    folded = [fold(cells[at : at + per_cell]) for at in range(0, len(cells), per_cell)]
    failed = sum(wake.status == "failed" for wake in extra)
    return Strip(tuple(folded), tallies, per_cell, len(extra), failed)


def _cell(wake: Wake, camera: Camera | None, *, now: datetime, zone: ZoneInfo) -> Cell:
    wake_state = state(wake, camera, now=now)
    late = arrived_late(wake)
    due_at = wake.expected_at or wake.at
    name = words.cut(camera.device_name) if camera else _("a camera")
    text = _(WORDS[wake_state])
    if late:
        text = _("%(state)s, arrived late") % {"state": text}
    return Cell(wake_state, late, f"{due_at.astimezone(zone):%H:%M} {name}: {text}")


def fold(cells: Sequence[Cell]) -> Cell:
    """One cell for several, with the worst state: a problem is never hidden."""
    if len(cells) == 1:
        return cells[0]
    worst = min(cells, key=lambda cell: WORST.index(cell.state))
    counts = Counter(cell.state for cell in cells)
    text = ", ".join(Tally(state, counts[state]).says for state in WORST if counts[state])
    says = _("from %(time)s: %(states)s") % {
        "time": cells[0].title.partition(" ")[0],
        "states": text,
    }
    return Cell(worst.state, any(cell.late for cell in cells), says)
