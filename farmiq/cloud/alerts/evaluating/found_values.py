"""What looks of the clock found, kept for a week: the history on which their rules are tried."""

from collections.abc import Collection, Iterator, Mapping
from datetime import datetime, timedelta

from farmiq.cloud.alerts.evaluating.ruleset import Series, Value, timed_value
from farmiq.plumbing import db

# How often each family is looked at. Two looks that are further apart than that, and a bit, are two
# rows, for nobody knows what was between; what has a moment of its own is always a row of its own.
EVERY: Mapping[str, timedelta] = {
    "edge": timedelta(minutes=1),
    "weighing": timedelta(minutes=1),
    "feed": timedelta(minutes=10),
    "camera": timedelta(),
    "bus": timedelta(minutes=1),
}
SLACK = 2.5
MAX_SPAN = timedelta(days=1)


def _every(series: Series) -> timedelta:
    return EVERY.get(series.signal.partition(".")[0], timedelta())


async def store(tx: db.Connection, values: Collection[Value]) -> None:
    """Keep values of series that have no other history; one that is still the same takes no row."""
    new = {
        value.series: value for value in values if value.series.is_timed and value.value is not None
    }
    if not new:
        return
    await tx.execute(
        """
        with n as (
          select n.*, l.begin_at, l.end_at, l.value = n.value and n.at - l.end_at <= n.apart
            and n.at - l.begin_at < %s as goes_on
          from unnest(%s::text[], %s::text[], %s::text[], %s::timestamptz[], %s::float8[],
              %s::interval[]) as n(tenant_id, signal, subject, at, value, apart)
            left join lateral (
              select v.begin_at, v.end_at, v.value from alert_values v
              where v.tenant_id = n.tenant_id and v.signal = n.signal and v.subject = n.subject
              order by v.begin_at desc limit 1) l on true
          where l.end_at is null or n.at > l.end_at
        ), longer as (
          update alert_values v set end_at = n.at from n
          where n.goes_on and v.tenant_id = n.tenant_id and v.signal = n.signal
            and v.subject = n.subject and v.begin_at = n.begin_at
        )
        insert into alert_values (tenant_id, signal, subject, begin_at, end_at, value)
        select tenant_id, signal, subject, at, at, value from n where goes_on is not true
        on conflict on constraint alert_values_pkey do nothing
        """,
        (
            MAX_SPAN,
            *db.columns(new, "tenant_id", "signal", "subject"),
            *db.columns(new.values(), "at", "value"),
            [SLACK * _every(series) for series in new],
        ),
    )


async def series_with_values(
    tx: db.Connection, tenant_id: str, signal: str, *, since: datetime, limit: int
) -> list[Series]:
    rows = await db.fetch_all(
        tx,
        """
        select distinct subject from alert_values
        where tenant_id = %s and signal = %s and end_at >= %s order by subject limit %s
        """,
        tenant_id,
        signal,
        since,
        limit,
    )
    return [Series(tenant_id, signal, row[0]) for row in rows]


async def past_values(
    tx: db.Connection, series: Series, *, begin: datetime, end: datetime, limit: int
) -> list[Value]:
    """What looks found from `begin` to `end`, in order; the newest ones."""
    rows = await db.fetch_all(
        tx,
        """
        select greatest(begin_at, %s), end_at, value from alert_values
        where tenant_id = %s and signal = %s and subject = %s and end_at between %s and %s
        order by begin_at
        """,
        begin, series.tenant_id, series.signal, series.subject, begin, end,
    )  # fmt: skip
    moments = [
        (at, value)
        for begin_at, end_at, value in rows
        for at in _looks(begin_at, end_at, every=_every(series))
    ]
    return [timed_value(series, at, value) for at, value in moments[-limit:]]


def _looks(begin_at: datetime, end_at: datetime, *, every: timedelta) -> Iterator[datetime]:
    """The moments at which a value was found, about: those of a row are not kept one by one."""
    at = begin_at
    while every and at < end_at:
        yield at
        at += every
    yield end_at
