"""SQL of the evaluation: rules, states of series, values that came late, and paging."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from statistics import fmean
from typing import Any
from uuid import UUID

import msgspec

from farmiq.cloud.alerts.rules import (
    OLD,
    OLD_READING,
    READING,
    Batch,
    Entry,
    Farm,
    Past,
    Series,
    SeriesState,
    Span,
    Value,
)
from farmiq.cloud.episodes import NewEpisode
from farmiq.farm.alerts import rules as farm_rules
from farmiq.farm.alerts.rules import in_rule_unit
from farmiq.messages.alerts import AlertRule
from farmiq.plumbing import db

CHANGED = "alert_rules_changed"
# What edges raise themselves, by the code of their alert, and the total that says the same.
SAME_FACT = {
    "edge.disk": "edge.disk_percent",
    "sync.dlq": "edge.dead_letters",
    "sync.backlog_not_falling": "edge.oldest_s",
    "device.not_registered": "edge.quarantine",
    "ingress.impostor": "edge.quarantine",
    "ingress.foreign_session": "edge.quarantine",
    "ingress.event_id_conflict": "edge.quarantine",
}
# Batches that closed longer ago are of no value that is still evaluated.
CLOSED_DAYS = 30

_entries_decoder = msgspec.json.Decoder(dict[str, Entry])


# --- what a tenant's rules and places are


async def own_rules(
    tx: db.Connection, tenants: Collection[str]
) -> list[tuple[str, AlertRule, datetime]]:
    """(tenant, rule, changed_at) of the rules that companies set and this version can use."""
    rows = await db.fetch_all(
        tx,
        "select tenant_id, rule, changed_at from alert_rules where tenant_id = any(%s)",
        [*tenants],
    )
    return [(row[0], rule, row[2]) for row in rows if (rule := farm_rules.read(row[1]))]


async def batches(tx: db.Connection, tenants: Collection[str]) -> list[tuple[str, Batch]]:
    rows = await db.fetch_all(
        tx,
        """
        select tenant_id, batch_id, farm_id, barn_id, species, placed_on, closed_on,
          age_at_placing_days
        from batches where tenant_id = any(%s)
          and (closed_on is null or closed_on > fn_now()::date - %s::int)
        """,
        [*tenants],
        CLOSED_DAYS,
    )
    return [(row[0], Batch(*row[1:])) for row in rows]


async def farms(tx: db.Connection, tenants: Collection[str]) -> list[tuple[str, Farm]]:
    rows = await db.fetch_all(
        tx,
        """
        select f.tenant_id, f.farm_id, f.name, f.timezone, coalesce((
          select jsonb_object_agg(b.barn_id, b.name) from barns b
          where b.tenant_id = f.tenant_id and b.farm_id = f.farm_id), '{}')
        from farms f where f.tenant_id = any(%s)
        """,
        [*tenants],
    )
    return [(row[0], Farm(*row[1:])) for row in rows]


async def companies(tx: db.Connection, tenants: Collection[str]) -> dict[str, str]:
    """The tenants by the random ids of their companies, which notices name."""
    rows = await db.fetch_all(
        tx,
        "select company_id::text, tenant_id from companies where tenant_id = any(%s)",
        [*tenants],
    )
    return {row[0]: row[1] for row in rows}


async def tenants(tx: db.Connection) -> list[str]:
    rows = await db.fetch_all(tx, "select tenant_id from companies order by tenant_id")
    return [row[0] for row in rows]


async def now(tx: db.Connection) -> datetime:
    moment: datetime = await db.fetch_value(tx, "select fn_now()")
    return moment


# --- states of series


async def lock_states(tx: db.Connection, series: Collection[Series]) -> dict[Series, SeriesState]:
    """The states of these series, locked until the commit; new series get one."""
    states = await _lock(tx, series)
    missing = [key for key in series if key not in states]
    if missing:
        await tx.execute(
            """
            insert into alert_states (tenant_id, signal, subject, heard_at)
            select k.*, fn_now() from unnest(%s::text[], %s::text[], %s::text[])
              as k(tenant_id, signal, subject)
            order by k.tenant_id, k.signal, k.subject
            on conflict on constraint alert_states_pkey do nothing
            """,
            db.columns(missing, "tenant_id", "signal", "subject"),
        )
        states |= await _lock(tx, missing)
    return states


async def _lock(tx: db.Connection, series: Collection[Series]) -> dict[Series, SeriesState]:
    rows = await db.fetch_all(
        tx,
        """
        select s.tenant_id, s.signal, s.subject, s.last_at, s.last_value, s.heard_at,
          s.states::text
        from unnest(%s::text[], %s::text[], %s::text[]) as k(tenant_id, signal, subject)
          join alert_states s on s.tenant_id = k.tenant_id and s.signal = k.signal
            and s.subject = k.subject
        order by s.tenant_id, s.signal, s.subject for update of s
        """,
        *db.columns(series, "tenant_id", "signal", "subject"),
    )
    return {_series(row): _state(row) for row in rows}


async def save_states(tx: db.Connection, states: dict[Series, SeriesState]) -> None:
    if not states:
        return
    await tx.execute(
        """
        update alert_states s set last_at = n.last_at, last_value = n.last_value,
          heard_at = n.heard_at, states = n.states
        from unnest(%s::text[], %s::text[], %s::text[], %s::timestamptz[], %s::float8[],
          %s::timestamptz[], %s::text[]::jsonb[])
          as n(tenant_id, signal, subject, last_at, last_value, heard_at, states)
        where s.tenant_id = n.tenant_id and s.signal = n.signal and s.subject = n.subject
        """,
        (
            *db.columns(states, "tenant_id", "signal", "subject"),
            *db.columns(states.values(), "last_at", "last_value", "heard_at"),
            [msgspec.json.encode(state.entries).decode() for state in states.values()],
        ),
    )


async def busy_states(tx: db.Connection) -> dict[Series, SeriesState]:
    """Every series of which some rule has something pending or open, as it is now.

    The whole table is read: with rules on rises most series are such, and an index on what changes
    with every value would cost more than a look every minute.
    """
    rows = await db.fetch_all(
        tx,
        """
        select tenant_id, signal, subject, last_at, last_value, heard_at, states::text
        from alert_states where states <> '{}'
        """,
    )
    return {_series(row): _state(row) for row in rows}


def _series(row: Sequence[Any]) -> Series:
    return Series(*row[:3])


def _state(row: Sequence[Any]) -> SeriesState:
    return SeriesState(row[3], row[4], row[5], _entries_decoder.decode(row[6]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """Values that found an episode still open."""

    tenant_id: str
    cause: str
    at: datetime
    value: float | None
    worst_value: float | None
    count: int


async def see_again(tx: db.Connection, sightings: Sequence[Sighting]) -> None:
    """Note on open episodes that values still were as bad."""
    if not sightings:
        return
    await tx.execute(
        """
        update alert_episodes e set last_at = greatest(e.last_at, n.at),
          last_value = coalesce(n.value, e.last_value),
          worst_value = coalesce(n.worst_value, e.worst_value),
          seen_count = e.seen_count + n.count
        from unnest(%s::text[], %s::text[], %s::timestamptz[], %s::float8[], %s::float8[],
          %s::bigint[]) as n(tenant_id, cause, at, value, worst_value, count)
        where e.tenant_id = n.tenant_id and e.cause = n.cause
          and e.state in ('active', 'acknowledged')
        """,
        db.columns(sightings, "tenant_id", "cause", "at", "value", "worst_value", "count"),
    )


# --- alerts of edges


async def episode_states(
    tx: db.Connection, keys: Collection[tuple[str, UUID]]
) -> dict[tuple[str, UUID], str]:
    """The states of episodes that are known, by tenant and id."""
    rows = await db.fetch_all(
        tx,
        """
        select e.tenant_id, e.episode_id, e.state
        from unnest(%s::text[], %s::uuid[]) as k(tenant_id, episode_id)
          join alert_episodes e on e.tenant_id = k.tenant_id and e.episode_id = k.episode_id
        """,
        [key[0] for key in keys],
        [key[1] for key in keys],
    )
    return {(row[0], row[1]): row[2] for row in rows}


async def open_causes(
    tx: db.Connection, causes: Collection[tuple[str, str]]
) -> dict[tuple[str, str], tuple[UUID, datetime]]:
    """The open episodes of causes, with the moment at which each began."""
    rows = await db.fetch_all(
        tx,
        """
        select e.tenant_id, e.cause, e.episode_id, e.opened_at
        from unnest(%s::text[], %s::text[]) as k(tenant_id, cause)
          join alert_episodes e on e.tenant_id = k.tenant_id and e.cause = k.cause
            and e.state in ('active', 'acknowledged')
        """,
        [cause[0] for cause in causes],
        [cause[1] for cause in causes],
    )
    return {(row[0], row[1]): (row[2], row[3]) for row in rows}


async def open_rules(
    tx: db.Connection, rules: Collection[tuple[str, str, str]]
) -> set[tuple[str, str]]:
    """(tenant, cause) of these rules, by tenant, id and subject, that our own values have open."""
    if not rules:
        return set()
    rows = await db.fetch_all(
        tx,
        """
        select k.tenant_id, 'rule:' || k.rule_id || '|' || k.subject
        from unnest(%s::text[], %s::text[], %s::text[]) as k(tenant_id, rule_id, subject)
          join alert_states s on s.tenant_id = k.tenant_id and s.subject = k.subject
        where s.states -> k.rule_id -> 'state' ->> 'opened_at' is not null
        """,
        *map(list, zip(*rules, strict=True)),
    )
    return {(row[0], row[1]) for row in rows}


async def see_edge_alerts(tx: db.Connection, alerts: Sequence[tuple[NewEpisode, int]]) -> None:
    """Note on open episodes how often the edge saw them, and if they became more severe.

    Those who were told of it when it was less severe are told again.
    """
    if not alerts:
        return
    await tx.execute(
        """
        with seen as materialized (
          select n.*, e.paged_at, array_position(s.rising, n.severity)
            > array_position(s.rising, e.severity) as is_worse
          from unnest(%s::text[], %s::uuid[], %s::timestamptz[], %s::bigint[], %s::text[],
              %s::text[]) as n(tenant_id, episode_id, last_at, count, message, severity)
            cross join (select array['info', 'warning', 'critical', 'security'] as rising) s
            join alert_episodes e on e.tenant_id = n.tenant_id and e.episode_id = n.episode_id
              and e.state in ('active', 'acknowledged')
          order by n.tenant_id, n.episode_id for update of e
        ), steps as (
          insert into alert_steps (tenant_id, episode_id, step, created_at)
          select tenant_id, episode_id, 'worsened', fn_now() from seen
          where is_worse and paged_at is not null
          on conflict on constraint alert_steps_pkey do update set
            created_at = excluded.created_at, routed_at = null
        )
        update alert_episodes e set last_at = greatest(e.last_at, n.last_at),
          seen_count = greatest(e.seen_count, n.count),
          message = case when n.last_at >= e.last_at then n.message else e.message end,
          severity = case when n.is_worse then n.severity else e.severity end
        from seen n where e.tenant_id = n.tenant_id and e.episode_id = n.episode_id
        """,
        (
            *db.columns([alert for alert, _ in alerts], "tenant_id", "episode_id", "last_at"),
            [count for _, count in alerts],
            *db.columns([alert for alert, _ in alerts], "message", "severity"),
        ),
    )


async def close_at_edge(tx: db.Connection, keys: Collection[tuple[str, UUID]]) -> None:
    """The edge has closed these too, which a person had ended here before."""
    if keys:
        await tx.execute(
            """
            update alert_episodes e set is_open_at_edge = false
            from unnest(%s::text[], %s::uuid[]) as k(tenant_id, episode_id)
            where e.tenant_id = k.tenant_id and e.episode_id = k.episode_id and e.is_open_at_edge
            """,
            ([key[0] for key in keys], [key[1] for key in keys]),
        )


# --- values of the past


async def baselines(
    tx: db.Connection,
    wanted: Mapping[tuple[Series, datetime], datetime | None],
    *,
    days: int,
    min_days: int,
) -> dict[tuple[Series, datetime], float]:
    """The mean of the same hour of the last days, by (series, hour), where it has enough days.

    `wanted` says from when on hours count: those of the animals before are no measure.
    """
    places = [series.place for series, _ in wanted]
    rows = await db.fetch_all(
        tx,
        """
        select w.tenant_id, w.signal, w.subject, w.hour, a.metric_type, a.avg_value, a.unit
        from unnest(%s::text[], %s::text[], %s::text[], %s::text[], %s::text[], %s::text[],
            %s::timestamptz[], %s::timestamptz[])
            as w(tenant_id, signal, subject, farm_id, barn_id, device_id, hour, begin_at)
          cross join generate_series(1, %s) as d(days)
          join telemetry_agg a on a.tenant_id = w.tenant_id and a.device_id = w.device_id
            and a.metric_type = substr(w.signal, 11) and a."window" = '1h'
            and a.bucket_start_at = w.hour - make_interval(days => d.days)
        where a.farm_id = w.farm_id and a.barn_id = w.barn_id
          and (w.begin_at is null or a.bucket_start_at >= w.begin_at)
        """,
        *db.columns([series for series, _ in wanted], "tenant_id", "signal", "subject"),
        [place[0] for place in places],
        [place[1] for place in places],
        [place[2] for place in places],
        [hour for _, hour in wanted],
        [*wanted.values()],
        days,
    )
    hours: dict[tuple[Series, datetime], list[float]] = {}
    for row in rows:
        value = in_rule_unit(row[4], row[5], row[6])
        hours.setdefault((Series(*row[:3]), row[3]), []).append(value)
    return {key: fmean(values) for key, values in hours.items() if len(values) >= min_days}


async def readings(
    tx: db.Connection, series: Series, *, begin: datetime, end: datetime, limit: int
) -> list[tuple[datetime, float, str]]:
    """(at, value, unit) of a series of telemetry from `begin` to `end`, in order; the newest ones.

    Also the minutes that an edge sent of a metric that it does not send reading by reading.
    """
    farm_id, barn_id, device_id = series.place
    cursor = await tx.execute(
        """
        with known as (
          select r.occurred_at as at, r.metric_value as value, r.unit from telemetry_readings r
          where r.tenant_id = %(tenant)s and r.device_id = %(device)s
            and r.metric_type = %(metric)s and r.farm_id = %(farm)s and r.barn_id = %(barn)s
            and not r.clock_suspect and r.occurred_at between %(begin)s and %(end)s
          union all
          select a.bucket_end_at, a.avg_value, a.unit from telemetry_agg a
          where a.tenant_id = %(tenant)s and a.device_id = %(device)s
            and a.metric_type = %(metric)s and a."window" = '1m' and a.sent
            and a.farm_id = %(farm)s and a.barn_id = %(barn)s
            and a.bucket_start_at between %(begin)s - interval '1 minute' and %(end)s
            and a.bucket_end_at between %(begin)s and %(end)s
        )
        select at, value, unit from known group by at, value, unit
        order by at desc, value desc limit %(limit)s
        """,
        {
            "tenant": series.tenant_id, "device": device_id, "metric": series.name,
            "farm": farm_id, "barn": barn_id, "begin": begin, "end": end, "limit": limit,
        },
    )  # fmt: skip
    return [(row[0], row[1], row[2]) for row in reversed(await cursor.fetchall())]


async def reading_before(
    tx: db.Connection, series: Series, at: datetime, *, count: int, days: int
) -> datetime:
    """The moment of the reading so many before `at`, or of the first of those; else `at`."""
    farm_id, barn_id, device_id = series.place
    moment: datetime = await db.fetch_value(
        tx,
        """
        select coalesce(min(b.occurred_at), %s) from (
          select r.occurred_at from telemetry_readings r
          where r.tenant_id = %s and r.device_id = %s and r.metric_type = %s and r.farm_id = %s
            and r.barn_id = %s and not r.clock_suspect and r.occurred_at < %s
            and r.occurred_at > %s - make_interval(days => %s)
          order by r.occurred_at desc limit %s) b
        """,
        at, series.tenant_id, device_id, series.name, farm_id, barn_id, at, at, days, count,
    )  # fmt: skip
    return moment


@dataclass(frozen=True, slots=True)
class Figure:
    farm_id: str
    barn_id: str
    kpi_date: date
    computed_at: datetime
    value: float
    expected_value: float | None


async def figures(
    tx: db.Connection, tenant_id: str, kpi_type: str, batch_id: str, *, begin: date
) -> list[Figure]:
    """A figure of a batch by day, in order."""
    return await db.fetch_as(
        tx,
        Figure,
        """
        select farm_id, barn_id, kpi_date, computed_at, value, expected_value from kpi_daily
        where tenant_id = %s and batch_id = %s and kpi_type = %s and kpi_date >= %s
          and value is not null
        order by kpi_date
        """,
        (tenant_id, batch_id, kpi_type, begin),
    )


async def series_to_try(
    tx: db.Connection, tenant_id: str, rule: AlertRule, *, since: datetime, limit: int
) -> list[Series]:
    """The series in a rule's scope that have values since a moment."""
    family, _, name = rule.signal.partition(".")
    cursor = await tx.execute(
        """
        select l.farm_id || '/' || l.barn_id || '/' || l.device_id from telemetry_latest l
        where %(family)s = 'telemetry' and l.tenant_id = %(tenant)s and l.metric_type = %(name)s
          and l.occurred_at >= %(since)s and (%(farm)s::text is null or l.farm_id = %(farm)s)
          and (%(barn)s::text is null or l.barn_id = %(barn)s)
          and (%(device)s::text is null or l.device_id = %(device)s)
        union
        select 'batch:' || k.batch_id from kpi_daily k
        where %(family)s = 'kpi' and k.tenant_id = %(tenant)s and k.kpi_type = %(name)s
          and k.kpi_date >= (%(since)s::timestamptz - interval '1 day')::date
          and (%(farm)s::text is null or k.farm_id = %(farm)s)
          and (%(barn)s::text is null or k.barn_id = %(barn)s)
        order by 1 limit %(limit)s
        """,
        {
            "family": family, "name": name, "tenant": tenant_id, "since": since, "limit": limit,
            "farm": rule.farm_id, "barn": rule.barn_id, "device": rule.device_id,
        },
    )  # fmt: skip
    return [Series(tenant_id, rule.signal, row[0]) for row in await cursor.fetchall()]


