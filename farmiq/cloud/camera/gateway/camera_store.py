"""SQL of cameras: which one has an address, what was heard of it, and its wakes."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from psycopg.types.json import Jsonb

from farmiq.cloud.camera import registry
from farmiq.cloud.camera.protocol.wire import Announcement, Hello
from farmiq.plumbing import db

# Current transfer of a camera whose announcement was rejected, or whose chunks contradict it.
NOTHING_KNOWN = UUID(int=0)


class Camera(NamedTuple):
    """A registered camera, in use or not. `has_requests`: a send_image is queued or not answered.

    The transfer that its chunks without a name belong to: `speaks_of`, and for messages from
    quarantine, which are separate from what it sends now, `spoke_of`. A transfer, NOTHING_KNOWN, or
    None: that of the next message.
    """

    mac: str
    device_id: UUID
    company_id: UUID
    dialect: str
    is_active: bool
    pending_count: int | None
    has_site: bool
    speaks_of: UUID | None
    spoke_of: UUID | None
    has_requests: bool


class WakeRequest(NamedTuple):
    """An announcement to record; it is rejected if it is of one of the `contradicted` images."""

    device_id: UUID
    announcement: Announcement
    waited: bool
    contradicted: Sequence[UUID]


class Wake(NamedTuple):
    """An announced image, as it was before; or `problem`, an SQLSTATE, and its `message`."""

    image_id: UUID
    problem: str | None
    message: str | None
    is_complete: bool
    has_transfer: bool


_BY_MAC = f"""
  select d.mac, d.device_id, d.company_id, d.dialect, d.is_active, d.pending_count,
    d.site_id is not null, d.speaks_of, d.spoke_of, exists (
      select from camera_commands c where c.device_id = d.device_id and c.name = 'send_image'
        and c.state in ('queued', 'sent'))
  from devices d where d.device_id in (
    select distinct on (d.mac) d.device_id from devices d
    where d.mac = any(%s::text[]) and ({registry.IN_CHARGE} or (not d.is_active and not exists (
      select from devices o where o.mac = d.mac and o.is_active)))
    order by d.mac, d.created_at desc)
  order by d.device_id
