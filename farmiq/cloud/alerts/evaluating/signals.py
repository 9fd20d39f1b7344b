"""What values of signals do: they go into the states of rules, and what changes into episodes."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from farmiq.cloud import episodes
from farmiq.cloud.alerts.episodes import store as episode_store
from farmiq.cloud.alerts.episodes.store import Sighting
from farmiq.cloud.alerts.evaluating import advance, past, states
from farmiq.cloud.alerts.evaluating.advance import Changes, Seen, Span
from farmiq.cloud.alerts.evaluating.book import RuleBook
from farmiq.cloud.alerts.evaluating.ruleset import KPI, TELEMETRY, RuleSet, Series, Value
from farmiq.cloud.episodes import Ending, NewEpisode
from farmiq.farm.alerts.rules import in_rule_unit
from farmiq.messages import catalogue, telemetry
from farmiq.messages.bus import BusEvent
from farmiq.messages.kpi import KpiDailyUpdated
from farmiq.plumbing import db

# The same hour of other days is the mean of so many days.
BASELINE_DAYS = 7
# One or two days may have been unusual themselves.
MIN_BASELINE_DAYS = 3
# Means of hours that are held in memory; they are asked for again after that.
MAX_MEANS = 100_000


@dataclass
class Signals:
    """The consumer of telemetry and figures."""

    book: RuleBook

    async def select(self, events: Mapping[int, BusEvent]) -> dict[int, BusEvent]:
        """Leave the events that some rule looks at."""
        await self.book.load({event.tenant_id for event in events.values()})
        return {
            index: event
            for index, event in events.items()
            if (value := value_of(event, self.book[event.tenant_id])) is not None
            and self.book[event.tenant_id].looking_at(value)
        }

    async def store(self, tx: db.Connection, events: Sequence[BusEvent]) -> int:
        values = [value_of(event, self.book[event.tenant_id]) for event in events]
        known = [value for value in values if value is not None]
        await evaluate(tx, self.book, known, now=await states.now(tx))
        return len(events)


def value_of(event: BusEvent, ruleset: RuleSet) -> Value | None:
    """The value in an event; None if its clock is wrong or if it is none for rules."""
    if event.event_type == telemetry.INGESTED:
        if event.clock_suspect or not isinstance(event.device_id, str):
            return None
        reading = telemetry.read_ingested(event.payload)
        value = in_rule_unit(reading.metric_type, reading.metric_value, reading.unit)
        return _telemetry(event, reading.metric_type, event.occurred_at, value)
    if event.event_type == telemetry.AGGREGATED:
        bucket = telemetry.read_aggregated(event.payload)
        is_minute = bucket.aggregation_window == "1m" and not bucket.made_by
        if not is_minute or not bucket.bucket_end_at or not isinstance(event.device_id, str):
            return None
        value = in_rule_unit(bucket.metric_type, bucket.avg_value, bucket.unit)
        return _telemetry(event, bucket.metric_type, bucket.bucket_end_at, value)
    return _figure(event, catalogue.BUS[event.event_type].decoder.decode(event.payload), ruleset)


def _telemetry(event: BusEvent, metric_type: str, at: datetime, value: float) -> Value:
    subject = f"{event.farm_id}/{event.barn_id}/{event.device_id}"
    return Value(
        series=Series(event.tenant_id, TELEMETRY + metric_type, subject),
        at=at,
        value=value,
        farm_id=event.farm_id,
        barn_id=event.barn_id,
        device_id=str(event.device_id),
        event_id=event.event_id,
    )


def _figure(event: BusEvent, figure: KpiDailyUpdated, ruleset: RuleSet) -> Value | None:
    """A figure counts at the end of its day, or when it was computed if that is sooner."""
    if not isinstance(figure.batch_id, str):
        return None
    end_at = ruleset.end_of_day(event.farm_id, figure.kpi_date)
    expected = figure.expected_value
    return Value(
        series=Series(event.tenant_id, KPI + figure.kpi_type, f"batch:{figure.batch_id}"),
        at=min(end_at, event.occurred_at),
        value=figure.value,
        farm_id=event.farm_id,
        barn_id=event.barn_id,
        batch_id=figure.batch_id,
        event_id=event.event_id,
        baseline=expected if isinstance(expected, float) else None,
    )


async def evaluate(
    tx: db.Connection, book: RuleBook, values: Collection[Value], *, now: datetime
) -> None:
    """Take values into the states of their series, and what changes into episodes."""
    if not values:
        return
    by_series: dict[Series, list[Value]] = {}
    for value in await with_baselines(tx, values, book.__getitem__, book.means):
        by_series.setdefault(value.series, []).append(value)
    known = await states.lock_states(tx, by_series.keys())
    changed, outcomes = {}, []
    for series, group in sorted(by_series.items()):
        ruleset, before = book[series.tenant_id], known[series]
        group.sort(key=lambda value: value.order)
        after, changes = advance.advance(before, group, ruleset, heard_at=now)
        outcomes.append((series, ruleset, changes))
        if after.entries != before.entries or (
            not series.is_timed and after.last_at != before.last_at
        ):
            changed[series] = after
    await states.save_states(tx, changed)
    await _apply(tx, outcomes, now=now)


async def _apply(
    tx: db.Connection, outcomes: Sequence[tuple[Series, RuleSet, Changes]], *, now: datetime
) -> None:
    late = [value for _, _, changes in outcomes for value in changes.late]
    await past.add_rechecks(tx, late, now=now)
    await episodes.resolve_all(
        tx,
        [ending(series, seen) for series, _, changes in outcomes for seen in changes.ended],
    )
    opened = [
        new_episode(span, ruleset)
        for _, ruleset, changes in outcomes
        for span in changes.spans
        if not span.is_nothing
    ]
    await episode_store.fill_in(tx, opened)
    await episodes.raise_episodes(tx, opened)
    await episode_store.see_again(
        tx,
        [
            Sighting(
                tenant_id=series.tenant_id, cause=seen.cause, at=seen.at, value=seen.value,
                worst_value=seen.worst_value, count=seen.count,
            )
            for series, _, changes in outcomes
            for seen in changes.seen.values()
        ],
    )  # fmt: skip


def ending(series: Series, seen: Seen) -> Ending:
    return Ending(
        series.tenant_id, seen.cause, seen.at, seen.value, seen.worst_value, seen.count, seen.reason
    )


def new_episode(span: Span, ruleset: RuleSet) -> NewEpisode:
    rule, value = span.rule, span.value
    batch = ruleset.batch_at(value.farm_id, value.barn_id, value.at)
    return NewEpisode(
        tenant_id=value.series.tenant_id,
        cause=value.series.cause(rule.rule_id),
        source="rule",
        severity=rule.severity,
        subject=value.series.subject,
        message=ruleset.message(rule, value, span.opened_value),
        opened_at=span.opened_at,
        last_at=span.last_at,
        resolved_at=span.resolved_at,
        value=span.first_value,
        worst_value=span.worst_value,
        last_value=span.last_value,
        rule_id=rule.rule_id,
        signal=rule.signal,
        is_absence=span.is_absence,
        farm_id=value.farm_id,
        barn_id=value.barn_id,
        device_id=value.device_id,
        edge_cluster_id=value.edge_cluster_id,
        batch_id=value.batch_id or (batch.batch_id if batch else None),
    )


async def with_baselines(
    tx: db.Connection,
    values: Collection[Value],
    ruleset_of: Callable[[str], RuleSet],
    means: dict[tuple[Series, datetime], float | None],
) -> list[Value]:
    """The values, with what the same hour of other days was where a rule compares with that.

    `means` are those that are known; what is asked for is added.
    """
    wanted = {
        (value.series, hour_of(value.at)): ruleset.placed_at(value)
        for value in values
        if value.series.signal.startswith(TELEMETRY)
        and (ruleset := ruleset_of(value.series.tenant_id)).compares_hours(value)
    }
    if not wanted:
        return [*values]
    unknown = {key: placed_at for key, placed_at in wanted.items() if key not in means}
    if unknown:
        if len(means) > MAX_MEANS:
            means.clear()
        computed = await past.baselines(tx, unknown, days=BASELINE_DAYS, min_days=MIN_BASELINE_DAYS)
        means |= {key: computed.get(key) for key in unknown}
    return [
        replace(value, baseline=means.get((value.series, hour_of(value.at)), value.baseline))
        for value in values
    ]


def hour_of(at: datetime) -> datetime:
    return at.replace(minute=0, second=0, microsecond=0)
