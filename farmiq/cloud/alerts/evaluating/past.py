"""SQL of values of the past: what came late, and what the tables say that a series was."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from statistics import fmean
from uuid import UUID

from farmiq.cloud.alerts.evaluating.ruleset import Series, Value
from farmiq.farm.alerts.rules import in_rule_unit
from farmiq.messages.alerts import AlertRule
from farmiq.plumbing import db

# In place of the id of an event: a reading that is stored, and one that came long after its time.
# Of a series one of each waits to be evaluated again, whatever their number.
READING, OLD_READING = UUID(int=1), UUID(int=2)
# What is older than this when it comes changes history and calls nobody.
OLD = timedelta(minutes=15)


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
    """Late readings of a series, and whether its own service has stored them yet."""
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
    """Late readings of a series wait: not stored yet, or could not be evaluated."""
    await tx.execute(
        """
        update alert_rechecks set attempts = attempts + 1,
          due_at = now() + fn_retry_delay(attempts, %s, 60)
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