"""  # noqa: S608 - the text is ours


async def by_mac(
    tx: db.Connection, macs: Sequence[str], *, lock: bool = False
) -> dict[str, Camera]:
    """By address: the camera in charge, else the last one that was retired.

    Not addresses that several companies registered, if none is proven and none has a login. Locked
    in a fixed order, before any other row of theirs.
    """
    for_update = " for no key update" if lock else ""
    rows = await db.fetch_all(tx, _BY_MAC + for_update, list(macs))
    return {row[0]: Camera(*row) for row in rows}


async def lock(tx: db.Connection, device_ids: Sequence[UUID]) -> datetime:
    """Lock cameras in a fixed order, before any other row of theirs. Returns the time."""
    now: datetime = await db.fetch_value(
        tx,
        """
        select fn_now() from (
          select count(*) from (
            select from devices where device_id = any(%s::uuid[])
            order by device_id for no key update) d) locked
        """,
        list(device_ids),
    )
    return now


async def set_current_transfers(
    tx: db.Connection, current: Mapping[UUID, UUID | None], *, redriven: bool
) -> None:
    """The cameras are locked."""
    await tx.execute(
        """
        update devices d
        set speaks_of = case when %(redriven)s then d.speaks_of else s.transfer_id end,
          spoke_of = case when %(redriven)s then s.transfer_id else d.spoke_of end
        from unnest(%(cameras)s::uuid[], %(transfers)s::uuid[]) as s(device_id, transfer_id)
        where d.device_id = s.device_id
        """,
        {"redriven": redriven, "cameras": list(current), "transfers": list(current.values())},
    )


async def reset_redriven(tx: db.Connection) -> None:
    """Redriven chunks belong to an announcement that is redriven with them, or to none."""
    await tx.execute(
        """
        update devices d set spoke_of = null from (
          select device_id from devices where spoke_of is not null
          order by device_id for no key update) o
        where d.device_id = o.device_id
        """
    )


async def note_heard(
    tx: db.Connection,
    cameras: Sequence[tuple[Camera, str]],
    hellos: Mapping[UUID, Hello] | None = None,
) -> None:
    """(camera, spelling of its address) of messages just now, with what HELLOs say.

    The cameras are locked.
    """
    sent_hellos = [(hellos or {}).get(camera.device_id) for camera, _ in cameras]
    await tx.execute(
        """
        with heard as (
          select s.*, (select fn_now()) as now
          from unnest(%s::uuid[], %s::uuid[], %s::text[], %s::integer[],
            %s::float8[], %s::float8[], %s::text[]) as s(device_id, company_id, spelling,
            pending_count, battery_voltage, wifi_rssi, firmware)
        ), seen as (
          update devices d set last_seen_at = h.now, proven_at = coalesce(d.proven_at, h.now),
            pending_count = coalesce(h.pending_count, d.pending_count),
            battery_voltage = coalesce(h.battery_voltage, d.battery_voltage),
            wifi_rssi = coalesce(h.wifi_rssi, d.wifi_rssi),
            firmware = coalesce(h.firmware, d.firmware)
          from heard h where d.device_id = h.device_id)
        insert into camera_states as c (device_id, company_id, since, heard_at, hello_at, spelling)
        select h.device_id, h.company_id, h.now, h.now,
          case when h.pending_count is not null then h.now end, h.spelling
        from heard h order by h.device_id
        on conflict on constraint camera_states_pkey do update set heard_at = excluded.heard_at,
          hello_at = coalesce(excluded.hello_at, c.hello_at), spelling = excluded.spelling
        """,
        (
            db.packed(db.Uuids, [camera.device_id for camera, _ in cameras]),
            db.packed(db.Uuids, [camera.company_id for camera, _ in cameras]),
            db.packed(db.Texts, [spelling for _, spelling in cameras]),
            [hello and hello.pending_count for hello in sent_hellos],
            [hello and hello.battery_voltage for hello in sent_hellos],
            [hello and hello.wifi_rssi for hello in sent_hellos],
            [hello and hello.firmware for hello in sent_hellos],
        ),
    )


async def record_wakes(tx: db.Connection, requests: Sequence[WakeRequest]) -> list[Wake]:
    """Store these wakes, or find them. The rest of the statement sees images as they were."""
    announcements = [request.announcement for request in requests]
    rows = await db.fetch_all(
        tx,
        """
        select w.image_id, w.problem, w.message,
          exists (
            select from device_images i where i.image_id = w.image_id and i.status = 'complete'),
          exists (select from camera_transfers t where t.image_id = w.image_id)
        from unnest(%s::uuid[], %s::timestamptz[], %s::text[], %s::jsonb[], %s::text[])
          with ordinality as r(device_id, captured_at, image_name, telemetry, contradicted, place)
        cross join lateral fn_try_wake(
          r.device_id, r.captured_at, r.image_name, r.telemetry, r.contradicted::uuid[]) w
        order by r.place
        """,
        [request.device_id for request in requests],
        [announcement.captured_at for announcement in announcements],
        [announcement.image_name for announcement in announcements],
        [
            Jsonb(request.announcement.fields | ({"pending": True} if request.waited else {}))
            for request in requests
        ],
        [f"{{{','.join(map(str, request.contradicted))}}}" for request in requests],
    )
    return [Wake(*row) for row in rows]


async def silent_since_hello(tx: db.Connection, device_ids: Sequence[UUID]) -> list[UUID]:
    """Those of these cameras, in use, that have sent nothing since their last HELLO."""
    rows = await db.fetch_all(
        tx,
        """
        select s.device_id from camera_states s join devices d on d.device_id = s.device_id
        where s.device_id = any(%s::uuid[]) and s.heard_at <= s.hello_at and d.is_active
        """,
        list(device_ids),
    )
    return [row[0] for row in rows]


async def alert_unassigned(tx: db.Connection, camera: Camera, reason: str) -> None:
    await tx.execute(
        """
        select fn_raise_alert(company_id => %s, alert_type => 'unassigned_device',
          alert_date => fn_now()::date, message => %s, device_id => %s)
        """,
        (camera.company_id, reason, camera.device_id),
    )
