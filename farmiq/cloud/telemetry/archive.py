"""Moves months of readings into Parquet files: written, read back, compared, noted, then dropped.

telemetry_readings --> [archive] --> the cloud's bucket, telemetry_archives

A month's partition is dropped when it has just as many rows as were found in files; whatever comes
meanwhile stops that, and the next run looks again. So a run that dies anywhere is begun again: what
is in a file already is not written a second time. Readings that come for a month that is gone get
its partition again, and in the next run a file of their own; those that were there before are
dropped, and counted no longer.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import date, datetime
from itertools import groupby
from typing import Any
from uuid import UUID

import prometheus_client

from farmiq import crash
from farmiq.cloud import history
from farmiq.cloud.history import COLUMNS, History
from farmiq.farm import months
from farmiq.farm.buckets import Series
from farmiq.plumbing import db
from farmiq.plumbing.storage import objects

TABLE = "telemetry_readings"
# Rows of a file; what is in memory at once is about 500 bytes of each.
MAX_ROWS = 131_072
_FIRST = UUID(int=0)

ARCHIVED = prometheus_client.Counter(
    "farmiq_cloud_telemetry_archived_total", "Readings that were written into Parquet files"
)
ARCHIVED_BYTES = prometheus_client.Counter(
    "farmiq_cloud_telemetry_archived_bytes_total", "Bytes of those files"
)


class NotTheSameError(Exception):
    """A file that was read back is not what was written: nothing was dropped."""


@dataclass(frozen=True, slots=True)
class Portion:
    """Readings of one metric of a company and month that go into a file, or several."""

    tenant_id: str
    metric_type: str
    devices: tuple[str, ...]


@dataclass(slots=True)
class Progress:
    """What a run found in the rows of a month: how many, and which came a second time."""

    rows: int = 0
    written: int = 0
    again: Counter[Series] = field(default_factory=Counter)


async def archive_months(pool: db.Pool, files: History, *, hot_months: int) -> dict[str, object]:
    """Archive the months that ended more than `hot_months` ago; nothing if somebody else does."""
    bucket = files.bucket
    if bucket is None:
        return {}
    done: dict[str, object] = {}
    async with alone(pool) as is_alone:
        if not is_alone:
            return {}
        async with db.transaction(pool) as tx:
            first_hot = months.add_months(await months.today(tx), -hot_months)
            existing = await months.partitions(tx, TABLE)
        for month in existing:
            if month < first_hot:
                progress = Progress()
                for portion in await _portions(pool, month):
                    await _archive_portion(pool, files, bucket, portion, month, progress)
                outcome = await _drop(pool, month, progress)
                done[f"{month:%Y-%m}"] = f"{progress.written} written, {outcome}"
                await _delete_unknown(pool, bucket, month)
    return done


@asynccontextmanager
async def alone(pool: db.Pool) -> AsyncIterator[bool]:
    """Whether nobody else moves or deletes old readings until this ends."""
    async with db.autocommit(pool) as connection:
        name = history.LOCK
        locked = await db.fetch_value(
            connection, "select pg_try_advisory_lock(hashtextextended(%s, 0))", name
        )
        try:
            yield bool(locked)
        finally:
            if locked and not connection.closed:
                await connection.execute(
                    "select pg_advisory_unlock(hashtextextended(%s, 0))", (name,)
                )


def portions(counts: Sequence[tuple[str, str, str, int]]) -> Iterator[Portion]:
    """Devices together that fit a file, of (tenant, metric, device, readings) in this order."""
    for (tenant_id, metric_type), rows in groupby(counts, lambda row: row[:2]):
        devices: list[str] = []
        total = 0
        for _, _, device_id, count in rows:
            if devices and total + count > MAX_ROWS:
                yield Portion(tenant_id, metric_type, tuple(devices))
                devices, total = [], 0
            devices.append(device_id)
            total += count
        yield Portion(tenant_id, metric_type, tuple(devices))


async def _portions(pool: db.Pool, month: date) -> list[Portion]:
    async with pool.connection() as connection:
        counts = await db.fetch_all(
            connection,
            """
            select tenant_id, metric_type, device_id, count(*) from telemetry_readings
            where occurred_at >= %s and occurred_at < %s
            group by 1, 2, 3 order by 1, 2, device_id collate "C"
            """,
            *_bounds(month),
        )
    return list(portions([tuple(row) for row in counts]))


def _bounds(month: date) -> tuple[datetime, datetime]:
    return months.days_before(month), months.days_before(months.add_months(month, 1))


async def _archive_portion(  # noqa: PLR0917 - one step of a run
    pool: db.Pool,
    files: History,
    bucket: objects.Bucket,
    portion: Portion,
    month: date,
    progress: Progress,
) -> None:
    """Write what no file has; a device with many readings gets several files."""
    from farmiq.plumbing import parquet  # noqa: PLC0415 - pyarrow is an extra

    begin, end = _bounds(month)
    after = (begin, _FIRST)
    limit = MAX_ROWS if len(portion.devices) == 1 else None
    while True:
        lines = await _copy(pool, portion, after=after, end=end, limit=limit)
        if not lines:
            return
        table = await asyncio.to_thread(parquet.from_csv, lines, COLUMNS)
        progress.rows += table.num_rows
        last = table.slice(table.num_rows - 1, 1).to_pylist()[0]
        new = await _without_archived(pool, files, portion, table, month, progress)
        if new.num_rows:
            await _store(pool, bucket, new, month)
            progress.written += new.num_rows
        if limit is None or table.num_rows < limit:
            return
        after = (last["occurred_at"], UUID(bytes=last["event_id"]))


async def _copy(
    pool: db.Pool,
    portion: Portion,
    *,
    after: tuple[datetime, UUID],
    end: datetime,
    limit: int | None,
) -> bytes:
    data = bytearray()
    async with pool.connection() as connection, connection.cursor() as cursor, cursor.copy(
        """
            copy (
              select r.tenant_id, encode(uuid_send(r.event_id), 'hex'), r.farm_id, r.barn_id,
                r.device_id, r.metric_type, r.metric_value, r.unit,
                (extract(epoch from r.occurred_at) * 1000000)::bigint, r.trace_id,
                (extract(epoch from r.stored_at) * 1000000)::bigint, r.clock_suspect
              from unnest(%s::text[]) with ordinality as d(device_id, place)
                cross join lateral (
                  select * from telemetry_readings t
                  where t.tenant_id = %s and t.device_id = d.device_id and t.metric_type = %s
                    and t.occurred_at >= %s and t.occurred_at < %s
                    and (t.occurred_at, t.event_id) > (%s, %s)
                  order by t.occurred_at, t.event_id limit %s) r
              order by d.place, r.occurred_at, r.event_id
            ) to stdout (format csv)
            """,
        (
            list(portion.devices), portion.tenant_id, portion.metric_type, after[0], end,
            *after, limit,
        ),
    ) as lines:  # fmt: skip
        async for block in lines:
            data += block
    return bytes(data)


async def _without_archived(  # noqa: PLR0917 - one step of a run
    pool: db.Pool, files: History, portion: Portion, table: Any, month: date, progress: Progress
) -> Any:
    """The readings that no file has; those that came after their month was dropped are counted."""
    from farmiq.plumbing import parquet  # noqa: PLC0415 - pyarrow is an extra

    begin, end = _bounds(month)
    async with pool.connection() as connection:
        known = await history.files(
            connection,
            tenant_id=portion.tenant_id,
            metrics=[portion.metric_type],
            devices=portion.devices,
            begin=begin,
            end=end,
        )
    async for file, archived in files.tables(
        known, devices=portion.devices, begin=begin, end=end, columns=["event_id"]
    ):
        table, again = parquet.without(table, "event_id", archived["event_id"])
        if file.is_dropped:
            for device_id in again["device_id"].to_pylist():
                progress.again[portion.tenant_id, device_id, portion.metric_type] += 1
    return table


async def _store(pool: db.Pool, bucket: objects.Bucket, table: Any, month: date) -> None:
    """Write a file, read it back, compare it with the rows, then note it."""
    from farmiq.plumbing import parquet  # noqa: PLC0415 - pyarrow is an extra

    file = await asyncio.to_thread(history.encode, table, month)
    if not await bucket.put_verified(file.key, file.body, content_type=parquet.CONTENT_TYPE):
        raise NotTheSameError(f"the bucket has other bytes under {file.key} than were put there")
    if not (await asyncio.to_thread(parquet.read_all, file.body)).equals(table):
        raise NotTheSameError(f"{file.key} does not have the readings that it was written from")
    crash.here("history.after_put")
    async with db.transaction(pool) as tx:
        await history.note(tx, file)
    crash.here("history.after_note")
    ARCHIVED.inc(table.num_rows)
    ARCHIVED_BYTES.inc(len(file.body))


async def _drop(pool: db.Pool, month: date, progress: Progress) -> str:
    """Drop the month if all of its rows are in files; what came twice is counted once again."""

    async def drop(tx: db.Connection) -> str:
        # Rollups that look for archived readings now are waited for, and wait.
        await tx.execute(LOCK_DROPS.encode())
        outcome: str = await db.fetch_value(
            tx, "select fn_drop_archived_month(%s, %s)", month, progress.rows
        )
        if outcome == "dropped":
            await tx.execute(
                "update telemetry_archives set dropped_at = clock_timestamp() "
                "where month = %s and dropped_at is null",
                (month,),
            )
            await _count_less(tx, progress.again)
            crash.here("history.before_drop_commit")
        return outcome

    outcome = await months.when_unlocked(pool, drop) or "busy"
    if outcome == "dropped":
        crash.here("history.after_drop")
    return outcome


async def _count_less(tx: db.Connection, again: Counter[Series]) -> None:
    if not again:
        return
    await tx.execute(
        """
        update telemetry_latest l set reading_count = l.reading_count - a.count
        from unnest(%s::text[], %s::text[], %s::text[], %s::bigint[])
          as a(tenant_id, device_id, metric_type, count)
        where (l.tenant_id, l.device_id, l.metric_type) = (a.tenant_id, a.device_id, a.metric_type)
        """,
        [*map(list, zip(*again, strict=True)), list(again.values())],
    )


async def _delete_unknown(pool: db.Pool, bucket: objects.Bucket, month: date) -> None:
    """Delete files of this month that a run left behind which died before it noted them."""
    async with pool.connection() as connection:
        rows = await db.fetch_all(
            connection, "select tenant_id, metric_type, key from telemetry_archives"
            " where month = %s order by 1, 2", month,
        )  # fmt: skip
    for (tenant_id, metric_type), of_folder in groupby(rows, lambda row: (row[0], row[1])):
        known = {key for _, _, key in of_folder}
        for key in await bucket.keys(history.folder(tenant_id, metric_type, month)):
            if key not in known:
                await bucket.delete(key)


async def purge_files(pool: db.Pool, files: History, *, before: datetime) -> int:
    """Delete files whose last reading is from before this time; returns how many readings."""
    deleted = 0
    while files.bucket is not None:
        async with db.transaction(pool) as tx:
            row = await (
                await tx.execute(
                    """
                    delete from telemetry_archives where (tenant_id, key) = (
                      select tenant_id, key from telemetry_archives
                      where last_at < %s and dropped_at is not null limit 1)
                    returning key, row_count
                    """,
                    (before,),
                )
            ).fetchone()
            if row is None:
                break
            await files.bucket.delete(row[0])
        deleted += row[1]
    return deleted


LOCK_DROPS = "select pg_advisory_xact_lock(hashtextextended('drop archived readings', 0))"
LOCK_DROPS_SHARED = (
    "select pg_advisory_xact_lock_shared(hashtextextended('drop archived readings', 0))"
)