# --- readings that were stored


@dataclass(frozen=True, slots=True)
class NewReadings:
    """Readings of one series in one unit, in the order of their own time."""

    tenant_id: str
    farm_id: str
    barn_id: str
    device_id: str
    metric_type: str
    unit: str
    moments: Sequence[datetime]
    numbers: Sequence[float]


async def due_readings(tx: db.Connection, *, limit: int) -> tuple[list[tuple[str, int]], float]:
    """(tenant, id) of rows that no rule has looked at, oldest first, and the age of the oldest."""
    rows = await db.fetch_all(
        tx,
        """
        select tenant_id, id, extract(epoch from now() - stored_at)::float8 from alert_readings
        where due_at <= now() order by due_at, id limit %s
        """,
        limit,
    )
    return [(row[0], row[1]) for row in rows], max((row[2] for row in rows), default=0.0)


async def take_readings(tx: db.Connection, rows: Sequence[tuple[str, int]]) -> list[NewReadings]:
    """Delete these rows; their readings by series."""
    series = await db.fetch_all(
        tx,
        """
        with taken as (
          delete from alert_readings a using unnest(%s::text[], %s::bigint[]) as k(tenant_id, id)
          where a.tenant_id = k.tenant_id and a.id = k.id
          returning a.tenant_id, a.farms, a.barns, a.devices, a.metrics, a.units, a.moments,
            a.numbers
        )
        select t.tenant_id, r.farm_id, r.barn_id, r.device_id, r.metric_type, r.unit,
          array_agg(r.at order by r.at, r.number), array_agg(r.number order by r.at, r.number)
        from taken t, unnest(t.farms, t.barns, t.devices, t.metrics, t.units, t.moments, t.numbers)
          as r(farm_id, barn_id, device_id, metric_type, unit, at, number)
        group by t.tenant_id, r.farm_id, r.barn_id, r.device_id, r.metric_type, r.unit
        """,
        [tenant_id for tenant_id, _ in rows],
        [row_id for _, row_id in rows],
    )
    return [NewReadings(*row) for row in series]


