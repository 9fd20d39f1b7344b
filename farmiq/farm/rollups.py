"""Rollups of readings: dirty buckets are marked, then recomputed, in tables that a site names.

Minutes are computed from readings, hours from minutes, local days from hours. A transaction that
stores readings marks their buckets in the same commit. The job that recomputes reads marks first
and the readings after them, so it sees every reading that a mark stands for; a mark that is added
meanwhile stays for the next batch. One transaction at a time recomputes: a bucket that was read
early must not be written late. Nothing that recomputes is prepared: a plan made while a month is
empty is wrong when it is full.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from farmiq.farm import buckets
from farmiq.farm.buckets import DirtyRange, LocalDay, Series, Zones
from farmiq.plumbing import db

MAX_HOURS = 1000
MAX_RANGES = 50_000  # of all marks of a batch, the same hours again and again included

KEY = ("tenant_id", "device_id", "metric_type")

Bucket = tuple[Series, datetime, str]  # where it starts, and its farm
PendingDay = tuple[Series, datetime, datetime]
RecomputeMinutes = Callable[[db.Connection, Sequence[DirtyRange]], Awaitable[int]]


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables of a site, with a schema or without, and where their columns differ.

    Their columns are those of the edge's (`edge/sql/schema/2*.sql`); a bucket is unique by
    KEY, "window" and bucket_start_at. `series` lists every series there is, `zones` the time zones
    of farms. A site that sends buckets on says in SQL which are pending: a mark `d` for the metric
    of its entry `e`, and a bucket. `counted` says which readings `r` are. A site that also gets
    buckets from elsewhere says which bucket `a` was computed here (`own`), and when a computed one
    (`excluded`) may replace `a`. `noted_*` are a site's own columns of a bucket that changes.
    """

    readings: str
    buckets: str
    marks: str
    series: str
    state: str
    zones: str
    rezoned: str
    reading_id: str = "id"
    arrived_at: str = "ingested_at"
    pending_mark: str = "false"
    pending_bucket: str = "false"
    counted: str = "true"
    own: str = "true"
    may_replace: str = "true"
    noted_columns: str = ""
    noted_values: str = ""
    noted_changes: str = ""


@dataclass(frozen=True, slots=True)
class Recomputed:
    """What one batch did. `ranges` were marked; those of `open_ranges` are not final yet.

    `changed_hours` are the buckets of hours that are not what they were.
    """

    marks: int = 0
    minutes: int = 0
    hours: int = 0
    days: int = 0
    ranges: Sequence[DirtyRange] = ()
    open_ranges: Sequence[DirtyRange] = ()
    changed_hours: Sequence[Bucket] = ()


def same(left: str, right: str) -> str:
    """SQL: both rows are of one series."""
    return " and ".join(f"{left}.{column} = {right}.{column}" for column in KEY)


