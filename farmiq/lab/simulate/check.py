"""Pure: what was sent against what is stored: lost, twice, invented, changed."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime


@dataclass(frozen=True, slots=True)
class Findings:
    """Event ids of every violation; all empty is what we promise."""

    sent: int
    stored: int
    lost: tuple[str, ...]
    twice: tuple[str, ...]
    invented: tuple[str, ...]
    changed: tuple[str, ...]

    @property
    def clean(self) -> bool:
        return not (self.lost or self.twice or self.invented or self.changed)


def compare(
    sent: Mapping[str, str],
    stored: Iterable[tuple[str, str]],
    *,
    unconfirmed: Iterable[str] = (),
) -> Findings:
    """Compare what a simulator sent (id → content) with the rows of a table (id, content).

    An unconfirmed event may be there or not, but never twice and never changed.
    """
    rows = list(stored)
    counts = Counter(event_id for event_id, _ in rows)
    return Findings(
        sent=len(sent),
        stored=len(rows),
        lost=tuple(sorted(sent.keys() - counts.keys() - set(unconfirmed))),
        twice=tuple(sorted(event_id for event_id, count in counts.items() if count > 1)),
        invented=tuple(sorted(counts.keys() - sent.keys())),
        changed=tuple(sorted({key for key, what in rows if key in sent and sent[key] != what})),
    )


def miscounted(
    stored: Iterable[tuple[str, ...]], counted: Mapping[tuple[str, ...], int]
) -> tuple[str, ...]:
    """Series whose running count is not the number of their rows: some effect was had twice.

    A table's key keeps a row from standing twice; only a sum shows that it was added twice.
    """
    rows = Counter(stored)
    return tuple(
        f"{' '.join(series)}: {rows[series]} stored, {counted.get(series, 0)} counted"
        for series in sorted({*rows, *counted})
        if rows[series] != counted.get(series, 0)
    )


def intake(
    *,
    device_id: str,
    source: str,
    feed_lot_id: str | None,
    quantity_kg: float,
    occurred_at: datetime,
) -> str:
    """Feed dispensed, in one line."""
    return f"intake {device_id} {source} {feed_lot_id} {float(quantity_kg)!r} {_at(occurred_at)}"


def record(
    *,
    device_id: str,
    record_id: str,
    record_type: str,
    value: float | str,
    recorded_at: datetime,
) -> str:
    """A record of a barn, in one line."""
    return f"record {device_id} {record_id} {record_type} {value!r} {_at(recorded_at)}"


def content(
    *, device_id: str, metric_type: str, metric_value: float, unit: str, occurred_at: datetime
) -> str:
    """A reading in one line: equal at both ends, or something on the way has changed it."""
    return f"{device_id} {metric_type} {metric_value!r} {unit} {_at(occurred_at)}"


def _at(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="microseconds")
