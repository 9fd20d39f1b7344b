"""The SQL of weigh sessions for the API and the command: a page of them, and one in full."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from farmiq.edge.weighvision import jobs, store
from farmiq.farm import sessions as rules
from farmiq.messages import weighvision as words
from farmiq.plumbing import db

SESSION = (
    "session_id", "tenant_id", "farm_id", "barn_id", "device_id", "station_id", "batch_id", "state",
    "status", "start_at", "end_at", "initial_weight_kg", "final_weight_kg", "image_count",
    "stored_image_count", "cancel_reason", "incomplete_reason", "incomplete_at", "received_at",
    "inference_result_id",
)  # fmt: skip
MAX_EVENTS = 1000

_SESSION = """
select id as session_id, tenant_id, farm_id, barn_id, device_id, station_id, batch_id,
  case when is_incomplete then 'INCOMPLETE' else status end as state, status, start_at, end_at,
  initial_weight_kg, final_weight_kg, image_count,
  (select count(*) filter (where m.device_id = w.device_id) from media_objects m
    where m.tenant_id = w.tenant_id and m.session_id = w.id and m.upload_status = 'stored')
    as stored_image_count,
  cancel_reason, incomplete_reason, incomplete_at, received_at,
  (select r.id from inference_results r where r.tenant_id = w.tenant_id and r.session_id = w.id)
    as inference_result_id
from weight_sessions w
"""


async def page(
    connection: db.Connection, wanted: Mapping[str, Any], *, timezone: str
) -> list[dict[str, Any]]:
    """A page of sessions, newest first; `wanted` is a page of a WeighSessionFilter.

    A day is the farm's own, or the edge's where the farm has none.
    """
    return await db.fetch_dicts(
        connection,
        _SESSION  # noqa: S608 - it stands above
        + """
            left join lateral (
              select timezone from farm_zones f
              where f.tenant_id = w.tenant_id and f.farm_id = w.farm_id) zone on true
            where (%(tenant)s::text is null or tenant_id = %(tenant)s)
              and (%(farm)s::text is null or farm_id = %(farm)s)
              and (%(barn)s::text is null or barn_id = %(barn)s)
              and (%(device)s::text is null or device_id = %(device)s)
              and (%(station)s::text is null or station_id = %(station)s)
              and (%(state)s::text is null
                or case when is_incomplete then 'INCOMPLETE' else status end = %(state)s)
              and (%(day)s::date is null or (
                start_at >= %(day)s::timestamp at time zone 'UTC' - interval '15 hours'
                and start_at < %(day)s::timestamp at time zone 'UTC' + interval '39 hours'
                and (start_at at time zone coalesce(zone.timezone, %(zone)s))::date = %(day)s))
              and (%(begin)s::timestamptz is null or start_at >= %(begin)s)
              and (%(end)s::timestamptz is null or start_at < %(end)s)
              and (%(after_at)s::timestamptz is null
                or (start_at, id) < (%(after_at)s, %(after_id)s))
            order by start_at desc, id desc
            limit %(limit)s
            """,
        {**wanted, "zone": timezone},
    )


async def show(connection: db.Connection, session_id: UUID) -> dict[str, Any] | None:
    """A session with its parts, its events in their order, and its images."""
    rows = await db.fetch_dicts(connection, _SESSION + "where id = %s", (session_id,))
    if not rows:
        return None
    facts = (await store.deciding_facts(connection, [session_id]))[session_id]
    stored = (await jobs.stored_images(connection, [session_id]))[session_id]
    state = rules.fold(facts, stored=jobs.bound(stored))
    events = await db.fetch_dicts(connection, _EVENTS, (session_id, MAX_EVENTS))
    images = await db.fetch_dicts(connection, _IMAGES, {"id": session_id})
    return {
        **rows[0],
        "valid": state.valid,
        "missing": list(state.missing),
        "events": events,
        "weights": [
            {"occurred_at": event["occurred_at"], "weight_kg": event["weight_kg"]}
            for event in events
            if event["event_type"] == words.WEIGHT_RECORDED
        ],
        "images": images,
    }


_EVENTS = """
select event_id, event_type, occurred_at, seq, weight_kg, image_count, media_id, reason,
  clock_suspect, received_at
from weight_session_events where session_id = %s
order by occurred_at, seq nulls first, event_id limit %s
"""
# What was announced on the session's topic, and what was uploaded under its id: an image is bound
# if both name it and the device is the session's (SC-02).
_IMAGES = """
select coalesce(m.id, a.media_id) as media_id, a.announced_at, m.upload_status, m.mime_type,
  m.size_bytes, m.captured_at, m.stored_at,
  coalesce(m.upload_status = 'stored' and a.media_id is not null, false) as bound
from (
  select media_id, min(received_at) as announced_at from weight_session_events
  where session_id = %(id)s and media_id is not null group by media_id) a
full join (
  select o.* from media_objects o join weight_sessions w on w.id = %(id)s
    and o.tenant_id = w.tenant_id and o.session_id = w.id and o.device_id = w.device_id) m
  on m.id = a.media_id
order by 1
"""