async def put_off_readings(
    tx: db.Connection, tenant_id: str, row_id: int, *, delay_s: float
) -> None:
    """A row that cannot be evaluated waits longer each time, up to ten minutes."""
    await tx.execute(
        """
        update alert_readings set attempts = attempts + 1,
          due_at = now() + least(%s * power(2, least(attempts, 10)), 600) * interval '1 second'
        where tenant_id = %s and id = %s
        """,
        (delay_s, tenant_id, row_id),
    )


# --- values that came late


async def add_rechecks(tx: db.Connection, values: Iterable[Value], *, now: datetime) -> None:
    """Evaluate these series again from these values on; see rechecks.py.

    The older a value, the longer it waits for others, up to a minute: a backlog of days is
    evaluated again a few times, and not for each value. Of stored readings the first one of each
    series counts; what is old of them waits until no more of it comes, at most five minutes.
    """
    late: dict[tuple[Series, UUID], datetime] = {}
    for value in values:
        event_id = value.event_id
        if event_id is None:
            continue
        if event_id == READING and now - value.at > OLD:
            event_id = OLD_READING
        key = (value.series, event_id)
        late[key] = min(value.at, late.get(key, value.at))
    if not late:
        return
    await tx.execute(
        """
        insert into alert_rechecks as k (tenant_id, signal, subject, event_id, occurred_at, due_at)
        select n.*, now() + interval '1 second'
          * least(60, greatest(1, extract(epoch from now() - n.occurred_at) / 600))
        from unnest(%s::text[], %s::text[], %s::text[], %s::uuid[], %s::timestamptz[])
          as n(tenant_id, signal, subject, event_id, occurred_at)
        on conflict on constraint alert_rechecks_pkey do update set
          occurred_at = least(k.occurred_at, excluded.occurred_at),
          due_at = case when k.event_id = %s
            then least(greatest(k.due_at, excluded.due_at), k.received_at + interval '5 minutes')
            else least(k.due_at, excluded.due_at) end
        where k.event_id = any(%s)
        """,
        (
            *db.columns([series for series, _ in late], "tenant_id", "signal", "subject"),
            [event_id for _, event_id in late],
            [*late.values()],
            OLD_READING,
            [READING, OLD_READING],
        ),
    )


