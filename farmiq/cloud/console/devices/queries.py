"""SQL of devices, with the person's rights (row level security)."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from farmiq.cloud.console.devices.connectivity import Span
from farmiq.cloud.console.devices.detail import Login, Measured, Sensor, TimelineEvent
from farmiq.cloud.console.devices.view import BarnDevice, CameraDevice
from farmiq.cloud.console.sites.strips import GRACE, MAX_WAKES, Wake
from farmiq.plumbing import db

MAX_DEVICES = 2000
MAX_EVENTS = 50
MAX_POINTS = 2100
# Of readings, so many tell how often a sensor reports.
HISTORY = 8

# Device ids of the events by steps over the index: there may be thousands of events of each.
_KNOWN = """
with recursive heard as (
  (select device_id from device_events where device_id is not null order by device_id limit 1)
  union all
  select (select e.device_id from device_events e where e.device_id > heard.device_id
    order by e.device_id limit 1)
  from heard where heard.device_id is not null
), known as (
  select device_id from heard where device_id is not null
  union select device_id from telemetry_latest
  union select device_id from weight_sessions
    where start_at > fn_now() - interval '7 days' and device_id is not null
)
"""
_BARN_DEVICE = """
select k.device_id, coalesce(l.farm_id, e.farm_id, w.farm_id) as farm_id,
  coalesce(l.barn_id, e.barn_id, w.barn_id) as barn_id, f.name as farm_name, b.name as barn_name,
  f.timezone, e.state, e.occurred_at as status_at, e.firmware_version as firmware,
  (e.payload ->> 'last_seen_at')::timestamptz as status_seen_at,
  (e.payload ->> 'signal_strength')::double precision as signal_dbm,
  (e.payload ->> 'battery_v')::double precision as battery_v,
  (e.payload ->> 'buffer_depth')::numeric::bigint as backlog,
  coalesce(e.payload -> 'alarms', '[]') as alarms,
  coalesce(e.payload -> 'health', '{}') as health,
  coalesce(r.revoked, false) as revoked, r.occurred_at as revoked_at,
  l.last_reading_at, l.last_arrived_at, coalesce(l.sensors, 0) as sensors,
  w.last_weighing_at, coalesce(w.weighings, 0) as weighings
from known k
left join (
  select device_id, max(occurred_at) as last_reading_at, max(stored_at) as last_arrived_at,
    count(*) as sensors, min(farm_id) as farm_id, min(barn_id) as barn_id
  from telemetry_latest group by device_id) l on l.device_id = k.device_id
left join (
  select device_id, max(start_at) as last_weighing_at, count(*) as weighings,
    min(farm_id) as farm_id, min(barn_id) as barn_id
  from weight_sessions where start_at > fn_now() - interval '7 days' group by device_id
  ) w on w.device_id = k.device_id
left join lateral (
  select farm_id, barn_id, state, occurred_at, firmware_version, payload from device_events
  where device_id = k.device_id and state is not null
  order by occurred_at desc limit 1) e on true
left join lateral (
  select (payload -> 'revoked')::boolean as revoked, occurred_at from device_events
  where device_id = k.device_id and payload ? 'revoked'
  order by occurred_at desc limit 1) r on true
left join farms f on f.farm_id = coalesce(l.farm_id, e.farm_id, w.farm_id)
left join barns b on b.farm_id = f.farm_id
  and b.barn_id = coalesce(l.barn_id, e.barn_id, w.barn_id)
"""
_CAMERA = """
select d.device_id, d.device_name, d.mac, d.dialect, d.is_active, d.firmware, d.last_seen_at,
  d.battery_voltage, d.wifi_rssi, d.pending_count, d.wake_schedule_cron, d.slot_index,
  d.created_at, d.proven_at, d.site_id, s.site_name, s.timezone, a.assigned_at as here_since,
  (select count(*) from expected_wakes w
    join site_device_sessions n on n.session_id = w.session_id and n.site_id = d.site_id
    where w.device_id = d.device_id and w.expected_at > greatest(d.last_seen_at, a.assigned_at)
      and w.expected_at < fn_now() - %(grace)s) as missed,
  (select count(*) from device_images i where i.company_id = d.company_id
    and i.device_id = d.device_id and i.status = 'failed'
    and i.captured_at > fn_now() - interval '7 days') as failed
from devices d
left join sites s on s.site_id = d.site_id
left join device_assignments a on a.device_id = d.device_id and a.ended_at is null
"""


async def barn_devices(connection: db.Connection) -> list[BarnDevice]:
    """Every device of the company's edges that the cloud has heard of."""
    return await db.fetch_as(
        connection,
        BarnDevice,
        f"{_KNOWN} {_BARN_DEVICE} order by k.device_id limit %s",
        (MAX_DEVICES,),
    )


async def barn_device(connection: db.Connection, device_id: str) -> BarnDevice | None:
    rows = await db.fetch_as(
        connection,
        BarnDevice,
        f"""
        with known as (
          select %(device_id)s::text as device_id where exists (
            select from telemetry_latest where device_id = %(device_id)s)
          or exists (select from device_events where device_id = %(device_id)s)
          or exists (select from weight_sessions where device_id = %(device_id)s))
        {_BARN_DEVICE}
        """,  # noqa: S608 - our own words
        {"device_id": device_id},
    )
    return rows[0] if rows else None


