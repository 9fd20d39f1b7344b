"""SQL of batches for their pages, with the person's rights (row level security)."""

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import Any
from uuid import UUID

import msgspec

from farmiq.cloud.barn import store as barn_store
from farmiq.cloud.console.batches.calendar import Alert, Losses
from farmiq.cloud.console.batches.detail import Entered
from farmiq.cloud.console.batches.view import CLOSED_PER_PAGE, MAX_RUNNING, Batch, Figure
from farmiq.cloud.farms.store import STATUS
from farmiq.cloud.feed import store as feed_store
from farmiq.cloud.figures import queries
from farmiq.plumbing import db

MAX_RECORDS = 500
MAX_LOTS = 200
MAX_ALERTS = 1000


async def shown(connection: db.Connection, *, page: int) -> tuple[list[str], int]:
    """The batches of a page of the list: all that run or are planned, and some closed ones.

    Returns their ids, and how many closed ones there are.
    """
    rows = await db.fetch_all(
        connection,
        f"""
        with b as (select batch_id, placed_on, {STATUS} as status from batches)
        (select batch_id, status, 0::bigint from b where status <> 'closed'
          order by placed_on desc, batch_id desc limit %s)
        union all
        (select batch_id, status, count(*) over () from b where status = 'closed'
          order by placed_on desc, batch_id desc limit %s offset %s)
        """,  # noqa: S608 - our own words
        MAX_RUNNING,
        CLOSED_PER_PAGE,
        (page - 1) * CLOSED_PER_PAGE,
    )
    return [row[0] for row in rows], max((row[2] for row in rows), default=0)


async def batches(
    connection: db.Connection, tenant_id: str, batch_ids: Sequence[str]
) -> list[Batch]:
    """Batches with the names of their places, their latest figures and their open alerts."""
    summaries = await queries.summaries(connection, tenant_id, batch_ids)
    names = {
        row.pop("batch_id"): row
        for row in await db.fetch_dicts(
            connection,
            """
            select b.batch_id, f.name as farm_name, f.timezone, h.name as barn_name,
              (select count(*) from alert_episodes e
                where e.tenant_id = b.tenant_id and e.state in ('active', 'acknowledged')
                  and (e.batch_id = b.batch_id or e.batch_id is null
                    and e.farm_id = b.farm_id and e.barn_id = b.barn_id)) as open_alerts
            from batches b
              join farms f on f.tenant_id = b.tenant_id and f.farm_id = b.farm_id
              join barns h on h.tenant_id = b.tenant_id and h.farm_id = b.farm_id
                and h.barn_id = b.barn_id
            where b.tenant_id = %s and b.batch_id = any(%s)
            """,
            (tenant_id, [*batch_ids]),
        )
    }
    return [Batch.of(row, **names[row["batch_id"]]) for row in summaries]


async def figures(
    connection: db.Connection, tenant_id: str, batch_id: str, *, since: date
) -> tuple[list[Figure], datetime | None]:
    """All figures of a batch from a date on, and when the newest of them was computed."""
    rows = await db.fetch_dicts(
        connection,
        """
        select kpi_type, kpi_date, value, unit, source_event_count, expected_value, difference,
          computed_at
        from kpi_daily
        where tenant_id = %s and batch_id = %s and kpi_date >= %s and value is not null
        order by kpi_date
        """,
        (tenant_id, batch_id, since),
    )
    computed_at = max((row.pop("computed_at") for row in rows), default=None)
    return [Figure(batch_id=batch_id, **row) for row in rows], computed_at


async def losses(connection: db.Connection, tenant_id: str, batch_id: str) -> list[Losses]:
    """The dead and culled animals of each day with facts, in their order."""
    return await db.fetch_as(
        connection,
        Losses,
        """
        select kpi_date as on, dead, culled from batch_days
        where tenant_id = %s and batch_id = %s order by kpi_date
        """,
        (tenant_id, batch_id),
    )


def _stay(batch: Batch) -> dict[str, Any]:
    """The parameters of the lists of records and feed: a batch's barn, nothing replaced."""
    return {
        "farm": batch.farm_id, "barn": batch.barn_id, "counted": True, "after_at": None,
        "after_id": None,
    }  # fmt: skip


async def records(
    connection: db.Connection, tenant_id: str, batch: Batch, *, begin: datetime, end: datetime
) -> list[dict[str, Any]]:
    """Records of the batch, newest first."""
    wanted = {
        **_stay(batch), "batch": batch.batch_id, "type": None, "begin": begin, "end": end,
        "limit": MAX_RECORDS,
    }  # fmt: skip
    return await barn_store.page(connection, tenant_id, wanted)


async def lots(
    connection: db.Connection, tenant_id: str, batch: Batch, *, begin: datetime, end: datetime
) -> list[dict[str, Any]]:
    """Lots of feed that came to the barn while the batch was there."""
    wanted = {
        **_stay(batch), "device": None, "lot": None, "begin": begin, "end": end, "limit": MAX_LOTS,
    }  # fmt: skip
    return await feed_store.lots(connection, tenant_id, wanted)


async def alerts(
    connection: db.Connection, tenant_id: str, batch: Batch, *, begin: datetime, end: datetime
) -> list[Alert]:
    """Alerts of the batch and of its barn in that time, newest first."""
    return await db.fetch_as(
        connection,
        Alert,
        """
        select episode_id, severity, message, state, opened_at from alert_episodes
        where tenant_id = %(tenant)s and state <> 'withdrawn'
          and opened_at >= %(begin)s and opened_at < %(end)s
          and (batch_id = %(batch)s or batch_id is null and farm_id = %(farm)s
            and barn_id = %(barn)s)
        order by opened_at desc, episode_id limit %(limit)s
        """,
        {
            "tenant": tenant_id, "batch": batch.batch_id, "farm": batch.farm_id,
            "barn": batch.barn_id, "begin": begin, "end": end, "limit": MAX_ALERTS,
        },
    )  # fmt: skip


async def entered(connection: db.Connection, event_id: UUID) -> Entered | None:
    """What somebody entered here, also if its service has not stored it yet."""
    rows = await db.fetch_all(
        connection,
        "select event_type, event, posted_by from posted_events where event_id = %s",
        event_id,
    )
    if not rows:
        return None
    event_type, event, posted_by = rows[0]
    payload: Mapping[str, Any] = event["payload"]
    kind = payload.get("record_type") or event_type
    value = payload.get("value", payload.get("quantity_kg"))
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return Entered(event_id=event_id, kind=kind, value=text, posted_by=posted_by)


async def has_barns(connection: db.Connection) -> bool:
    return bool(await db.fetch_value(connection, "select exists (select from barns)"))
