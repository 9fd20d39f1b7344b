"""Weigh sessions' SQL in the cloud: events kept, and the sessions made from them."""

from collections.abc import Sequence
from uuid import UUID

from farmiq.cloud import sink
from farmiq.messages import weighvision as words
from farmiq.messages.bus import BusEvent
from farmiq.plumbing import db

_keep_events = sink.insert_into("weighvision_events")


async def record(tx: db.Connection, events: Sequence[BusEvent]) -> int:
    """Keep the events and make their sessions anew from all that is there; how many were new.

    A session is the same whatever the order and however often its events came: nothing is added
    to it, it is read off them. Whoever else brings events of it waits for us and then sees ours.
    """
    new = await _keep_events(tx, events)
    told = sorted(
        {
            (each.tenant_id, each.session_id): each
            for each in events
            if isinstance(each.session_id, UUID)
        }.values(),
        key=lambda each: (each.tenant_id, str(each.session_id)),
    )
    if told and new:
        await _begin(tx, told)
        await _make(tx, told)
    await sink.notify_pages(tx, "weighvision_changed", events)
    return new


async def _begin(tx: db.Connection, told: Sequence[BusEvent]) -> None:
    """The rows of these sessions, made where they are not there, and ours until the commit."""
    await tx.execute(
        """
        insert into weight_sessions as w (tenant_id, session_id, farm_id, barn_id, start_at)
        select s.* from unnest(%s::text[], %s::uuid[], %s::text[], %s::text[], %s::timestamptz[]) s
        on conflict on constraint weight_sessions_pkey do update set tenant_id = w.tenant_id
        """,
        (
            [each.tenant_id for each in told],
            [each.session_id for each in told],
            [each.farm_id for each in told],
            [each.barn_id for each in told],
            [each.occurred_at for each in told],
        ),
    )


async def _make(tx: db.Connection, told: Sequence[BusEvent]) -> None:
    """The rules are those of the edge (D-123): of several the earliest, finalized over cancelled.

    Of weights the ones that devices name, else the first and the last weighing (C-29); what the
    edge took from the weighings it had counts only while there is none here.
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
            "tenants": [each.tenant_id for each in told],
            "sessions": [each.session_id for each in told],
        },
    )
