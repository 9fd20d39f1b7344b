"""The SQL of images: requested, announced, checked, rejected, uploaded to the cloud, purged."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from farmiq.edge.media.rules import Aged, Claim, Declared, StoredObject, UploadRequest
from farmiq.plumbing import db

# A cloud that just started, or an address that expired meanwhile, needs no alert.
ATTEMPTS_BEFORE_ALERT = 3
SHOWN = (
    "media_id", "tenant_id", "farm_id", "barn_id", "device_id", "station_id", "session_id",
    "mime_type", "size_bytes", "sha256", "captured_at", "created_at", "upload_status",
    "announced_at", "stored_at", "synced_at", "refused_at", "refused_reason",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Image:
    """A row of media_objects, as the checker and the upload to the cloud need it."""

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
    size_bytes: int | None
    sha256: str | None
    captured_at: datetime
    created_at: datetime
    upload_status: str
    announced_at: datetime | None
    check_count: int
    sync_count: int
    declared_type: str | None
    declared_size_bytes: int | None
    declared_sha256: str | None
    announced_type: str | None
    announced_size_bytes: int | None
    announced_sha256: str | None
    aside_key: str | None

    @property
    def stored(self) -> bool:
        return self.upload_status == "stored"

    @property
    def owner(self) -> str:
        """The subject of its device's alerts: one for all of its images."""
        return f"{self.tenant_id}/{self.device_id}"

    @property
    def declared(self) -> Declared:
        return Declared(
            self.declared_type,
            self.declared_size_bytes,
            self.declared_sha256,
            self.captured_at,
            self.session_id,
        )

    @property
    def claims(self) -> tuple[Claim, Claim]:
        announced = self.announced_type, self.announced_size_bytes, self.announced_sha256
        declared = self.declared_type, self.declared_size_bytes, self.declared_sha256
        return Claim("the request for its address", *declared), Claim(
            "its announcement", *announced
        )


_COLUMNS = ", ".join(f"m.{name}" for name in Image.__slots__)


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


@dataclass(frozen=True, slots=True)
class Object:
    """An object of the bucket that belongs to an image."""

    id: UUID
    object_key: str
    size_bytes: int
    sha256: str | None


# --- requested by devices


async def by_id(tx: db.Connection, media_id: UUID) -> Image | None:
    return await _image(tx, "m.id = %s", media_id)


async def by_request(tx: db.Connection, request: UploadRequest, request_id: UUID) -> Image | None:
    where = "m.tenant_id = %s and m.device_id = %s and m.request_id = %s"
    return await _image(tx, where, request.tenant_id, request.device_id, request_id)


async def _image(tx: db.Connection, where: str, *args: Any) -> Image | None:
    rows = await db.fetch_as(
        tx,
        Image,
        f"select {_COLUMNS} from media_objects m where {where}",  # noqa: S608 - our own words
        args,
    )
    return rows[0] if rows else None


async def add(
    tx: db.Connection,
    request: UploadRequest,
    *,
    media_id: UUID,
    request_id: UUID | None,
    station_id: str | None,
    bucket: str,
) -> bool:
    """Add an image that may be uploaded; False if the id or the request is known already."""
    cursor = await tx.execute(
        """
        insert into media_objects (id, tenant_id, farm_id, barn_id, device_id, station_id,
          session_id, trace_id, request_id, bucket, object_key, mime_type, captured_at,
          declared_type, declared_size_bytes, declared_sha256, created_at)
        values (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, fn_now())
        on conflict do nothing
        """,
        (
            media_id, request.tenant_id, request.farm_id, request.barn_id, request.device_id,
            station_id, request.session_id, request.trace_id, request_id, bucket,
            request.object_key(media_id), request.content_type, request.captured_at,
            request.content_type, request.size_bytes, request.sha256,
        ),
    )  # fmt: skip
    return cursor.rowcount > 0


async def adopt(tx: db.Connection, request: UploadRequest, media_id: UUID, *, bucket: str) -> None:
    """Take the device's declaration of an image that was announced before it was requested."""
    await tx.execute(
        """
        update media_objects set captured_at = %s, object_key = %s, mime_type = %s, bucket = %s,
          declared_type = %s, declared_size_bytes = %s, declared_sha256 = %s
        where id = %s and declared_type is null and upload_status <> 'stored'
        """,
        (
            request.captured_at, request.object_key(media_id), request.content_type, bucket,
            request.content_type, request.size_bytes, request.sha256, media_id,
        ),
    )  # fmt: skip


