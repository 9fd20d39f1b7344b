"""Pure: how the backlog goes, from looks at it over time."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen of a backlog: when (any steady clock), how many, how old, delivered so far."""

    at_s: float
    waiting: int
    oldest_s: float = 0.0
    delivered: int = 0


def rate(looks: Sequence[Look]) -> float:
    """Events delivered per second over the looks."""
    if len(looks) < 2 or looks[-1].at_s <= looks[0].at_s:  # noqa: PLR2004 - two make a span
        return 0.0
    return max(0.0, (looks[-1].delivered - looks[0].delivered) / (looks[-1].at_s - looks[0].at_s))


def eta_s(looks: Sequence[Look]) -> float | None:
    """Seconds until the backlog is gone if it goes on falling like this; None if it does not."""
    if not looks or looks[-1].waiting == 0:
        return 0.0
    span = looks[-1].at_s - looks[0].at_s
    fallen = looks[0].waiting - looks[-1].waiting
    return looks[-1].waiting * span / fallen if span > 0 and fallen > 0 else None


def stalled(looks: Sequence[Look], *, over_s: float) -> bool:
    """Whether something has waited that long and the backlog has not fallen meanwhile.

    A backlog that stays level while its oldest event is young is only a busy farm.
    """
    if not looks or looks[-1].at_s - looks[0].at_s < over_s:
        return False
    first = next(look for look in looks if looks[-1].at_s - look.at_s <= over_s)
    return 0 < first.waiting <= looks[-1].waiting and looks[-1].oldest_s >= over_s


def kept(looks: Sequence[Look], *, over_s: float) -> list[Look]:
    """The looks of that long, and one before them."""
    older = [look for look in looks if looks[-1].at_s - look.at_s > over_s]
    return [*older[-1:], *(look for look in looks if looks[-1].at_s - look.at_s <= over_s)]