async def due_rechecks(tx: db.Connection, *, limit: int) -> list[Series]:
    """Series with something late that is due, longest due first."""
    rows = await db.fetch_all(
        tx,
        """
        select tenant_id, signal, subject from (
          select tenant_id, signal, subject, due_at from alert_rechecks
          where due_at <= now() order by due_at limit %s) due
        group by tenant_id, signal, subject order by min(due_at)
        """,
        limit,
    )
    return [Series(*row) for row in rows]


@dataclass(frozen=True, slots=True)
class Recheck:
    event_id: UUID
    occurred_at: datetime
    attempts: int
    is_stored: bool


async def rechecks(tx: db.Connection, series: Series) -> list[Recheck]:
    """What is late of a series, and whether its own service has stored it yet."""
    return await db.fetch_as(
        tx,
        Recheck,
        """
        select k.event_id, k.occurred_at, k.attempts,
          k.signal not like 'telemetry.%%' or k.event_id = any(%s)
          or exists (select from telemetry_readings r where r.tenant_id = k.tenant_id
            and r.event_id = k.event_id and r.occurred_at = k.occurred_at)
          or exists (select from telemetry_agg a where a.tenant_id = k.tenant_id
            and a.device_id = split_part(k.subject, '/', 3)
            and a.metric_type = substr(k.signal, 11) and a."window" = '1m'
            and a.bucket_end_at = k.occurred_at
            and a.bucket_start_at = k.occurred_at - interval '1 minute') as is_stored
        from alert_rechecks k
        where k.tenant_id = %s and k.signal = %s and k.subject = %s and k.due_at <= now()
        """,
        ([READING, OLD_READING], series.tenant_id, series.signal, series.subject),
    )