async def presigned(
    tx: db.Connection, request: UploadRequest, media_id: UUID, *, check_after_s: float
) -> None:
    """Note that an address is given now; the image is checked when the address has expired."""
    await tx.execute(
        """
        update media_objects set presigned_at = fn_now(),
          declared_type = coalesce(declared_type, %s),
          declared_size_bytes = coalesce(declared_size_bytes, %s),
          declared_sha256 = coalesce(declared_sha256, %s),
          session_id = coalesce(session_id, %s),
          check_at = case when upload_status = 'stored' then check_at
            when announced_at is not null then least(check_at, fn_now() + %s * interval '1 s')
            else fn_now() + %s * interval '1 s' end
        where id = %s
        """,
        (
            request.content_type, request.size_bytes, request.sha256, request.session_id,
            check_after_s, check_after_s, media_id,
        ),
    )  # fmt: skip


# --- checked


async def claim_due(tx: db.Connection, *, limit: int, lease_s: float) -> list[Image]:
    """Images to be checked now; others see them again after `lease_s`."""
    return await db.fetch_as(
        tx,
        Image,
        f"""
        update media_objects m set check_at = fn_now() + %s * interval '1 s'
        where m.id in (
          select d.id from media_objects d where d.check_at <= (select fn_now())
          order by d.check_at limit %s for update skip locked)
        returning {_COLUMNS}
        """,  # noqa: S608 - our own words
        (lease_s, limit),
    )


async def release(tx: db.Connection, image_ids: Sequence[UUID]) -> None:
    """Images that were claimed and not checked are due again."""
    await tx.execute(
        "update media_objects set check_at = fn_now() where id = any(%s) and check_at > fn_now()",
        (list(image_ids),),
    )


async def reset_future_checks(tx: db.Connection, *, hours: float) -> int:
    """Check images now whose check_at is beyond any delay; the clock was set back."""
    return await _count(
        tx,
        "update media_objects set check_at = fn_now() "
        "where check_at > (select fn_now()) + %s * interval '1 hour'",
        hours,
    )


async def mark_stored(
    tx: db.Connection, image: Image, content: StoredObject, *, event_id: UUID
) -> bool:
    """The bytes are here and right; False if that was known already."""
    changed = await _count(
        tx,
        """
        update media_objects set upload_status = 'stored', stored_at = fn_now(), mime_type = %s,
          size_bytes = %s, sha256 = %s, etag = %s, stored_event_id = %s, check_at = null,
          check_count = 0, sync_at = fn_now()
        where id = %s and upload_status <> 'stored'
        """,
        *(content.mime_type, content.size_bytes, content.sha256, content.etag, event_id, image.id),
    )
    return changed > 0


async def mark_rejected(
    tx: db.Connection, image: Image, *, reason: str, aside_key: str, aside_bytes: int
) -> bool:
    """The bytes are not the declared ones; the right ones may still come."""
    changed = await _count(
        tx,
        """
        update media_objects set upload_status = 'missing', refused_at = fn_now(),
          refused_reason = %s, aside_key = %s, aside_bytes = %s, check_at = null, check_count = 0
        where id = %s and upload_status <> 'stored'
        """,
        *(reason[:1000], aside_key, aside_bytes, image.id),
    )
    return changed > 0


async def check_again(
    tx: db.Connection, image: Image, *, after_s: float, missing: bool = False
) -> None:
    """Count a check that found nothing; `missing` after the last one that may be too early."""
    await tx.execute(
        "update media_objects set check_at = fn_now() + %s * interval '1 s', "
        "upload_status = case when %s then 'missing' else upload_status end, "
        "check_count = check_count + 1 where id = %s and upload_status <> 'stored'",
        (after_s, missing, image.id),
    )


async def expire(tx: db.Connection, image: Image, *, hours: float) -> bool:
    """Delete what was never uploaded nor announced; check it later if it is too early for that."""
    deleted = await _count(
        tx,
        """
        delete from media_objects where id = %s and upload_status = 'presigned'
          and announced_at is null
          and coalesce(presigned_at, created_at) <= (select fn_now()) - %s * interval '1 hour'
        """,
        *(image.id, hours),
    )
    if not deleted:
        await tx.execute(
            """
            update media_objects
            set check_at = coalesce(presigned_at, created_at) + %s * interval '1 hour'
            where id = %s and upload_status = 'presigned' and announced_at is null
            """,
            (hours, image.id),
        )
    return deleted > 0


