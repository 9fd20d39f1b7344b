"""Pure: which readings make a series and name it."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from farmiq.edge.arrival import Arrival
from farmiq.farm.buckets import Series


def series_of(arrival: Arrival) -> Series:
    return arrival.place.tenant_id, arrival.place.device_id, arrival.payload.metric_type


def newest_by_series(arrivals: Sequence[Arrival]) -> list[Arrival]:
    """The newest of each series: by its own time if that is believed, else by its arrival."""
    newest: dict[Series, Arrival] = {}
    for arrival in arrivals:
        series = series_of(arrival)
        if series not in newest or _newness(newest[series]) < _newness(arrival):
            newest[series] = arrival
    return [newest[series] for series in sorted(newest)]


def _newness(arrival: Arrival) -> tuple[bool, datetime]:
    at = arrival.received_at
    if not arrival.clock_suspect:
        at = min(arrival.event.occurred_at, at)
    return not arrival.clock_suspect, at


def series_over_limit(
    new: Iterable[Series], known: Mapping[tuple[str, str], int], *, limit: int
) -> set[Series]:
    """Which new series are too many. `known`: how many a (tenant, device) has already."""
    counts = defaultdict(int, known)
    over: set[Series] = set()
    for series in sorted(new):
        device = series[:2]
        counts[device] += 1
        if counts[device] > limit:
            over.add(series)
    return over
