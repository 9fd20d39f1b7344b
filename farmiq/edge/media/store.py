"""The SQL of images: asked for, announced, found, set aside, shown."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg.rows import class_row, dict_row

from farmiq.edge.media.contents import Found, Said
from farmiq.edge.media.presign import Asked, Declared
from farmiq.plumbing import db

_COLUMNS = """
    m.id, m.tenant_id, m.farm_id, m.barn_id, m.device_id, m.station_id, m.session_id, m.trace_id,
    m.object_key, m.mime_type, m.size_bytes, m.sha256, m.captured_at, m.created_at,
    m.upload_status, m.announced_at, m.stored_at, m.synced_at, m.presigned_at, m.check_count,
    m.declared_type, m.declared_size_bytes, m.declared_sha256, m.announced_type,
    m.announced_size_bytes, m.announced_sha256, m.aside_key
"""
SHOWN = (
    "media_id", "tenant_id", "farm_id", "barn_id", "device_id", "station_id", "session_id",
    "mime_type", "size_bytes", "sha256", "captured_at", "created_at", "upload_status",
    "announced_at", "stored_at", "synced_at", "refused_at", "refused_reason",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Image:
    """A row of media_objects, as its loop needs it."""

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
    stored_at: datetime | None
    synced_at: datetime | None
    presigned_at: datetime | None
    check_count: int
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
    def said(self) -> tuple[Said, Said]:
        return (
            Said(
                "the request for its address",
                self.declared_type,
                self.declared_size_bytes,
                self.declared_sha256,
            ),
            Said(
                "its announcement",
                self.announced_type,
                self.announced_size_bytes,
                self.announced_sha256,
            ),
        )


# --- asked for


async def by_id(tx: db.Connection, media_id: UUID) -> Image | None:
    rows = await _images(tx, f"select {_COLUMNS} from media_objects m where m.id = %s", (media_id,))  # noqa: S608 - our own words
    return rows[0] if rows else None


async def by_request(tx: db.Connection, asked: Asked, request_id: UUID) -> Image | None:
    rows = await _images(
        tx,
        f"select {_COLUMNS} from media_objects m "  # noqa: S608 - our own words
        "where m.tenant_id = %s and m.device_id = %s and m.request_id = %s",
        (asked.tenant_id, asked.device_id, request_id),
    )
    return rows[0] if rows else None


async def add(
    tx: db.Connection,
    asked: Asked,
    *,
    media_id: UUID,
    request_id: UUID | None,
    station_id: str | None,
    bucket: str,
) -> bool:
    """Remember an image that may be uploaded; False if the id or the request is known already."""
    cursor = await tx.execute(
        """
        insert into media_objects (id, tenant_id, farm_id, barn_id, device_id, station_id,
          session_id, trace_id, request_id, bucket, object_key, mime_type, captured_at,
          declared_type, declared_size_bytes, declared_sha256, created_at)
        values (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, fn_now())
        on conflict do nothing
        """,
        (
            media_id, asked.tenant_id, asked.farm_id, asked.barn_id, asked.device_id, station_id,
            asked.session_id, asked.trace_id, request_id, bucket, asked.object_key(media_id),
            asked.content_type, asked.captured_at, asked.content_type, asked.size_bytes,
            asked.sha256,
        ),
    )  # fmt: skip
    return cursor.rowcount > 0


async def adopt(tx: db.Connection, asked: Asked, media_id: UUID, *, bucket: str) -> None:
    """An image that was announced before anybody asked about it: now its device says what it is."""
    await tx.execute(
        """
        update media_objects set captured_at = %s, object_key = %s, mime_type = %s, bucket = %s,
          declared_type = %s, declared_size_bytes = %s, declared_sha256 = %s
        where id = %s and declared_type is null and upload_status <> 'stored'
        """,
        (
            asked.captured_at, asked.object_key(media_id), asked.content_type, bucket,
            asked.content_type, asked.size_bytes, asked.sha256, media_id,
        ),
    )  # fmt: skip


async def presigned(
    tx: db.Connection, asked: Asked, media_id: UUID, *, look_after_s: float
) -> None:
    """An address is given now; when it has expired, it is looked what became of it."""
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
            asked.content_type, asked.size_bytes, asked.sha256, asked.session_id, look_after_s,
            look_after_s, media_id,
        ),
    )  # fmt: skip


# --- looked for


async def due(tx: db.Connection, *, most: int, again_s: float) -> list[Image]:
    """Images to be looked for now; whoever takes one has so many seconds before others do."""
    return await _images(
        tx,
        f"""
        update media_objects m set check_at = fn_now() + %s * interval '1 s'
        where m.id in (
          select d.id from media_objects d where d.check_at <= (select fn_now())
          order by d.check_at limit %s for update skip locked)
        returning {_COLUMNS}
        """,  # noqa: S608 - our own words
        (again_s, most),
    )


async def release(tx: db.Connection, image_ids: Sequence[UUID]) -> None:
    """Images that were taken by `due` and not looked for: they are due again."""
    await tx.execute(
        "update media_objects set check_at = fn_now() where id = any(%s) and check_at > fn_now()",
        (list(image_ids),),
    )


async def set_right(tx: db.Connection, *, hours: float) -> int:
    """Look now for what was put off longer than ever, by a clock that has been set back since."""
    cursor = await tx.execute(
        """
        update media_objects set check_at = fn_now()
        where check_at > (select fn_now()) + %s * interval '1 hour'
        """,
        (hours,),
    )
    return cursor.rowcount


async def keep_stored(tx: db.Connection, image: Image, found: Found, *, event_id: UUID) -> bool:
    """The bytes are here and right; False if that was known already."""
    cursor = await tx.execute(
        """
        update media_objects set upload_status = 'stored', stored_at = fn_now(), mime_type = %s,
          size_bytes = %s, sha256 = %s, etag = %s, stored_event_id = %s, check_at = null,
          check_count = 0, sync_at = fn_now()
        where id = %s and upload_status <> 'stored'
        """,
        (found.mime_type, found.size_bytes, found.sha256, found.etag, event_id, image.id),
    )
    return cursor.rowcount > 0


async def keep_refused(
    tx: db.Connection, image: Image, *, reason: str, aside_key: str, aside_bytes: int
) -> bool:
    """What was uploaded is not what was said; the right bytes may still come."""
    cursor = await tx.execute(
        """
        update media_objects set upload_status = 'missing', refused_at = fn_now(),
          refused_reason = %s, aside_key = %s, aside_bytes = %s, check_at = null, check_count = 0
        where id = %s and upload_status <> 'stored'
        """,
        (reason[:1000], aside_key, aside_bytes, image.id),
    )
    return cursor.rowcount > 0


async def keep_missing(tx: db.Connection, image: Image, *, again_s: float) -> None:
    await tx.execute(
        """
        update media_objects set upload_status = 'missing', check_count = check_count + 1,
          check_at = fn_now() + %s * interval '1 s'
        where id = %s and upload_status <> 'stored'
        """,
        (again_s, image.id),
    )


async def look_again(tx: db.Connection, image: Image, *, again_s: float) -> None:
    await tx.execute(
        "update media_objects set check_at = fn_now() + %s * interval '1 s', "
        "check_count = check_count + 1 where id = %s and upload_status <> 'stored'",
        (again_s, image.id),
    )


async def expire(tx: db.Connection, image: Image, *, hours: float) -> bool:
    """Forget what was never uploaded nor announced; else look again when its time is over."""
    cursor = await tx.execute(
        """
        delete from media_objects where id = %s and upload_status = 'presigned'
          and announced_at is null
          and coalesce(presigned_at, created_at) <= (select fn_now()) - %s * interval '1 hour'
        """,
        (image.id, hours),
    )
    if cursor.rowcount:
        return True
    await tx.execute(
        """
        update media_objects
        set check_at = coalesce(presigned_at, created_at) + %s * interval '1 hour'
        where id = %s and upload_status = 'presigned' and announced_at is null
        """,
        (hours, image.id),
    )
    return False


async def is_anything_missing(tx: db.Connection, image: Image) -> bool:
    """Whether this device announced other images that are not here."""
    found: bool = await db.fetch_value(
        tx,
        "select exists (select from media_objects where tenant_id = %s and device_id = %s "
        "and upload_status = 'missing' and announced_at is not null and id <> %s)",
        image.tenant_id,
        image.device_id,
        image.id,
    )
    return found


async def is_another_refused(tx: db.Connection, image: Image) -> bool:
    """Whether other images of this device were refused and wait for the right bytes."""
    found: bool = await db.fetch_value(
        tx,
        "select exists (select from media_objects where tenant_id = %s and device_id = %s "
        "and upload_status = 'missing' and refused_at is not null and id <> %s)",
        image.tenant_id,
        image.device_id,
        image.id,
    )
    return found


# --- shown


async def page(connection: db.Connection, wanted: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Images that fit the question, newest capture first."""
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


async def one(connection: db.Connection, media_id: UUID) -> dict[str, Any] | None:
    rows = await _shown(connection, "where id = %(id)s", {"id": media_id})
    return rows[0] if rows else None


async def _shown(
    connection: db.Connection, where: str, args: Mapping[str, Any]
) -> list[dict[str, Any]]:
    columns = ", ".join(["id as media_id", *SHOWN[1:], "object_key", "bucket"])
    async with connection.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(f"select {columns} from media_objects {where}".encode(), args)  # noqa: S608 - our own words
        return await cursor.fetchall()


async def _images(tx: db.Connection, statement: str, args: Sequence[Any]) -> list[Image]:
    async with tx.cursor(row_factory=class_row(Image)) as cursor:
        await cursor.execute(statement.encode(), args)
        return await cursor.fetchall()
