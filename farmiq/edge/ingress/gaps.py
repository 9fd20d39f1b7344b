"""Pure: which sequence numbers of a device are missing (C-84).

What was seen is kept as ranges per boot. A union of ranges does not care for order, repetition or
how messages were batched, so neither do the gaps.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from farmiq.edge.arrival import Arrival

# Of one boot; what is missing below them is only counted, and not recognised if it comes after all.
MAX_GAPS = 512
_MAX_BOOT_ID = 128

# First and last number of a row without holes, both included.
Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Seen:
    """What one batch brought of one boot of a device; `spans` ascend and do not touch."""

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
    """The batch by boot, in one order whoever calls; arrivals without seq say nothing."""
    numbers: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    first: dict[tuple[str, str, str], datetime] = {}
    for one in arrivals:
        if one.seq is None:
            continue
        key = (one.place.tenant_id, one.place.device_id, (one.boot_id or "")[:_MAX_BOOT_ID])
        numbers[key].append(one.seq)
        first[key] = min(first.get(key, one.event.occurred_at), one.event.occurred_at)
    return [Seen(*key, spans(numbers[key]), first[key]) for key in sorted(numbers)]


def spans(numbers: Iterable[int]) -> tuple[Span, ...]:
    """The numbers as rows without holes, ascending."""
    found: list[Span] = []
    for number in sorted(set(numbers)):
        if found and number == found[-1][1] + 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return tuple(found)


def missing(boots: Sequence[Seen]) -> list[Gap]:
    """The gaps of one device, lowest first, from all that was seen of each of its boots.

    Inside a boot everything between its lowest and its highest number should be there. Between
    two boots the numbers go on if the later one (by the device's own time) begins above the
    earlier one's end; one that begins anew has lost its counter, which is no gap.
    """
    inside = [
        Gap(boot.boot_id, before[1] + 1, after[0] - 1)
        for boot in boots
        for before, after in zip(boot.spans, boot.spans[1:], strict=False)
    ]
    return sorted([*inside, *_between(boots)], key=lambda gap: (gap.first_missing, gap.boot_id))


def _between(boots: Sequence[Seen]) -> list[Gap]:
    found: list[Gap] = []
    before: Seen | None = None
    for boot in sorted(boots, key=lambda each: (each.first_at, each.spans[0], each.boot_id)):
        if before is not None and boot.spans[0][0] > before.spans[-1][1] + 1:
            found.append(Gap(boot.boot_id, before.spans[-1][1] + 1, boot.spans[0][0] - 1))
        before = boot
    return found
