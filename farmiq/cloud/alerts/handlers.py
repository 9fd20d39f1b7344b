"""What events do: values of signals go into the states of rules, edges' alerts into episodes."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from farmiq.cloud import episodes
from farmiq.cloud.alerts import rules, store
from farmiq.cloud.alerts.book import RuleBook
from farmiq.cloud.alerts.rules import KPI, TELEMETRY, Changes, RuleSet, Seen, Series, Span, Value
from farmiq.cloud.alerts.store import Sighting
from farmiq.cloud.episodes import Ending, NewEpisode
from farmiq.farm.alerts.rules import in_rule_unit
from farmiq.messages import catalogue, edge, telemetry
from farmiq.messages.bus import BusEvent
from farmiq.messages.kpi import KpiDailyUpdated
from farmiq.plumbing import db

# The same hour of other days is the mean of so many days.
BASELINE_DAYS = 7
# One or two days may have been unusual themselves.
MIN_BASELINE_DAYS = 3
# Means of hours that are held in memory; they are asked for again after that.
MAX_MEANS = 100_000
OPEN = ("active", "acknowledged")


# --- values of signals


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
        await evaluate(tx, self.book, known, now=await store.now(tx))
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
    states = await store.lock_states(tx, by_series.keys())
    changed, outcomes = {}, []
    for series, group in sorted(by_series.items()):
        ruleset, before = book[series.tenant_id], states[series]
        group.sort(key=lambda value: value.order)
        after, changes = rules.advance(before, group, ruleset, heard_at=now)
        outcomes.append((series, ruleset, changes))
        if after.entries != before.entries or (
            not series.is_timed and after.last_at != before.last_at
        ):
            changed[series] = after
    await store.save_states(tx, changed)
    await _apply(tx, outcomes, now=now)


async def _apply(
    tx: db.Connection, outcomes: Sequence[tuple[Series, RuleSet, Changes]], *, now: datetime
) -> None:
    late = [value for _, _, changes in outcomes for value in changes.late]
    await store.add_rechecks(tx, late, now=now)
    await episodes.resolve_all(
        tx,
        [ending(series, seen) for series, _, changes in outcomes for seen in changes.ended],
    )
    await episodes.raise_episodes(
        tx,
        [
            new_episode(span, ruleset)
            for _, ruleset, changes in outcomes
            for span in changes.spans
            if not span.is_nothing
        ],
    )
    await store.see_again(
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
        computed = await store.baselines(
            tx, unknown, days=BASELINE_DAYS, min_days=MIN_BASELINE_DAYS
        )
        means |= {key: computed.get(key) for key in unknown}
    return [
        replace(value, baseline=means.get((value.series, hour_of(value.at)), value.baseline))
        for value in values
    ]


def hour_of(at: datetime) -> datetime:
    return at.replace(minute=0, second=0, microsecond=0)


# --- alerts of edges


async def store_edge_alerts(tx: db.Connection, events: Sequence[BusEvent]) -> int:
    """Alerts that edges opened and closed become episodes; each may come late and twice.

    An alert of a rule that the edge evaluates itself is the episode that the cloud's own evaluation
    opens; where the cloud has the values, they say when it is over, and not a person who silences
    the siren.
    """
    alerts: dict[tuple[str, UUID], EdgeAlert] = {}
    for event in events:
        alert = _edge_alert(event)
        known = alerts.get(alert.key)
        alerts[alert.key] = alert if known is None else known.merged(alert)
    known_states = await store.episode_states(tx, alerts.keys())
    open_causes = await store.open_causes(tx, [alert.cause for alert in alerts.values()])
    still_open = await store.open_rules(
        tx,
        [
            (alert.episode.tenant_id, alert.episode.rule_id, alert.episode.subject)
            for alert in alerts.values()
            if alert.episode.rule_id is not None and alert.episode.resolved_at is not None
        ],
    )
    latest = _latest(alerts.values(), known_states, open_causes)
    endings = [
        ending
        for ending in _endings(alerts.values(), known_states, open_causes, latest)
        if (ending.tenant_id, ending.cause) not in still_open
    ]
    await episodes.resolve_all(tx, endings)
    await episodes.raise_episodes(tx, [*_new(alerts.values(), known_states, open_causes, latest)])
    await store.close_at_edge(
        tx, [alert.key for alert in alerts.values() if alert.episode.resolved_at is not None]
    )
    seen = [alert for alert in alerts.values() if alert.episode.resolved_at is None]
    await store.see_edge_alerts(tx, [(alert.episode, alert.count) for alert in seen])
    return len(events)


@dataclass(frozen=True, slots=True)
class EdgeAlert:
    """An alert of an edge as an episode; its id is the alert's."""

    episode: NewEpisode
    alert_id: UUID
    count: int

    @property
    def key(self) -> tuple[str, UUID]:
        return self.episode.tenant_id, self.alert_id

    @property
    def cause(self) -> tuple[str, str]:
        return self.episode.tenant_id, self.episode.cause

    @property
    def order(self) -> tuple[datetime, UUID]:
        return self.episode.opened_at, self.alert_id

    def merged(self, other: "EdgeAlert") -> "EdgeAlert":
        """Of two events of one alert: over if one says so, else the newer."""
        mine, others = self.episode, other.episode
        if mine.resolved_at is not None:
            return self
        newer = others.resolved_at is not None or others.last_at >= mine.last_at
        return other if newer else self


