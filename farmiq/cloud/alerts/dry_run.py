"""Try a rule before use: the episodes that it would have made in the last days."""

import asyncio
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from farmiq.cloud.alerts.evaluating import advance, book, past, rechecks, states
from farmiq.cloud.alerts.evaluating.advance import SeriesState, Span
from farmiq.cloud.alerts.evaluating.ruleset import KPI, TELEMETRY, RuleSet, Series, tick
from farmiq.messages.alerts import AlertRule
from farmiq.plumbing import db

MAX_DAYS = 7
# What is looked at in one try, so that nobody can stop the service with it.
MAX_SERIES = 500
MAX_VALUES = 300_000
MAX_EPISODES = 1000


class NoHistoryError(Exception):
    """Nothing is stored of what this signal was."""


@dataclass(frozen=True, slots=True)
class Trial:
    """`is_whole` is False if there was too much to look at: then episodes may be missing."""

    begin_at: datetime
    end_at: datetime
    series_count: int
    value_count: int
    episodes: list[dict[str, Any]]
    is_whole: bool


async def try_rule(tx: db.Connection, tenant_id: str, rule: AlertRule, *, days: int) -> Trial:
    """Evaluate the rule over the last days as if it had been enabled. Raises NoHistoryError."""
    if not rule.signal.startswith((TELEMETRY, KPI)):
        raise NoHistoryError(
            f"no history is kept of {rule.signal}: rules on telemetry and figures can be tried"
        )
    tenants = [tenant_id]
    ruleset = RuleSet(
        [rule],
        [batch for _, batch in await book.batches(tx, tenants)],
        [farm for _, farm in await book.farms(tx, tenants)],
    )
    end = await states.now(tx)
    begin = end - timedelta(days=days)
    series = await past.series_to_try(tx, tenant_id, rule, since=begin, limit=MAX_SERIES + 1)
    left, spans = MAX_VALUES, list[Span]()
    for series_key in series[:MAX_SERIES]:
        broken, count = await _spans(tx, ruleset, series_key, begin=begin, end=end, limit=left)
        spans += broken
        left -= count
        if left <= 0:
            break
    spans.sort(key=lambda span: (span.opened_at, span.value.series))
    return Trial(
        begin_at=begin,
        end_at=end,
        series_count=len(series[:MAX_SERIES]),
        value_count=MAX_VALUES - left,
        episodes=[_shown(span, ruleset) for span in spans[:MAX_EPISODES]],
        is_whole=left > 0 and len(series) <= MAX_SERIES and len(spans) <= MAX_EPISODES,
    )


async def _spans(
    tx: db.Connection,
    ruleset: RuleSet,
    series: Series,
    *,
    begin: datetime,
    end: datetime,
    limit: int,
) -> tuple[list[Span], int]:
    values = await rechecks.past_values(tx, ruleset, series, begin=begin, end=end, limit=limit)
    if not values:
        return [], 0
    looks = [*values, tick(values[-1], end)]
    empty = SeriesState(None, None, end)
    # In a thread: a week of a fast series takes seconds, in which others are served.
    _, changes = await asyncio.to_thread(
        advance.advance, empty, looks, ruleset, heard_at=end, is_whole=True
    )
    return [span for span in changes.spans if not span.is_nothing], len(values)


def _shown(span: Span, ruleset: RuleSet) -> dict[str, Any]:
    return {
        "subject": span.value.series.subject,
        "message": ruleset.message(span.rule, span.value, span.opened_value),
        "opened_at": span.opened_at,
        "resolved_at": span.resolved_at,
        "first_value": span.first_value,
        "worst_value": span.worst_value,
        "last_value": span.last_value,
    }