class Rollups:
    """The rollups of one site; the locks are names of advisory locks of its database."""

    def __init__(self, tables: Tables, *, lock: str, raw_from_lock: str) -> None:
        self._names = {**_NAMES, **asdict(tables)}
        self._lock_name, self._raw_from_lock = lock, raw_from_lock

    async def _execute(self, tx: db.Connection, statement: str, *args: Any) -> list[Any]:
        """Run a statement with the names of this site; return its rows."""
        cursor = await tx.execute(statement.format_map(self._names).encode(), args, prepare=False)
        return await cursor.fetchall() if cursor.description else []

    async def _upsert(self, tx: db.Connection, computed: str, *args: Any) -> list[Any]:
        """Store these buckets; return those that are new or have changed."""
        return await self._execute(tx, f"{_INSERT} from ({computed}) c {_ON_CONFLICT}", *args)

    # Who may recompute

    async def try_lock(self, tx: db.Connection) -> bool:
        """Be the one who recomputes until this transaction ends; False if somebody is already."""
        locked: bool = await db.fetch_value(
            tx, "select pg_try_advisory_xact_lock(hashtextextended(%s, 0))", self._lock_name
        )
        return locked

    async def lock(self, tx: db.Connection) -> None:
        """As `try_lock`, but wait; raises psycopg.OperationalError after ten seconds."""
        await tx.execute("set local lock_timeout = '10s'")
        await tx.execute(_LOCK, (self._lock_name,))

    # Marks

    def insert_marks_sql(self, columns: str = "", values: str = "") -> str:
        """Insert one mark with `mark_values`; a site may add columns of its own."""
        return _INSERT_MARKS.format(**self._names, columns=columns, values=values)

    async def newest_mark(self, tx: db.Connection) -> int:
        rows = await self._execute(tx, "select coalesce(max(id), 0) from {marks}")
        return int(rows[0][0])

    async def oldest_marks(self, tx: db.Connection, *, up_to: int | None = None) -> list[int]:
        """The oldest marks, with about MAX_RANGES ranges together; at least one mark."""
        rows = await self._execute(
            tx,
            """
            select id from (
              select id, sum(cardinality(tenants)) over (order by id) - cardinality(tenants)
                as before
              from (
                select id, tenants from {marks}
                where id <= coalesce(%s, 9223372036854775807) order by id limit 1000) oldest) d
            where before < %s
            """,
            up_to,
            MAX_RANGES,
        )
        return [mark_id for (mark_id,) in rows]

    async def marked_ranges(self, tx: db.Connection, marks: Sequence[int]) -> list[DirtyRange]:
        """What these marks name, each hour of a series once."""
        rows = await self._execute(
            tx,
            """
            select e.tenant_id, e.device_id, e.metric_type,
              min(coalesce(e.first_at, to_timestamp(e.first * 60))),
              max(coalesce(e.last_at, to_timestamp((e.last + 1) * 60) - interval '1 microsecond')),
              bool_or({pending_mark})
            from {marks} d, unnest(d.tenants, d.devices, d.metrics, d.first_minutes,
                d.last_minutes, d.first_times, d.last_times)
              as e({key}, first, last, first_at, last_at)
            where d.id = any(%s)
            group by 1, 2, 3, floor(e.first / 60.0)
            order by 1, 2, 3, 4
            """,
            list(marks),
        )
        return [DirtyRange(*row) for row in rows]

    async def delete_marks(self, tx: db.Connection, marks: Sequence[int]) -> None:
        await self._execute(tx, "delete from {marks} where id = any(%s)", list(marks))

    async def backlog(self, tx: db.Connection) -> tuple[int, float]:
        """How far the buckets are behind: the number of marks, and the age of the oldest."""
        (row,) = await self._execute(
            tx,
            """
            select count(*), coalesce(extract(epoch from fn_now() - min(marked_at)), 0)::float8
            from {marks}
            """,
        )
        return row[0], row[1]

    async def is_dirty_before(self, tx: db.Connection, before: datetime) -> bool:
        """Whether a bucket from before this time still has to be recomputed."""
        ((is_dirty,),) = await self._execute(
            tx,
            """
            select exists (
              select from {marks} d, unnest(d.first_minutes) minute
              where d.first_at < %s and to_timestamp(minute * 60) < %s
                and to_timestamp(minute * 60) >= coalesce(
                  (select s.raw_from from {state} s), '-infinity'))
            """,
            before,
            before,
        )
        return bool(is_dirty)

    # From which time on buckets are recomputed (raw_from), and in which zone

    async def raw_from(self, tx: db.Connection) -> datetime:
        """Before this time readings may have been purged: buckets there are final."""
        return await self._known_raw_from(tx) or datetime.min.replace(tzinfo=UTC)

    async def _known_raw_from(self, tx: db.Connection) -> datetime | None:
        rows = await self._execute(tx, "select raw_from from {state} where raw_from > '-infinity'")
        return rows[0][0] if rows else None

    async def lock_raw_from_shared(self, tx: db.Connection) -> datetime | None:
        """Return raw_from, if it is known; it stays as it is until this transaction ends."""
        await tx.execute(
            "select pg_advisory_xact_lock_shared(hashtextextended(%s, 0))", (self._raw_from_lock,)
        )
        return await self._known_raw_from(tx)

    async def lock_raw_from(self, tx: db.Connection) -> None:
        """Wait until nobody relies on raw_from. Look at the marks after this, then move it."""
        await tx.execute(_LOCK, (self._raw_from_lock,))

    async def advance_raw_from(self, tx: db.Connection, before: datetime) -> None:
        """From now on, buckets from before this time are never recomputed."""
        await self._execute(
            tx,
            """
            insert into {state} as s (raw_from) values (%s)
            on conflict (only_row) do update
              set raw_from = greatest(s.raw_from, excluded.raw_from)
            """,
            before,
        )

    async def initialize(self, tx: db.Connection, *, timezone: str, retention_days: int) -> None:
        """Before the first batch: from when on buckets are recomputed, and in which default zone.

        Readings older than the retention have never been here on the first day. A new default zone
        has the days of every series recomputed.
        """
        if await self._execute(tx, "select 1 from {state} where fallback_timezone = %s", timezone):
            return
        await self._execute(
            tx,
            """
            insert into {state} as s (raw_from, fallback_timezone)
            values ((date_trunc('day', fn_now() at time zone 'UTC') - make_interval(days => %s))
              at time zone 'UTC', %s)
            on conflict (only_row) do update set fallback_timezone = excluded.fallback_timezone
            """,
            retention_days,
            timezone,
        )
        await self._execute(
            tx, "insert into {rezoned} select {key} from {series} on conflict do nothing"
        )

    # Recomputing

    async def recompute_batch(
        self,
        tx: db.Connection,
        *,
        timezone: str,
        max_hours: int = MAX_HOURS,
        up_to: int | None = None,
        recompute_minutes: RecomputeMinutes | None = None,
    ) -> Recomputed:
        """Recompute the buckets of the oldest marks; the caller holds the lock.

        A site whose readings are in more than one place has its own way to recompute minutes.
        """
        marks, ranges = await self._next_ranges(tx, max_hours=max_hours, up_to=up_to)
        if not marks:
            return Recomputed()
        raw_from = await self.raw_from(tx)
        open_ranges = [dirty for dirty in ranges if dirty.hour_at >= raw_from]
        minutes = await (recompute_minutes or self.recompute_minutes)(tx, open_ranges)
        farms_before = await self._farms_of_hours(tx, open_ranges)
        hours = await self.recompute_hours(tx, open_ranges)
        changed_hours = [*hours]
        hours += await self._pending_hours(tx, open_ranges, hours)
        days = await self._recompute_days_of(tx, hours, farms_before, timezone=timezone)
        await self.delete_marks(tx, marks)
        return Recomputed(len(marks), minutes, len(hours), days, ranges, open_ranges, changed_hours)

    async def _next_ranges(
        self, tx: db.Connection, *, max_hours: int, up_to: int | None
    ) -> tuple[list[int], list[DirtyRange]]:
        """As many marks as name about `max_hours` different hours of series, but at least one.

        Many marks of the same hours, as a busy minute leaves them, are one batch.
        """
        marks = await self.oldest_marks(tx, up_to=up_to)
        while True:
            ranges = await self.marked_ranges(tx, marks)
            if len(ranges) <= max_hours or len(marks) == 1:
                return marks, ranges
            marks = marks[: len(marks) // 2]

    async def recompute_minutes(
        self, tx: db.Connection, ranges: Sequence[DirtyRange], *, readings: str = "{readings}"
    ) -> int:
        """Recompute minutes from their readings; returns how many have changed.

        If all new readings are later than `last_at`, the newest that a minute has counted, they
        are added to the minute. Otherwise all readings of the minute are counted again. Readings
        later than the marks are left for their own mark: they stay later than `last_at` until it
        is handled. A reading more than a day ahead of its arrival is in no bucket.
        """
        columns = db.columns(ranges, *KEY, "first_at", "last_at")
        return len(await self._upsert(tx, _MINUTES.replace("{readings}", readings), *columns))

    async def recompute_hours(
        self, tx: db.Connection, ranges: Sequence[DirtyRange]
    ) -> list[Bucket]:
        """Recompute hours from their minutes; returns those that have changed."""
        rows = await self._upsert(tx, _HOURS, *db.columns(ranges, *KEY, "hour_at"))
        return [(row[:3], row[3], row[4]) for row in rows]

    async def _pending_hours(
        self, tx: db.Connection, ranges: Sequence[DirtyRange], changed: Sequence[Bucket]
    ) -> list[Bucket]:
        """The other hours that somebody waits for: one that was sent here has no minutes."""
        known = {(series, at) for series, at, _ in changed}
        others = [d for d in ranges if d.pending and (d.series, d.hour_at) not in known]
        farms = await self._farms_of_hours(tx, others) if others else {}
        return [(series, at, farm_id) for (series, at), farm_id in farms.items()]

    async def _farms_of_hours(
        self, tx: db.Connection, ranges: Sequence[DirtyRange]
    ) -> dict[tuple[Series, datetime], str]:
        """The farm of each of these hours as it is stored."""
        rows = await self._execute(
            tx,
            """
            select a.tenant_id, a.device_id, a.metric_type, a.bucket_start_at, a.farm_id
            from unnest({keys}, %s::timestamptz[]) as k({key}, starts_at)
              join {buckets} a using ({key})
            where a."window" = '1h' and a.bucket_start_at = k.starts_at
            """,
            *db.columns(ranges, *KEY, "hour_at"),
        )
        return {(row[:3], row[3]): row[4] for row in rows}

    async def _recompute_days_of(
        self,
        tx: db.Connection,
        hours: Sequence[Bucket],
        farms_before: dict[tuple[Series, datetime], str],
        *,
        timezone: str,
    ) -> int:
        """The days of hours that changed; if an hour changed its zone, also those that it left."""
        zones = await self._zones(tx, timezone)
        here = [(series, at, zones.of(series[0], farm_id)) for series, at, farm_id in hours]
        left = [
            (series, at, zones.of(series[0], farms_before[series, at]))
            for series, at, zone in here
            if (series, at) in farms_before
            and zones.of(series[0], farms_before[series, at]) != zone
        ]
        in_use = zones.in_use()
        gone = await self._delete_days(tx, buckets.local_days(left, in_use)) if left else []
        days = buckets.local_days([*here, *left], in_use)
        count = await self._recompute_days(tx, days, timezone=timezone)
        await self._set_pending(tx, gone)
        return count

    async def recompute_next_rezoned(self, tx: db.Connection, *, timezone: str) -> bool:
        """Recompute all days of one series whose farm has another zone now; False if none waits.

        The caller holds the lock.
        """
        rows = await self._execute(tx, "select {key} from {rezoned} limit 1")
        if not rows:
            return False
        series = rows[0]
        zones = await self._zones(tx, timezone)
        hours = await self._execute(
            tx,
            "select bucket_start_at, farm_id from {buckets} "
            "where ({key}) = (%s, %s, %s) and \"window\" = '1h'",
            *series,
        )
        days = buckets.local_days(
            [(series, at, zones.of(series[0], farm_id)) for at, farm_id in hours], zones.in_use()
        )
        gone = await self._delete_days(tx, series=series)
        await self._recompute_days(tx, days, timezone=timezone)
        await self._set_pending(tx, gone)
        await self._execute(tx, "delete from {rezoned} where ({key}) = (%s, %s, %s)", *series)
        return True

    async def _zones(self, tx: db.Connection, default: str) -> Zones:
        rows = await self._execute(tx, "select tenant_id, farm_id, timezone from {zones}")
        return Zones({(tenant_id, farm_id): zone for tenant_id, farm_id, zone in rows}, default)

    async def _recompute_days(
        self, tx: db.Connection, days: Sequence[LocalDay], *, timezone: str
    ) -> int:
        """Recompute local days from the hours of farms in their zone; returns how many changed.

        Where a day does not start on a full UTC hour, the minutes of that hour are taken.
        """
        whole = [buckets.whole_hours(day) for day in days]
        rows = await self._upsert(
            tx,
            _DAYS,
            *db.columns(days, *KEY, "starts_at", "ends_at"),
            [first for first, _ in whole],
            [last for _, last in whole],
            [",".join(day.zones) for day in days],
            timezone,
        )
        return len(rows)

    async def _delete_days(
        self, tx: db.Connection, days: Sequence[LocalDay] = (), *, series: Series | None = None
    ) -> list[PendingDay]:
        """Delete these days, or all of a series, before they are recomputed without what has left.

        Returns those that somebody waits for.
        """
        keys = db.columns(days, *KEY) if series is None else [[value] for value in series]
        rows = await self._execute(
            tx,
            """
            delete from {buckets} a
            using unnest({keys}, %s::timestamptz[]) as k({key}, starts_at)
            where {a_is_k} and a."window" = '1d' and {own}
              and a.bucket_start_at = coalesce(k.starts_at, a.bucket_start_at)
            returning a.tenant_id, a.device_id, a.metric_type, a.bucket_start_at,
              a.bucket_end_at, {pending_bucket}
            """,
            *keys,
            [day.starts_at for day in days] or [None],
        )
        return [(row[:3], row[3], row[4]) for row in rows if row[5]]

    async def _set_pending(self, tx: db.Connection, gone: Sequence[PendingDay]) -> None:
        """Days that now contain what somebody waited for in deleted ones are pending instead."""
        if not gone:
            return
        await self._execute(
            tx,
            """
            update {buckets} a set {pending_bucket} = true
            from unnest({keys}, %s::timestamptz[], %s::timestamptz[])
              as k({key}, starts_at, ends_at)
            where {a_is_k} and a."window" = '1d'
              and a.bucket_start_at > k.starts_at - interval '2 days'
              and a.bucket_start_at < k.ends_at and a.bucket_end_at > k.starts_at
            """,
            *map(list, zip(*((*series, first, last) for series, first, last in gone), strict=True)),
        )


def mark_values(ranges: Sequence[DirtyRange]) -> list[Any]:
    """The parameters of `insert_marks_sql`."""
    return [
        min(dirty.first_at for dirty in ranges),
        *db.columns(ranges, *KEY),
        [buckets.minute_number(dirty.first_at) for dirty in ranges],
        [buckets.minute_number(dirty.last_at) for dirty in ranges],
        [dirty.first_at for dirty in ranges],
        [dirty.last_at for dirty in ranges],
    ]


_LOCK = "select pg_advisory_xact_lock(hashtextextended(%s, 0))"

# The statements below are templates: names of tables and columns are a site's (`Rollups._names`).

_INSERT_MARKS = """
insert into {marks} (marked_at, first_at, tenants, devices, metrics,
  first_minutes, last_minutes, first_times, last_times{columns})
select fn_now(), %s, {keys}, %s::bigint[], %s::bigint[], %s::timestamptz[],
  %s::timestamptz[]{values}
returning *
"""

# Store computed buckets; one that is stored like that already does not change and is not returned.
# The mean fails for no sum: one beyond a double is divided first, and one that a double can hardly
# tell from zero is zero.
_INSERT = """
insert into {buckets} as a (id, {key}, "window", bucket_start_at, bucket_end_at, farm_id,
  barn_id, unit, min_value, max_value, sum_value, count, last_at, avg_value{noted_columns})
select fn_uuid_v7(), c.*, case
    when abs(c.sum_value) < 1e-290 then 0
    when abs(c.sum_value) < 1e308 then c.sum_value::float8 / c.count
    else (c.sum_value / c.count)::float8 end{noted_values}
"""
_ON_CONFLICT = """
on conflict ({key}, "window", bucket_start_at) do update set
  farm_id = excluded.farm_id, barn_id = excluded.barn_id, unit = excluded.unit,
  bucket_end_at = excluded.bucket_end_at,
  avg_value = excluded.avg_value, min_value = excluded.min_value,
  max_value = excluded.max_value, sum_value = excluded.sum_value,
  count = excluded.count, last_at = excluded.last_at{noted_changes}
where {may_replace}
  and (a.count, a.sum_value, a.min_value, a.max_value, a.farm_id, a.barn_id, a.unit,
      a.bucket_end_at, a.last_at)
    is distinct from (excluded.count, excluded.sum_value, excluded.min_value,
      excluded.max_value, excluded.farm_id, excluded.barn_id, excluded.unit,
      excluded.bucket_end_at, excluded.last_at)
returning a.tenant_id, a.device_id, a.metric_type, a.bucket_start_at, a.farm_id
"""

_MINUTES = """
select k.tenant_id, k.device_id, k.metric_type, '1m' as "window", m.starts_at,
  m.starts_at + interval '1 minute', m.newest[1][1], m.newest[1][2], m.newest[1][3],
  least(m.min_value, b.min_value), greatest(m.max_value, b.max_value),
  m.sum_value + coalesce(b.sum_value, 0) as sum_value, m.count + coalesce(b.count, 0) as count,
  m.last_at
from unnest({keys}, %s::timestamptz[], %s::timestamptz[]) as k({key}, first_at, last_at)
  cross join lateral (
    select date_bin('1 minute', k.first_at, 'epoch') as first_minute) f
  cross join lateral (
    select coalesce(bool_and(h.last_at < k.first_at), false) as only_later,
      greatest(k.last_at, max(h.last_at)) as last_at
    from (
      -- Buckets of an earlier version contain all of their minute.
      select coalesce(a.last_at, a.bucket_end_at - interval '1 microsecond') as last_at
      from {buckets} a
      where {a_is_k} and a."window" = '1m'
        and a.bucket_start_at >= f.first_minute and a.bucket_start_at <= k.last_at) h) counted
  cross join lateral (
    select date_bin('1 minute', r.occurred_at, 'epoch') as starts_at,
      (array_agg(array[r.farm_id, r.barn_id, r.unit]
        order by r.occurred_at desc, r.{reading_id} desc))[1:1] as newest,
      max(r.occurred_at) as last_at,
      min(r.metric_value) as min_value, max(r.metric_value) as max_value,
      -- Through text: a direct cast would keep 15 digits only.
      sum(r.metric_value::text::numeric) as sum_value, count(*) as count
    from {readings} r
    where {r_is_k}
      and r.occurred_at >= case when counted.only_later then k.first_at else f.first_minute end
      and r.occurred_at <= counted.last_at
      and r.occurred_at <= r.{arrived_at} + interval '24 hours' and {counted}
    group by 1) m
  left join {buckets} b on counted.only_later and {b_is_k}
    and b."window" = '1m' and b.bucket_start_at = m.starts_at
"""

# Of the parts `p` of a longer bucket. The newest part says where the device is.
_SUM = """
(array_agg(array[p.farm_id, p.barn_id, p.unit] order by p.bucket_start_at desc))[1:1] as newest,
min(p.min_value) as min_value, max(p.max_value) as max_value,
sum(p.sum_value) as sum_value, sum(p.count)::bigint as count
"""
_OF_PARTS = """
s.newest[1][1], s.newest[1][2], s.newest[1][3],
s.min_value, s.max_value, s.sum_value, s.count, null::timestamptz
"""

_HOURS = """
select k.tenant_id, k.device_id, k.metric_type, '1h' as "window", k.starts_at,
  k.starts_at + interval '1 hour', {of_parts}
from unnest({keys}, %s::timestamptz[]) as k({key}, starts_at)
  cross join lateral (
    select {sum}
    from {buckets} p
    where {p_is_k} and p."window" = '1m' and p.bucket_start_at >= k.starts_at
      and p.bucket_start_at < k.starts_at + interval '1 hour'
    having count(*) > 0) s
"""

_DAYS = """
select k.tenant_id, k.device_id, k.metric_type, '1d' as "window", k.starts_at, k.ends_at, {of_parts}
from unnest({keys}, %s::timestamptz[], %s::timestamptz[], %s::timestamptz[], %s::timestamptz[],
      %s::text[])
    as k({key}, starts_at, ends_at, hours_from, hours_to, zones)
  cross join lateral (
    select {sum}
    from (
      select h.farm_id as hour_farm_id, h.* from {buckets} h
      where {h_is_k} and h."window" = '1h'
        and h.bucket_start_at >= k.hours_from and h.bucket_start_at < k.hours_to
      union all
      select h.farm_id, m.* from {buckets} m
        join {buckets} h on {h_is_m} and h."window" = '1h'
          and h.bucket_start_at = date_bin('1 hour', m.bucket_start_at, 'epoch')
      where {m_is_k} and m."window" = '1m'
        and ((m.bucket_start_at >= k.starts_at and m.bucket_start_at < k.hours_from)
          or (m.bucket_start_at >= k.hours_to and m.bucket_start_at < k.ends_at))) p
      left join {zones} f on f.tenant_id = p.tenant_id and f.farm_id = p.hour_farm_id
    where coalesce(f.timezone, %s) = any(string_to_array(k.zones, ','))
    having count(*) > 0) s
"""

_NAMES = {
    "key": ", ".join(KEY),
    "keys": ", ".join("%s::text[]" for _ in KEY),
    "sum": _SUM,
    "of_parts": _OF_PARTS,
    # Both rows are of one series.
    **{f"{left}_is_{right}": same(left, right) for left in "abhmpr" for right in "km"},
}