States = Mapping[tuple[str, UUID], str]
Causes = Mapping[tuple[str, str], tuple[UUID, datetime]]
Latest = Mapping[tuple[str, str], EdgeAlert]


def _latest(alerts: Collection[EdgeAlert], states: States, open_causes: Causes) -> Latest:
    """Of each cause the alert that is open from now on, where that is a new one."""
    latest: dict[tuple[str, str], EdgeAlert] = {}
    for alert in alerts:
        if alert.key in states or alert.episode.resolved_at is not None:
            continue
        before = open_causes.get(alert.cause)
        if before is not None and before[1] > alert.episode.opened_at:
            continue
        known = latest.get(alert.cause)
        if known is None or alert.order > known.order:
            latest[alert.cause] = alert
    return latest


def _endings(
    alerts: Collection[EdgeAlert], states: States, open_causes: Causes, latest: Latest
) -> Iterator[Ending]:
    """Of alerts that closed, and of the one before if an edge opened another of the same cause."""
    for alert in alerts:
        episode = alert.episode
        if states.get(alert.key) in OPEN and episode.resolved_at is not None:
            yield Ending(episode.tenant_id, episode.cause, episode.resolved_at)
    for cause, alert in latest.items():
        if alert.episode.source == "edge" and cause in open_causes:
            yield Ending(*cause, alert.episode.opened_at)


def _new(
    alerts: Collection[EdgeAlert], states: States, open_causes: Causes, latest: Latest
) -> Iterator[NewEpisode]:
    """Of alerts without one; what the cloud's own evaluation opened is that of a rule.

    One that comes after a later one of its cause is history: it was over when that one began.
    """
    for alert in alerts:
        episode = alert.episode
        is_own = episode.source == "rule" and alert.cause in open_causes
        if alert.key in states or is_own:
            continue
        if episode.resolved_at is not None or latest.get(alert.cause) is alert:
            yield episode
        else:
            newer = latest.get(alert.cause)
            began_at = open_causes[alert.cause][1] if newer is None else newer.episode.opened_at
            yield replace(episode, resolved_at=began_at)


def _edge_alert(event: BusEvent) -> EdgeAlert:
    alert: edge.EdgeAlert = catalogue.BUS[event.event_type].decoder.decode(event.payload)
    rule_id = alert.code.removeprefix("rule.") if alert.code.startswith("rule.") else None
    cause = f"edge:{alert.edge_cluster_id}|{alert.code}|{alert.subject}"
    is_over = event.event_type == edge.ALERT_CLOSED
    return EdgeAlert(
        NewEpisode(
            tenant_id=event.tenant_id,
            episode_id=alert.alert_id,
            cause=f"rule:{rule_id}|{alert.subject}" if rule_id else cause,
            source="rule" if rule_id else "edge",
            rule_id=rule_id,
            severity=alert.severity,
            subject=alert.subject,
            message=alert.message,
            edge_cluster_id=alert.edge_cluster_id,
            farm_id=event.farm_id,
            barn_id=event.barn_id,
            device_id=event.device_id if isinstance(event.device_id, str) else None,
            opened_at=alert.first_at,
            last_at=alert.last_at,
            resolved_at=max(event.occurred_at, alert.first_at) if is_over else None,
        ),
        alert.alert_id,
        alert.count,
    )