async def others_missing(tx: db.Connection, image: Image) -> bool:
    """Whether this device announced other images that are not here."""
    return await _has_other(tx, image, "upload_status = 'missing' and announced_at is not null")


async def others_rejected(tx: db.Connection, image: Image) -> bool:
    """Whether other images of this device were rejected and wait for the right bytes."""
    return await _has_other(tx, image, "upload_status = 'missing' and refused_at is not null")


async def others_not_accepted(tx: db.Connection, image: Image) -> bool:
    """Whether the cloud rejects other images of this device for so long that an alert says so."""
    where = "upload_status = 'stored' and synced_at is null and sync_count > "
    return await _has_other(tx, image, f"{where}{ATTEMPTS_BEFORE_ALERT}")


async def _has_other(tx: db.Connection, image: Image, where: str) -> bool:
    exists: bool = await db.fetch_value(
        tx,
        "select exists (select from media_objects where tenant_id = %s and device_id = %s "  # noqa: S608 - our own words
        f"and {where} and id <> %s)",
        *(image.tenant_id, image.device_id, image.id),
    )
    return exists


# --- uploaded to the cloud


async def claim_unsynced(
    tx: db.Connection, *, limit: int, lease_s: float, except_tenants: Sequence[str] = ()
) -> list[Image]:
    """The newest stored images whose event the cloud has (C-22), ours for `lease_s`.

    New images are ahead of a backlog. An event that is gone from the outbox was delivered, or is
    in its archive.
    """
    return await db.fetch_as(
        tx,
        Image,
        f"""
        update media_objects m set sync_at = fn_now() + %s * interval '1 s'
        where m.id in (
          select w.id from media_objects w
          where w.upload_status = 'stored' and w.synced_at is null
            and (w.sync_at <= (select fn_now())
              or w.sync_at > (select fn_now()) + interval '1 day')  -- by a clock that was ahead
            and w.tenant_id <> all(%s)
            and not exists (
              select from sync_outbox o
              where o.id = w.stored_event_id and o.status <> 'acked')
          order by w.stored_at desc limit %s for update skip locked)
        returning {_COLUMNS}
        """,  # noqa: S608 - our own words
        (lease_s, list(except_tenants), limit),
    )


async def mark_synced(tx: db.Connection, image: Image) -> None:
    await tx.execute(
        "update media_objects set synced_at = fn_now(), sync_at = null, sync_error = null "
        "where id = %s and synced_at is null",
        (image.id,),
    )


async def mark_not_synced(
    tx: db.Connection, image: Image, *, reason: str, after_s: float, counted: bool
) -> None:
    """Try again after so long; `counted` if the cloud rejected this image."""
    await tx.execute(
        "update media_objects set sync_at = fn_now() + %s * interval '1 s', "
        "sync_count = sync_count + %s, sync_error = %s where id = %s and synced_at is null",
        (after_s, int(counted), reason[:500], image.id),
    )


