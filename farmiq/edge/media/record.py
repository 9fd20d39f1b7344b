"""Images that devices announce, recorded inside the door's one transaction (C-81).

The store itself is never asked here: the media store's loop looks at once whether the bytes are
there. Who presigned nothing, or announces another's image, loses nothing and harms nobody.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from farmiq.edge import alerts
from farmiq.edge.alerts import Alert
from farmiq.edge.arrival import Arrival
from farmiq.messages import media
from farmiq.messages.bus import BusEvent
from farmiq.messages.media import ImageType
from farmiq.messages.topics import SessionTopic
from farmiq.messages.weighvision import ImageCaptured
from farmiq.plumbing import db


async def announced(tx: db.Connection, arrivals: Sequence[Arrival]) -> list[BusEvent]:
    """Note that these images should be here; media.stored follows when they are."""
    # In one order whoever calls: two transactions must not wait for each other's rows.
    for one in sorted(arrivals, key=lambda each: str(each.payload.media_id)):
        await _announce(tx, one)
    return []


async def _announce(tx: db.Connection, one: Arrival) -> None:
    said: ImageCaptured = one.payload
    place, station_id = one.place, _station(one)
    kind: ImageType = said.content_type or "image/jpeg"
    key = media.object_key(
        tenant_id=place.tenant_id,
        farm_id=place.farm_id,
        barn_id=place.barn_id,
        device_id=place.device_id,
        media_id=said.media_id,
        captured_at=one.event.occurred_at,
        content_type=kind,
    )
    rows = await db.fetch_all(
        tx,
        """
        insert into media_objects as m (id, tenant_id, farm_id, barn_id, device_id, station_id,
          session_id, trace_id, bucket, object_key, mime_type, captured_at, upload_status,
          announced_type, announced_size_bytes, announced_sha256, announced_at, created_at,
          check_at)
        values (%s, %s, %s, %s, %s, %s, %s, %s, '', %s, %s, %s, 'missing', %s, %s, %s,
          fn_now(), fn_now(), fn_now())
        on conflict on constraint media_objects_pkey do update set
          announced_at = coalesce(m.announced_at, excluded.announced_at),
          announced_type = excluded.announced_type,
          announced_size_bytes = excluded.announced_size_bytes,
          announced_sha256 = excluded.announced_sha256,
          session_id = coalesce(m.session_id, excluded.session_id),
          station_id = coalesce(m.station_id, excluded.station_id),
          check_at = case when m.upload_status = 'stored' then m.check_at
            else excluded.check_at end,
          check_count = case when m.upload_status = 'stored' then m.check_count else 0 end
        where m.tenant_id = excluded.tenant_id and m.device_id = excluded.device_id
        returning m.upload_status, m.session_id, m.mime_type, m.size_bytes, m.sha256
        """,
        said.media_id,
        place.tenant_id,
        place.farm_id,
        place.barn_id,
        place.device_id,
        station_id,
        one.event.session_id or None,
        one.event.trace_id,
        key,
        kind,
        one.event.occurred_at,
        said.content_type or None,
        _or_none(said.size_bytes),
        said.sha256.lower() if said.sha256 else None,
    )
    for concern in _concerns(one, rows):
        await alerts.raise_(tx, concern)


def _concerns(one: Arrival, rows: Sequence[tuple[Any, ...]]) -> list[Alert]:
    said: ImageCaptured = one.payload
    subject = f"{one.place.tenant_id}/{one.place.device_id}"
    if not rows:
        told = f"it announced image {said.media_id}, which is another device's; nothing was changed"
        return [Alert("media.not_its_own", subject, "security", told)]
    status, session_id, *kept = rows[0]
    found = []
    spoken = one.event.session_id or None
    if spoken is not None and session_id != spoken:
        told = f"image {said.media_id} was asked for session {session_id}, announced for {spoken}"
        found.append(Alert("media.session_differs", subject, "warning", told))
    if status == "stored" and _contradicts(said, kept):
        told = f"image {said.media_id} was stored before it was announced with another content"
        found.append(Alert("media.announcement_differs", subject, "warning", told))
    return found


def _contradicts(said: ImageCaptured, kept: Sequence[Any]) -> bool:
    spoken = (said.content_type, said.size_bytes, said.sha256.lower() if said.sha256 else None)
    pairs = zip(spoken, kept, strict=True)
    return any(now not in (None, msgspec.UNSET, before) for now, before in pairs)


def _station(one: Arrival) -> str | None:
    return one.where.station_id if isinstance(one.where, SessionTopic) else None


def _or_none(value: int | msgspec.UnsetType | None) -> int | None:
    return None if value is msgspec.UNSET else value