async def cameras(connection: db.Connection) -> list[CameraDevice]:
    return await db.fetch_as(
        connection,
        CameraDevice,
        f"{_CAMERA} order by lower(d.device_name), d.device_id limit %(limit)s",
        {"grace": GRACE, "limit": MAX_DEVICES},
    )


async def camera(connection: db.Connection, device_id: UUID) -> CameraDevice | None:
    rows = await db.fetch_as(
        connection,
        CameraDevice,
        f"{_CAMERA} where d.device_id = %(device_id)s",
        {"grace": GRACE, "device_id": device_id},
    )
    return rows[0] if rows else None


async def sensors(connection: db.Connection, device_id: str | None = None) -> list[Sensor]:
    """The sensors of one device or of all, each with the times of its last readings."""
    return await db.fetch_as(
        connection,
        Sensor,
        """
        select l.device_id, l.metric_type, l.metric_value as value, l.unit,
          l.occurred_at as captured_at, l.aggregation_window as window, h.instants
        from telemetry_latest l
        cross join lateral (
          select coalesce(array_agg(r.at order by r.at), '{}') as instants
          from (
            (select occurred_at as at from telemetry_readings
            where l.aggregation_window is null and tenant_id = l.tenant_id
              and device_id = l.device_id and metric_type = l.metric_type
              and occurred_at <= l.occurred_at and occurred_at > l.occurred_at - interval '35 days'
            order by occurred_at desc limit %(history)s)
            union all
            (select bucket_start_at from telemetry_agg
            where l.aggregation_window = "window" and tenant_id = l.tenant_id
              and device_id = l.device_id and metric_type = l.metric_type
            order by bucket_start_at desc limit %(history)s)) r) h
        where %(device_id)s::text is null or l.device_id = %(device_id)s
        order by l.device_id, l.metric_type
        """,
        {"history": HISTORY, "device_id": device_id},
    )


async def barn_events(connection: db.Connection, device_id: str) -> list[TimelineEvent]:
    """What the device or its edge said of it, newest first."""
    return await db.fetch_as(
        connection,
        TimelineEvent,
        """
        select event_id::text as key, occurred_at as at, event_type as kind, state as word,
          coalesce(reason, payload ->> 'message') as detail, dropped_count as count,
          coalesce(dropped_class, payload ->> 'outcome') as about,
          (payload -> 'revoked')::boolean as revoked
        from device_events where device_id = %s order by occurred_at desc limit %s
        """,
        (device_id, MAX_EVENTS),
    )


async def camera_events(connection: db.Connection, device_id: UUID) -> list[TimelineEvent]:
    """Alerts, commands, schedule changes, moves and failed images of a camera, newest first."""
    return await db.fetch_as(
        connection,
        TimelineEvent,
        """
        select * from (
          (select alert_id::text as key, created_at as at, 'alert' as kind, alert_type as word,
            message as detail, null::bigint as count,
            case when resolved_at is null then 'open' else 'resolved' end as about,
            null::boolean as revoked
          from device_alerts where device_id = %(device_id)s
          order by created_at desc limit %(limit)s)
          union all
          (select command_id::text, created_at, 'command', name, image_name, null, state, null
          from camera_commands where device_id = %(device_id)s
          order by created_at desc limit %(limit)s)
          union all
          (select change_id::text, requested_at, 'schedule', new_wake_schedule_cron,
            effective_date::text, null,
            case when applied_at is not null then 'applied'
              when cancelled_at is not null then 'cancelled'
              when superseded_at is not null then 'superseded' else 'waiting' end, null
          from device_schedule_changes where device_id = %(device_id)s
          order by requested_at desc limit %(limit)s)
          union all
          (select 'move-' || extract(epoch from a.assigned_at)::text, a.assigned_at, 'move',
            s.site_name, null, null, null, null
          from device_assignments a join sites s on s.site_id = a.site_id
          where a.device_id = %(device_id)s order by a.assigned_at desc limit %(limit)s)
        ) e order by at desc limit %(limit)s
        """,
        {"device_id": device_id, "limit": MAX_EVENTS},
    )


async def camera_login(connection: db.Connection, device_id: UUID) -> Login | None:
    """How the camera proves to the broker that it is itself; None if it has no login."""
    rows = await db.fetch_as(
        connection, Login, "select * from fn_camera_login(device_id => %s)", (device_id,)
    )
    return rows[0] if rows else None