async def is_stored(tx: db.Connection, series: Series, at: datetime) -> bool:
    """Whether the reading of a series at this moment is in the tables."""
    cursor = await tx.execute(
        """
        select exists (select from telemetry_readings r
            where r.tenant_id = %(tenant)s and r.device_id = %(device)s
              and r.metric_type = %(metric)s and r.occurred_at = %(at)s)
          or exists (select from telemetry_agg a
            where a.tenant_id = %(tenant)s and a.device_id = %(device)s
              and a.metric_type = %(metric)s and a."window" = '1m'
              and a.bucket_start_at = %(at)s - interval '1 minute')
        """,
        {
            "tenant": series.tenant_id, "device": series.place[2], "metric": series.name, "at": at,
        },
    )  # fmt: skip
    row = await cursor.fetchone()
    return bool(row and row[0])


async def put_off(tx: db.Connection, series: Series, *, delay_s: float) -> None:
    """What is late of a series waits: it is not stored yet, or could not be evaluated."""
    await tx.execute(
        """
        update alert_rechecks set attempts = attempts + 1,
          due_at = now() + least(%s * power(2, least(attempts, 8)), 60) * interval '1 second'
        where tenant_id = %s and signal = %s and subject = %s and due_at <= now()
        """,
        (delay_s, series.tenant_id, series.signal, series.subject),
    )


