"""Pure: who truly stood on the scale against the sessions that arrived: lost, twice, changed.

A picture tells whose session it is: the simulated camera noted of each, by its sha256, who stood
there. A visit is due if nothing was broken while it lasted; of others nothing is promised but that
they are not counted twice.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from farmiq.lab.simulate.check import Findings


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
    finalized = [session for session in sessions if session.status == "finalized"]
    for session in finalized:
        visits_shown = [whose[sha256] for sha256 in session.sha256s if sha256 in whose]
        shown = {visit.visit_id: visit for visit in visits_shown}
        if any(sha256 not in whose for sha256 in session.sha256s):
            invented.add(session.session_id)
        counts.update(shown.keys())
        if not _fits(session, list(shown.values()), tolerance_kg):
            changed.add(session.session_id)
    return Findings(
        sent=sum(visit.due for visit in known),
        stored=len(finalized),
        lost=tuple(sorted(v.visit_id for v in known if v.due and not counts[v.visit_id])),
        twice=tuple(sorted(visit_id for visit_id, count in counts.items() if count > 1)),
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
    return tuple(sorted(sha256 for sha256, count in Counter(sha256s).items() if count > 1))
