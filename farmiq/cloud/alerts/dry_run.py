"""Try a rule before use: the episodes that it would have made in the last days."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import msgspec

from farmiq.cloud.alerts.evaluating import advance, book, found_values, past, rechecks, states
from farmiq.cloud.alerts.evaluating.advance import SeriesState, Span
from farmiq.cloud.alerts.evaluating.ruleset import KPI, TELEMETRY, RuleSet, Series, Value, tick
from farmiq.messages.alerts import AlertRule
from farmiq.plumbing import db

MAX_DAYS = 7
# What is looked at in one try, so that nobody can stop the service with it.
MAX_SERIES = 500
MAX_VALUES = 300_000
MAX_EPISODES = 1000


@dataclass(frozen=True, slots=True)
class Trial:
    """`is_whole` is False if there was too much to look at: then episodes may be missing.

    `values_from` is the moment of the oldest value; nobody knows what would have been before it.
    """

    begin_at: datetime
    end_at: datetime
    series_count: int
    value_count: int
    values_from: datetime | None
    episodes: list[dict[str, Any]]
    is_whole: bool


async def try_rule(tx: db.Connection, tenant_id: str, rule: AlertRule, *, days: int) -> Trial:
    """Evaluate the rule over the last days as if it had been enabled."""
    rule = msgspec.structs.replace(rule, enabled=True)
    tenants = [tenant_id]
    ruleset = RuleSet(
        [rule],
        [batch for _, batch in await book.batches(tx, tenants)],
        [farm for _, farm in await book.farms(tx, tenants)],
    )
    end = await states.now(tx)
    begin = end - timedelta(days=days)
    series = await _series(tx, tenant_id, rule, since=begin)
    left, spans, values_from = MAX_VALUES, list[Span](), list[datetime]()
    for series_key in series[:MAX_SERIES]:
        values = await _values(tx, ruleset, series_key, begin=begin, end=end, limit=left)
        if not values:
            continue
        spans += await _spans(ruleset, values, end=end)
        values_from.append(values[0].at)
        left -= len(values)
        if left <= 0:
            break
    spans.sort(key=lambda span: (span.opened_at, span.value.series))
    return Trial(
        begin_at=begin,
        end_at=end,
        series_count=len(series[:MAX_SERIES]),
        value_count=MAX_VALUES - left,
        values_from=min(values_from, default=None),
        episodes=[_shown(span, ruleset) for span in spans[:MAX_EPISODES]],
        is_whole=left > 0 and len(series) <= MAX_SERIES and len(spans) <= MAX_EPISODES,
    )


async def _series(
    tx: db.Connection, tenant_id: str, rule: AlertRule, *, since: datetime
) -> list[Series]:
    """At most one more than can be looked at."""
    limit = MAX_SERIES + 1
    if rule.signal.startswith((TELEMETRY, KPI)):
        return await past.series_to_try(tx, tenant_id, rule, since=since, limit=limit)
    return await found_values.series_with_values(
        tx, tenant_id, rule.signal, since=since, limit=limit
    )


async def _values(
    tx: db.Connection,
    ruleset: RuleSet,
    series: Series,
    *,
    begin: datetime,
    end: datetime,
    limit: int,
) -> list[Value]:
    """Those that the rule looks at, or looked at when the animals were others."""
    if not series.is_timed:
        return await rechecks.past_values(tx, ruleset, series, begin=begin, end=end, limit=limit)
    values = await found_values.past_values(tx, series, begin=begin, end=end, limit=limit)
    if values and not ruleset.in_scope(
        series.signal, values[0].farm_id, values[0].barn_id, values[0].device_id
    ):
        return []
    return values


async def _spans(ruleset: RuleSet, values: Sequence[Value], *, end: datetime) -> list[Span]:
    looks = [*values, tick(values[-1], end)]
    empty = SeriesState(None, None, end)
    # In a thread: a week of a fast series takes seconds, in which others are served.
    _, changes = await asyncio.to_thread(
        advance.advance, empty, looks, ruleset, heard_at=end, is_whole=True
    )
    return [span for span in changes.spans if not span.is_nothing]


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