async def remove_rechecks(tx: db.Connection, series: Series, events: Collection[UUID]) -> None:
    await tx.execute(
        """
        delete from alert_rechecks
        where tenant_id = %s and signal = %s and subject = %s and event_id = any(%s)
        """,
        (series.tenant_id, series.signal, series.subject, [*events]),
    )


async def history(
    tx: db.Connection, tenant_id: str, causes: Collection[str], *, since: datetime
) -> list[Past]:
    """Episodes of these causes that were open at `since` or later, oldest first."""
    return await db.fetch_as(
        tx,
        Past,
        """
        select episode_id, cause, opened_at, resolved_at, raised_at,
          paged_at is not null as is_paged,
          ended_reason is not null and ended_reason <> 'rule' as is_fixed
        from alert_episodes
        where tenant_id = %s and cause = any(%s) and state <> 'withdrawn'
          and (resolved_at is null or resolved_at >= %s)
        order by opened_at, episode_id
        """,
        (tenant_id, [*causes], since),
    )


async def correct(tx: db.Connection, tenant_id: str, changes: Sequence[tuple[Past, Span]]) -> None:
    """Give episodes other begins, ends and values; those who were told hear of an end.

    Those that are over first: of a cause only one may be open.
    """
    for changed in (
        [pair for pair in changes if pair[1].resolved_at is not None],
        [pair for pair in changes if pair[1].resolved_at is None],
    ):
        if changed:
            await _correct(tx, tenant_id, changed)


