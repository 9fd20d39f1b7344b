"""Pure: who truly stood on the scale against the sessions that arrived: lost, twice, changed.

A picture tells whose session it is: the simulated camera noted of each, by its sha256, who stood
there. A visit is due if nothing was broken while it lasted; of others nothing is promised but that
they are not counted twice.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from farmiq.simulate.check import Findings


class Visited(msgspec.Struct, frozen=True, kw_only=True):
    """The truth of a visit; `sha256s` are the pictures that the camera gave while it lasted."""

    visit_id: str
    station_id: str
    animal: int
    weight_kg: float
    due: bool
    sha256s: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A session as a site has it; `sha256s` are of the bytes that are in its store."""

    session_id: str
    status: str
    weight_kg: float | None
    image_count: int | None = None
    sha256s: tuple[str, ...] = field(default_factory=tuple)


def compare(
    visits: Iterable[Visited], sessions: Iterable[Session], *, tolerance_kg: float = 1.0
) -> Findings:
    """Finalized sessions against the visits that their pictures show.

    Changed: another weight than the animal's, a picture less than was counted, or pictures of two
    visits in one session. Invented: a picture that no camera gave.
    """
    known = list(visits)
    whose = {sha256: visit for visit in known for sha256 in visit.sha256s}
    counts: Counter[str] = Counter()
    changed: set[str] = set()
    invented: set[str] = set()
    finalized = [each for each in sessions if each.status == "finalized"]
    for session in finalized:
        shown = {whose[each].visit_id: whose[each] for each in session.sha256s if each in whose}
        if any(each not in whose for each in session.sha256s):
            invented.add(session.session_id)
        counts.update(shown.keys())
        if not _fits(session, list(shown.values()), tolerance_kg):
            changed.add(session.session_id)
    return Findings(
        sent=sum(each.due for each in known),
        stored=len(finalized),
        lost=tuple(sorted(e.visit_id for e in known if e.due and not counts[e.visit_id])),
        twice=tuple(sorted(each for each, count in counts.items() if count > 1)),
        invented=tuple(sorted(invented)),
        changed=tuple(sorted(changed)),
    )


def _fits(session: Session, shown: list[Visited], tolerance_kg: float) -> bool:
    if len(shown) != 1 or session.weight_kg is None:
        return False
    whole = session.image_count is None or session.image_count == len(session.sha256s)
    return whole and abs(session.weight_kg - shown[0].weight_kg) <= tolerance_kg


def doubled(sha256s: Iterable[str]) -> tuple[str, ...]:
    """Pictures that a store has more than once."""
    return tuple(sorted(each for each, count in Counter(sha256s).items() if count > 1))
