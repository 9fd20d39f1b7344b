"""Which days of batches have to be computed again: marks for cloud-analytics-service.

Code that changes what figures are computed from marks the days in the same transaction.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from farmiq.plumbing import db


@dataclass(frozen=True, slots=True)
class Place:
    """Where and when something happened: it touches the batch it names and the barn's batch."""

    tenant_id: str
    farm_id: str | None
    barn_id: str | None
    batch_id: str | None
    at: datetime


async def mark_places(tx: db.Connection, places: Collection[Place], *, early: bool = False) -> None:
    """Mark the local dates of these moments for the batches that they touch.

    A moment of no registered batch marks nothing: a batch that is registered later marks all its
    days (fn_batches_mark_days). `early`: more of the same hour will follow, so the mark is due at
    a full half minute, once for all that comes until then.
    """
    if not places:
        return
    await tx.execute(
        """
        with place as (
          select distinct * from unnest(%s::text[], %s::text[], %s::text[], %s::text[],
            %s::timestamptz[]) as p(tenant_id, farm_id, barn_id, batch_id, at)
        ), touched as (
          select b.tenant_id, b.batch_id, b.farm_id, b.placed_on, b.closed_on, p.at
          from place p join batches b on b.tenant_id = p.tenant_id and b.batch_id = p.batch_id
          union
          select b.tenant_id, b.batch_id, b.farm_id, b.placed_on, b.closed_on, p.at
          from place p join batches b
            on b.tenant_id = p.tenant_id and b.farm_id = p.farm_id and b.barn_id = p.barn_id
            and b.placed_on <= (p.at + interval '1 day')::date
            and coalesce(b.closed_on, 'infinity') >= (p.at - interval '1 day')::date
        ), dated as (
          select distinct t.tenant_id, t.batch_id, fn_local_date(f.timezone, t.at) as kpi_date,
            t.placed_on, t.closed_on
          from touched t join farms f on f.tenant_id = t.tenant_id and f.farm_id = t.farm_id
        ), due as materialized (
          select case when %s
            then date_bin('30 seconds', clock_timestamp() + interval '45 seconds', 'epoch')
            else now() end as due_at
        )
        insert into analytics_dirty_days (tenant_id, batch_id, first_date, last_date, due_at)
        select d.tenant_id, d.batch_id, d.kpi_date, d.kpi_date, due.due_at
        from dated d cross join due
        where d.kpi_date between d.placed_on and coalesce(d.closed_on, 'infinity')
          -- Nobody takes a mark before it is due, so one of the same time is as good as this.
          and not exists (
            select from analytics_dirty_days m where m.tenant_id = d.tenant_id
              and m.batch_id = d.batch_id and m.first_date = d.kpi_date
              and m.last_date = d.kpi_date and m.due_at = due.due_at and due.due_at > now())
        """,
        (*db.columns(places, "tenant_id", "farm_id", "barn_id", "batch_id", "at"), early),
    )
