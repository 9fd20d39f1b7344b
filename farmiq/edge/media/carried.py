"""The SQL of images on their way to the cloud: claim, settle, hand back, count."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from psycopg.rows import class_row

from farmiq.plumbing import db

# A cloud that was just started, or an address that ended meanwhile, is nobody's concern.
TRIES_BEFORE_ALERT = 3


@dataclass(frozen=True, slots=True)
class Waiting:
    """A stored image that the cloud has not got."""

    id: UUID
    tenant_id: str
    farm_id: str
    barn_id: str
    device_id: str
    station_id: str | None
    session_id: UUID | None
    trace_id: str | None
    object_key: str
    mime_type: str
    size_bytes: int
    sha256: str
    captured_at: datetime
    sync_count: int

    @property
    def subject(self) -> str:
        """Of its device's alert: one for all of its images."""
        return f"{self.tenant_id}/{self.device_id}"


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a tenant's images are."""

    tenant_id: str
    presigned: int
    missing: int
    stored: int
    stored_bytes: int
    unsynced: int
    unsynced_bytes: int
    waiting_for_event: int
    failing: int
    oldest_unsynced_s: float | None
    last_synced_at: datetime | None


async def claim(
    tx: db.Connection, *, most: int, lease_s: float, but_of: Sequence[str] = ()
) -> list[Waiting]:
    """The newest whose event the cloud has (C-22), ours for so long; none of the tenants `but_of`.

    The live ones are ahead of a backlog that way. An event that is gone from the outbox was
    delivered, or lies in its archive.
    """
    async with tx.cursor(row_factory=class_row(Waiting)) as cursor:
        await cursor.execute(
            """
            update media_objects m set sync_at = fn_now() + %s * interval '1 s'
            where m.id in (
              select w.id from media_objects w
              where w.upload_status = 'stored' and w.synced_at is null
                and w.sync_at <= (select fn_now()) and w.tenant_id <> all(%s)
                and not exists (
                  select from sync_outbox o
                  where o.id = w.stored_event_id and o.status <> 'acked')
              order by w.stored_at desc limit %s for update skip locked)
            returning m.id, m.tenant_id, m.farm_id, m.barn_id, m.device_id, m.station_id,
              m.session_id, m.trace_id, m.object_key, m.mime_type, m.size_bytes, m.sha256,
              m.captured_at, m.sync_count
            """,
            (lease_s, list(but_of), most),
        )
        return await cursor.fetchall()


async def keep_synced(tx: db.Connection, image: Waiting) -> None:
    await tx.execute(
        "update media_objects set synced_at = fn_now(), sync_at = null, sync_error = null "
        "where id = %s and synced_at is null",
        (image.id,),
    )


async def hand_back(tx: db.Connection, image: Waiting, *, why: str) -> None:
    """Not tried really: free again at once, and not counted."""
    await tx.execute(
        "update media_objects set sync_at = fn_now(), sync_error = %s "
        "where id = %s and synced_at is null",
        (why[:500], image.id),
    )


async def keep_refused(tx: db.Connection, image: Waiting, *, why: str, again_s: float) -> None:
    await tx.execute(
        "update media_objects set sync_at = fn_now() + %s * interval '1 s', "
        "sync_count = sync_count + 1, sync_error = %s where id = %s and synced_at is null",
        (again_s, why[:500], image.id),
    )


async def progress(connection: db.Connection) -> list[Progress]:
    async with connection.cursor(row_factory=class_row(Progress)) as cursor:
        await cursor.execute(
            """
            select m.tenant_id,
              count(*) filter (where m.upload_status = 'presigned') as presigned,
              count(*) filter (where m.upload_status = 'missing') as missing,
              count(*) filter (where m.upload_status = 'stored') as stored,
              (coalesce(sum(m.size_bytes) filter (where m.upload_status = 'stored'), 0)
                + coalesce(sum(m.aside_bytes), 0))::bigint as stored_bytes,
              count(*) filter (where u.waits) as unsynced,
              coalesce(sum(m.size_bytes) filter (where u.waits), 0)::bigint as unsynced_bytes,
              count(*) filter (where u.waits and o.id is not null) as waiting_for_event,
              count(*) filter (where u.waits and m.sync_count > 0) as failing,
              extract(epoch from
                (select fn_now()) - min(m.stored_at) filter (where u.waits))::float8
                as oldest_unsynced_s,
              max(m.synced_at) as last_synced_at
            from media_objects m
            cross join lateral (
              select m.upload_status = 'stored' and m.synced_at is null as waits) u
            left join sync_outbox o on u.waits and o.id = m.stored_event_id and o.status <> 'acked'
            group by m.tenant_id order by m.tenant_id
            """
        )
        return await cursor.fetchall()


async def is_another_refused(tx: db.Connection, image: Waiting) -> bool:
    """Whether the cloud refuses other images of this device for so long that an alert says so."""
    found: bool = await db.fetch_value(
        tx,
        "select exists (select from media_objects where tenant_id = %s and device_id = %s "
        "and upload_status = 'stored' and synced_at is null and sync_count > %s and id <> %s)",
        image.tenant_id,
        image.device_id,
        TRIES_BEFORE_ALERT,
        image.id,
    )
    return found