async def _correct(tx: db.Connection, tenant_id: str, changes: Sequence[tuple[Past, Span]]) -> None:
    spans = [span for _, span in changes]
    await tx.execute(
        """
        with corrected as (
          update alert_episodes e set opened_at = n.opened_at, resolved_at = n.resolved_at,
            state = case when n.resolved_at is not null then 'resolved'
              when e.state = 'resolved' then 'active' else e.state end,
            last_at = n.last_at, first_value = n.first_value, worst_value = n.worst_value,
            last_value = n.last_value,
            held_by = case when n.resolved_at is null then e.held_by end
          from unnest(%s::uuid[], %s::timestamptz[], %s::timestamptz[], %s::timestamptz[],
            %s::float8[], %s::float8[], %s::float8[]) as n(episode_id, opened_at, resolved_at,
              last_at, first_value, worst_value, last_value)
          where e.tenant_id = %s and e.episode_id = n.episode_id
          returning e.tenant_id, e.episode_id, e.paged_at, e.resolved_at
        )
        insert into alert_steps (tenant_id, episode_id, step, created_at)
        select tenant_id, episode_id, 'resolved', fn_now() from corrected
        where paged_at is not null and resolved_at is not null
        on conflict on constraint alert_steps_pkey do nothing
        """,
        (
            [past.episode_id for past, _ in changes],
            *db.columns(
                spans, "opened_at", "resolved_at", "last_at", "first_value", "worst_value",
                "last_value",
            ),
            tenant_id,
        ),
    )  # fmt: skip


async def withdraw(tx: db.Connection, tenant_id: str, episodes: Collection[UUID]) -> None:
    """Episodes that never were: data that came late says so."""
    if not episodes:
        return
    await tx.execute(
        """
        with withdrawn as (
          update alert_episodes set state = 'withdrawn',
            resolved_at = coalesce(resolved_at, greatest(opened_at, fn_now())), held_by = null
          where tenant_id = %s and episode_id = any(%s)
          returning tenant_id, episode_id, paged_at
        )
        insert into alert_steps (tenant_id, episode_id, step, created_at)
        select tenant_id, episode_id, 'resolved', fn_now() from withdrawn
        where paged_at is not null
        on conflict on constraint alert_steps_pkey do nothing
        """,
        (tenant_id, [*episodes]),
    )


# --- paging


