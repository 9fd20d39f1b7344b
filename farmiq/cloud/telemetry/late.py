"""Minutes of readings that came for an archived month: recomputed from both tiers.

telemetry_readings, the cloud's bucket --> [late] --> telemetry_agg

The readings of the hours in question are brought together in a table of the transaction. While the
bucket cannot be read the marks stay, and other buckets do not wait for it.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import groupby

from farmiq.cloud import history
from farmiq.cloud.history import COLUMNS, History, HistoryUnavailableError
from farmiq.cloud.telemetry import archive, store
from farmiq.cloud.telemetry.store import ROLLUPS
from farmiq.farm.buckets import DirtyRange
from farmiq.farm.rollups import KEY
from farmiq.plumbing import db, log

HOUR = timedelta(hours=1)


async def recompute_minutes(
    tx: db.Connection, ranges: Sequence[DirtyRange], archived: History
) -> int:
    """Recompute minutes; returns how many have changed."""
    late = await _archived_ranges(tx, ranges)
    if not late:
        return await ROLLUPS.recompute_minutes(tx, ranges)
    count = await ROLLUPS.recompute_minutes(tx, [dirty for dirty in ranges if dirty not in late])
    try:
        await _load(tx, late, archived)
    except HistoryUnavailableError as error:
        log.get("cloud-telemetry-service").warning("telemetry.history_away", error=str(error))
        await store.mark(tx, late)
        return count
    return count + await ROLLUPS.recompute_minutes(tx, late, readings="late_readings")


async def _archived_ranges(tx: db.Connection, ranges: Sequence[DirtyRange]) -> list[DirtyRange]:
    """Those that a file may have readings of; until this transaction ends none is added."""
    young_from = datetime.now(UTC) - history.MIN_AGE
    old = [dirty for dirty in ranges if dirty.first_at < young_from]
    if not old:
        return []
    await tx.execute(archive.LOCK_DROPS_SHARED.encode())
    rows = await db.fetch_all(
        tx,
        """
        select distinct k.place
        from unnest(%s::text[], %s::text[], %s::text[], %s::timestamptz[])
            with ordinality as k(tenant_id, device_id, metric_type, hour_at, place)
          join telemetry_archives a on a.tenant_id = k.tenant_id and a.metric_type = k.metric_type
            and a.month = date_trunc('month', k.hour_at at time zone 'UTC')::date
            and k.device_id collate "C" between a.first_device_id and a.last_device_id
        order by 1
        """,
        *db.columns(old, *KEY, "hour_at"),
    )
    return [old[place - 1] for (place,) in rows]


async def _load(tx: db.Connection, ranges: Sequence[DirtyRange], archived: History) -> None:
    """Bring the readings of these hours together, each event once.

    Raises HistoryUnavailableError.
    """
    await tx.execute(
        "create temporary table late_readings (like telemetry_readings, primary key (event_id)) "
        "on commit drop"
    )
    for (series, _), of_day in groupby(ranges, lambda dirty: (dirty.series, dirty.hour_at.date())):
        hours = [dirty.hour_at for dirty in of_day]
        tenant_id, device_id, metric_type = series
        begin, end = min(hours), max(hours) + HOUR
        await tx.execute(
            """
            insert into late_readings select * from telemetry_readings
            where (tenant_id, device_id, metric_type) = (%s, %s, %s)
              and occurred_at >= %s and occurred_at < %s
            """,
            (*series, begin, end),
        )
        files = await history.files(
            tx, tenant_id=tenant_id, metrics=[metric_type], devices=[device_id],
            begin=begin, end=end,
        )  # fmt: skip
        async for _, table in archived.tables(files, devices=[device_id], begin=begin, end=end):
            rows = table.to_pylist()
            columns = [[row[name] for row in rows] for name in COLUMNS]
            await tx.execute(_INSERT, columns)


_KINDS = {"id": "bytea", "moment": "timestamptz", "number": "float8", "flag": "bool"}
_INSERT = f"""
insert into late_readings ({", ".join(COLUMNS)})
select {
    ", ".join(
        f"encode({name}, 'hex')::uuid" if kind == "id" else name for name, kind in COLUMNS.items()
    )
}
from unnest({", ".join(f"%s::{_KINDS.get(kind, 'text')}[]" for kind in COLUMNS.values())})
  as f({", ".join(COLUMNS)})
on conflict do nothing
""".encode()  # noqa: S608 - names of our own
