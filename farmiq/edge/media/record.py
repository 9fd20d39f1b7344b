"""Record images that devices announce, inside ingress's one transaction (C-81).

The store is not asked here: the checker looks at once whether the bytes are there. An image that
was never presigned, or that belongs to another device, changes nothing of others.
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
    # Always in one order: two transactions must not wait for each other's rows.
    for arrival in sorted(arrivals, key=lambda arrival: str(arrival.payload.media_id)):
        await _announce(tx, arrival)
    return []


async def _announce(tx: db.Connection, arrival: Arrival) -> None:
    image: ImageCaptured = arrival.payload
    place, event = arrival.place, arrival.event
    mime_type: ImageType = image.content_type or "image/jpeg"
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
        image.media_id,
        place.tenant_id,
        place.farm_id,
        place.barn_id,
        place.device_id,
        arrival.where.station_id if isinstance(arrival.where, SessionTopic) else None,
        event.session_id or None,
        event.trace_id,
        media.object_key(
            tenant_id=place.tenant_id,
            farm_id=place.farm_id,
            barn_id=place.barn_id,
            device_id=place.device_id,
            media_id=image.media_id,
            captured_at=event.occurred_at,
            content_type=mime_type,
        ),
        mime_type,
        event.occurred_at,
        *_announced_content(image),
    )
    for alert in _alerts(arrival, rows):
        await alerts.raise_(tx, alert)


def _alerts(arrival: Arrival, rows: Sequence[tuple[Any, ...]]) -> list[Alert]:
    image: ImageCaptured = arrival.payload
    subject = f"{arrival.place.tenant_id}/{arrival.place.device_id}"
    if not rows:
        text = f"it announced image {image.media_id}, which is another device's; nothing changed"
        return [Alert("media.not_its_own", subject, "security", text)]
    status, session_id, *stored_content = rows[0]
    raised = []
    announced_for = arrival.event.session_id or None
    if announced_for is not None and session_id != announced_for:
        text = f"image {image.media_id} was asked for session {session_id}, "
        text += f"announced for {announced_for}"
        raised.append(Alert("media.session_differs", subject, "warning", text))
    pairs = zip(_announced_content(image), stored_content, strict=True)
    if status == "stored" and any(now not in (None, before) for now, before in pairs):
        text = f"image {image.media_id} was stored before it was announced with another content"
        raised.append(Alert("media.announcement_differs", subject, "warning", text))
    return raised


def _announced_content(image: ImageCaptured) -> tuple[str | None, int | None, str | None]:
    """Type, size and sha256, without the difference between absent and null."""
    size_bytes = None if image.size_bytes is msgspec.UNSET else image.size_bytes
    return image.content_type or None, size_bytes, image.sha256.lower() if image.sha256 else None