async def progress(connection: db.Connection) -> list[Progress]:
    return await db.fetch_as(
        connection,
        Progress,
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
        """,
    )


# --- retention and verification

_SESSION_OPEN = """exists (
  select from weight_sessions s
  where s.id = m.session_id and s.tenant_id = m.tenant_id and s.status = 'created')"""


async def aged(
    tx: db.Connection, *, days: float, after: UUID, limit: int
) -> tuple[datetime, list[Aged]]:
    """(now, images that may have expired, by id); `rules.is_expired` decides."""
    now: datetime = await db.fetch_value(tx, "select fn_now()")
    return now, await db.fetch_as(
        tx,
        Aged,
        f"""
        select m.id, m.object_key, m.aside_key, m.captured_at, m.created_at,
          m.upload_status = 'stored' as stored, m.synced_at is not null as synced,
          {_SESSION_OPEN} as session_open
        from media_objects m
        where m.id > %s
          and least(m.captured_at, m.created_at) < %s - %s * interval '1 day'
          and (m.upload_status <> 'stored' or m.synced_at is not null)
        order by m.id limit %s
        """,  # noqa: S608 - our own words
        (after, now, days, limit),
    )


async def purge(tx: db.Connection, image_ids: Sequence[UUID]) -> int:
    """Delete rows whose objects are deleted; never one that the cloud does not have."""
    return await _count(
        tx,
        "delete from media_objects where id = any(%s) "
        "and (upload_status <> 'stored' or synced_at is not null)",
        list(image_ids),
    )


async def oldest_synced(tx: db.Connection, *, open_sessions: bool, limit: int) -> list[Object]:
    """The oldest that may go early: the cloud has them, and their session is not open."""
    return await db.fetch_as(
        tx,
        Object,
        f"""
        select m.id, m.object_key, m.size_bytes, m.sha256 from media_objects m
        where m.upload_status = 'stored' and m.synced_at is not null
          and (%s or not {_SESSION_OPEN})
        order by m.created_at, m.id limit %s
        """,  # noqa: S608 - our own words
        (open_sessions, limit),
    )


async def oldest_rejected(tx: db.Connection, *, limit: int) -> list[Object]:
    """Rejected uploads, the oldest first, under the keys where they lie aside."""
    return await db.fetch_as(
        tx,
        Object,
        """
        select id, aside_key as object_key, aside_bytes as size_bytes, null as sha256
        from media_objects where aside_bytes is not null order by refused_at, id limit %s
        """,
        (limit,),
    )


async def purge_rejected(tx: db.Connection, image_ids: Sequence[UUID]) -> int:
    """The rejected bytes are deleted; why they were rejected stays."""
    return await _count(
        tx,
        "update media_objects set aside_key = null, aside_bytes = null where id = any(%s)",
        list(image_ids),
    )


async def stored_bytes(tx: db.Connection) -> int:
    """The size of all images in the bucket, stored and rejected."""
    number: int = await db.fetch_value(
        tx,
        "select (coalesce(sum(size_bytes) filter (where upload_status = 'stored'), 0) "
        "+ coalesce(sum(aside_bytes), 0))::bigint from media_objects",
    )
    return number


async def has_older(tx: db.Connection, *, days: float) -> bool:
    """Whether an image is still here that long after it was stored, as the bucket's rule counts."""
    exists: bool = await db.fetch_value(
        tx,
        "select exists (select from media_objects where upload_status = 'stored' "
        "and stored_at < (select fn_now()) - %s * interval '1 day')",
        days,
    )
    return exists


async def stored(connection: db.Connection, *, after: UUID, limit: int) -> list[Object]:
    return await db.fetch_as(
        connection,
        Object,
        "select id, object_key, size_bytes, sha256 from media_objects "
        "where id > %s and upload_status = 'stored' order by id limit %s",
        (after, limit),
    )


async def mark_lost(tx: db.Connection, image_ids: Sequence[UUID]) -> None:
    """Their objects are gone; they are checked again in case somebody brings them back."""
    await tx.execute(
        "update media_objects set upload_status = 'missing', "
        "announced_at = coalesce(announced_at, stored_at), "
        "check_count = 12, check_at = fn_now() + interval '1 hour' "
        "where id = any(%s) and upload_status = 'stored'",
        (list(image_ids),),
    )


async def known_keys(connection: db.Connection, keys: Sequence[str]) -> set[str]:
    rows = await db.fetch_all(
        connection, "select object_key from media_objects where object_key = any(%s)", list(keys)
    )
    return {key for (key,) in rows}


# --- shown


async def page(connection: db.Connection, wanted: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Images that fit the filter, newest capture first."""
    return await _shown(
        connection,
        """
        where (%(tenant)s::text is null or tenant_id = %(tenant)s)
          and (%(farm)s::text is null or farm_id = %(farm)s)
          and (%(barn)s::text is null or barn_id = %(barn)s)
          and (%(device)s::text is null or device_id = %(device)s)
          and (%(station)s::text is null or station_id = %(station)s)
          and (%(session)s::uuid is null or session_id = %(session)s)
          and (%(status)s::text is null or upload_status = %(status)s)
          and (%(begin)s::timestamptz is null or captured_at >= %(begin)s)
          and (%(end)s::timestamptz is null or captured_at < %(end)s)
          and (%(after_at)s::timestamptz is null
            or (captured_at, id) < (%(after_at)s, %(after_id)s::uuid))
        order by captured_at desc, id desc limit %(limit)s
        """,
        wanted,
    )


async def show(connection: db.Connection, media_id: UUID) -> dict[str, Any] | None:
    rows = await _shown(connection, "where id = %(id)s", {"id": media_id})
    return rows[0] if rows else None


async def _shown(
    connection: db.Connection, where: str, args: Mapping[str, Any]
) -> list[dict[str, Any]]:
    columns = ", ".join(["id as media_id", *SHOWN[1:], "object_key", "bucket"])
    return await db.fetch_dicts(connection, f"select {columns} from media_objects {where}", args)  # noqa: S608 - our own words


async def _count(tx: db.Connection, statement: str, *args: Any) -> int:
    return (await tx.execute(statement.encode(), args)).rowcount
