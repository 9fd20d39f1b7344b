"""The SQL of images in the cloud: announced, requested, stored; shown with the person's rights."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from farmiq.cloud import sink
from farmiq.messages.bus import BusEvent
from farmiq.messages.media import ImageToUpload, MediaStored
from farmiq.plumbing import db

SHOWN = (
    "media_id", "farm_id", "barn_id", "device_id", "station_id", "session_id", "mime_type",
    "size_bytes", "sha256", "captured_at", "told_at", "stored_at",
)  # fmt: skip

_store_events = sink.insert_into("media_events")
_payload = msgspec.json.Decoder(MediaStored)


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of an image, and whether its bytes are here."""

    size_bytes: int | None
    sha256: str | None
    mime_type: str | None
    object_key: str | None
    stored_at: datetime | None


async def apply_events(tx: db.Connection, events: Sequence[BusEvent]) -> int:
    """Store the events as they are, and the images that they announce."""
    new = await _store_events(tx, events)
    by_image = {
        (event.tenant_id, (image := _payload.decode(event.payload)).media_id): (event, image)
        for event in events
    }
    # Always in the same order, or two consumers could deadlock.
    for _, (event, image) in sorted(by_image.items(), key=lambda item: [*map(str, item[0])]):
        await _announce(tx, event, image)
    return new


async def _announce(tx: db.Connection, event: BusEvent, image: MediaStored) -> None:
    await tx.execute(
        """
        insert into media_objects as m (tenant_id, media_id, farm_id, barn_id, device_id,
          session_id, mime_type, size_bytes, sha256, captured_at, told_at)
        values (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, clock_timestamp())
        on conflict on constraint media_objects_pkey do update set
          session_id = coalesce(excluded.session_id, m.session_id),
          told_at = coalesce(m.told_at, excluded.told_at)
        """,
        (
            event.tenant_id, image.media_id, event.farm_id, event.barn_id, event.device_id or None,
            event.session_id or None, image.mime_type, image.size_bytes,
            image.sha256.lower() if image.sha256 else None, image.captured_at or event.occurred_at,
        ),
    )  # fmt: skip
    await _confirm_own_camera(tx, event.tenant_id, image)


async def _confirm_own_camera(tx: db.Connection, tenant_id: str, image: MediaStored) -> None:
    """An image of a battery camera is here already: the gateway has read it back (C-64, C-87).

    The rows of the company's own cameras decide that, never the event.
    """
    await tx.execute(
        """
        update media_objects m set object_key = i.image_url, stored_at = i.received_at
        from companies c
        join device_images i on i.company_id = c.company_id
        join petri_observations o on o.image_id = i.image_id
        where m.tenant_id = %s and m.media_id = %s and m.stored_at is null
          and c.tenant_id = m.tenant_id and i.image_id = m.media_id and i.status = 'complete'
          and i.image_url = %s and o.sha256 = m.sha256 and o.size_bytes = m.size_bytes
        """,
        (tenant_id, image.media_id, image.path),
    )


async def is_company(tx: db.Connection, tenant_id: str) -> bool:
    exists: bool = await db.fetch_value(
        tx, "select exists (select from companies where tenant_id = %s)", tenant_id
    )
    return exists


async def request(tx: db.Connection, image: ImageToUpload, *, object_key: str) -> Known:
    """Store that an edge wants to upload this image; returns the row as it was before."""
    key = image.tenant_id, image.media_id
    known = await db.fetch_as(
        tx,
        Known,
        "select size_bytes, sha256, mime_type, object_key, stored_at from media_objects "
        "where tenant_id = %s and media_id = %s for update",
        key,
    )
    await tx.execute(
        """
        insert into media_objects as m (tenant_id, media_id, farm_id, barn_id, device_id,
          station_id, session_id, mime_type, size_bytes, sha256, captured_at, object_key, asked_at)
        values (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, clock_timestamp())
        on conflict on constraint media_objects_pkey do update set
          station_id = coalesce(m.station_id, excluded.station_id),
          session_id = coalesce(m.session_id, excluded.session_id),
          sha256 = coalesce(m.sha256, excluded.sha256),
          captured_at = excluded.captured_at,
          object_key = coalesce(m.object_key, excluded.object_key),
          asked_at = excluded.asked_at
        where m.stored_at is null
        """,
        (
            *key, image.farm_id, image.barn_id, image.device_id, image.station_id or None,
            image.session_id or None, image.content_type, image.content_length,
            image.sha256.lower() if image.sha256 else None, image.captured_at, object_key,
        ),
    )  # fmt: skip
    return known[0] if known else Known(None, None, None, None, None)


async def confirm(tx: db.Connection, tenant_id: str, media_id: UUID, *, etag: str) -> None:
    """Mark it as stored: its bytes are here and verified."""
    await tx.execute(
        "update media_objects set stored_at = clock_timestamp(), etag = %s "
        "where tenant_id = %s and media_id = %s and stored_at is null",
        (etag, tenant_id, media_id),
    )
    # Open pages that say "image not here yet" fetch again at the commit.
    await tx.execute(
        "select pg_notify('weighvision_changed', company_id::text) from companies "
        "where tenant_id = %s",
        (tenant_id,),
    )


async def page(connection: db.Connection, wanted: Mapping[str, Any]) -> list[dict[str, Any]]:
    """With the person's rights: images that fit the filter, newest capture first."""
    return await _shown(
        connection,
        """
        where (%(session)s::uuid is null or session_id = %(session)s)
          and (%(device)s::text is null or device_id = %(device)s)
          and (%(begin)s::timestamptz is null or captured_at >= %(begin)s)
          and (%(end)s::timestamptz is null or captured_at < %(end)s)
          and (%(after_at)s::timestamptz is null
            or (captured_at, media_id) < (%(after_at)s, %(after_id)s::uuid))
        order by captured_at desc, media_id desc limit %(limit)s
        """,
        wanted,
    )


async def find(connection: db.Connection, media_id: UUID) -> dict[str, Any] | None:
    """With the person's rights: another company's image does not exist."""
    rows = await _shown(connection, "where media_id = %(id)s", {"id": media_id})
    return rows[0] if rows else None


async def timezone(connection: db.Connection) -> str:
    """Of the company that the person looks at; its days begin at midnight there."""
    name: str | None = await db.fetch_value(connection, "select timezone from companies")
    return name or "UTC"


async def _shown(
    connection: db.Connection, where: str, args: Mapping[str, Any]
) -> list[dict[str, Any]]:
    columns = ", ".join([*SHOWN, "object_key"])
    return await db.fetch_dicts(connection, f"select {columns} from media_objects {where}", args)  # noqa: S608 - our own words
