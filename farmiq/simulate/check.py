"""Pure: what was sent against what is stored: lost, twice, invented."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Findings:
    """`unconfirmed` were sent without an answer: they may be there or not, but never twice."""

    sent: int
    stored: int
    lost: tuple[str, ...]
    twice: tuple[str, ...]
    invented: tuple[str, ...]

    @property
    def clean(self) -> bool:
        return not (self.lost or self.twice or self.invented)


def compare(
    sent: Iterable[str], stored: Iterable[str], *, unconfirmed: Iterable[str] = ()
) -> Findings:
    """Compare the ids a simulator sent with the ids of a table's rows, one per row."""
    sent_ids, rows = set(sent), Counter(stored)
    return Findings(
        sent=len(sent_ids),
        stored=rows.total(),
        lost=tuple(sorted(sent_ids - set(rows) - set(unconfirmed))),
        twice=tuple(sorted(event_id for event_id, count in rows.items() if count > 1)),
        invented=tuple(sorted(set(rows) - sent_ids)),
    )
