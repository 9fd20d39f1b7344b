"""Cameras as the gateway knows them: who has an address, when it was heard. SQL."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from psycopg.types.json import Jsonb

from farmiq.cloud.camera import claims
from farmiq.cloud.camera.gateway.wire import Hello, Metadata
from farmiq.plumbing import db

# What a camera speaks of when its announcement was refused, or its chunks contradict the image that
# it announced: no image that is known.
NOTHING_KNOWN = UUID(int=0)


@dataclass(frozen=True, slots=True)
class Camera:
    """A registered camera, in use or not."""

    mac: str
    device_id: UUID
    company_id: UUID
    dialect: str
    is_active: bool
    pending_count: int | None
    has_site: bool = True


@dataclass(frozen=True, slots=True)
class Wake:
    """An announced image, as it was before this announcement."""

    image_id: UUID
    is_complete: bool
    has_transfer: bool


_BY_MAC = f"""
  select distinct on (d.mac) d.mac, d.device_id, d.company_id, d.dialect, d.is_active,
    d.pending_count, d.site_id is not null
  from devices d
  where d.mac = any(%s::text[]) and ({claims.IN_CHARGE} or (not d.is_active and not exists (
    select from devices o where o.mac = d.mac and o.is_active)))
  order by d.mac, d.created_at desc
"""  # noqa: S608 - the text is ours


async def by_mac(tx: db.Connection, macs: Sequence[str]) -> dict[str, Camera]:
    """Who has these addresses: the one in charge, else of those that were retired the last.

    An address that several claim, none proven and none with a login, is nobody's.
    """
    rows = await db.fetch_all(tx, _BY_MAC, list(macs))
    return {row[0]: Camera(*row) for row in rows}


async def lock(tx: db.Connection, device_ids: Sequence[UUID]) -> None:
    """In one order, before anything else of these cameras."""
    await tx.execute(
        "select from devices where device_id = any(%s::uuid[]) order by device_id "
        "for no key update",
        (list(device_ids),),
    )


async def speaking_of(
    tx: db.Connection, device_ids: Sequence[UUID], *, again: bool
) -> dict[UUID, UUID | None]:
    """Whose chunks without a name are: a transfer, NOTHING_KNOWN, or of what is announced next.

    `again`: of what is tried again, which is none of what the camera says now.
    """
    rows = await db.fetch_all(
        tx,
        "select device_id, case when %s then spoke_of else speaks_of end "
        "from devices where device_id = any(%s::uuid[])",
        again,
        list(device_ids),
    )
    return {row[0]: row[1] for row in rows}


async def speak_of(tx: db.Connection, subjects: Mapping[UUID, UUID | None], *, again: bool) -> None:
    """Write down what these cameras, which are locked, speak of from now on."""
    await tx.execute(
        """
        update devices d set speaks_of = case when %(again)s then d.speaks_of else s.subject end,
          spoke_of = case when %(again)s then s.subject else d.spoke_of end
        from unnest(%(cameras)s::uuid[], %(subjects)s::uuid[]) as s(device_id, subject)
        where d.device_id = s.device_id
        """,
        {"again": again, "cameras": list(subjects), "subjects": list(subjects.values())},
    )


async def forget_what_was_tried(tx: db.Connection) -> None:
    """Chunks that are tried again follow an announcement that is tried with them, or none."""
    await tx.execute(
        """
        update devices d set spoke_of = null from (
          select device_id from devices where spoke_of is not null
          order by device_id for no key update) o
        where d.device_id = o.device_id
        """
    )


async def is_in_use(tx: db.Connection, device_id: UUID) -> bool:
    """Another camera, of another company, may have the address of one that is retired."""
    found: bool = await db.fetch_value(
        tx, "select is_active from devices where device_id = %s", device_id
    )
    return found


async def asked_of(tx: db.Connection, device_id: UUID, transfer_id: UUID) -> None:
    """What a camera sends next without a name answers this, unless it speaks of something else.

    Some greet when they come back in mid-image, and go on with it without another announcement.
    """
    await tx.execute(
        "update devices set speaks_of = %s where device_id = %s and speaks_of is null",
        (transfer_id, device_id),
    )


async def heard(tx: db.Connection, spoken: Sequence[tuple[Camera, str]]) -> None:
    """These cameras, which are locked, were heard just now."""
    device_ids = [camera.device_id for camera, _ in spoken]
    await tx.execute(
        "update devices set last_seen_at = (select fn_now()), "
        "proven_at = coalesce(proven_at, (select fn_now())) where device_id = any(%s::uuid[])",
        (device_ids,),
    )
    await tx.execute(
        """
        insert into camera_states (device_id, company_id, since, heard_at, spelling)
        select s.device_id, s.company_id, clock.now, clock.now, s.spelling
        from unnest(%s::uuid[], %s::uuid[], %s::text[]) as s(device_id, company_id, spelling),
          (select fn_now() as now) clock
        order by s.device_id
        on conflict on constraint camera_states_pkey do update
          set heard_at = excluded.heard_at, spelling = excluded.spelling
        """,
        (
            device_ids,
            [camera.company_id for camera, _ in spoken],
            [spelling for _, spelling in spoken],
        ),
    )


async def greeted(tx: db.Connection, camera: Camera, hello: Hello) -> None:
    await tx.execute(
        """
        update devices set pending_count = %s, battery_voltage = coalesce(%s, battery_voltage),
          wifi_rssi = coalesce(%s, wifi_rssi), firmware = coalesce(%s, firmware)
        where device_id = %s
        """,
        (
            hello.pending_count, hello.battery_voltage, hello.wifi_rssi, hello.firmware,
            camera.device_id,
        ),
    )  # fmt: skip
    await tx.execute(
        "update camera_states set hello_at = fn_now() where device_id = %s", (camera.device_id,)
    )


async def announce(tx: db.Connection, camera: Camera, said: Metadata, *, waited: bool) -> Wake:
    """The wake is written down, or found again: which image it is, and what was known of it.

    The statement sees an image as it was before; a new one it does not see.
    """
    telemetry = {**said.said, "pending": True} if waited else said.said
    rows = await db.fetch_all(
        tx,
        """
        with wake as materialized (
          select (fn_wake_ingestion_handler(device_id => %s, captured_at => %s, image_name => %s,
            telemetry_data => %s) ->> 'image_id')::uuid as image_id)
        select w.image_id,
          exists (
            select from device_images i where i.image_id = w.image_id and i.status = 'complete'),
          exists (select from camera_transfers t where t.image_id = w.image_id)
        from wake w
        """,
        camera.device_id,
        said.captured_at,
        said.image_name,
        Jsonb(telemetry),
    )
    return Wake(*rows[0])


async def alert_unassigned(tx: db.Connection, camera: Camera, reason: str) -> None:
    await tx.execute(
        """
        select fn_raise_alert(company_id => %s, alert_type => 'unassigned_device',
          alert_date => fn_now()::date, message => %s, device_id => %s)
        """,
        (camera.company_id, reason, camera.device_id),
    )
