"""Pure: which sequence numbers of a device are missing (C-84).

What was seen is stored as ranges per boot. The union of ranges does not depend on order,
duplicates or batches.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from farmiq.edge.arrival import Arrival

# Of one boot. Numbers missing below these are only counted, also if they come later.
MAX_GAPS = 512
_MAX_BOOT_ID = 128

# First and last number of a range, both included.
Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Seen:
    """Numbers of one boot of a device; `spans` ascend and do not touch."""

    tenant_id: str
    device_id: str
    boot_id: str
    spans: tuple[Span, ...]
    first_at: datetime


@dataclass(frozen=True, slots=True)
class Gap:
    """`boot_id` is that of the numbers after the gap."""

    boot_id: str
    first_missing: int
    last_missing: int

    @property
    def count(self) -> int:
        return self.last_missing - self.first_missing + 1


def seen(arrivals: Iterable[Arrival]) -> list[Seen]:
    """The numbers of a batch by boot, sorted; arrivals without seq are left out."""
    numbers: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    first: dict[tuple[str, str, str], datetime] = {}
    for arrival in arrivals:
        if arrival.seq is None:
            continue
        key = (
            arrival.place.tenant_id,
            arrival.place.device_id,
            (arrival.boot_id or "")[:_MAX_BOOT_ID],
        )
        numbers[key].append(arrival.seq)
        first[key] = min(first.get(key, arrival.event.occurred_at), arrival.event.occurred_at)
    return [Seen(*key, spans(numbers[key]), first[key]) for key in sorted(numbers)]


def spans(numbers: Iterable[int]) -> tuple[Span, ...]:
    """The numbers as ascending ranges."""
    ranges: list[Span] = []
    for number in sorted(set(numbers)):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    return tuple(ranges)


def missing(boots: Sequence[Seen]) -> list[Gap]:
    """The gaps of one device, lowest first, from all its boots.

    Inside a boot all numbers from the lowest to the highest are expected. Between two boots (by the
    time of the device) numbers are expected if the later one begins above the end of the earlier
    one; a boot that starts again has lost its counter, which is no gap.
    """
    inside = [
        Gap(boot.boot_id, before[1] + 1, after[0] - 1)
        for boot in boots
        for before, after in zip(boot.spans, boot.spans[1:], strict=False)
    ]
    return sorted([*inside, *_between(boots)], key=lambda gap: (gap.first_missing, gap.boot_id))


def _between(boots: Sequence[Seen]) -> list[Gap]:
    gaps: list[Gap] = []
    before: Seen | None = None
    for boot in sorted(boots, key=lambda item: (item.first_at, item.spans[0], item.boot_id)):
        if before is not None and boot.spans[0][0] > before.spans[-1][1] + 1:
            gaps.append(Gap(boot.boot_id, before.spans[-1][1] + 1, boot.spans[0][0] - 1))
        before = boot
    return gaps
