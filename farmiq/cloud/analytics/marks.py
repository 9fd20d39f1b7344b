"""SQL of marks: days of batches to compute again, and events that wait for their row."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import date, datetime
from uuid import UUID

from farmiq.cloud.analytics.rules import Batch
from farmiq.cloud.marked_days import Place
from farmiq.plumbing import db


@dataclass(frozen=True, slots=True)
class Pending:
    """An event whose row another service stores; of an hour of telemetry, its bucket."""

    tenant_id: str
    event_id: UUID
    family: str
    farm_id: str | None
    barn_id: str | None
    device_id: str | None = None
    metric_type: str | None = None
    bucket_start_at: datetime | None = None
    reading_count: int | None = None


@dataclass(frozen=True, slots=True)
class Mark:
    """Days of a batch; without `last_date` all from the first on."""

    first_date: date
    last_date: date | None
    is_figures: bool


async def mark_dates(tx: db.Connection, batch: Batch, dates: Iterable[date]) -> None:
    """Mark the facts of these dates of a batch."""
    await tx.execute(
        """
        insert into analytics_dirty_days (tenant_id, batch_id, first_date, last_date)
        select %s, %s, d, d from unnest(%s::date[]) d
        """,
        (batch.tenant_id, batch.batch_id, [*dates]),
    )


async def mark_figures(tx: db.Connection, batch: Batch, *, first: date) -> None:
    """Mark the figures of a batch from a date on."""
    await tx.execute(
        """
        insert into analytics_dirty_days (tenant_id, batch_id, first_date, is_figures)
        values (%s, %s, %s, true)
        """,
        (batch.tenant_id, batch.batch_id, first),
    )


async def due_batches(tx: db.Connection, *, limit: int) -> list[tuple[str, str]]:
    """(tenant, batch) with a mark that is due, longest due first."""
    rows = await db.fetch_all(
        tx,
        """
        select tenant_id, batch_id from (
          select tenant_id, batch_id, due_at from analytics_dirty_days
          where due_at <= now() order by due_at limit %s) due
        group by tenant_id, batch_id order by min(due_at)
        """,
        limit,
    )
    return [(row[0], row[1]) for row in rows]


async def behind_s(tx: db.Connection) -> float:
    """How long the mark that is due longest has been."""
    return float(
        await db.fetch_value(
            tx,
            """
            select greatest(0, coalesce(extract(epoch from now() - min(due_at)), 0))
            from analytics_dirty_days
            """,
        )
    )


async def lock_batch(tx: db.Connection, tenant_id: str, batch_id: str) -> bool:
    """Be the only one that computes this batch until the commit; False if another one does."""
    return bool(
        await db.fetch_value(
            tx,
            "select pg_try_advisory_xact_lock(hashtextextended(%s || chr(31) || %s, 7501))",
            tenant_id,
            batch_id,
        )
    )


async def take_marks(tx: db.Connection, tenant_id: str, batch_id: str) -> list[Mark]:
    return await db.fetch_as(
        tx,
        Mark,
        """
        delete from analytics_dirty_days
        where tenant_id = %s and batch_id = %s and due_at <= now()
        returning first_date, last_date, is_figures
        """,
        (tenant_id, batch_id),
    )


async def put_off(tx: db.Connection, tenant_id: str, batch_id: str, *, delay_s: float) -> None:
    """Marks of a batch that cannot be computed wait, so that others are."""
    await tx.execute(
        """
        update analytics_dirty_days set due_at = now() + %s * interval '1 second'
        where tenant_id = %s and batch_id = %s and due_at <= now()
        """,
        (delay_s, tenant_id, batch_id),
    )


# --- events that are not stored yet


async def stored_events(tx: db.Connection, events: Collection[Pending]) -> set[tuple[str, UUID]]:
    """Which of these events their own services have stored."""
    rows = await db.fetch_all(
        tx,
        """
        with e as materialized (
          select * from unnest(%s::text[], %s::uuid[], %s::text[], %s::text[], %s::text[],
            %s::timestamptz[], %s::bigint[]) as e(tenant_id, event_id, family, device_id,
              metric_type, bucket_start_at, reading_count)
        )
        select e.tenant_id, e.event_id from e join weighvision_events s
          on s.tenant_id = e.tenant_id and s.event_id = e.event_id where e.family = 'weighvision'
        union all
        select e.tenant_id, e.event_id from e join feed_events s
          on s.tenant_id = e.tenant_id and s.event_id = e.event_id where e.family = 'feed'
        union all
        select e.tenant_id, e.event_id from e join barn_events s
          on s.tenant_id = e.tenant_id and s.event_id = e.event_id where e.family = 'barn'
        union all
        select e.tenant_id, e.event_id from e join inference_events s
          on s.tenant_id = e.tenant_id and s.event_id = e.event_id where e.family = 'inference'
        union all
        select e.tenant_id, e.event_id from e join telemetry_agg a
          on a.tenant_id = e.tenant_id and a.device_id = e.device_id
          and a.metric_type = e.metric_type and a."window" = '1h'
          and a.bucket_start_at = e.bucket_start_at and a.count >= e.reading_count
        where e.family = 'telemetry'
        """,
        *db.columns(
            events, "tenant_id", "event_id", "family", "device_id", "metric_type",
            "bucket_start_at", "reading_count",
        ),
    )  # fmt: skip
    return {(row[0], row[1]) for row in rows}


async def places_of(tx: db.Connection, events: Collection[Pending]) -> list[Place]:
    """Where and when stored events count: their own, and those of what they replace.

    A session counts on the day of its first event for the batch that its created event names, and
    either may have come late: all moments of the session count, each with its batch. So with what
    vision made of it: before its session there is nothing to compare with.
    """
    rows = await db.fetch_all(
        tx,
        """
        with e as materialized (
          select * from unnest(%s::text[], %s::uuid[], %s::text[])
            as e(tenant_id, event_id, family)
        ), session as (
          select distinct s.tenant_id, s.session_id from e join weighvision_events s
            on s.tenant_id = e.tenant_id and s.event_id = e.event_id
          where e.family = 'weighvision' and s.session_id is not null
          union
          select s.tenant_id, s.session_id from e join inference_events s
            on s.tenant_id = e.tenant_id and s.event_id = e.event_id
          where e.family = 'inference' and s.session_id is not null
        ), fed as (
          select f.* from e join feed_events f
            on f.tenant_id = e.tenant_id and f.event_id = e.event_id where e.family = 'feed'
        ), noted as (
          select n.* from e join barn_events n
            on n.tenant_id = e.tenant_id and n.event_id = e.event_id where e.family = 'barn'
        )
        select distinct w.tenant_id, w.farm_id, w.barn_id,
          max(w.batch_id) over (partition by w.tenant_id, w.session_id),
          date_bin('15 minutes', w.occurred_at, 'epoch')
        from session s join weighvision_events w
          on w.tenant_id = s.tenant_id and w.session_id = s.session_id
        union
        select f.tenant_id, f.farm_id, f.barn_id, f.payload ->> 'batch_id', f.occurred_at from fed f
        union
        select o.tenant_id, o.farm_id, o.barn_id, o.payload ->> 'batch_id', o.occurred_at
        from fed f join feed_events o
          on o.tenant_id = f.tenant_id and o.event_id = fn_replaced_event(f.payload)
        union
        select n.tenant_id, n.farm_id, n.barn_id, n.payload ->> 'batch_id', n.occurred_at
        from noted n
        union
        select o.tenant_id, o.farm_id, o.barn_id, o.payload ->> 'batch_id', o.occurred_at
        from noted n join barn_events o
          on o.tenant_id = n.tenant_id and o.record_id = n.payload ->> 'replaces'
            and (o.farm_id = n.farm_id or o.device_id is null)
        """,
        *db.columns(events, "tenant_id", "event_id", "family"),
    )
    hours = [
        Place(event.tenant_id, event.farm_id, event.barn_id, None, event.bucket_start_at)
        for event in events
        if event.bucket_start_at is not None
    ]
    return [*(Place(*row) for row in rows), *hours]


async def add_pending(tx: db.Connection, events: Collection[Pending]) -> None:
    await tx.execute(
        """
        insert into analytics_pending (tenant_id, event_id, family, farm_id, barn_id, device_id,
          metric_type, bucket_start_at, reading_count)
        select * from unnest(%s::text[], %s::uuid[], %s::text[], %s::text[], %s::text[],
          %s::text[], %s::text[], %s::timestamptz[], %s::bigint[])
        order by 1, 2
        on conflict on constraint analytics_pending_pkey do nothing
        """,
        db.columns(
            events, "tenant_id", "event_id", "family", "farm_id", "barn_id", "device_id",
            "metric_type", "bucket_start_at", "reading_count",
        ),
    )  # fmt: skip


async def due_pending(tx: db.Connection, *, limit: int) -> list[Pending]:
    """Events to look for again, locked; each with growing pauses."""
    return await db.fetch_as(
        tx,
        Pending,
        """
        with due as (
          select tenant_id, event_id from analytics_pending where next_look_at <= now()
          order by next_look_at limit %s for update skip locked
        )
        update analytics_pending p set attempts = p.attempts + 1,
          next_look_at = now() + fn_retry_delay(p.attempts, 0.5, 300)
        from due where p.tenant_id = due.tenant_id and p.event_id = due.event_id
        returning p.tenant_id, p.event_id, p.family, p.farm_id, p.barn_id, p.device_id,
          p.metric_type, p.bucket_start_at, p.reading_count
        """,
        (limit,),
    )


async def remove_pending(tx: db.Connection, events: Collection[tuple[str, UUID]]) -> None:
    await tx.execute(
        """
        delete from analytics_pending p
        using unnest(%s::text[], %s::uuid[]) as e(tenant_id, event_id)
        where p.tenant_id = e.tenant_id and p.event_id = e.event_id
        """,
        ([tenant_id for tenant_id, _ in events], [event_id for _, event_id in events]),
    )