async def camera_wakes(
    connection: db.Connection, device_id: UUID, *, begin: datetime
) -> list[Wake]:
    """The wakes of a camera since then, expected or extra, earliest first."""
    return await db.fetch_as(
        connection,
        Wake,
        """
        select coalesce(e.session_id, p.site_device_session_id) as session_id,
          coalesce(e.device_id, p.device_id) as device_id,
          coalesce(p.captured_at, e.expected_at) as at, e.expected_at, p.image_id,
          p.payload_status as status, p.received_at, p.overage_reason,
          coalesce(p.clock_suspect, false) as clock_suspect
        from (select * from expected_wakes
          where device_id = %(device_id)s and expected_at >= %(begin)s) e
        full join (select * from device_wake_payloads
          where device_id = %(device_id)s and captured_at >= %(begin)s - interval '1 hour') p
          on p.site_device_session_id = e.session_id and p.device_id = e.device_id
            and p.wake_window_index = e.wake_window_index and not p.overage_flag
        order by at limit %(limit)s
        """,
        {"device_id": device_id, "begin": begin, "limit": MAX_WAKES},
    )


async def camera_measured(
    connection: db.Connection, device_id: UUID, *, begin: datetime
) -> list[Measured]:
    return await db.fetch_as(
        connection,
        Measured,
        """
        select captured_at as at, battery_voltage as battery_v, wifi_rssi as signal_dbm
        from device_wake_payloads
        where device_id = %s and captured_at >= %s and not clock_suspect
          and (battery_voltage is not null or wifi_rssi is not null)
        order by captured_at desc limit %s
        """,
        (device_id, begin, MAX_POINTS),
    )


async def barn_measured(
    connection: db.Connection, device_id: str, *, begin: datetime
) -> list[Measured]:
    """Battery and signal as the device said them with its changes of state."""
    return await db.fetch_as(
        connection,
        Measured,
        """
        select occurred_at as at, (payload ->> 'battery_v')::double precision as battery_v,
          (payload ->> 'signal_strength')::double precision as signal_dbm
        from device_events
        where device_id = %s and occurred_at >= %s and not clock_suspect
          and (payload ? 'battery_v' or payload ? 'signal_strength')
        order by occurred_at desc limit %s
        """,
        (device_id, begin, MAX_POINTS),
    )


async def reading_hours(
    connection: db.Connection, device_id: str, *, begin: datetime
) -> dict[datetime, int]:
    """How many readings each hour (UTC) has since then; hours without any are not there."""
    rows = await db.fetch_all(
        connection,
        """
        select h.bucket_start_at, sum(h.count)::bigint
        from telemetry_latest l
        join telemetry_agg h on h.tenant_id = l.tenant_id and h.device_id = l.device_id
          and h.metric_type = l.metric_type and h."window" = '1h' and h.bucket_start_at >= %s
        where l.device_id = %s group by 1
        """,
        begin,
        device_id,
    )
    return dict(rows)


async def weighing_hours(
    connection: db.Connection, device_id: str, *, begin: datetime
) -> dict[datetime, int]:
    """How many weighings began in each hour (UTC) since then."""
    rows = await db.fetch_all(
        connection,
        """
        select date_trunc('hour', start_at, 'UTC'), count(*) from weight_sessions
        where start_at >= %s and device_id = %s group by 1
        """,
        begin,
        device_id,
    )
    return dict(rows)


async def offline_spans(
    connection: db.Connection, device_id: str, *, begin: datetime
) -> list[Span]:
    """When the device was offline since then, by its changes of state."""
    return await db.fetch_as(
        connection,
        Span,
        """
        select begin_at, end_at from (
          select state, occurred_at as begin_at,
            lead(occurred_at) over (order by occurred_at) as end_at
          from device_events
          where device_id = %(device_id)s and state is not null
            and occurred_at >= %(begin)s - interval '30 days') s
        where state = 'offline' and coalesce(end_at, 'infinity') > %(begin)s
        order by begin_at limit 1000
        """,
        {"device_id": device_id, "begin": begin},
    )


async def dropped(connection: db.Connection, device_id: str, *, begin: datetime) -> int:
    """How much the device dropped since then, by the loss ledger (C-83)."""
    count: int = await db.fetch_value(
        connection,
        "select coalesce(sum(dropped_count), 0)::bigint from device_events "
        "where device_id = %s and occurred_at >= %s",
        device_id,
        begin,
    )
    return count


async def failed_images(
    connection: db.Connection, device_id: UUID, *, limit: int
) -> Sequence[tuple[UUID, str, datetime, str | None, datetime | None]]:
    """Images of the last week that failed: id, name, time, why, and when it was requested again."""
    rows = await db.fetch_all(
        connection,
        """
        select image_id, image_name, captured_at, coalesce(error_message, error_code),
          resend_requested_at
        from device_images
        where company_id = get_active_company_id() and device_id = %s and status = 'failed'
          and captured_at > fn_now() - interval '7 days'
        order by captured_at desc limit %s
        """,
        device_id,
        limit,
    )
    return [(row[0], row[1], row[2], row[3], row[4]) for row in rows]


async def newest_images(
    connection: db.Connection, device_id: UUID, *, limit: int
) -> list[tuple[UUID, datetime]]:
    rows = await db.fetch_all(
        connection,
        """
        select image_id, captured_at from device_images
        where company_id = get_active_company_id() and device_id = %s and status = 'complete'
        order by captured_at desc, image_id desc limit %s
        """,
        device_id,
        limit,
    )
    return [(row[0], row[1]) for row in rows]
