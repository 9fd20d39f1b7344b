"""Weigh sessions' SQL in the cloud: stores events and computes sessions from them."""

from collections.abc import Sequence
from uuid import UUID

from farmiq.cloud import sink
from farmiq.messages import weighvision as words
from farmiq.messages.bus import BusEvent
from farmiq.plumbing import db

_store_events = sink.insert_into("weighvision_events")


async def apply_events(tx: db.Connection, events: Sequence[BusEvent]) -> int:
    """Store the events and compute their sessions from all events; returns how many were new.

    A session does not depend on the order and the number of deliveries: it is always computed from
    all of its events. Another transaction with events of it waits for this one and sees its events.
    """
    new = await _store_events(tx, events)
    sessions = sorted(
        {
            (event.tenant_id, event.session_id): event
            for event in events
            if isinstance(event.session_id, UUID)
        }.values(),
        key=lambda event: (event.tenant_id, str(event.session_id)),
    )
    if sessions and new:
        await _lock_sessions(tx, sessions)
        await _compute_sessions(tx, sessions)
    await sink.notify_pages(tx, "weighvision_changed", events)
    return new


async def _lock_sessions(tx: db.Connection, sessions: Sequence[BusEvent]) -> None:
    """Insert the rows that are missing, and lock all of them until the commit."""
    await tx.execute(
        """
        insert into weight_sessions as w (tenant_id, session_id, farm_id, barn_id, start_at)
        select s.* from unnest(%s::text[], %s::uuid[], %s::text[], %s::text[], %s::timestamptz[]) s
        on conflict on constraint weight_sessions_pkey do update set tenant_id = w.tenant_id
        """,
        (
            [event.tenant_id for event in sessions],
            [event.session_id for event in sessions],
            [event.farm_id for event in sessions],
            [event.barn_id for event in sessions],
            [event.occurred_at for event in sessions],
        ),
    )


async def _compute_sessions(tx: db.Connection, sessions: Sequence[BusEvent]) -> None:
    """The rules are those of the edge (D-123): of several the earliest, finalized over cancelled.

    Weights are those that devices send, else the first and the last weighing (C-29); a weight that
    the edge derived from its weighings counts only while there is no weighing here.
    """
    await tx.execute(
        """
        update weight_sessions w set
          farm_id = f.farm_id, barn_id = f.barn_id, device_id = f.device_id,
          station_id = f.station_id, clock_suspect = f.clock_suspect,
          batch_id = f.batch_id, has_created = f.created_at is not null,
          status = case when f.finalized_at is not null then 'finalized'
            when f.cancelled_at is not null then 'cancelled' else 'created' end,
          start_at = coalesce(f.created_at, f.first_at),
          end_at = coalesce(f.finalized_at, f.cancelled_at),
          initial_weight_kg = coalesce(
            case when not f.initial_derived then f.initial_weight_kg end,
            f.first_weight_kg, f.initial_weight_kg),
          final_weight_kg = case when f.finalized_at is not null then coalesce(
            case when not f.final_derived then f.final_weight_kg end,
            f.last_weight_kg, f.final_weight_kg) end,
          image_count = f.image_count,
          cancel_reason = case when f.finalized_at is null then f.cancel_reason end,
          weight_count = f.weight_count, media_ids = f.media_ids,
          received_at = f.received_at, heard_at = f.heard_at
        from (
          select e.tenant_id, e.session_id,
            (array_agg(e.farm_id order by e.occurred_at, e.event_id))[1] as farm_id,
            (array_agg(e.barn_id order by e.occurred_at, e.event_id))[1] as barn_id,
            (array_agg(e.device_id order by e.occurred_at, e.event_id))[1] as device_id,
            (array_agg(e.payload ->> %(station)s order by e.occurred_at, e.event_id)
              filter (where e.payload ? %(station)s))[1] as station_id,
            bool_or(e.clock_suspect) as clock_suspect,
            min(e.occurred_at) as first_at,
            min(e.occurred_at) filter (where e.event_type = %(created)s) as created_at,
            min(e.occurred_at) filter (where e.event_type = %(finalized)s) as finalized_at,
            min(e.occurred_at) filter (where e.event_type = %(cancelled)s) as cancelled_at,
            (array_agg(e.batch_id order by e.occurred_at, e.event_id)
              filter (where e.event_type = %(created)s))[1] as batch_id,
            (array_agg(e.initial_weight_kg order by e.occurred_at, e.event_id)
              filter (where e.event_type = %(created)s))[1] as initial_weight_kg,
            coalesce((array_agg(e.payload ? %(derived)s order by e.occurred_at, e.event_id)
              filter (where e.event_type = %(created)s))[1], false) as initial_derived,
            (array_agg(e.final_weight_kg order by e.occurred_at, e.event_id)
              filter (where e.event_type = %(finalized)s))[1] as final_weight_kg,
            coalesce((array_agg(e.payload ? %(derived)s order by e.occurred_at, e.event_id)
              filter (where e.event_type = %(finalized)s))[1], false) as final_derived,
            (array_agg(e.image_count order by e.occurred_at, e.event_id)
              filter (where e.event_type = %(finalized)s))[1] as image_count,
            (array_agg(e.payload ->> 'reason' order by e.occurred_at, e.event_id)
              filter (where e.event_type = %(cancelled)s))[1] as cancel_reason,
            (array_agg(e.weight_kg order by e.occurred_at, e.event_id)
              filter (where e.event_type = %(weight)s))[1] as first_weight_kg,
            (array_agg(e.weight_kg order by e.occurred_at desc, e.event_id desc)
              filter (where e.event_type = %(weight)s))[1] as last_weight_kg,
            count(*) filter (where e.event_type = %(weight)s) as weight_count,
            array(
              select i.media_id from weighvision_events i
              where i.tenant_id = e.tenant_id and i.session_id = e.session_id
                and i.event_type = %(image)s
              group by i.media_id order by min(i.occurred_at), i.media_id) as media_ids,
            min(e.stored_at) as received_at, max(e.stored_at) as heard_at
          from weighvision_events e
          join unnest(%(tenants)s::text[], %(sessions)s::uuid[]) as s(tenant_id, session_id)
            on s.tenant_id = e.tenant_id and s.session_id = e.session_id
          group by e.tenant_id, e.session_id) f
        where w.tenant_id = f.tenant_id and w.session_id = f.session_id
        """,
        {
            "created": words.SESSION_CREATED,
            "weight": words.WEIGHT_RECORDED,
            "image": words.IMAGE_CAPTURED,
            "finalized": words.SESSION_FINALIZED,
            "cancelled": words.SESSION_CANCELLED,
            "derived": words.DERIVED,
            "station": words.STATION,
            "tenants": [event.tenant_id for event in sessions],
            "sessions": [event.session_id for event in sessions],
        },
    )
