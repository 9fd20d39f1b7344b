"""Values that came late: their series is evaluated again, and episodes are put right.

A value counts once its own service has stored it, and so is the newest one of the series; then the
tables say what the series was. The outcome is that of all values in the order of their own time.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import prometheus_client
import psycopg

from farmiq import crash
from farmiq.cloud import episodes
from farmiq.cloud.alerts.episodes import store as episode_store
from farmiq.cloud.alerts.episodes.corrections import corrections
from farmiq.cloud.alerts.evaluating import advance, past, signals, states
from farmiq.cloud.alerts.evaluating.advance import SeriesState
from farmiq.cloud.alerts.evaluating.book import RuleBook
from farmiq.cloud.alerts.evaluating.ruleset import TELEMETRY, RuleSet, Series, Value
from farmiq.farm.alerts.rules import in_rule_unit
from farmiq.messages.alerts import AlertRule
from farmiq.plumbing import db, log

MAX_DUE = 2000
# Values of one series that are looked at again, the newest ones; and how far back.
MAX_VALUES = 200_000
MAX_DAYS = 31
# So many values before the ones that matter say how often the series has some.
VALUES_BEFORE = 10
# A value that is not stored by then (about a quarter of an hour) is among the dead letters.
MAX_ATTEMPTS = 20
PUT_OFF_S = 0.5

RECHECKED = prometheus_client.Counter(
    "farmiq_alert_rechecks_total", "Series evaluated again because values came late"
)
CORRECTED = prometheus_client.Counter(
    "farmiq_alert_corrections_total", "Episodes changed, added or withdrawn by that"
)


@dataclass(frozen=True)
class Rechecks:
    pool: db.Pool
    book: RuleBook

    async def run(self) -> dict[str, object]:
        """Evaluate every series that is due, one transaction each."""
        async with db.transaction(self.pool) as tx:
            due = await past.due_rechecks(tx, limit=MAX_DUE)
        await self.book.load({series.tenant_id for series in due})
        count = 0
        for series in due:
            try:
                count += await self._recheck(series)
            except db.UNAVAILABLE:
                raise
            except (psycopg.Error, ArithmeticError, LookupError, TypeError, ValueError) as error:
                log.get("alerts").error(
                    "alerts.recheck_failed", tenant_id=series.tenant_id, name=series.signal,
                    error=db.first_line(error), exc_info=True,
                )  # fmt: skip
                async with db.transaction(self.pool) as tx:
                    await past.put_off(tx, series, delay_s=PUT_OFF_S)
        return {"rechecked": count}

    async def _recheck(self, series: Series) -> bool:
        """Returns False if values are not stored yet."""
        async with db.transaction(self.pool) as tx:
            state = (await states.lock_states(tx, [series]))[series]
            late = await past.rechecks(tx, series)
            ready = [value for value in late if value.is_stored or value.attempts >= MAX_ATTEMPTS]
            has_waited = any(value.attempts >= MAX_ATTEMPTS for value in late)
            if not ready or not (has_waited or await _is_newest_stored(tx, series, state)):
                await past.put_off(tx, series, delay_s=PUT_OFF_S)
                return False
            from_at = min(value.occurred_at for value in ready)
            await recheck(tx, self.book[series.tenant_id], series, state, from_at=from_at)
            await past.remove_rechecks(tx, series, [value.event_id for value in ready])
            await past.put_off(tx, series, delay_s=PUT_OFF_S)
            crash.here("alerts.before_recheck_commit")
        RECHECKED.inc()
        return True


async def _is_newest_stored(tx: db.Connection, series: Series, state: SeriesState) -> bool:
    if not series.signal.startswith(TELEMETRY) or state.last_at is None:
        return True
    return await past.is_stored(tx, series, state.last_at)


async def recheck(
    tx: db.Connection, ruleset: RuleSet, series: Series, state: SeriesState, *, from_at: datetime
) -> None:
    """Evaluate a series again from a moment on; its state must be locked."""
    affected = [*_rules(ruleset, series)]
    if not affected:
        return
    causes = {series.cause(rule.rule_id): rule for rule in affected}
    now = await states.now(tx)
    begin = await _begin(tx, series, causes.keys(), affected, from_at=from_at)
    end = max(state.last_at or from_at, from_at)
    values = await past_values(tx, ruleset, series, begin=begin, end=end, limit=MAX_VALUES)
    if series.signal.startswith(TELEMETRY):
        # Older readings may be purged: of what was before, the episodes are all that is known.
        if not values:
            return
        begin = values[0].at
    if values and _is_silent(affected, state):
        values.append(replace(values[-1], at=now, value=None))
    empty = SeriesState(None, None, state.heard_at)
    after, changes = advance.advance(empty, values, ruleset, heard_at=state.heard_at, is_whole=True)
    await states.save_states(tx, {series: after})
    stored = await episode_store.history(tx, series.tenant_id, causes.keys(), since=begin)
    for cause, rule in causes.items():
        spans = [span for span in changes.spans if span.rule is rule and not span.is_nothing]
        corrected = corrections(
            [episode for episode in stored if episode.cause == cause],
            spans,
            begin=begin,
            fixed_before=ruleset.changed_at.get(rule.rule_id),
        )
        await episode_store.withdraw(
            tx, series.tenant_id, [episode.episode_id for episode in corrected.withdrawn]
        )
        await episode_store.correct(tx, series.tenant_id, corrected.changed)
        await episodes.raise_episodes(
            tx, [signals.new_episode(span, ruleset) for span in corrected.new]
        )
        CORRECTED.inc(len(corrected.withdrawn) + len(corrected.new))


def _is_silent(affected: Sequence[AlertRule], state: SeriesState) -> bool:
    """Whether an absence is open: a look at the clock opened it, not a value."""
    return any(
        entry.state.opened_at is not None
        for rule in affected
        if rule.condition == "absent" and (entry := state.entries.get(rule.rule_id))
    )


def _rules(ruleset: RuleSet, series: Series) -> Iterable[AlertRule]:
    if series.signal.startswith(TELEMETRY):
        return ruleset.in_scope(series.signal, *series.place)
    return ruleset.of_signal(series.signal)


async def _begin(
    tx: db.Connection,
    series: Series,
    causes: Iterable[str],
    affected: Sequence[AlertRule],
    *,
    from_at: datetime,
) -> datetime:
    """A moment at which nothing was open, long enough before for what is pending at `from_at`."""
    before = max(advance.lookback(rule) for rule in affected)
    earliest = from_at - timedelta(days=MAX_DAYS)
    wanted = from_at - before
    while True:
        begin = wanted
        if series.signal.startswith(TELEMETRY):
            begin = await past.reading_before(
                tx, series, wanted, count=VALUES_BEFORE, days=MAX_DAYS
            )
        stored = await episode_store.history(tx, series.tenant_id, [*causes], since=begin)
        first = min(
            (episode.opened_at for episode in stored if episode.opened_at <= from_at), default=None
        )
        if first is None or first - before >= wanted or wanted <= earliest:
            return begin
        wanted = max(first - before, earliest)


async def past_values(
    tx: db.Connection,
    ruleset: RuleSet,
    series: Series,
    *,
    begin: datetime,
    end: datetime,
    limit: int,
) -> list[Value]:
    """The values of a series of telemetry or of a figure in their order, from the tables."""
    if not series.signal.startswith(TELEMETRY):
        return await _figures(tx, ruleset, series, begin=begin)
    rows = await past.readings(tx, series, begin=begin, end=end, limit=limit)
    farm_id, barn_id, device_id = series.place
    values = [
        Value(
            series=series,
            at=at,
            value=in_rule_unit(series.name, value, unit),
            farm_id=farm_id,
            barn_id=barn_id,
            device_id=device_id,
        )
        for at, value, unit in rows
    ]
    return await signals.with_baselines(tx, values, lambda _: ruleset, {})


async def _figures(
    tx: db.Connection, ruleset: RuleSet, series: Series, *, begin: datetime
) -> list[Value]:
    batch_id = series.subject.removeprefix("batch:")
    first = (begin - timedelta(days=2)).date()
    figures = await past.figures(tx, series.tenant_id, series.name, batch_id, begin=first)
    values = [
        Value(
            series=series,
            at=min(ruleset.end_of_day(figure.farm_id, figure.kpi_date), figure.computed_at),
            value=figure.value,
            farm_id=figure.farm_id,
            barn_id=figure.barn_id,
            batch_id=batch_id,
            baseline=figure.expected_value,
        )
        for figure in figures
    ]
    return [value for value in values if value.at >= begin]
