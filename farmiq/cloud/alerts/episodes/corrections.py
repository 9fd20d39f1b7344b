"""Pure: how stored episodes become what a series that was evaluated again says."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from farmiq.cloud.alerts.evaluating.advance import Span


@dataclass(frozen=True, slots=True)
class Past:
    """An episode as it is stored."""

    episode_id: UUID
    cause: str
    opened_at: datetime
    resolved_at: datetime | None
    raised_at: datetime
    is_paged: bool
    # A person or a change of the farm ended it, not the values.
    is_fixed: bool = False


@dataclass(slots=True)
class Corrections:
    """How stored episodes become what the values say."""

    changed: list[tuple[Past, Span]] = field(default_factory=list)
    withdrawn: list[Past] = field(default_factory=list)
    new: list[Span] = field(default_factory=list)


def corrections(
    past: Sequence[Past], spans: Sequence[Span], *, begin: datetime, fixed_before: datetime | None
) -> Corrections:
    """Match the stored episodes of one cause with those that values from `begin` on give.

    The same begin first, then whatever overlaps. An episode that people heard the end of is not
    opened again: it is withdrawn, and another takes its place. What was raised before
    `fixed_before` is of another rule and stays, and so does what the values did not end.
    """
    corrected = Corrections()
    fixed = [
        episode
        for episode in past
        if episode.is_fixed or (fixed_before is not None and episode.raised_at < fixed_before)
    ]
    left = [episode for episode in past if episode not in fixed]
    todo = [span for span in spans if not any(_overlap(episode, span) for episode in fixed)]
    for is_same in (_same_begin, _overlap):
        for span in [*todo]:
            episode = next((candidate for candidate in left if is_same(candidate, span)), None)
            if episode is None:
                continue
            left.remove(episode)
            todo.remove(span)
            if episode.resolved_at is not None and episode.is_paged and span.resolved_at is None:
                corrected.withdrawn.append(episode)
                corrected.new.append(span)
            else:
                if episode.opened_at < begin:
                    span.opened_at = episode.opened_at
                corrected.changed.append((episode, span))
    corrected.new += todo
    corrected.withdrawn += [episode for episode in left if episode.opened_at >= begin]
    return corrected


def _same_begin(past: Past, span: Span) -> bool:
    return past.opened_at == span.opened_at


def _overlap(past: Past, span: Span) -> bool:
    return (span.resolved_at is None or past.opened_at <= span.resolved_at) and (
        past.resolved_at is None or span.opened_at <= past.resolved_at
    )