async def page(tx: db.Connection, *, limit: int) -> int:
    """Call people about what is open, fresh and not held, once each; returns how many episodes.

    An open edge.heard episode holds the rules about that edge's totals and about what no longer
    comes from its farms; so does an edge that is about to get one, or that is back and has not sent
    everything yet. One without a key holds nothing, nor one whose farm another edge speaks for. A
    maintenance window holds all in its scope. Of an edge's own alert and a rule on the total that
    says the same (SAME_FACT) the one that came first holds the other, unless that is more severe.
    What holds an episode is in held_by; when that is over and the episode is not, people are
    called.
    """
    cursor = await tx.execute(
        """
        with clock as materialized (select fn_now() as now),
        fact as materialized (
          select f.code, f.signal
          from unnest(%(codes)s::text[], %(signals)s::text[]) as f(code, signal)
        ), severity as materialized (
          select s.name, s.rank::int
          from unnest(array['info', 'warning', 'critical', 'security'])
            with ordinality as s(name, rank)
        ), edge as not materialized (
          select h.tenant_id, h.edge_cluster_id, h.farms,
            h.received_at < clock.now - interval '2 minutes' or h.oldest_s > 120
            or exists (select from alert_episodes p where p.tenant_id = h.tenant_id
              and p.cause like 'rule:%%|edge:' || h.edge_cluster_id and p.signal = 'edge.heard'
              and (p.state in ('active', 'acknowledged') or p.state = 'resolved'
                and p.resolved_at > clock.now - interval '2 minutes')) as is_behind
          from edge_heartbeats h cross join clock
          where exists (select from edge_keys k where k.tenant_id = h.tenant_id
            and k.edge_cluster_id = h.edge_cluster_id and k.revoked_at is null)
        ), candidate as materialized (
          select e.tenant_id, e.episode_id, coalesce(
            (select 'window:' || w.window_id from alert_windows w
             where w.tenant_id = e.tenant_id and w.begin_at <= clock.now and w.end_at > clock.now
               and (w.farm_id is null or w.farm_id = e.farm_id)
               and (w.barn_id is null or w.barn_id = e.barn_id)
               and (w.device_id is null or w.device_id = e.device_id)
               and (w.edge_cluster_id is null or w.edge_cluster_id = e.edge_cluster_id)
               and (w.rule_id is null or w.rule_id = e.rule_id)
             order by w.end_at desc limit 1),
            (select 'episode:' || p.episode_id from alert_episodes p
             where p.tenant_id = e.tenant_id and p.signal = 'edge.heard'
               and p.state in ('active', 'acknowledged') and e.signal <> 'edge.heard'
               and (e.signal like 'edge.%%' and e.edge_cluster_id = p.edge_cluster_id
                 or e.is_absence and not o.is_covered and exists (
                   select from edge h where h.tenant_id = p.tenant_id
                     and h.edge_cluster_id = p.edge_cluster_id and e.farm_id = any (h.farms)))
             order by p.opened_at limit 1),
            (select 'episode:' || p.episode_id
             from fact f
               join alert_episodes p on p.tenant_id = e.tenant_id
                 and p.edge_cluster_id = e.edge_cluster_id
                 and p.source <> e.source and p.held_by is null
                 and p.state in ('active', 'acknowledged')
                 and (p.raised_at, p.episode_id) < (e.raised_at, e.episode_id)
                 and (p.source = 'edge' and split_part(p.cause, '|', 2) = f.code
                   or p.source = 'rule' and p.signal = f.signal)
               join severity ps on ps.name = p.severity
               join severity es on es.name = e.severity and es.rank <= ps.rank
             where e.edge_cluster_id is not null
               and (e.source = 'edge' and split_part(e.cause, '|', 2) = f.code
                 or e.source = 'rule' and e.signal = f.signal)
             order by p.raised_at, p.episode_id limit 1),
            (select 'edge:' || h.edge_cluster_id from edge h
             where h.tenant_id = e.tenant_id and e.is_absence and not o.is_covered
               and e.farm_id = any (h.farms) and h.is_behind
               and exists (select from alert_states s where s.tenant_id = h.tenant_id
                 and s.signal = 'edge.heard' and s.subject = 'edge:' || h.edge_cluster_id)
             limit 1)) as held_by
          from alert_episodes e cross join clock
            cross join lateral (select e.is_absence and exists (
              select from edge h where h.tenant_id = e.tenant_id and e.farm_id = any (h.farms)
                and not h.is_behind) as is_covered) o
          where e.state = 'active' and e.paged_at is null
            and e.last_at >= clock.now - case
              when e.signal like 'kpi.%%' or e.signal like 'camera.%%' or e.source = 'camera'
              then interval '24 hours' else interval '15 minutes' end
          order by e.last_at desc limit %(limit)s
          for update of e skip locked
        ), paged as (
          update alert_episodes e set held_by = c.held_by,
            paged_at = case when c.held_by is null then clock.now end
          from candidate c cross join clock
          where e.tenant_id = c.tenant_id and e.episode_id = c.episode_id
            and (c.held_by is null or c.held_by is distinct from e.held_by)
          returning e.tenant_id, e.episode_id, e.paged_at
        ), steps as (
          insert into alert_steps (tenant_id, episode_id, step, created_at)
          select tenant_id, episode_id, 'opened', paged_at from paged where paged_at is not null
          on conflict on constraint alert_steps_pkey do nothing
        )
        select count(*) from paged where paged_at is not null
        """,
        {"limit": limit, "codes": [*SAME_FACT], "signals": [*SAME_FACT.values()]},
    )
    row = await cursor.fetchone()
    return row[0] if row else 0
